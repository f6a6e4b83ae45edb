//! The numbers of one side by what they mean, and the samples that two sides share.
//!
//! Rows are reduced as for a report. Numbers are not paired by cell ids, which depend on the engine's version, nor by the
//! policy's name alone.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};

use super::comparison::Options;
use super::exact;
use crate::ledger::{Row, Text};
use crate::metric::{Metric, Slice};
use crate::report::{PolicyAtSize, SampleSum, SeriesKey, Unbounded, all_series, place, with_geometric_means};

/// One number that two sides may both have: a metric, or a slice of it, of a policy at a size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject<'a> {
    pub(super) key: SeriesKey,
    pub(super) metric: &'a str,
    /// `None` where slices are not compared separately.
    pub(super) slice: Option<&'a Slice>,
    pub(super) policy: PolicyAtSize<'a>,
}

impl Subject<'_> {
    /// The device that a side timed this number on, if only on another one.
    pub(super) fn other_device<'s>(&self, side: &'s Side<'_>) -> Option<&'s str> {
        let on = |subject: &Subject<'_>| {
            let key = SeriesKey { device: self.key.device.clone(), ..subject.key.clone() };
            (key == self.key)
                && (subject.metric, subject.slice, &subject.policy) == (self.metric, self.slice, &self.policy)
        };
        let mut devices = side.keys().filter(|other| on(other)).map(|other| other.key.device.as_str());
        if self.key.device.is_empty() { None } else { devices.next() }
    }
}

/// A sample's name, after its slice where slices are listed with the whole.
pub(super) type Name<'a> = (Option<&'a Slice>, &'a str);

/// What was measured of a subject.
#[derive(Clone, Debug)]
pub(super) struct Numbers<'a> {
    /// A row of it, for its provenance.
    pub(super) row: &'a Row,
    pub(super) samples: BTreeMap<Name<'a>, SampleSum<'a>>,
}

/// One side of a comparison.
pub(super) type Side<'a> = BTreeMap<Subject<'a>, Numbers<'a>>;

const HINT: &str = "hint: compare folders that know their sweep, or save the baseline again";

/// Every number of whole samples, and of slices too if asked for. Compared exactly, the slices of a sample are in the same
/// subject as the whole, and only rows that can be repeated count.
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
        let (of_subject, of_sample) = if is_exact { (None, slice) } else { (slice, None) };
        for (policy, sums) in series {
            if let Some((sample, sum)) = sums.samples.iter().find(|(_, sum)| sum.is_repeated) {
                let (model, cell, policy) = (&sum.row.model, &sum.row.cell, place(&policy.0, policy.1));
                bail!("{metric} of {model}, {policy}: cell {cell} has the sample {sample} twice\n{HINT}");
            }
            // Versions of the engine are compared with each other.
            let key = SeriesKey { engine: 0, ..key.clone() };
            let subject = Subject { key, metric, slice: of_subject, policy };
            let Some((_, first)) = sums.samples.first_key_value() else { continue };
            let numbers = side.entry(subject);
            let numbers = numbers.or_insert_with(|| Numbers { row: first.row, samples: BTreeMap::new() });
            let Row { task, model, policy, cell, .. } = first.row;
            ensure!(
                numbers.row.cell == *cell,
                "{task} of {model}, {policy} was measured by two cells, {} and {cell}, of different versions of the engine\n{HINT}",
                numbers.row.cell
            );
            numbers.samples.extend(sums.samples.iter().map(|(sample, sum)| ((of_sample, *sample), *sum)));
        }
    }
    Ok(side)
}

/// Gives keys of the results the names that the baseline has for them. First those that differ in the texts taken, as where
/// a sweep took more books or has other settings that change no sample; then those of another path to the same model and
/// data. Only where there is one such key on either side.
pub(super) fn align<'a>(before: &Side<'a>, after: Side<'a>) -> Side<'a> {
    let texts = |key: &SeriesKey| {
        let (selection, data) = (Text::new(), Text::new());
        SeriesKey { selection, data, compare_to_full: false, ..key.clone() }
    };
    // Rows of earlier versions do not say what was read.
    let paths = |key: &SeriesKey| match key.data.is_empty() {
        true => key.clone(),
        false => SeriesKey { model: Text::new(), dataset: Text::new(), ..key.clone() },
    };
    let mut after = after;
    for loosely in [&texts as &dyn Fn(&SeriesKey) -> SeriesKey, &paths] {
        let keys = |side: &Side<'_>| side.keys().map(|subject| subject.key.clone()).collect::<BTreeSet<_>>();
        let (theirs, ours) = (keys(before), keys(&after));
        let only = |key: &&SeriesKey| theirs.contains(*key) != ours.contains(*key);
        let mut partners: BTreeMap<SeriesKey, [Vec<&SeriesKey>; 2]> = BTreeMap::new();
        for (side, keys) in [&theirs, &ours].into_iter().enumerate() {
            for key in keys.iter().filter(only) {
                partners.entry(loosely(key)).or_default()[side].push(key);
            }
        }
        let pairs = partners.values().filter_map(|sides| match sides {
            [before, after] if before.len() == 1 && after.len() == 1 => Some((after[0], before[0])),
            _ => None,
        });
        let named: BTreeMap<&SeriesKey, &SeriesKey> = pairs.collect();
        let rename = |(subject, numbers): (Subject<'a>, Numbers<'a>)| {
            let key = named.get(&subject.key).map_or_else(|| subject.key.clone(), |key| (*key).clone());
            (Subject { key, ..subject }, numbers)
        };
        after = after.into_iter().map(rename).collect();
    }
    after
}

impl<'a> Numbers<'a> {
    /// The samples that both sides have.
    pub(super) fn both<'b>(&'b self, after: &'b Self) -> Vec<(Name<'a>, &'b SampleSum<'a>, &'b SampleSum<'a>)> {
        self.samples.iter().filter_map(|(name, sum)| Some((*name, sum, after.samples.get(name)?))).collect()
    }
}

/// A sample with its slice in brackets.
pub(super) fn in_slice(sample: &str, slice: Option<&Slice>) -> String {
    slice.map_or_else(|| sample.to_owned(), |slice| format!("{sample} ({slice})"))
}
