//! The excess over the full cache in nats, on two logarithmic axes, so that policies near the full cache can be told apart.
//!
//! Such an axis has no zero. It begins below the smallest excess that is told apart from zero, and what has no place on it
//! is marked at its lower edge.

use super::{Bands, Chart};
use crate::report::figure::{Axis, Scale, axis};
use crate::report::series::{Difference, Distance, Pair, Panel, Point};

/// Axes begin here at the lowest: 0.01 % of perplexity.
const LEAST: f64 = 1e-4;

/// The excess of those panels that have a full cache, each with its title, on one axis; `None` where it is nowhere above the
/// least.
pub(crate) fn charts(
    panels: &[(&Panel, String)],
    draw: impl Fn(&Panel, String, Scale) -> Chart,
) -> Option<Vec<Chart>> {
    let all = panels.iter().filter_map(|(panel, title)| Some((excess(panel)?, limit(panel), title)));
    let all: Vec<(Panel, Option<f64>, &String)> = all.collect();
    let axis = axis(all.iter().flat_map(|(excess, ..)| &excess.points))?;
    let chart = |(excess, limit, title): &(Panel, Option<f64>, &String)| {
        let chart = draw(excess, title.to_string(), Scale::Log);
        Chart {
            values: axis.clone(),
            // What is drawn is a difference to the full cache itself.
            bands: if chart.bands == Bands::Own { Bands::ToFull } else { chart.bands },
            limit: limit.filter(|limit| axis.contains(*limit)),
            is_excess: true,
            ..chart
        }
    };
    Some(all.iter().map(chart).collect())
}

/// A panel with what each point is above the full cache as its value.
fn excess(panel: &Panel) -> Option<Panel> {
    let metric = panel.metric.excess()?;
    let above = |point: &Point| {
        let nats = point.to_full.as_ref()?.nats.filter(|nats| !nats.value.is_nan())?;
        Some(Point { estimate: nats, to_full: None, ..point.clone() })
    };
    let points: Vec<Point> = panel.points.iter().filter_map(above).collect();
    let in_nats = |pair: &Pair| {
        let shown = pair.difference.nats?;
        Some(Pair { difference: Difference { shown, ..pair.difference.clone() }, ..pair.clone() })
    };
    let pairs = panel.pairs.iter().filter_map(in_nats).collect();
    (!points.is_empty()).then(|| Panel { metric, points, pairs, guess: None, ..panel.clone() })
}

/// An axis for all values above its lower edge, and the intervals around them.
fn axis<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Option<Axis> {
    let estimates = points.map(|point| point.estimate);
    let values = estimates.clone().map(|estimate| estimate.value);
    let highs = estimates.clone().filter_map(|estimate| Some(estimate.interval?.high));
    let told_apart = estimates.filter(|estimate| estimate.interval.is_some_and(|interval| interval.low > 0.0));
    let smallest = told_apart.map(|estimate| estimate.value).reduce(f64::min);
    let positive = values.clone().filter(|value| *value > 0.0);
    let smallest = smallest.or_else(|| positive.reduce(f64::min))?;
    let edge = edge(smallest);
    let is_above = values.clone().any(|value| value.is_finite() && value > edge);
    is_above.then(|| Axis::above(edge, &values.chain(highs).collect::<Vec<_>>()))
}

