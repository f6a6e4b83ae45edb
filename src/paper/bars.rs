//! The paper's Figure 6: how often a judge preferred a bounded cache's story, neither, or the full cache's, as stacked
//! bars over the cache size.
//!
//! It is handed shares and draws them; where they come from it does not know.

use plotters::style::RGBColor;

use crate::report::chart::{self, LABEL, SMALL, TITLE};
use crate::report::curve::Page;
use crate::report::font;
use crate::report::ink::{self, BLACK, GREY, PALE, WHITE};
use crate::report::scene::{Across, Scene, Shape, Spot};

/// Bars of one setting and policy.
pub(super) struct Stack {
    pub(super) title: String,
    pub(super) policy: String,
    pub(super) bars: Vec<Bar>,
}

/// Shares of wins, ties and losses in percent, from the bottom up.
pub(super) struct Bar {
    pub(super) size: String,
    pub(super) measured: [f64; 3],
    /// What the paper prints, if it is laid over.
    pub(super) printed: Option<[f64; 3]>,
}

const TICK: f64 = 6.0;
const MARGIN: f64 = 2.0;
const TITLE_ROW: f64 = 13.0;
const BELOW: f64 = 22.0;
const DASH: (f64, f64) = (1.8, 1.4);
const TIE: RGBColor = RGBColor(205, 205, 205);
const LOSS: RGBColor = RGBColor(70, 70, 70);

/// The figure; `printed` names who measured the paper's numbers.
pub(super) fn scene(title: &str, stacks: &[Stack], page: &Page, printed: &str, caption: &str) -> Scene {
    let mut scene = Scene { title: title.to_owned(), width: page.width, height: 0.0, shapes: Vec::new() };
    let win = ink::looks(&["tova"]).first().map_or(BLACK, |look| look.color);
    let colors = [win, TIE, LOSS];
    let wide = page.width / page.abreast as f64;
    let high = TITLE_ROW + page.plot + BELOW;
    for (i, stack) in stacks.iter().enumerate() {
        let corner = ((i % page.abreast) as f64 * wide + MARGIN, (i / page.abreast) as f64 * high + MARGIN);
        draw(&mut scene, stack, corner, (wide - 2.0 * MARGIN, page.plot), colors);
    }
    let mut y = stacks.len().div_ceil(page.abreast) as f64 * high + MARGIN + 4.0;
    let mut x = MARGIN + 4.0;
    let winner = match stacks.first() {
        Some(first) if stacks.iter().all(|stack| stack.policy == first.policy) => first.policy.as_str(),
        _ => "policy",
    };
    let mut entries = vec![(format!("{winner} preferred"), Some(win)), ("equal".to_owned(), Some(TIE))];
    entries.push(("full preferred".to_owned(), Some(LOSS)));
    if stacks.iter().flat_map(|stack| &stack.bars).any(|bar| bar.printed.is_some()) {
        entries.push((format!("paper: {printed}"), None));
    }
    for (name, color) in entries {
        let width = 13.0 + font::width(&name, SMALL);
        if x + width > page.width - MARGIN && x > MARGIN + 4.0 {
            (x, y) = (MARGIN + 4.0, y + 9.5);
        }
        let frame = rectangle((x, y - 3.0), (x + 9.0, y + 3.0));
        match color {
            Some(color) => scene.shapes.push(Shape::Fill { points: frame, color, opacity: 1.0 }),
            None => outline(&mut scene, frame),
        }
        scene.text((x + 12.0, y), &name, SMALL, BLACK, Across::Left);
        x += width + 8.0;
    }
    let room = page.width - 2.0 * MARGIN - 4.0;
    scene.height = chart::draw_long_caption(&mut scene, (MARGIN + 4.0, y + 9.5), room, caption) + MARGIN;
    scene
}

