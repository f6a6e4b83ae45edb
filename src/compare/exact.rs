//! Sample by sample: whether a machine still gives the numbers it gave.
//!
//! The same input, engine and machine give the same bits, so any difference has a cause: a changed program, another machine,
//! or damage. No statistics are needed. Of a sample that both sides have, every row and every column that repeats is compared.

use std::collections::BTreeSet;

use super::point::Moved;
use super::side::{Name, Side};
use crate::eviction::Score;
use crate::ledger::Row;
use crate::metric::{Metric, Property, SIDE_FILES};
use crate::report::{PolicyAtSize, SampleSum, SeriesKey, Sums};

/// Whether a row can be repeated exactly: times never are, a judge is another program, and tables beside the rows are not numbers.
pub(super) fn is_repeatable(row: &Row) -> bool {
    let is_number =
        |metric: &Metric| !metric.is_timed() && !metric.has(Property::Judge) && metric.id != SIDE_FILES;
    Metric::known(&row.metric).is_none_or(is_number)
}

/// Samples that both sides have of a policy at a size, whatever was measured of them.
pub(super) type SamplesOfBoth<'s> = BTreeSet<(&'s SeriesKey, &'s PolicyAtSize<'s>, &'s str)>;

pub(super) fn samples_of_both<'s>(before: &'s Side<'_>, after: &'s Side<'_>) -> SamplesOfBoth<'s> {
    let [before, after] = [before, after].map(|side| -> SamplesOfBoth<'s> {
        let samples =
            side.iter().flat_map(|(subject, numbers)| numbers.samples.keys().map(move |name| (subject, name.1)));
        samples.map(|(subject, sample)| (&subject.key, &subject.policy, sample)).collect()
    });
    before.intersection(&after).copied().collect()
}

/// `value / weight`, or the value itself where nothing was weighed.
fn quotient(sum: &SampleSum<'_>) -> f64 {
    let Sums { values: [value, ..], weight } = sum.sums;
    if weight == 0.0 { value } else { value / weight }
}

/// How a sample moved by more than the tolerance, or in another column.
pub(super) fn movement(name: Name<'_>, before: &SampleSum, after: &SampleSum, tolerance: f64) -> Option<Moved> {
    let (first, second) = (quotient(before), quotient(after));
    let change = match () {
        () if before.sums.weight.to_bits() != after.sums.weight.to_bits() => f64::INFINITY,
        // Two infinities of one sign, or NaN twice, have not moved.
        () if first.to_bits() == second.to_bits() || (first.is_nan() && second.is_nan()) => 0.0,
        () if !(second - first).is_finite() => f64::INFINITY,
        () => (second - first).abs(),
    };
    let columns = differing_columns(before.row, after.row);
    let has_moved = change > tolerance || !columns.is_empty();
    has_moved.then(|| Moved { change, columns, ..one_sided(name, [Some(before), Some(after)]) })
}

/// A row that may be on one side only.
pub(super) fn one_sided((slice, sample): Name<'_>, rows: [Option<&SampleSum>; 2]) -> Moved {
    let [before, after] = rows.map(|row| row.map(quotient));
    let [weight_before, weight_after] = rows.map(|row| row.map(|row| row.sums.weight));
    Moved {
        sample: sample.to_owned(),
        slice: slice.cloned(),
        before,
        after,
        change: f64::INFINITY,
        weight_before,
        weight_after,
        columns: Vec::new(),
    }
}

/// Whether ids of samples tell what they were measured on. Rows of older schemas have none; those of another engine always
/// differ, and those of a sweep that also compares with the full cache.
pub(super) fn has_comparable_ids(a: &Row, b: &Row) -> bool {
    let are_there = !a.sample_id.is_empty() && !b.sample_id.is_empty();
    are_there && (a.engine, a.compare_to_full) == (b.engine, b.compare_to_full)
}

/// The columns that one engine repeats on one machine, besides value and weight, and that differ. Other columns are what rows
/// are paired by, say where and when they were measured, or are different in each folder, such as names of sweeps and paths.
fn differing_columns(before: &Row, after: &Row) -> Vec<&'static str> {
    let (a, b) = (before, after);
    let has_ids = has_comparable_ids(a, b);
    let draws = a.score.as_deref().and_then(Score::of_row).is_some_and(Score::draws);
    let columns = [
        ("output", a.output == b.output),
        ("question", a.question == b.question),
        ("references", a.references == b.references),
        ("prompt_tokens", a.prompt_tokens == b.prompt_tokens),
        ("new_tokens", a.new_tokens == b.new_tokens),
        ("score", a.score == b.score),
        ("scope", a.scope == b.scope),
        // Where it is a share, rows pair by that.
        ("cache_size", a.cache_size == b.cache_size),
        ("keep_first", a.keep_first == b.keep_first),
        ("keep_recent", a.keep_recent == b.keep_recent),
        ("budget", a.budget == b.budget),
        ("seed", a.seed == b.seed || !draws),
        ("cluster", a.cluster == b.cluster),
        ("sample_id", a.sample_id == b.sample_id || !has_ids),
        ("peak_cache_bytes", a.peak_cache_bytes == b.peak_cache_bytes),
    ];
    columns.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
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
