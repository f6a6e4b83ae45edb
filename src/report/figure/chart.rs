//! A chart: cache sizes or positions across, a quantity up, a line with markers for each policy, the full cache dashed.
//!
//! It is drawn once, for files and for the page: each point carries the text of its tooltip, each element the class by
//! which the page finds and colours it. Which charts share a figure, and the legend, are decided elsewhere.

mod clip;
mod draw;
pub(crate) mod excess;
mod legend;
mod printed;
pub(crate) mod title;
mod tooltip;

use crate::metric::{Metric, Pooling, Property};
use crate::report::figure::{Axis, Horizontal, Plain, Scale, Spot, axis, values_to_show};
use crate::report::series::{Panel, Point};
pub(crate) use legend::{Stroke, draw_caption, finish, legend};
pub(crate) use printed::Printed;
pub(crate) use tooltip::describe;

/// Font sizes in points, legible in a paper's column.
pub(crate) const TITLE: f64 = 8.0;
pub(crate) const LABEL: f64 = 7.5;
pub(crate) const SMALL: f64 = 6.5;

const MARKER_RADIUS: f64 = 2.0;
const LINE_WIDTH: f64 = 1.1;
/// Around a whole figure.
pub(crate) const MARGIN: f64 = 2.0;
pub(crate) const DASH: (f64, f64) = (4.0, 2.5);
/// Width that the name of the value axis takes.
pub(crate) const LABEL_ROOM: f64 = LABEL + 4.0;
/// Heights of the rows above and below the plot.
pub(crate) const TITLE_ROW: f64 = 13.0;
const TICK_ROW: f64 = 10.0;
const LABEL_ROW: f64 = 10.0;

/// A chart, with everything that drawing it needs: it is drawn more than once, with some parts left out.
#[derive(Clone)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) quantity: Metric,
    pub(crate) horizontal: Horizontal,
    pub(crate) across: Axis,
    pub(crate) values: Axis,
    /// In the order of the policies.
    pub(crate) lines: Vec<Line>,
    pub(crate) full: Option<Reference>,
    /// What a guess would score.
    pub(crate) guess: Option<Reference>,
    /// Whether the bands are of the difference to the full cache.
    pub(crate) paired: bool,
    /// A distance to the full cache that the paper calls small, on the value axis.
    limit: Option<f64>,
    /// Whether the values are the excess over the full cache. What is below the axis is then drawn at its lower edge.
    is_excess: bool,
    scale: Scale,
    /// What others measured, for comparison.
    printed: Option<Printed>,
}

/// A policy's line.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) policy: String,
    pub(crate) spots: Vec<Measurement>,
}

#[derive(Clone)]
pub(crate) struct Measurement {
    pub(crate) across: f64,
    pub(crate) band: Option<(f64, f64)>,
    pub(crate) point: Point,
}

/// What lines are compared with.
#[derive(Clone)]
pub(crate) enum Reference {
    /// One value all across.
    Level(f64),
    /// (across, value)
    Curve(Vec<Spot>),
}

impl Chart {
    /// A panel over the cache size.
    pub(crate) fn by_size(panel: &Panel, title: String, scale: Scale) -> Self {
        let policies = panel.policies().into_iter().filter(|policy| *policy != "full");
        let lines = policies.map(|policy| {
            let points = panel.points.iter().filter(|point| point.policy == policy);
            let spots = points.filter_map(|point| Some(measurement(panel, point, point.cache_size?.number())));
            Line { policy: policy.to_owned(), spots: spots.collect() }
        });
        let sizes = panel.sizes();
        let across = (Horizontal::of_sizes(&sizes), Axis::of_sizes(&sizes));
        Self::of_panel(panel, title, across, scale, lines.collect())
    }

    /// Lines of a panel's points, with its full cache and what a guess would score all across.
    pub(crate) fn of_panel(
        panel: &Panel,
        title: String,
        across: (Horizontal, Axis),
        scale: Scale,
        lines: Vec<Line>,
    ) -> Self {
        Self::new(
            (title, &panel.metric),
            across,
            scale,
            lines,
            panel.full().map(|full| Reference::Level(full.estimate.value)),
            panel.guess.map(Reference::Level),
        )
    }

    pub(crate) fn new(
        (title, quantity): (String, &Metric),
        (horizontal, across): (Horizontal, Axis),
        scale: Scale,
        lines: Vec<Line>,
        full: Option<Reference>,
        guess: Option<Reference>,
    ) -> Self {
        let paired = !quantity.has(Property::NoDifference) && full.is_some();
        let values = Axis::of_values(&axis_values(quantity, &lines, full.as_ref(), scale), scale);
        let quantity = quantity.clone();
        Self {
            title,
            quantity,
            horizontal,
            across,
            values,
            lines,
            full,
            guess,
            paired,
            limit: None,
            is_excess: false,
            scale,
            printed: None,
        }
    }

