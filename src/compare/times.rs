//! Times against times of the same device: medians of repeats, and whether their ranges overlap.
//!
//! Repeats are not texts, so there are no intervals over clusters.

use super::point::{Point, Verdict};
use super::side::Numbers;
use super::threshold::Threshold;
use crate::metric::Metric;
use crate::report::{Estimate, SampleSum, median};

pub(super) fn point(blank: Point, before: &Numbers, after: &Numbers, threshold: &Threshold) -> Point {
    let [was, is] = [before, after].map(|numbers| repeats(&blank.metric, numbers));
    if was.iter().chain(&is).any(|time| !time.is_finite()) {
        let why = Some("a repeat has no finite time".to_owned());
        return Point { verdict: Verdict::NotComparable, why, ..blank };
    }
    let [before, after] = [median(&was), median(&is)];
    let difference = after - before;
    let overlap = was.first() <= is.last() && is.first() <= was.last();
    let (counts, rule) = threshold.decide_by_ranges(before, difference, overlap);
    let verdict = match counts {
        true => Point::direction(blank.metric.better, difference),
        false if was == is => Verdict::Equal,
        false => Verdict::WithinNoise,
    };
    Point {
        verdict,
        before: Some(before),
        after: Some(after),
        difference: Some(Estimate { value: difference, interval: None }),
        threshold: (verdict != Verdict::Equal).then_some(rule),
        samples: was.len().min(is.len()),
        ..blank
    }
}

/// The value of each repeat as it is shown, ascending.
fn repeats(metric: &Metric, numbers: &Numbers) -> Vec<f64> {
    let shown = |sum: &SampleSum| metric.of_pooled(sum.sums.values.map(|value| value / sum.sums.weight));
    let mut values: Vec<f64> = numbers.samples.values().map(shown).collect();
    values.sort_by(f64::total_cmp);
    values
}
