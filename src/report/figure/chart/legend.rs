//! What is below the charts of a figure: samples of lines with their names, and captions.

use super::{Chart, DASH, LINE_WIDTH, MARGIN, MARKER_RADIUS, SMALL};
use crate::report::escape;
use crate::report::figure::{Across, BLACK, Color, GREY, Pen, Scene, SeriesStyle, SeriesStyles, Spot, font};

/// Width of a line in the legend, in points.
const SAMPLE: f64 = 16.0;

/// What a line shows.
#[derive(Clone, Copy)]
pub(crate) enum Stroke {
    Policy(SeriesStyle),
    Full,
    Guess,
    Printed,
    Limit,
}

impl Stroke {
    /// Class of the line in the style sheet, and its pen in files.
    pub(crate) fn look(self) -> (&'static str, Pen) {
        match self {
            Self::Policy(style) => ("stroke", Pen::new(style.color(), LINE_WIDTH)),
            Self::Full => ("reference full", Pen::new(BLACK, LINE_WIDTH).dashed(DASH)),
            Self::Guess => ("reference guess", Pen::new(GREY, LINE_WIDTH).dashed(DASH)),
            Self::Printed => ("printed", printed_pen(GREY)),
            Self::Limit => ("reference limit", printed_pen(GREY)),
        }
    }
}

/// What numbers of others are drawn with.
pub(super) fn printed_pen(color: Color) -> Pen {
    Pen::new(color, 0.7).dashed((1.8, 1.4))
}

/// The legend of charts that share a figure: names, and what their lines look like.
pub(crate) fn legend(charts: &[Chart], styles: &SeriesStyles) -> Vec<(String, Stroke)> {
    let full = charts.iter().any(|chart| chart.full.is_some()).then(|| ("full".to_owned(), Stroke::Full));
    let is_drawn = |policy: &str| {
        let mut lines = charts.iter().flat_map(|chart| &chart.lines);
        lines.any(|line| line.policy == policy && !line.spots.is_empty())
    };
    let policies = styles.iter().filter(|(policy, _)| is_drawn(policy));
    let policies = policies.map(|(policy, style)| (escape::plain(policy), Stroke::Policy(style)));
    let is_recall = charts.iter().all(|chart| chart.quantity.id == "recall");
    let guess = charts.iter().any(|chart| chart.guess.is_some());
    let guess = guess.then(|| (if is_recall { "chance" } else { "trivial answer" }.to_owned(), Stroke::Guess));
    let printed = charts.iter().find_map(|chart| chart.printed.as_ref());
    let printed = printed.map(|printed| (printed.source.clone(), Stroke::Printed));
    full.into_iter().chain(policies).chain(guess).chain(printed).collect()
}

/// One marker, as in a line and in the legend.
pub(crate) fn draw_marker(scene: &mut Scene, at: Spot, style: SeriesStyle) {
    let (filled, outlines) = style.marker.strokes(at, MARKER_RADIUS);
    for points in outlines {
        if filled {
            scene.fill("mark", &points, style.color(), 1.0);
        } else {
            scene.stroke("mark open", &points, Pen::new(style.color(), LINE_WIDTH));
        }
    }
}

/// A line as the legend shows it.
fn draw_sample(scene: &mut Scene, (x, y): Spot, stroke: Stroke) {
    let (ends, middle) = ([(x, y), (x + SAMPLE, y)], (x + SAMPLE / 2.0, y));
    let (class, pen) = stroke.look();
    match stroke {
        Stroke::Policy(style) => scene.group(&format!("class=\"{}\"", style.class()), |scene| {
            scene.stroke(class, &ends, pen);
            draw_marker(scene, middle, style);
        }),
        _ => scene.stroke(class, &ends, pen),
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

/// Ends a figure of charts: the names of their lines, in as many columns as fit, then the caption.
pub(crate) fn finish(scene: &mut Scene, top: f64, legend: &[(String, Stroke)], caption: &str) {
    const ROW: f64 = 9.5;
    let left = MARGIN + 4.0;
    let room = scene.width - 2.0 * left;
    let widest = legend.iter().map(|(name, _)| font::width(name, SMALL)).fold(0.0, f64::max);
    let column = (SAMPLE + 3.0 + widest + 8.0).min(room);
    let columns = ((room / column) as usize).clamp(1, legend.len().max(1));
    let rows = legend.len().div_ceil(columns);
    for (i, (name, stroke)) in legend.iter().enumerate() {
        // Down first, so that a family of policies stays together.
        let (x, y) = (left + (i / rows) as f64 * room / columns as f64, top + (i % rows) as f64 * ROW + 4.0);
        draw_sample(scene, (x, y), *stroke);
        let name = font::fit(name, SMALL, column - SAMPLE - 3.0);
        scene.text((x + SAMPLE + 3.0, y), &name, SMALL, BLACK, Across::Left);
    }
    let mut bottom = top + rows as f64 * ROW + 1.0;
    if !caption.is_empty() {
        bottom = draw_caption(scene, (left, bottom + 3.5), scene.width - MARGIN - left, caption) + 0.5;
    }
    scene.height = bottom + MARGIN;
}
