//! One panel as a chart: cache size across, the quantity up, a line with markers per policy, the full cache dashed.
//!
//! It knows the anatomy of a chart and hands shapes to a scene; which charts share a figure, and the legend, are not its
//! business.

use super::axis::{Axis, Scale, Tick, within_reach};
use super::clip;
use super::ink::{self, BLACK, GREY, Look, PALE};
use super::points::{Panel, Point};
use super::scene::{Across, Scene, Shape, Spot};
use super::{escape, font};

/// Font sizes in points, legible in a paper's column.
pub(super) const TITLE: f64 = 8.0;
pub(super) const LABEL: f64 = 7.5;
pub(super) const SMALL: f64 = 6.5;
const TICK: f64 = 6.0;

const MARKER_RADIUS: f64 = 2.0;
const LINE_WIDTH: f64 = 1.1;
pub(super) const DASH: (f64, f64) = (4.0, 2.5);
/// Width that the name of the value axis takes.
pub(super) const LABEL_ROOM: f64 = LABEL + 4.0;
/// Heights of the rows above and below the plot.
const TITLE_ROW: f64 = 13.0;
const TICK_ROW: f64 = 10.0;
const LABEL_ROW: f64 = 10.0;

/// How much of a policy's line a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shown {
    All,
    Part,
    Nothing,
}

pub(super) struct Chart<'a> {
    panel: &'a Panel,
    title: String,
    sizes: Axis,
    values: Axis,
}

