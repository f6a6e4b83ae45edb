//! Times against times of the same device: medians of repeats, and whether their ranges touch.
//!
//! Repeats are no texts, so nothing is resampled: a few clockings of one thing have a middle, a least and a most.

use super::pairing::{Measured, Sample};
use super::point::{Point, Verdict};
use super::threshold::Threshold;
use crate::report::{Estimate, Quantity};

pub(super) fn point(blank: Point, before: &Measured, after: &Measured, threshold: Threshold) -> Point {
    let (was, is) = (repeats(&blank.quantity, &before.samples), repeats(&blank.quantity, &after.samples));
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
        true => Point::direction(&blank.quantity, difference),
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

/// What is shown of each repeat, ascending.
fn repeats(quantity: &Quantity, samples: &[Sample<'_>]) -> Vec<f64> {
    let shown = |sample: &Sample| quantity.of_pooled([sample.value / sample.weight, 0.0, 0.0]);
    let mut values: Vec<f64> = samples.iter().map(shown).collect();
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
        let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        (sorted.iter().all(|value| value.is_finite())).then_some(Range {
            least,
            median: (below + above) / 2.0,
            most,
        })
    }
}
