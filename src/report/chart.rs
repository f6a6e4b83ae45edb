//! A chart: something that doubles across, a quantity up, a line with markers per policy, the full cache dashed.
//!
//! It knows the anatomy of a chart and hands shapes to a scene; where its lines come from, which charts share a figure,
//! and the legend, are not its business.

mod printed;

use plotters::style::RGBColor;

use super::axis::{Axis, Scale, Tick, within_reach};
use super::clip;
use super::ink::{self, BLACK, GREY, Look, PALE};
use super::points::{Panel, Point};
use super::scene::{Across, Scene, Shape, Spot};
use super::{escape, font};
use crate::metric::Metric;
pub(crate) use printed::Printed;

/// Font sizes in points, legible in a paper's column.
pub(crate) const TITLE: f64 = 8.0;
pub(crate) const LABEL: f64 = 7.5;
pub(crate) const SMALL: f64 = 6.5;
const TICK: f64 = 6.0;

const MARKER_RADIUS: f64 = 2.0;
const LINE_WIDTH: f64 = 1.1;
pub(crate) const DASH: (f64, f64) = (4.0, 2.5);
/// Width that the name of the value axis takes.
pub(crate) const LABEL_ROOM: f64 = LABEL + 4.0;
/// Heights of the rows above and below the plot.
const TITLE_ROW: f64 = 13.0;
const TICK_ROW: f64 = 10.0;
const LABEL_ROW: f64 = 10.0;

/// How much of a policy's line a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shown {
    All,
    Part,
    Nothing,
}

pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) quantity: Metric,
    pub(crate) across_name: &'static str,
    pub(crate) across: Axis,
    pub(crate) values: Axis,
    /// In the order of the policies.
    pub(crate) lines: Vec<Line>,
    pub(crate) full: Option<Reference>,
    /// What a guess would reach.
    pub(crate) chance: Option<Reference>,
    /// Whether the bands are of the difference to the full cache.
    pub(crate) paired: bool,
    scale: Scale,
    /// What others measured, for comparison.
    printed: Option<Printed>,
}

/// A policy's line.
pub(crate) struct Line {
    pub(crate) policy: String,
    pub(crate) spots: Vec<Measurement>,
}

pub(crate) struct Measurement {
    pub(crate) across: f64,
    pub(crate) value: f64,
    pub(crate) band: Option<(f64, f64)>,
    /// What stands there, for formats in which a reader can ask.
    pub(crate) point: Point,
}

/// What lines are held against.
pub(crate) enum Reference {
    /// The same all across.
    Level(f64),
    /// (across, value)
    Curve(Vec<Spot>),
}

/// How a line looks in the legend.
#[derive(Clone, Copy)]
pub(crate) enum Stroke {
    Policy(Look),
    Full,
    Chance,
    Printed,
}

/// The rectangle between the axes, in points.
#[derive(Clone, Copy)]
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Reference {
    fn values(&self) -> Vec<f64> {
        match self {
            Self::Level(value) => vec![*value],
            Self::Curve(spots) => spots.iter().map(|(_, value)| *value).collect(),
        }
    }
}

impl Chart {
    /// A panel over the cache size.
    pub(crate) fn by_size(panel: &Panel, title: String, scale: Scale) -> Self {
        let policies = panel.policies().into_iter().filter(|policy| *policy != "full");
        let lines = policies.map(|policy| {
            let points = panel.points.iter().filter(|point| point.policy == policy);
            let spots = points.filter_map(|point| Some(measurement(panel, point, f64::from(point.cache_size?))));
            Line { policy: policy.to_owned(), spots: spots.collect() }
        });
        Self::new(
            (title, &panel.metric),
            ("cache size (tokens)", Axis::of_sizes(&panel.sizes())),
            scale,
            lines.collect(),
            panel.full().map(|full| Reference::Level(full.estimate.value)),
            panel.chance.map(Reference::Level),
        )
    }