/// Where an axis begins whose smallest value is this.
pub(super) fn edge(smallest: f64) -> f64 {
    round_below(0.8 * smallest).max(LEAST)
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
    let mut notes = vec!["0.01 nats is 1 % of perplexity".to_owned()];
    if let Some(limit) = first.limit {
        notes.push(format!("dotted line: {limit:.3} nats, the paper's 0.4 at its perplexity of 7.16"));
    }
    let edge = first.values.lowest();
    let values = charts.iter().flat_map(|chart| &chart.lines).flat_map(|line| &line.spots);
    if values.map(|spot| spot.point.estimate.value).any(|value| value < edge) {
        let edge = axis::number(edge);
        notes.push(format!("arrows at the lower edge: below {edge} nats, maybe zero or less"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::Interval;
    use crate::report::figure::chart::Surroundings;
    use crate::report::figure::{Scene, SeriesStyles};
    use crate::report::fixture::{cell, panels};
    use crate::report::series::SizeAxis;

    /// Four books of two tokens, whose NLL is so far above the full cache's.
    fn at(policy: &str, size: Option<u32>, above: [f64; 4]) -> Vec<Row> {
        let books = ["a", "b", "c", "d"].into_iter().zip([1.0, 2.0, 3.0, 4.0]).zip(above);
        let samples: Vec<_> = books.map(|((book, full), above)| (book, 2.0 * (full + above), 2.0)).collect();
        cell("nll", policy, size, &samples)
    }

    fn of(rows: &[Row]) -> Option<Vec<Chart>> {
        charts(&[(&panels(rows)[0], String::new())], |panel, title, scale| {
            Chart::by_size(panel, title, scale, (None, SizeAxis::Entries))
        })
    }

    /// Far above, near, at and below the full cache, and one that is not told apart from it.
    fn five_sizes() -> Vec<Row> {
        [
            at("full", None, [0.0; 4]),
            at("tova", Some(8), [0.5, 0.25, 1.0, 0.25]),
            at("tova", Some(16), [0.0625, 0.125, 0.0625, 0.25]),
            at("tova", Some(32), [-0.0625, 0.0625, 0.125, -0.0625]),
            at("tova", Some(64), [-0.25, -0.125, 0.125, -0.25]),
            at("tova", Some(128), [0.0; 4]),
        ]
        .concat()
    }

    #[test]
    fn the_excess_is_the_mean_difference_in_nll_for_each_token() {
        let charts = of(&five_sizes()).unwrap();
        let [chart] = &charts[..] else { panic!("one chart expected") };
        let spots = &chart.lines[0].spots;
        let values: Vec<f64> = spots.iter().map(|spot| spot.point.estimate.value).collect();
        let expected = [0.5, 0.125, 0.015625, -0.125, 0.0];
        assert!(
            values.iter().zip(expected).all(|(value, expected)| (value - expected).abs() < 1e-12),
            "{values:?}"
        );
        // Of four books the ends are books.
        let Some(Interval { low, high }) = spots[1].point.estimate.interval else {
            panic!("an interval expected")
        };
        assert!((low - 0.0625).abs() < 1e-12 && (high - 0.25).abs() < 1e-12, "{low} {high}");
        assert_eq!(spots[1].band, Some((low, high)));
        // 0.125 is the smallest that is told apart from zero; 80 % of it rounded down.
        assert!((chart.values.lowest() - 0.1).abs() < 1e-12 && chart.values.contains(1.0));
        assert_eq!(chart.limit, None, "0.054 is below the axis");
        let notes = notes(&charts).join("; ");
        assert!(notes.contains("arrows at the lower edge: below 0.1 nats"), "{notes}");
    }

    #[test]
    fn what_is_below_the_axis_is_marked_at_its_edge_where_lines_and_bands_end() {
        let rows = five_sizes();
        let charts = of(&rows).unwrap();
        let mut scene = Scene::new("", 264.0);
        scene.height = Chart::height(145.0, 1);
        let styles = SeriesStyles::of(&panels(&rows));
        let alone = Surroundings { heading: &[], labelled: true, named: false };
        charts[0].draw(&mut scene, (0.0, 0.0), (264.0, 145.0), &styles, alone);
        let svg = scene.svg();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let heights = |class: &str| -> Vec<Vec<i32>> {
            let paths = document.descendants().filter(|node| node.attribute("class") == Some(class));
            let steps =
                |path: &str| path.trim_matches(['M', 'Z']).split('L').map(str::to_owned).collect::<Vec<_>>();
            let height = |step: &String| step.split_once(' ').unwrap().1.parse().unwrap();
            paths.map(|node| steps(node.attribute("d").unwrap()).iter().map(height).collect()).collect()
        };
        // 13 points of title, 145 of plot: from 108 to 1317 units of 0.12 points. The tips of arrows are on the edge.
        let bottom = 1317;
        let line = &heights("stroke")[0];
        assert!(line.len() == 5 && line[0] < line[1] && line[1] < bottom, "{line:?}");
        assert_eq!(line[2..], [bottom; 3]);
        let tips: Vec<i32> = heights("mark").iter().map(|mark| mark[0]).collect();
        assert!(tips[0] < bottom && tips[1] < bottom, "{tips:?}");
        assert_eq!(tips[2..], [bottom; 3]);
        // Of the bands the lower ends at 8 to 128, then the upper ones back: 0, 0.125, 0.125, 0.25 and 1.
        let band = &heights("band")[0];
        assert_eq!((&band[1..5], band[5]), (&[bottom; 4][..], bottom), "{band:?}");
        assert!(band[9] < band[8] && band[8] < band[7] && band[7] == band[6] && band[6] < bottom, "{band:?}");
    }

    #[test]
    fn without_intervals_the_axis_has_every_excess_above_the_least() {
        let one = |policy, size, nll| cell("nll", policy, size, &[("a", nll, 1.0)]);
        let full = one("full", None, 2.0);
        let chart = |near: f64| of(&[full.clone(), one("h2o", Some(8), 2.5), one("h2o", Some(16), near)].concat());
        let lowest = |near: f64| chart(near).unwrap()[0].values.lowest();
        assert!((lowest(2.03) - 0.02).abs() < 1e-9 && (lowest(2.000001) - 1e-4).abs() < 1e-12);
        let limit = chart(2.03).unwrap()[0].limit.unwrap();
        assert!((limit - (7.56f64 / 7.16).ln()).abs() < 1e-12);
        // Nothing is above the full cache: a logarithmic axis has nothing to show.
        assert!(of(&[full.clone(), one("h2o", Some(8), 2.0), one("tova", Some(8), 1.5)].concat()).is_none());
        assert!(of(&[full.clone(), one("h2o", Some(8), 2.00001)].concat()).is_none());
        assert!(of(&one("h2o", Some(8), 2.0)).is_none() && of(&full).is_none());
        let written = |policy, size, nll| cell("nll_written", policy, size, &[("a", nll, 1.0)]);
        assert!(of(&[written("full", None, 2.0), written("h2o", Some(8), 3.0)].concat()).is_none());
    }

    #[test]
    fn edges_are_round() {
        let rounded = [0.0085, 0.002, 0.0019, 4.9, 0.5, 1.0].map(round_below);
        for (edge, expected) in rounded.into_iter().zip([0.005, 0.002, 0.001, 2.0, 0.5, 1.0]) {
            assert!((edge - expected).abs() < 1e-12, "{edge} {expected}");
        }
    }
}