    /// Gives the chart a value axis that spans `values`, so that charts side by side can be compared.
    pub(crate) fn spanning(self, values: &[f64]) -> Self {
        Self { values: Axis::of_values(values, Scale::Linear), ..self }
    }

    /// Copies the chart without the parts that `plain` leaves out.
    pub(crate) fn plain(&self, plain: Plain) -> Self {
        let mut chart = self.clone();
        if plain.bands {
            chart.lines.iter_mut().flat_map(|line| &mut line.spots).for_each(|spot| spot.band = None);
        }
        chart.limit = chart.limit.filter(|_| !plain.limit);
        chart
    }

    /// The height of a chart with a plot of some height and a title of so many lines.
    pub(crate) fn height(plot: f64, title_lines: usize) -> f64 {
        title::room(title_lines) + plot + TICK_ROW + LABEL_ROW
    }

    /// Whether any point has a band.
    fn has_bands(&self) -> bool {
        self.lines.iter().flat_map(|line| &line.spots).any(|spot| spot.band.is_some())
    }
}

/// What is to be said below charts, in sentences without full stops.
pub(crate) fn notes(charts: &[Chart]) -> Vec<String> {
    let bands = match charts.iter().all(|chart| chart.paired) {
        true => "bands: 95 % intervals of the difference to full",
        false => "bands: 95 % intervals",
    };
    let bands = charts.iter().any(Chart::has_bands).then_some(bands);
    bands.into_iter().map(str::to_owned).chain(excess::notes(charts)).collect()
}

/// The values that an axis is to show, and the bands around them as far as there is room.
fn axis_values(quantity: &Metric, lines: &[Line], full: Option<&Reference>, scale: Scale) -> Vec<f64> {
    let shown = values(quantity, series(lines), full, scale);
    let bands = lines.iter().flat_map(|line| &line.spots);
    let bands = bands.filter_map(|spot| Some((spot.point.estimate.value, spot.band?)));
    match quantity.range {
        Some(_) => shown,
        None => axis::with_bands(shown, bands, scale),
    }
}

/// The values that an axis is to show.
fn values(quantity: &Metric, series: Vec<Vec<f64>>, full: Option<&Reference>, scale: Scale) -> Vec<f64> {
    if let Some((low, high)) = quantity.range {
        return vec![low, high];
    }
    let full: Vec<f64> = match full {
        Some(Reference::Curve(spots)) => spots.iter().map(|(_, value)| *value).collect(),
        Some(Reference::Level(full)) if scale == Scale::Linear => return values_to_show(&series, Some(*full)),
        None if scale == Scale::Linear => return values_to_show(&series, None),
        Some(Reference::Level(full)) => vec![*full],
        None => Vec::new(),
    };
    series.into_iter().flatten().chain(full).collect()
}

fn series(lines: &[Line]) -> Vec<Vec<f64>> {
    lines.iter().map(|line| line.spots.iter().map(|spot| spot.point.estimate.value).collect()).collect()
}

/// A point of a panel, somewhere across a chart.
pub(crate) fn measurement(panel: &Panel, point: &Point, across: f64) -> Measurement {
    Measurement { across, band: band_of(panel, point), point: point.clone() }
}

/// The band around a point: what its difference to the full cache may be, since texts differ far more in level than
/// policies do; where there is no such difference, what the value itself may be. It ends where no value can be.
fn band_of(panel: &Panel, point: &Point) -> Option<(f64, f64)> {
    let value = point.estimate.value;
    let (low, high) = match point.to_full.as_ref().map(|to_full| to_full.shown) {
        Some(difference) => {
            let interval = difference.interval?;
            (value + interval.low - difference.value, value + interval.high - difference.value)
        }
        None if panel.full().is_some() && !panel.metric.has(Property::NoDifference) => return None,
        None => point.estimate.interval.map(|interval| (interval.low, interval.high))?,
    };
    let (least, most) = match panel.metric.pooling {
        Pooling::Share | Pooling::GeometricShare => (0.0, 100.0),
        Pooling::Perplexity | Pooling::Rate => (0.0, f64::INFINITY),
        Pooling::Mean => (f64::NEG_INFINITY, f64::INFINITY),
    };
    (low.is_finite() && high.is_finite()).then(|| (low.max(least), high.min(most)))
}
