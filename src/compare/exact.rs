//! Sample by sample: whether a machine still gives the numbers it gave.
//!
//! The same input, engine and machine give the same bits, so any difference has a cause: a changed program, another machine,
//! or damage. No statistics are needed.

use std::collections::BTreeSet;

use super::point::{Moved, Point, Verdict};
use super::side::{Name, Numbers};
use crate::ledger::Row;
use crate::metric::{Metric, Property};
use crate::report::{Estimate, SampleSum, Sums};

/// Whether a row can be repeated exactly: times never are, and a judge is another program.
pub(super) fn is_repeatable(row: &Row) -> bool {
    Metric::known(&row.metric).is_none_or(|metric| !metric.is_timed() && !metric.has(Property::Judge))
}

/// `blank` already has the samples that only one side has.
pub(super) fn point(blank: Point, before: &Numbers, after: &Numbers, tolerance: f64) -> Point {
    let both = before.both(after);
    let mut moved: Vec<Moved> = both.iter().filter_map(|(name, a, b)| movement(*name, a, b, tolerance)).collect();
    moved.sort_by(|a, b| b.change.total_cmp(&a.change));
    let engines = (before.row.engine, after.row.engine);
    let is_equal = both.iter().all(|(_, a, b)| value(a).to_bits() == value(b).to_bits());
    let (verdict, why) = match (engines.0 == engines.1, moved.is_empty()) {
        (false, _) => {
            let why = format!("engine {} in the baseline, {} here: save a new baseline", engines.0, engines.1);
            (Verdict::AnotherEngine, Some(why))
        }
        (true, false) => (Verdict::Moved, None),
        (true, true) => (if is_equal { Verdict::Equal } else { Verdict::WithinNoise }, None),
    };
    // The metric over whole samples.
    let whole = || both.iter().filter(|((slice, _), ..)| slice.is_none());
    let sums: [Sums; 2] = [whole().map(|(_, a, _)| &a.sums).sum(), whole().map(|(.., b)| &b.sums).sum()];
    let [first, second] = sums.map(|sums| sums.pooled().map(|pooled| blank.metric.of_pooled(pooled)));
    let difference = first.zip(second).map(|(first, second)| Estimate {
        value: if first.to_bits() == second.to_bits() { 0.0 } else { second - first },
        interval: None,
    });
    Point {
        verdict,
        why,
        before: first,
        after: second,
        difference,
        threshold: Some(format!("{tolerance:e} for each sample")),
        samples: both.len(),
        moved,
        ..blank
    }
}

fn value(sum: &SampleSum<'_>) -> f64 {
    sum.sums.values[0]
}

fn movement((slice, sample): Name<'_>, before: &SampleSum, after: &SampleSum, tolerance: f64) -> Option<Moved> {
    let weights = [before.sums.weight, after.sums.weight];
    // `value / weight`, or the value itself where nothing was weighed.
    let quotient =
        |sum: &SampleSum| if sum.sums.weight == 0.0 { value(sum) } else { value(sum) / sum.sums.weight };
    let (first, second) = (quotient(before), quotient(after));
    let change = match () {
        () if weights[0].to_bits() != weights[1].to_bits() => f64::INFINITY,
        // Two infinities of one sign, or NaN twice, have not moved.
        () if first.to_bits() == second.to_bits() || (first.is_nan() && second.is_nan()) => 0.0,
        () if !(second - first).is_finite() => f64::INFINITY,
        () => (second - first).abs(),
    };
    let text_differs = before.row.output != after.row.output;
    (change > tolerance || text_differs).then(|| Moved {
        sample: sample.to_owned(),
        slice: slice.map(str::to_owned),
        before: first,
        after: second,
        change,
        weight_before: weights[0],
        weight_after: weights[1],
        text_differs,
    })
}

/// What an exact comparison leaves out, and what may explain what it finds.
pub(super) fn notes(before: &[Row], after: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    let left_out = before.iter().filter(|row| !is_repeatable(row)).count();
    if left_out > 0 {
        notes.push(format!("{left_out} rows of times and of judges are left out: they never repeat exactly"));
    }
    let [was, is] = [before, after].map(|rows| {
        let repeatable = rows.iter().filter(|row| is_repeatable(row));
        let devices: BTreeSet<&str> = repeatable.map(|row| row.device.as_str()).collect();
        devices.into_iter().collect::<Vec<_>>().join(", ")
    });
    if was != is && after.iter().any(is_repeatable) {
        notes.push(format!(
            "measured on {was} in the baseline, on {is} here: last digits may differ between machines (--tolerance)"
        ));
    }
    notes
}