fn draw(scene: &mut Scene, stack: &Stack, corner: Spot, (width, plot): (f64, f64), colors: [RGBColor; 3]) {
    let (left, right) = (corner.0 + LABEL + 4.0 + font::width("100", TICK) + 5.0, corner.0 + width - 4.0);
    let (top, bottom) = (corner.1 + TITLE_ROW, corner.1 + TITLE_ROW + plot);
    let y = |share: f64| bottom - plot * share / 100.0;
    let middle = (left + right) / 2.0;
    let title = font::fit(&stack.title, TITLE, right - corner.0);
    let half = font::width(&title, TITLE) / 2.0;
    scene.text((middle.min(right - half), corner.1 + 5.5), &title, TITLE, BLACK, Across::Centre);
    scene.shapes.push(Shape::Text {
        at: (corner.0 + LABEL / 2.0 + 1.0, (top + bottom) / 2.0),
        text: "share of pairs (%)".to_owned(),
        size: LABEL,
        color: BLACK,
        across: Across::Centre,
        upright: true,
    });
    for tick in [0.0, 25.0, 50.0, 75.0, 100.0] {
        scene.stroke(vec![(left, y(tick)), (right, y(tick))], PALE, 0.4, None);
        scene.text((left - 3.5, y(tick)), &format!("{tick:.0}"), TICK, BLACK, Across::Right);
    }
    let slot = (right - left) / stack.bars.len().max(1) as f64;
    for (i, bar) in stack.bars.iter().enumerate() {
        let centre = left + (i as f64 + 0.5) * slot;
        let thick = (0.34 * slot).min(26.0);
        let from = if bar.printed.is_some() { centre - thick - 1.0 } else { centre - thick / 2.0 };
        for (segment, color) in segments(bar.measured).into_iter().zip(colors) {
            let points = rectangle((from, y(segment.1)), (from + thick, y(segment.0)));
            scene.shapes.push(Shape::Fill { points, color, opacity: 1.0 });
            let ink = if color == TIE { BLACK } else { WHITE };
            label(scene, (from + thick / 2.0, y((segment.0 + segment.1) / 2.0)), segment, plot, ink);
        }
        for segment in bar.printed.map(segments).into_iter().flatten() {
            let from = centre + 1.0;
            outline(scene, rectangle((from, y(segment.1)), (from + thick, y(segment.0))));
            label(scene, (from + thick / 2.0, y((segment.0 + segment.1) / 2.0)), segment, plot, GREY);
        }
        scene.text((centre, bottom + 6.5), &bar.size, TICK, BLACK, Across::Centre);
    }
    scene.stroke(vec![(left, top), (left, bottom), (right, bottom)], BLACK, 0.6, None);
    scene.text((middle, bottom + 15.0), "cache size (tokens)", LABEL, BLACK, Across::Centre);
}

/// Where each share begins and ends.
fn segments([win, tie, loss]: [f64; 3]) -> [(f64, f64); 3] {
    [(0.0, win), (win, win + tie), (win + tie, win + tie + loss)]
}

/// The share in its segment, where it is high enough.
fn label(scene: &mut Scene, at: Spot, (from, to): (f64, f64), plot: f64, color: RGBColor) {
    if (to - from) / 100.0 * plot >= TICK + 1.0 {
        scene.text(at, &format!("{:.0}", to - from), TICK, color, Across::Centre);
    }
}

fn rectangle((left, top): Spot, (right, bottom): Spot) -> Vec<Spot> {
    vec![(left, top), (right, top), (right, bottom), (left, bottom)]
}

fn outline(scene: &mut Scene, mut points: Vec<Spot>) {
    points.extend(points.first().copied());
    scene.stroke(points, GREY, 0.7, Some(DASH));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_stacked_and_named() {
        assert_eq!(segments([10.0, 71.0, 19.0]), [(0.0, 10.0), (10.0, 81.0), (81.0, 100.0)]);
        let bar = |printed| Bar { size: "512".into(), measured: [10.0, 88.0, 2.0], printed };
        let stack = |printed| Stack { title: "m".into(), policy: "tova".into(), bars: vec![bar(printed)] };
        let page = Page { width: 200.0, abreast: 1, plot: 100.0 };
        let texts = |scene: &Scene| -> Vec<String> {
            let text =
                |shape: &Shape| if let Shape::Text { text, .. } = shape { Some(text.clone()) } else { None };
            scene.shapes.iter().filter_map(text).collect()
        };
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
