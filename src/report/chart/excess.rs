//! The excess over the full cache in nats, on two logarithmic axes, so that policies near the full cache can be told apart.
//!
//! Such an axis has no zero. It begins below the smallest excess that is told apart from zero, and what has no place on it
//! is marked at its lower edge.

use super::super::axis::{self, Axis, Scale};
use super::super::distance::Distance;
use super::super::points::{Panel, Point};
use super::Chart;

/// Axes begin here at the lowest: 0.01 % of perplexity.
const LEAST: f64 = 1e-4;

/// The excess of panels, each with its title, on one axis; `None` where it is known of no policy, or nowhere above the least.
pub(crate) fn charts(panels: &[(&Panel, String)]) -> Option<Vec<Chart>> {
    let all: Option<Vec<Panel>> = panels.iter().map(|(panel, _)| excess(panel)).collect();
    let all = all?;
    let axis = axis(&all)?;
    let chart = |(excess, (panel, title)): (Panel, &(&Panel, String))| Chart {
        values: axis.clone(),
        paired: true,
        limit: limit(panel).filter(|limit| axis.contains(*limit)),
        is_excess: true,
        ..Chart::by_size(&excess, title.clone(), Scale::Log)
    };
    Some(all.into_iter().zip(panels).map(chart).collect())
}

/// A panel with what each point is above the full cache as its value.
fn excess(panel: &Panel) -> Option<Panel> {
    let metric = panel.metric.excess()?;
    let above = |point: &Point| {
        let nats = point.to_full.as_ref()?.nats?;
        Some(Point { estimate: nats, to_full: None, ..point.clone() })
    };
    let points: Vec<Point> = panel.points.iter().filter_map(above).collect();
    (!points.is_empty()).then(|| Panel { metric, points, chance: None, ..panel.clone() })
}

/// An axis for all values above its lower edge, and the intervals around them.
fn axis(panels: &[Panel]) -> Option<Axis> {
    let estimates = || panels.iter().flat_map(|panel| &panel.points).map(|point| point.estimate);
    let values = estimates().map(|estimate| estimate.value);
    let highs = estimates().filter_map(|estimate| Some(estimate.interval?.high));
    let told_apart = estimates().filter(|estimate| estimate.interval.is_some_and(|interval| interval.low > 0.0));
    let smallest = told_apart.map(|estimate| estimate.value).reduce(f64::min);
    let positive = values.clone().filter(|value| *value > 0.0);
    let smallest = smallest.or_else(|| positive.reduce(f64::min))?;
    let edge = round_below(0.8 * smallest).max(LEAST);
    let is_above = values.clone().any(|value| value.is_finite() && value > edge);
    is_above.then(|| Axis::above(edge, &values.chain(highs).collect::<Vec<_>>()))
}

/// The largest of 1, 2 and 5 times a power of ten that is no more than a number.
fn round_below(number: f64) -> f64 {
    let power = 10f64.powi(number.log10().floor() as i32);
    let digits = [5.0, 2.0, 1.0].map(|digit| digit * power);
    digits.into_iter().find(|round| *round <= number).unwrap_or(power)
}

/// The distance to the full cache that the paper's claims name.
fn limit(panel: &Panel) -> Option<f64> {
    Distance::usual().iter().find_map(|distance| distance.of(panel)?.nats())
}

/// What a reader of the charts must know, in sentences without full stops.
pub(super) fn notes(charts: &[Chart]) -> Vec<String> {
    let Some(first) = charts.iter().find(|chart| chart.is_excess) else { return Vec::new() };
    let mut notes = vec!["an excess of 0.01 nats is 1 % of perplexity".to_owned()];
    if let Some(limit) = first.limit {
        notes.push(format!("dashed line at {limit:.3} nats: the paper's 0.4 perplexity, at 7.16"));
    }
    let edge = first.values.lowest();
    let values = charts.iter().flat_map(|chart| &chart.lines).flat_map(|line| &line.spots);
    if values.map(|spot| spot.point.estimate.value).any(|value| value < edge) {
        notes.push(format!("arrows at the lower edge: less than {} nats, 0 or below", axis::number(edge)));
    }
    notes
}