/// The rectangle between the axes, in points.
#[derive(Clone, Copy)]
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl<'a> Chart<'a> {
    pub(super) fn new(panel: &'a Panel, title: String, scale: Scale) -> Self {
        let full = panel.full().map(|full| full.estimate.value);
        let series: Vec<Vec<f64>> = panel
            .policies()
            .into_iter()
            .filter(|policy| *policy != "full")
            .map(|policy| line_of(panel, policy).map(|point| point.estimate.value).collect())
            .collect();
        let values = match scale {
            Scale::Linear => within_reach(&series, full),
            Scale::Log => series.into_iter().flatten().chain(full).collect(),
        };
        Self { panel, title, sizes: Axis::of_sizes(&panel.sizes()), values: Axis::of_values(&values, scale) }
    }

    pub(super) fn height(plot: f64) -> f64 {
        TITLE_ROW + plot + TICK_ROW + LABEL_ROW
    }

    /// How much of a policy lies within the value axis; `None` where this panel does not have it.
    pub(super) fn shown(&self, policy: &str) -> Option<Shown> {
        let inside: Vec<bool> =
            line_of(self.panel, policy).map(|point| self.values.contains(point.estimate.value)).collect();
        match inside.iter().filter(|inside| **inside).count() {
            _ if inside.is_empty() => None,
            0 => Some(Shown::Nothing),
            n if n < inside.len() => Some(Shown::Part),
            _ => Some(Shown::All),
        }
    }

    /// Whether any point has a band.
    pub(super) fn has_bands(&self) -> bool {
        self.panel.points.iter().any(|point| !point.is_full() && band_of(self.panel, point).is_some())
    }

    /// Draws into the rectangle at `corner`; `looks` by policy. The label of the value axis is left out where a
    /// neighbour to the left has it.
    pub(super) fn draw(
        &self,
        scene: &mut Scene,
        corner: Spot,
        (width, plot_height): (f64, f64),
        looks: &dyn Fn(&str) -> Option<Look>,
        labelled: bool,
    ) {
        let full = self.panel.full().map(|full| full.estimate.value).filter(|value| self.values.contains(*value));
        let full_label = full.map(|value| self.panel.quantity.show(value)).unwrap_or_default();
        let tick_width = self.values.ticks.iter().map(|tick| font::width(&tick.label, TICK)).fold(0.0, f64::max);
        let plot = Plot {
            left: corner.0 + if labelled { LABEL_ROOM } else { 2.0 } + tick_width + 4.0,
            right: corner.0 + width - font::width(&full_label, SMALL) - 6.0,
            top: corner.1 + TITLE_ROW,
            bottom: corner.1 + TITLE_ROW + plot_height,
        };
        let centre = (plot.left + plot.right) / 2.0;
        let title = font::fit(&escape::plain(&self.title), TITLE, width);
        // Centred on the plot, unless that would run out of the chart.
        let half = font::width(&title, TITLE) / 2.0;
        let title_at = centre.clamp(corner.0 + half, (corner.0 + width - half).max(corner.0 + half));
        scene.text((title_at, corner.1 + TITLE_ROW / 2.0 - 1.0), &title, TITLE, BLACK, Across::Centre);
        if labelled {
            let name = font::fit(&self.panel.quantity.name, LABEL, plot_height + TITLE_ROW);
            let at = (corner.0 + LABEL / 2.0 + 1.0, (plot.top + plot.bottom) / 2.0);
            scene.shapes.push(Shape::Text {
                at,
                text: name,
                size: LABEL,
                color: BLACK,
                across: Across::Centre,
                upright: true,
            });
        }
        self.draw_value_axis(scene, plot);
        for policy in self.panel.policies() {
            self.draw_band(scene, plot, policy, looks);
        }
        if let Some(value) = full {
            let y = self.y(plot, value);
            scene.stroke(vec![(plot.left, y), (plot.right, y)], BLACK, LINE_WIDTH, Some(DASH));
            scene.text((plot.right + 2.5, y), &full_label, SMALL, BLACK, Across::Left);
        }
        let mut policies = self.panel.policies();
        policies.sort_by_key(|policy| ink::is_usual(policy));
        for policy in policies {
            self.draw_line(scene, plot, policy, looks);
        }
        self.draw_size_axis(scene, plot);
        scene.text((centre, plot.bottom + TICK_ROW + 5.0), "cache size (tokens)", LABEL, BLACK, Across::Centre);
    }

    fn x(&self, plot: Plot, size: f64) -> f64 {
        plot.left + (plot.right - plot.left) * self.sizes.share(size)
    }

    fn y(&self, plot: Plot, value: f64) -> f64 {
        plot.bottom - (plot.bottom - plot.top) * self.values.share(value)
    }

    /// Grid lines, so that a value can be read across the plot.
    fn draw_value_axis(&self, scene: &mut Scene, plot: Plot) {
        for tick in &self.values.ticks {
            let y = self.y(plot, tick.value);
            scene.stroke(vec![(plot.left, y), (plot.right, y)], PALE, 0.4, None);
            scene.text((plot.left - 3.5, y), &tick.label, TICK, BLACK, Across::Right);
        }
    }

    /// The frame, and a tick at every size; where labels would touch, every second, third, ... from the right is left,
    /// since the right end names the size that equals the full cache.
    fn draw_size_axis(&self, scene: &mut Scene, plot: Plot) {
        let frame = vec![(plot.left, plot.top), (plot.left, plot.bottom), (plot.right, plot.bottom)];
        scene.stroke(frame, BLACK, 0.6, None);
        // Centre and half width of each label, from the right.
        let place = |tick: &Tick| (self.x(plot, tick.value), font::width(&tick.label, TICK) / 2.0 + 0.4);
        let places: Vec<(f64, f64)> = self.sizes.ticks.iter().rev().map(place).collect();
        let clear = |every: &usize| {
            let kept: Vec<_> = places.iter().step_by(*every).collect();
            kept.windows(2).all(|pair| pair[0].0 - pair[0].1 >= pair[1].0 + pair[1].1)
        };
        let every = (1..=places.len()).find(clear).unwrap_or(1);
        for (i, (tick, (x, _))) in self.sizes.ticks.iter().rev().zip(&places).enumerate() {
            scene.stroke(vec![(*x, plot.bottom), (*x, plot.bottom + 2.0)], BLACK, 0.6, None);
            if i % every == 0 {
                scene.text((*x, plot.bottom + 6.5), &tick.label, TICK, BLACK, Across::Centre);
            }
        }
    }

    fn draw_band(&self, scene: &mut Scene, plot: Plot, policy: &str, looks: &dyn Fn(&str) -> Option<Look>) {
        let (Some(look), true) = (looks(policy), policy != "full") else { return };
        let mut edges: (Vec<Spot>, Vec<Spot>) = (Vec::new(), Vec::new());
        for point in line_of(self.panel, policy) {
            let (Some((low, high)), Some(size)) = (band_of(self.panel, point), point.cache_size) else { continue };
            let x = self.x(plot, f64::from(size));
            // A logarithmic axis has no zero; the band then ends at the frame.
            let y = |value: f64| Some(self.y(plot, value)).filter(|y| y.is_finite()).unwrap_or(plot.bottom);
            edges.0.push((x, y(low)));
            edges.1.push((x, y(high)));
        }
        edges.1.reverse();
        let outline = clip::polygon(&[edges.0, edges.1].concat(), plot.top, plot.bottom);
        if outline.len() > 2 {
            scene.shapes.push(Shape::Fill { points: outline, color: look.color, opacity: 0.18 });
        }
    }

    fn draw_line(&self, scene: &mut Scene, plot: Plot, policy: &str, looks: &dyn Fn(&str) -> Option<Look>) {
        let (Some(look), true) = (looks(policy), policy != "full") else { return };
        let spots: Vec<Spot> = line_of(self.panel, policy)
            .filter_map(|point| {
                Some((self.x(plot, f64::from(point.cache_size?)), self.y(plot, point.estimate.value)))
            })
            .filter(|(_, y)| y.is_finite())
            .collect();
        for piece in clip::line(&spots, plot.top, plot.bottom) {
            scene.stroke(piece, look.color, LINE_WIDTH, None);
        }
        for &spot in spots.iter().filter(|(_, y)| (plot.top..=plot.bottom).contains(y)) {
            draw_marker(scene, spot, look);
        }
    }
}

