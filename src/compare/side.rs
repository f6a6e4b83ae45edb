//! The numbers of one side by what they mean.
//!
//! Rows are reduced as for a report. Numbers are not paired by cell ids, which depend on the engine's version, nor by the
//! policy's name alone.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::comparison::Options;
use super::exact;
use crate::ledger::{Row, Text};
use crate::metric::{Metric, Slice};
use crate::report::{CellSums, PolicyAtSize, SeriesKey, Unbounded, all_series, place, with_geometric_means};

/// One number that two sides may both have: a metric, or a slice of it, of a policy at a size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject<'a> {
    pub(super) key: SeriesKey,
    pub(super) metric: &'a str,
    pub(super) slice: Option<&'a Slice>,
    pub(super) policy: PolicyAtSize<'a>,
}

/// One side of a comparison; no cell is without samples.
pub(super) type Side<'a> = BTreeMap<Subject<'a>, CellSums<'a>>;

/// A row of a cell, for its provenance.
pub(super) fn head<'a>(cell: &CellSums<'a>) -> &'a Row {
    cell.samples.values().next().expect("no cell of a side is without samples").row
}

const HINT: &str = "hint: compare folders that know their sweep, or save the baseline again";

/// Every number of whole samples, and of slices too if asked for. Compared exactly, slices count always, and of all rows only those
/// that can be repeated.
///
/// # Errors
/// As [`all_series`], or a row that is there twice: no folder has such rows.
pub(super) fn of<'a>(rows: &'a [Row], options: &Options) -> Result<Side<'a>> {
    let is_exact = options.exact.is_some();
    let wanted = |row: &Row| match is_exact {
        true => exact::is_repeatable(row),
        false => Metric::of(&row.metric).is_result() && (options.slices || row.slice.is_none()),
    };
    let all = all_series(rows, Unbounded::Apart, wanted)?;
    let all = if is_exact { all } else { with_geometric_means(all) };
    let mut side = Side::new();
    for ((key, metric, slice), series) in all {
        for (policy, sums) in series.into_iter().filter(|(_, sums)| !sums.samples.is_empty()) {
            let Row { task, model, cell, .. } = head(&sums);
            if let Some((sample, _)) = sums.samples.iter().find(|(_, sum)| sum.is_repeated) {
                let policy = place(&policy.0, policy.1);
                bail!("{metric} of {model}, {policy}: cell {cell} has the sample {sample} twice\n{HINT}");
            }
            // Versions of the engine are compared with each other.
            let subject = Subject { key: SeriesKey { engine: 0, ..key.clone() }, metric, slice, policy };
            let policy = subject.policy.0.clone();
            if let Some(other) = side.insert(subject, sums) {
                bail!(
                    "{task} of {model}, {policy} was measured by two cells, {} and {cell}, of different versions of the engine\n{HINT}",
                    other.cell
                );
            }
        }
    }
    Ok(side)
}

/// Gives keys of the results the names that the baseline has for them. First those that differ in the texts taken, as where
/// a sweep took more books or has other settings that change no sample; then those of another path to the same model and
/// data; then those of times on another device. Only where there is one such key on either side.
pub(super) fn align<'a>(before: &Side<'a>, mut after: Side<'a>) -> Side<'a> {
    let texts = |key: &SeriesKey| {
        let (selection, data) = (Text::new(), Text::new());
        SeriesKey { selection, data, compare_to_full: false, ..key.clone() }
    };
    // Rows of earlier versions do not say what was read.
    let paths = |key: &SeriesKey| match key.data.is_empty() {
        true => key.clone(),
        false => SeriesKey { model: Text::new(), dataset: Text::new(), ..key.clone() },
    };
    let devices = |key: &SeriesKey| SeriesKey { device: Text::new(), ..key.clone() };
    for loosely in [&texts as &dyn Fn(&SeriesKey) -> SeriesKey, &paths, &devices] {
        let keys = |side: &Side<'_>| side.keys().map(|subject| subject.key.clone()).collect::<BTreeSet<_>>();
        let (theirs, ours) = (keys(before), keys(&after));
        let mut partners: BTreeMap<SeriesKey, [Vec<&SeriesKey>; 2]> = BTreeMap::new();
        theirs.difference(&ours).for_each(|key| partners.entry(loosely(key)).or_default()[0].push(key));
        ours.difference(&theirs).for_each(|key| partners.entry(loosely(key)).or_default()[1].push(key));
        let rename = |(subject, cell): (Subject<'a>, CellSums<'a>)| {
            let key = match partners.get(&loosely(&subject.key)).map(|[before, after]| (&before[..], &after[..])) {
                Some(([before], [after])) if **after == subject.key => (*before).clone(),
                _ => subject.key.clone(),
            };
            (Subject { key, ..subject }, cell)
        };
        after = after.into_iter().map(rename).collect();
    }
    after
}
