//! What is below the charts of a figure: samples of lines with their names, and captions.

use super::super::scene::{Across, Pen, Scene, Spot};
use super::super::series_style::{BLACK, GREY, Marker, SeriesStyle};
use super::super::{escape, font};
use super::{DASH, LINE_WIDTH, MARGIN, MARKER_RADIUS, SMALL, printed};

/// Width of a line in the legend, in points.
pub(crate) const SAMPLE: f64 = 16.0;

/// How a line looks in the legend.
#[derive(Clone, Copy)]
pub(crate) enum Stroke {
    Policy(SeriesStyle),
    Full,
    Chance,
    Printed,
}

/// One marker, as in a line and in the legend.
pub(crate) fn draw_marker(scene: &mut Scene, at: Spot, style: SeriesStyle) {
    let (filled, outlines) = style.marker.strokes(MARKER_RADIUS);
    for outline in outlines {
        let points: Vec<Spot> = outline.into_iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
        if filled {
            scene.fill("mark", &points, style.color(), 1.0);
        } else {
            scene.stroke("mark open", &points, Pen::new(style.color(), LINE_WIDTH));
        }
    }
}

/// A marker's path around the origin, `radius` being its size, and whether it is filled.
pub(crate) fn marker_path(marker: Marker, radius: f64) -> (String, bool) {
    let (filled, outlines) = marker.strokes(radius);
    let trace = |outline: &Vec<Spot>| -> String {
        let steps = outline.iter().enumerate();
        let steps = steps.map(|(i, (x, y))| format!("{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" }));
        steps.collect::<String>() + if filled { "Z" } else { "" }
    };
    (outlines.iter().map(trace).collect(), filled)
}

/// A line as the legend shows it.
pub(crate) fn draw_sample(scene: &mut Scene, (x, y): Spot, stroke: Stroke) {
    let ends = [(x, y), (x + SAMPLE, y)];
    let dashed = |color| Pen::new(color, LINE_WIDTH).dashed(DASH);
    match stroke {
        Stroke::Policy(style) => scene.group(&format!("class=\"{}\"", style.class()), |scene| {
            scene.stroke("stroke", &ends, Pen::new(style.color(), LINE_WIDTH));
            draw_marker(scene, (x + SAMPLE / 2.0, y), style);
        }),
        Stroke::Full => scene.stroke("reference full", &ends, dashed(BLACK)),
        Stroke::Chance => scene.stroke("reference chance", &ends, dashed(GREY)),
        Stroke::Printed => printed::draw_sample(scene, ends),
    }
}

/// A caption in as many lines as it needs; returns where it ends.
pub(crate) fn draw_caption(scene: &mut Scene, at: Spot, room: f64, text: &str) -> f64 {
    const ROW: f64 = 8.0;
    let mut y = at.1;
    for line in font::wrap(&escape::plain(text), SMALL - 0.5, room) {
        scene.text((at.0, y), &line, SMALL - 0.5, GREY, Across::Left);
        y += ROW;
    }
    y - ROW / 2.0
}

/// Ends a figure: the names below its charts, in as many columns as fit, then the caption. `sample` draws what is left of
/// the i-th name.
pub(crate) fn finish(
    scene: &mut Scene,
    top: f64,
    names: &[String],
    (sample_width, sample): (f64, impl Fn(&mut Scene, Spot, usize)),
    caption: &str,
) {
    const ROW: f64 = 9.5;
    let left = MARGIN + 4.0;
    let room = scene.width - 2.0 * left;
    let widest = names.iter().map(|name| font::width(name, SMALL)).fold(0.0, f64::max);
    let column = (sample_width + 3.0 + widest + 8.0).min(room);
    let columns = ((room / column) as usize).clamp(1, names.len().max(1));
    let rows = names.len().div_ceil(columns);
    for (i, name) in names.iter().enumerate() {
        // Down first, so that a family of policies stays together.
        let (x, y) = (left + (i / rows) as f64 * room / columns as f64, top + (i % rows) as f64 * ROW + 4.0);
        sample(scene, (x, y), i);
        let name = font::fit(name, SMALL, column - sample_width - 3.0);
        scene.text((x + sample_width + 3.0, y), &name, SMALL, BLACK, Across::Left);
    }
    let mut bottom = top + rows as f64 * ROW + 1.0;
    if !caption.is_empty() {
        bottom = draw_caption(scene, (left, bottom + 3.5), scene.width - MARGIN - left, caption) + 0.5;
    }
    scene.height = bottom + MARGIN;
}
