//! Sample by sample: whether a machine still gives the numbers it gave.
//!
//! The same input, engine and machine give the same bits, so any difference has a cause: a changed program, another machine,
//! or damage. No statistics are needed. Of a sample that both sides have, every row and every column that repeats is compared.

use std::collections::BTreeSet;

use serde_json::Value;

use super::point::Moved;
use super::side::{Side, Subject};
use crate::eviction::Score;
use crate::ledger::Row;
use crate::metric::{Metric, Property, REPEATS_PROMPT, SIDE_FILES, TOO_SHORT};
use crate::report::{CellSums, PolicyAtSize, SampleSum, SeriesKey, Sums};

/// Columns besides value and weight that one engine repeats on one machine. Other columns are what rows are paired by, say where
/// and when they were measured, or are different in each folder, such as names of sweeps and paths.
const REPEATED: &str = "output question references prompt_tokens new_tokens score scope cache_size keep_first keep_recent budget \
                        seed cluster sample_id held_bytes peak_bytes allocated_bytes read_bytes select_from";

/// Whether a row can be repeated exactly: times never are, a judge is another program, and tables beside the rows and notes on texts are
/// not numbers.
pub(super) fn is_repeatable(row: &Row) -> bool {
    let is_note = |metric: &Metric| [SIDE_FILES, REPEATS_PROMPT, TOO_SHORT].contains(&&*metric.id);
    let is_number = |metric: &Metric| !metric.is_timed() && !metric.has(Property::Judge) && !is_note(metric);
    Metric::known(&row.metric).is_none_or(is_number)
}

/// Samples that both sides have of a policy at a size, whatever was measured of them.
pub(super) type SamplesOfBoth<'s> = BTreeSet<(&'s SeriesKey, &'s PolicyAtSize<'s>, &'s str)>;

pub(super) fn samples_of_both<'s>(before: &'s Side<'_>, after: &'s Side<'_>) -> SamplesOfBoth<'s> {
    let samples = |(subject, cell): (&'s Subject<'s>, &'s CellSums<'s>)| {
        cell.samples.keys().map(|name| (&subject.key, &subject.policy, *name))
    };
    let [before, after] = [before, after].map(|side| side.iter().flat_map(samples).collect::<SamplesOfBoth<'s>>());
    before.intersection(&after).copied().collect()
}

/// Describes how the sample `name` moved: by more than `tolerance`, in another column, or because only one side has a row of it;
/// `None` where it did not move.
pub(super) fn movement(name: &str, rows: [Option<&SampleSum<'_>>; 2], tolerance: f64) -> Option<Moved> {
    // The value itself where nothing was weighed.
    let quotient = |sum: &SampleSum<'_>| match sum.sums {
        Sums { values: [value, ..], weight: 0.0 } => value,
        Sums { values: [value, ..], weight } => value / weight,
    };
    let [before, after] = rows.map(|row| row.map(quotient));
    let change = match (before, after) {
        // Two infinities of one sign, or NaN twice, have not moved.
        (Some(a), Some(b)) if a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) => 0.0,
        (Some(a), Some(b)) if (b - a).is_finite() => (b - a).abs(),
        _ => f64::INFINITY,
    };
    let columns = match rows {
        [Some(before), Some(after)] => differing_columns(before.row, after.row),
        _ => Vec::new(),
    };
    let has_moved = change > tolerance || !columns.is_empty();
    has_moved.then(|| Moved { sample: name.to_owned(), before, after, change, columns })
}

/// Whether ids of samples tell what they were measured on. Rows of older schemas have none; those of another engine always
/// differ, and those of a sweep that also compares with the full cache.
pub(super) fn has_comparable_ids(a: &Row, b: &Row) -> bool {
    let are_there = !a.sample_id.is_empty() && !b.sample_id.is_empty();
    // Ids of another schema are others too. Rows before schema 10 have no `start`.
    let of_one_schema = a.start.is_some() == b.start.is_some();
    are_there && of_one_schema && (a.engine, a.compare_to_full) == (b.engine, b.compare_to_full)
}

fn differing_columns(before: &Row, after: &Row) -> Vec<&'static str> {
    let draws = before.score.as_deref().and_then(Score::of_row).is_some_and(Score::draws);
    let must_repeat = |name: &str| match name {
        "seed" => draws,
        "sample_id" => has_comparable_ids(before, after),
        // Rows of 0.2 do not say them.
        "read_bytes" => before.read_bytes.is_some() && after.read_bytes.is_some(),
        "held_bytes" | "peak_bytes" => before.peak_bytes.is_some() && after.peak_bytes.is_some(),
        _ => true,
    };
    let [a, b] = [before, after].map(|row| serde_json::to_value(row).unwrap_or(Value::Null));
    let columns = REPEATED.split(' ').filter(|name| must_repeat(name) && a[name] != b[name]);
    let weight = (before.weight.to_bits() != after.weight.to_bits()).then_some("weight");
    weight.into_iter().chain(columns).collect()
}

/// Says what an exact comparison leaves out, and what may explain its findings.
pub(super) fn notes(before: &[Row], after: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    let left_out = before.iter().filter(|row| !is_repeatable(row)).count();
    if left_out > 0 {
        notes.push(format!("{left_out} rows of times and of judges are left out: they never repeat exactly"));
    }
    let devices = |rows: &[Row]| -> String {
        let repeatable = rows.iter().filter(|row| is_repeatable(row));
        let devices: BTreeSet<&str> = repeatable.map(|row| row.device.as_str()).collect();
        Vec::from_iter(devices).join(", ")
    };
    let [was, is] = [before, after].map(devices);
    if was != is && !is.is_empty() {
        notes.push(format!(
            "measured on {was} in the baseline, on {is} here: last digits may differ between machines (--tolerance)"
        ));
    }
    notes
}
