//! Sample by sample: whether a machine still gives the numbers it gave.
//!
//! The same input, engine and machine give the same bits, so any difference has a cause: a changed program, another machine,
//! or damage. No statistics are needed.

use super::point::{Moved, Point, Verdict};
use super::side::{NamedSum, Numbers, Paired, pair};
use crate::ledger::Row;
use crate::metric::{Metric, Property};
use crate::report::{Estimate, Sums, pooled};

/// Whether a row can be repeated exactly: times never are, and a judge is another program.
pub(super) fn is_repeatable(row: &Row) -> bool {
    Metric::known(&row.metric).is_none_or(|metric| !metric.is_timed() && !metric.has(Property::Judge))
}

pub(super) fn point(blank: Point, before: &Numbers, after: &Numbers, tolerance: f64) -> Point {
    let Paired { both, missing, new } = pair(&before.samples, &after.samples);
    let mut moved: Vec<Moved> = both.iter().filter_map(|(a, b)| movement(a, b, tolerance)).collect();
    moved.sort_by(|a, b| b.change.total_cmp(&a.change));
    let engines = (before.row.engine, after.row.engine);
    let is_equal = both.iter().all(|(a, b)| a.sum.value.to_bits() == b.sum.value.to_bits());
    let (verdict, why) = match (engines.0 == engines.1, moved.is_empty()) {
        (false, _) => {
            let why = format!("engine {} in the baseline, {} here: save a new baseline", engines.0, engines.1);
            (Verdict::AnotherEngine, Some(why))
        }
        (true, false) => (Verdict::Moved, None),
        (true, true) => (if is_equal { Verdict::Equal } else { Verdict::WithinNoise }, None),
    };
    let [first, second] = [whole(both.iter().map(|pair| &pair.0)), whole(both.iter().map(|pair| &pair.1))]
        .map(|pooled| pooled.map(|pooled| blank.metric.of_pooled(pooled)));
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
        missing_samples: missing.iter().map(named).collect(),
        new_samples: new,
        moved,
        ..blank
    }
}

/// A sample with its slice.
fn named(sample: &NamedSum<'_>) -> String {
    sample.slice.map_or_else(|| sample.sample.to_owned(), |slice| format!("{} ({slice})", sample.sample))
}

/// The metric over whole samples.
fn whole<'a>(samples: impl Iterator<Item = &'a NamedSum<'a>>) -> Option<[f64; 3]> {
    let whole = samples.filter(|sample| sample.slice.is_none());
    pooled(&whole.map(|sample| Sums::of(&sample.sum)).collect::<Vec<_>>())
}

fn movement(before: &NamedSum<'_>, after: &NamedSum<'_>, tolerance: f64) -> Option<Moved> {
    let (first, second) = (quotient(before), quotient(after));
    let same_weight = before.sum.weight.to_bits() == after.sum.weight.to_bits();
    let change = match () {
        () if !same_weight => f64::INFINITY,
        // Two infinities of one sign, or NaN twice, have not moved.
        () if first.to_bits() == second.to_bits() || (first.is_nan() && second.is_nan()) => 0.0,
        () if !(second - first).is_finite() => f64::INFINITY,
        () => (second - first).abs(),
    };
    let text_differs = before.sum.row.output != after.sum.row.output;
    (change > tolerance || text_differs).then(|| Moved {
        sample: before.sample.to_owned(),
        slice: before.slice.map(str::to_owned),
        before: first,
        after: second,
        change,
        weight_before: before.sum.weight,
        weight_after: after.sum.weight,
        text_differs,
    })
}

/// `value / weight`, or the value itself where nothing was weighed.
fn quotient(NamedSum { sum, .. }: &NamedSum<'_>) -> f64 {
    if sum.weight == 0.0 { sum.value } else { sum.value / sum.weight }
}

/// What an exact comparison leaves out, and what may explain what it finds.
pub(super) fn notes(before: &[Row], after: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    let left_out = before.iter().filter(|row| !is_repeatable(row)).count();
    if left_out > 0 {
        notes.push(format!("{left_out} rows of times and of judges are left out: they never repeat exactly"));
    }
    let devices = |rows: &[Row]| -> Vec<String> {
        let mut devices: Vec<String> =
            rows.iter().filter(|row| is_repeatable(row)).map(|row| row.device.to_string()).collect();
        devices.sort();
        devices.dedup();
        devices
    };
    let (was, is) = (devices(before), devices(after));
    if was != is && !is.is_empty() {
        notes.push(format!(
            "measured on {} in the baseline, on {} here: last digits may differ between machines (--tolerance)",
            was.join(", "),
            is.join(", ")
        ));
    }
    notes
}
