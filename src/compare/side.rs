//! The numbers of one side by what they mean, and the samples that two sides share.
//!
//! Rows are reduced as for a report. Numbers are not paired by cell ids, which depend on the engine's version, nor by the
//! policy's name alone.

use std::collections::BTreeMap;

use super::exact;
use super::point::Options;
use crate::ledger::{Row, Text};
use crate::metric::Metric;
use crate::report::{CellSums, PolicyAtSize, SampleSum, SeriesKey, Unbounded, all_series, with_geometric_means};

/// One number that two sides may both have: a metric, or a slice of it, of a policy at a size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject<'a> {
    pub(super) key: SeriesKey,
    pub(super) metric: &'a str,
    /// `None` where slices are not compared separately.
    pub(super) slice: Option<&'a str>,
    pub(super) policy: PolicyAtSize<'a>,
}

impl Subject<'_> {
    /// The same number without its device.
    pub(super) fn on_any_device(&self) -> Self {
        Self { key: SeriesKey { device: Text::new(), ..self.key.clone() }, ..self.clone() }
    }
}

/// A sample's name, after its slice where slices are listed with the whole.
pub(super) type Name<'a> = (Option<&'a str>, &'a str);

/// What the newest cell measured of a subject.
#[derive(Clone, Debug)]
pub(super) struct Numbers<'a> {
    /// A row of it, for its provenance.
    pub(super) row: &'a Row,
    pub(super) samples: BTreeMap<Name<'a>, SampleSum<'a>>,
    /// Samples that came twice with different numbers.
    pub(super) contradictions: usize,
    /// Cells that measured this subject.
    pub(super) candidates: usize,
}

/// A slice of a cell's samples, `None` for all of them, with its sums.
type Slice<'c, 'a> = (Option<&'a str>, &'c CellSums<'a>);

/// One side of a comparison.
pub(super) type Side<'a> = BTreeMap<Subject<'a>, Numbers<'a>>;

/// Every number of whole samples, and of slices too if asked for. Compared exactly, the slices of a sample are in the same
/// subject as the whole, and only rows that can be repeated count.
pub(super) fn of<'a>(rows: &'a [Row], options: &Options) -> Side<'a> {
    let is_exact = options.exact.is_some();
    let wanted = |row: &Row| match is_exact {
        true => exact::is_repeatable(row),
        false => Metric::of(&row.metric).is_result() && (options.parts || row.slice.is_none()),
    };
    let all = all_series(rows, Unbounded::Apart, wanted);
    let all = if is_exact { all } else { with_geometric_means(all) };
    let mut cells: BTreeMap<Subject<'_>, BTreeMap<&str, Vec<Slice<'_, 'a>>>> = BTreeMap::new();
    for ((key, metric, slice), series) in &all {
        for (policy, candidates) in series {
            let (of_subject, of_sample) = if is_exact { (None, *slice) } else { (*slice, None) };
            let subject = Subject { key: key.clone(), metric, slice: of_subject, policy: policy.clone() };
            let subject = cells.entry(subject).or_default();
            candidates.iter().for_each(|(cell, sums)| subject.entry(cell).or_default().push((of_sample, sums)));
        }
    }
    let newest = cells.into_iter().filter_map(|(subject, cells)| {
        let age = |slices: &[Slice<'_, 'a>]| slices.iter().map(|(_, sums)| sums.age).max();
        let (_, slices) = cells.iter().max_by_key(|(cell, slices)| (age(slices), **cell))?;
        let named = |(slice, sums): &Slice<'_, 'a>| {
            let slice = *slice;
            sums.samples.iter().map(move |(sample, sum)| ((slice, *sample), *sum)).collect::<Vec<_>>()
        };
        let samples: BTreeMap<Name<'a>, SampleSum<'a>> = slices.iter().flat_map(named).collect();
        let contradictions = slices.iter().map(|(_, sums)| sums.contradictions).sum();
        let row = samples.values().next()?.row;
        Some((subject, Numbers { row, samples, contradictions, candidates: cells.len() }))
    });
    newest.collect()
}

impl<'a> Numbers<'a> {
    /// The samples that both sides have.
    pub(super) fn both<'b>(&'b self, after: &'b Self) -> Vec<(Name<'a>, &'b SampleSum<'a>, &'b SampleSum<'a>)> {
        self.samples.iter().filter_map(|(name, sum)| Some((*name, sum, after.samples.get(name)?))).collect()
    }

    /// The names of those that only this side has; slices in brackets.
    pub(super) fn without(&self, other: &Self) -> Vec<String> {
        let only = self.samples.keys().filter(|name| !other.samples.contains_key(*name));
        only.map(|(slice, sample)| in_slice(sample, *slice)).collect()
    }
}

/// A sample with its slice in brackets.
pub(super) fn in_slice(sample: &str, slice: Option<&str>) -> String {
    slice.map_or_else(|| sample.to_owned(), |slice| format!("{sample} ({slice})"))
}
