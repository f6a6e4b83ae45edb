//! The paper's Figure 6: how often a judge preferred the story of a bounded cache, neither, or the full cache's, as
//! stacked bars over the cache size.

use crate::report::Size;
use crate::report::figure::{
    Across, BLACK, Color, GREY, Horizontal, LABEL, MARGIN, PALE, Page, Pen, Scene, SeriesStyles, Spot, TITLE, TOP,
    WHITE, chart, font,
};

/// Bars of one setting and policy.
pub(super) struct Stack {
    pub(super) title: String,
    pub(super) policy: String,
    pub(super) bars: Vec<Bar>,
}

/// Shares of wins, ties and losses in percent, from the bottom up.
pub(super) struct Bar {
    pub(super) size: Size,
    pub(super) measured: [f64; 3],
    /// What the paper prints, if it is drawn beside.
    pub(super) printed: Option<[f64; 3]>,
}

const TICK: f64 = 6.0;
/// Width of a colour in the legend.
const SAMPLE: f64 = 9.0;
const TITLE_ROW: f64 = 13.0;
const BELOW: f64 = 22.0;
const TIE: Color = Color(205, 205, 205);
const LOSS: Color = Color(70, 70, 70);

/// The figure; `printed` names who measured the paper's numbers.
pub(super) fn scene(title: &str, stacks: &[Stack], page: &Page, printed: &str, caption: &str) -> Scene {
    let mut scene = Scene::new(title, page.width);
    let win = SeriesStyles::of_names(&["tova"]).get("tova").map_or(BLACK, |style| style.color());
    let colors = [win, TIE, LOSS];
    let wide = page.width / page.abreast as f64;
    let is_untitled = page.plain.title && stacks.len() == 1;
    let title_row = if is_untitled { TOP } else { TITLE_ROW };
    let high = title_row + page.plot + BELOW;
    for (i, stack) in stacks.iter().enumerate() {
        let corner = ((i % page.abreast) as f64 * wide + MARGIN, (i / page.abreast) as f64 * high + MARGIN);
        let size = (wide - 2.0 * MARGIN, page.plot);
        if !is_untitled {
            draw_title(&mut scene, stack, corner, size.0);
        }
        draw(&mut scene, stack, (corner.0, corner.1 + title_row), size, colors);
    }
    let bottom = stacks.len().div_ceil(page.abreast) as f64 * high + MARGIN;
    let winner = match stacks.first() {
        Some(first) if stacks.iter().all(|stack| stack.policy == first.policy) => first.policy.as_str(),
        _ => "policy",
    };
    let mut names = vec![format!("{winner} preferred"), "equal".to_owned(), "full preferred".to_owned()];
    if stacks.iter().flat_map(|stack| &stack.bars).any(|bar| bar.printed.is_some()) {
        names.push(format!("paper: {printed}"));
    }
    let sample = |scene: &mut Scene, (x, y): Spot, i: usize| {
        let frame = rectangle((x, y - 3.0), (x + SAMPLE, y + 3.0));
        match colors.get(i) {
            Some(color) => scene.fill("share", &frame, *color, 1.0),
            None => outline(scene, frame),
        }
    };
    chart::finish(&mut scene, bottom, &names, (SAMPLE, sample), if page.plain.footnote { "" } else { caption });
    scene
}

/// Where the bars begin and end across, of a stack at `corner`.
fn across(corner: Spot, width: f64) -> (f64, f64) {
    (corner.0 + LABEL + 4.0 + font::width("100", TICK) + 5.0, corner.0 + width - 4.0)
}

fn draw_title(scene: &mut Scene, stack: &Stack, corner: Spot, width: f64) {
    let (left, right) = across(corner, width);
    let title = font::fit(&stack.title, TITLE, right - corner.0);
    let middle = ((left + right) / 2.0).min(right - font::width(&title, TITLE) / 2.0);
    scene.text((middle, corner.1 + 5.5), &title, TITLE, BLACK, Across::Centre);
}

