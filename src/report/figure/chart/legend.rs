//! What is below the charts of a figure: samples of lines with their names, and captions.

use super::{Chart, DASH, LINE_WIDTH, MARGIN, MARKER_RADIUS, Reference, SMALL};
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
            Self::Policy(style) => ("stroke", Pen { dash: style.dash(), ..Pen::new(style.color(), LINE_WIDTH) }),
            Self::Full => ("reference full", Pen::new(BLACK, LINE_WIDTH).dashed(DASH)),
            Self::Guess => ("reference guess", Pen::new(GREY, LINE_WIDTH).dashed(DASH)),
            Self::Printed => ("printed", printed_pen(GREY)),
            Self::Limit => ("reference limit", Pen::new(GREY, 0.8).dashed((0.8, 1.7))),
        }
    }
}

/// What numbers of others are drawn with.
pub(super) fn printed_pen(color: Color) -> Pen {
    Pen::new(color, 0.7).dashed((1.8, 1.4))
}

/// The legend of charts that share a figure: what their lines look like, with names in the order in which lines end, the highest first.
/// What is `named` in the charts themselves is left out, as policies are that have a row.
pub(crate) fn legend(charts: &[Chart], styles: &SeriesStyles, named: bool) -> Vec<(String, Stroke)> {
    let is_in_rows = !charts.is_empty() && charts.iter().all(Chart::is_rows);
    let value = |chart: &Chart| match chart.full {
        Some(Reference::Level(value)) if is_in_rows && charts.len() == 1 => {
            format!(" {}", chart.quantity.show(value))
        }
        _ => String::new(),
    };
    let full = charts.iter().find(|chart| chart.full.is_some() && !named);
    let full = full.map(|chart| (format!("full{}", value(chart)), Stroke::Full));
    let mut policies: Vec<(f64, &str, SeriesStyle)> = Vec::new();
    if !named && !is_in_rows {
        for (policy, style) in styles.iter() {
            let own = charts.iter().filter_map(|chart| chart.end_of(policy));
            let ends: Vec<f64> = own.collect();
            if !ends.is_empty() {
                policies.push((ends.iter().sum::<f64>() / ends.len() as f64, policy, style));
            }
        }
    }
    policies.sort_by(|a, b| b.0.total_cmp(&a.0));
    let policies = policies.into_iter().map(|(_, policy, style)| (escape::plain(policy), Stroke::Policy(style)));
    let guess = charts.iter().find(|chart| chart.guess.is_some() && !named);
    let guess = guess.map(|chart| (chart.guess_name().to_owned(), Stroke::Guess));
    let printed = charts.iter().find_map(|chart| chart.printed.as_ref());
    let printed = printed.map(|printed| (printed.source.clone(), Stroke::Printed));
    full.into_iter().chain(policies).chain(guess).chain(printed).collect()
}

impl Chart {
    pub(super) fn guess_name(&self) -> &'static str {
        if self.quantity.id == "recall" { "chance" } else { "trivial answer" }
    }

    /// Where a policy's line ends, as a share of the value axis.
    fn end_of(&self, policy: &str) -> Option<f64> {
        let spots = self.lines.iter().filter(|line| line.policy == policy).flat_map(|line| &line.spots);
        let mut shares = spots.map(|spot| self.values.share(spot.point.estimate.value));
        // What is beyond the axis is drawn at its border.
        shares.rfind(|share| !share.is_nan()).map(|share| share.clamp(-0.1, 1.1))
    }
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