    pub(crate) fn new(
        (title, quantity): (String, &Metric),
        (across_name, across): (&'static str, Axis),
        scale: Scale,
        lines: Vec<Line>,
        full: Option<Reference>,
        chance: Option<Reference>,
    ) -> Self {
        let paired = quantity.has_difference && full.is_some();
        let values = Axis::of_values(&values(quantity, series(&lines), full.as_ref(), scale), scale);
        let (quantity, printed) = (quantity.clone(), None);
        Self { title, quantity, across_name, across, values, lines, full, chance, paired, scale, printed }
    }

    /// The same with a value axis that spans what is given, so that charts side by side compare.
    pub(crate) fn spanning(self, values: &[f64]) -> Self {
        Self { values: Axis::of_values(values, Scale::Linear), ..self }
    }

    pub(crate) fn has_full(&self) -> bool {
        self.full.is_some()
    }

    /// Whether what it shows beside the policies is a guess, not an answer.
    pub(crate) fn is_recall(&self) -> bool {
        self.quantity.id == "recall"
    }

    pub(crate) fn has_chance(&self) -> bool {
        self.chance.is_some()
    }

    pub(crate) fn height(plot: f64) -> f64 {
        TITLE_ROW + plot + TICK_ROW + LABEL_ROW
    }

    /// How much of a policy lies within the value axis; `None` where this chart does not have it.
    pub(crate) fn shown(&self, policy: &str) -> Option<Shown> {
        let line = self.lines.iter().find(|line| line.policy == policy)?;
        let inside = line.spots.iter().filter(|spot| self.values.contains(spot.value)).count();
        match inside {
            _ if line.spots.is_empty() => None,
            0 => Some(Shown::Nothing),
            n if n < line.spots.len() => Some(Shown::Part),
            _ => Some(Shown::All),
        }
    }

    /// Whether any point has a band.
    pub(crate) fn has_bands(&self) -> bool {
        self.lines.iter().flat_map(|line| &line.spots).any(|spot| spot.band.is_some())
    }

    /// Draws into the rectangle at `corner`; `looks` by policy. The label of the value axis is left out where a
    /// neighbour to the left has it.
    pub(crate) fn draw(
        &self,
        scene: &mut Scene,
        corner: Spot,
        (width, plot_height): (f64, f64),
        looks: &dyn Fn(&str) -> Option<Look>,
        labelled: bool,
    ) {
        let level = match self.full {
            Some(Reference::Level(value)) if self.values.contains(value) => Some(value),
            _ => None,
        };
        let full_label = level.map(|value| self.quantity.show(value)).unwrap_or_default();
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
            let name = font::fit(&self.quantity.label, LABEL, plot_height + TITLE_ROW);
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
        for line in &self.lines {
            self.draw_band(scene, plot, line, looks);
        }
        if let Some(printed) = &self.printed {
            self.draw_printed(scene, plot, printed, looks);
        }
        self.draw_reference(scene, plot, self.chance.as_ref(), GREY);
        self.draw_reference(scene, plot, self.full.as_ref(), BLACK);
        if let Some(value) = level {
            scene.text((plot.right + 2.5, self.y(plot, value)), &full_label, SMALL, BLACK, Across::Left);
        }
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        lines.sort_by_key(|line| ink::is_usual(&line.policy));
        for line in lines {
            self.draw_line(scene, plot, line, looks);
        }
        self.draw_size_axis(scene, plot);
        scene.text((centre, plot.bottom + TICK_ROW + 5.0), self.across_name, LABEL, BLACK, Across::Centre);
    }

    fn x(&self, plot: Plot, size: f64) -> f64 {
        plot.left + (plot.right - plot.left) * self.across.share(size)
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
        let places: Vec<(f64, f64)> = self.across.ticks.iter().rev().map(place).collect();
        let clear = |every: &usize| {
            let kept: Vec<_> = places.iter().step_by(*every).collect();
            kept.windows(2).all(|pair| pair[0].0 - pair[0].1 >= pair[1].0 + pair[1].1)
        };
        let every = (1..=places.len()).find(clear).unwrap_or(1);
        for (i, (tick, (x, _))) in self.across.ticks.iter().rev().zip(&places).enumerate() {
            scene.stroke(vec![(*x, plot.bottom), (*x, plot.bottom + 2.0)], BLACK, 0.6, None);
            if i % every == 0 {
                scene.text((*x, plot.bottom + 6.5), &tick.label, TICK, BLACK, Across::Centre);
            }
        }
    }

    fn draw_reference(&self, scene: &mut Scene, plot: Plot, reference: Option<&Reference>, color: RGBColor) {
        let spots: Vec<Spot> = match reference {
            None => return,
            Some(Reference::Level(value)) => {
                let y = self.y(plot, *value);
                vec![(plot.left, y), (plot.right, y)]
            }
            Some(Reference::Curve(spots)) => {
                spots.iter().map(|(across, value)| (self.x(plot, *across), self.y(plot, *value))).collect()
            }
        };
        let drawable: Vec<Spot> = spots.into_iter().filter(|(_, y)| y.is_finite()).collect();
        for piece in clip::line(&drawable, plot.top, plot.bottom) {
            scene.stroke(piece, color, LINE_WIDTH, Some(DASH));
        }
    }

    fn draw_band(&self, scene: &mut Scene, plot: Plot, line: &Line, looks: &dyn Fn(&str) -> Option<Look>) {
        let Some(look) = looks(&line.policy) else { return };
        let mut edges: (Vec<Spot>, Vec<Spot>) = (Vec::new(), Vec::new());
        for spot in &line.spots {
            let Some((low, high)) = spot.band else { continue };
            let x = self.x(plot, spot.across);
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

    fn draw_line(&self, scene: &mut Scene, plot: Plot, line: &Line, looks: &dyn Fn(&str) -> Option<Look>) {
        let Some(look) = looks(&line.policy) else { return };
        let spots = line.spots.iter().map(|spot| (self.x(plot, spot.across), self.y(plot, spot.value)));
        let spots: Vec<Spot> = spots.filter(|(_, y)| y.is_finite()).collect();
        for piece in clip::line(&spots, plot.top, plot.bottom) {
            scene.stroke(piece, look.color, LINE_WIDTH, None);
        }
        for &spot in spots.iter().filter(|(_, y)| (plot.top..=plot.bottom).contains(y)) {
            draw_marker(scene, spot, look);
        }
    }
}

/// The values that an axis is to show.
fn values(quantity: &Metric, series: Vec<Vec<f64>>, full: Option<&Reference>, scale: Scale) -> Vec<f64> {
    match (quantity.range, full) {
        (Some((low, high)), _) => vec![low, high],
        (None, Some(Reference::Level(full))) if scale == Scale::Linear => within_reach(&series, Some(*full)),
        (None, None) if scale == Scale::Linear => within_reach(&series, None),
        (None, full) => series.into_iter().flatten().chain(full.iter().flat_map(|full| full.values())).collect(),
    }
}

fn series(lines: &[Line]) -> Vec<Vec<f64>> {
    lines.iter().map(|line| line.spots.iter().map(|spot| spot.value).collect()).collect()
}

/// One marker; also the legend's.
pub(crate) fn draw_marker(scene: &mut Scene, at: Spot, look: Look) {
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
pub(crate) fn draw_sample(scene: &mut Scene, (x, y): Spot, width: f64, stroke: Stroke) {
    let ends = vec![(x, y), (x + width, y)];
    match stroke {
        Stroke::Policy(look) => {
            scene.stroke(ends, look.color, LINE_WIDTH, None);
            draw_marker(scene, (x + width / 2.0, y), look);
        }
        Stroke::Full => scene.stroke(ends, BLACK, LINE_WIDTH, Some(DASH)),
        Stroke::Chance => scene.stroke(ends, GREY, LINE_WIDTH, Some(DASH)),
        Stroke::Printed => printed::draw_sample(scene, ends),
    }
}

pub(crate) fn draw_caption(scene: &mut Scene, at: Spot, text: &str) {
    scene.text(at, text, SMALL - 0.5, GREY, Across::Left);
}

/// A caption in as many lines as it needs; returns where it ends.
pub(crate) fn draw_long_caption(scene: &mut Scene, at: Spot, room: f64, text: &str) -> f64 {
    const ROW: f64 = 8.0;
    let mut y = at.1;
    for line in font::wrap(text, SMALL - 0.5, room) {
        draw_caption(scene, (at.0, y), &line);
        y += ROW;
    }
    y - ROW / 2.0
}

/// A point of a panel, somewhere across a chart.
pub(crate) fn measurement(panel: &Panel, point: &Point, across: f64) -> Measurement {
    Measurement { across, value: point.estimate.value, band: band_of(panel, point), point: point.clone() }
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
        None if panel.full().is_some() && panel.metric.has_difference => None,
        None => point.estimate.interval.map(|interval| (interval.low, interval.high)),
    }
    .filter(|(low, high)| low.is_finite() && high.is_finite())
}