fn draw(scene: &mut Scene, stack: &Stack, corner: Spot, (width, plot): (f64, f64), colors: [Color; 3]) {
    let (left, right) = across(corner, width);
    let (top, bottom) = (corner.1, corner.1 + plot);
    let y = |share: f64| bottom - plot * share / 100.0;
    let middle = (left + right) / 2.0;
    scene.upright_text((corner.0 + LABEL / 2.0 + 1.0, (top + bottom) / 2.0), "share of pairs (%)", LABEL);
    for tick in [0.0, 25.0, 50.0, 75.0, 100.0] {
        scene.stroke("grid", &[(left, y(tick)), (right, y(tick))], Pen::new(PALE, 0.4));
        scene.text((left - 3.5, y(tick)), &format!("{tick:.0}"), TICK, BLACK, Across::Right);
    }
    let slot = (right - left) / stack.bars.len().max(1) as f64;
    for (i, bar) in stack.bars.iter().enumerate() {
        let centre = left + (i as f64 + 0.5) * slot;
        let thick = (0.34 * slot).min(26.0);
        let from = if bar.printed.is_some() { centre - thick - 1.0 } else { centre - thick / 2.0 };
        for (segment, color) in segments(bar.measured).into_iter().zip(colors) {
            let points = rectangle((from, y(segment.1)), (from + thick, y(segment.0)));
            scene.fill("share", &points, color, 1.0);
            let on_it = if color == TIE { BLACK } else { WHITE };
            label(scene, (from + thick / 2.0, y((segment.0 + segment.1) / 2.0)), segment, plot, on_it);
        }
        for segment in bar.printed.map(segments).into_iter().flatten() {
            let from = centre + 1.0;
            outline(scene, rectangle((from, y(segment.1)), (from + thick, y(segment.0))));
            label(scene, (from + thick / 2.0, y((segment.0 + segment.1) / 2.0)), segment, plot, GREY);
        }
        scene.text((centre, bottom + 6.5), &bar.size.to_string(), TICK, BLACK, Across::Centre);
    }
    scene.stroke("axis", &[(left, top), (left, bottom), (right, bottom)], Pen::new(BLACK, 0.6));
    let sizes: Vec<Size> = stack.bars.iter().map(|bar| bar.size).collect();
    scene.text((middle, bottom + 15.0), Horizontal::of_sizes(&sizes).name(), LABEL, BLACK, Across::Centre);
}

/// From where to where each share is drawn.
fn segments([win, tie, loss]: [f64; 3]) -> [(f64, f64); 3] {
    [(0.0, win), (win, win + tie), (win + tie, win + tie + loss)]
}

/// The share in its segment, where it is high enough.
fn label(scene: &mut Scene, at: Spot, (from, to): (f64, f64), plot: f64, color: Color) {
    if (to - from) / 100.0 * plot >= TICK + 1.0 {
        scene.text(at, &format!("{:.0}", to - from), TICK, color, Across::Centre);
    }
}

fn rectangle((left, top): Spot, (right, bottom): Spot) -> Vec<Spot> {
    vec![(left, top), (right, top), (right, bottom), (left, bottom)]
}

fn outline(scene: &mut Scene, mut points: Vec<Spot>) {
    points.extend(points.first().copied());
    scene.stroke("printed", &points, chart::printed_pen());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Plain, figure::scene};

    #[test]
    fn shares_are_stacked_and_named() {
        assert_eq!(segments([10.0, 71.0, 19.0]), [(0.0, 10.0), (10.0, 81.0), (81.0, 100.0)]);
        let bar = |printed| Bar { size: 512.into(), measured: [10.0, 88.0, 2.0], printed };
        let stack = |printed| Stack { title: "m".into(), policy: "tova".into(), bars: vec![bar(printed)] };
        let page = Page { width: 200.0, abreast: 1, plot: 100.0, plain: Plain::default() };
        let texts =
            |scene: &Scene| -> Vec<String> { scene::texts(scene).into_iter().map(|placed| placed.text).collect() };
        let alone = texts(&scene("t", &[stack(None)], &page, "M", ""));
        assert!(
            ["10", "88", "512", "tova preferred"].iter().all(|t| alone.iter().any(|other| other == t)),
            "{alone:?}"
        );
        assert!(!alone.iter().any(|text| text == "2" || text.contains("paper")), "{alone:?}");
        let both = texts(&scene("t", &[stack(Some([6.0, 47.0, 47.0]))], &page, "M", ""));
        assert!(
            both.iter().filter(|text| *text == "47").count() == 2 && both.iter().any(|text| text == "paper: M")
        );
    }
}