/// One marker; also the legend's.
pub(super) fn draw_marker(scene: &mut Scene, at: Spot, look: Look) {
    let (filled, outlines) = look.marker.strokes(MARKER_RADIUS);
    for outline in outlines {
        let points: Vec<Spot> = outline.into_iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
        if filled {
            scene.shapes.push(Shape::Fill { points, color: look.color, opacity: 1.0 });
        } else {
            scene.stroke(points, look.color, LINE_WIDTH, None);
        }
    }
}

/// A line as the legend shows it.
pub(super) fn draw_sample(scene: &mut Scene, (x, y): Spot, width: f64, look: Option<Look>) {
    let ends = vec![(x, y), (x + width, y)];
    match look {
        Some(look) => {
            scene.stroke(ends, look.color, LINE_WIDTH, None);
            draw_marker(scene, (x + width / 2.0, y), look);
        }
        None => scene.stroke(ends, BLACK, LINE_WIDTH, Some(DASH)),
    }
}

pub(super) fn draw_caption(scene: &mut Scene, at: Spot, text: &str) {
    scene.text(at, text, SMALL - 0.5, GREY, Across::Left);
}

/// The points of a policy's line, by size.
fn line_of<'a>(panel: &'a Panel, policy: &'a str) -> impl Iterator<Item = &'a Point> {
    panel.points.iter().filter(move |point| point.policy == policy && point.cache_size.is_some())
}

/// The band around a point: what its difference to the full cache may be, since texts differ far more in level than
/// policies do; where there is no such difference, what the value itself may be.
fn band_of(panel: &Panel, point: &Point) -> Option<(f64, f64)> {
    let value = point.estimate.value;
    match point.to_full {
        Some(difference) => {
            let interval = difference.interval?;
            Some((value + interval.low - difference.value, value + interval.high - difference.value))
        }
        None if panel.full().is_some() && panel.quantity.has_difference => None,
        None => point.estimate.interval.map(|interval| (interval.low, interval.high)),
    }
    .filter(|(low, high)| low.is_finite() && high.is_finite())
}
