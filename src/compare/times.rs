//! Times against times of the same device: medians of repeats, and whether their ranges overlap.
//!
//! Repeats are not texts, so there are no intervals over clusters.

use super::point::{Point, Verdict};
use super::side::head;
use super::threshold::Threshold;
use crate::report::{CellSums, Estimate, SampleSum, median};

pub(super) fn point(blank: Point, [before, after]: [&CellSums<'_>; 2], threshold: &Threshold) -> Point {
    // The value of each repeat as it is shown, ascending.
    let repeats = |cell: &CellSums<'_>| {
        let shown =
            |sum: &SampleSum<'_>| blank.metric.of_pooled(sum.sums.values.map(|value| value / sum.sums.weight));
        let mut values: Vec<f64> = cell.samples.values().map(shown).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let [was_on, is_on] = [before, after].map(|cell| &head(cell).device);
    let [was, is] = [before, after].map(repeats);
    let why_not = match () {
        () if was_on != is_on => Some(format!("another device: {was_on} in the baseline, {is_on} here")),
        () if was.iter().chain(&is).any(|time| !time.is_finite()) => {
            Some("a repeat has no finite time".to_owned())
        }
        () => None,
    };
    if why_not.is_some() {
        return Point { verdict: Verdict::NotComparable, why: why_not, ..blank };
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
