//! Times against times of the same device: medians of repeats, and whether their ranges overlap.
//!
//! Repeats are not texts, so nothing is resampled.

use super::point::{Point, Verdict};
use super::side::Numbers;
use super::threshold::Threshold;
use crate::metric::Metric;
use crate::report::{Estimate, SampleSum, median};

pub(super) fn point(blank: Point, before: &Numbers, after: &Numbers, threshold: Threshold) -> Point {
    let (was, is) = (repeats(&blank.metric, before), repeats(&blank.metric, after));
    let (Some(first), Some(second)) = (Range::of(&was), Range::of(&is)) else {
        return Point {
            verdict: Verdict::NotComparable,
            why: Some("a repeat has no finite time".to_owned()),
            ..blank
        };
    };
    let difference = second.median - first.median;
    let overlap = first.least <= second.most && second.least <= first.most;
    let (counts, rule) = threshold.decide_by_ranges(first.median, difference, overlap);
    let verdict = match counts {
        true => Point::direction(&blank.metric, difference),
        false if was == is => Verdict::Equal,
        false => Verdict::WithinNoise,
    };
    Point {
        verdict,
        before: Some(first.median),
        after: Some(second.median),
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

struct Range {
    least: f64,
    median: f64,
    most: f64,
}

impl Range {
    /// Of sorted values; `None` where one is not finite or there is none.
    fn of(sorted: &[f64]) -> Option<Range> {
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        sorted.iter().all(|value| value.is_finite()).then(|| Range { least, median: median(sorted), most })
    }
}
