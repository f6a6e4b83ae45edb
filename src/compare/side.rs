//! The numbers of one side by what they mean, and the samples that two sides share.
//!
//! Rows are reduced as for a report. Numbers are not paired by cell ids, which depend on the engine's version, nor by the
//! policy's name alone.

use std::collections::BTreeMap;

use crate::ledger::{Row, Text};
use crate::metric::Metric;
use crate::report::{AllSeries, CellSums, PolicyAtSize, SampleSum, SeriesKey, Unbounded, newest};

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

/// A sample's part in a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedSum<'a> {
    /// The slice of the sample, where slices are listed with the whole.
    pub(super) slice: Option<&'a str>,
    pub(super) sample: &'a str,
    pub(super) sum: SampleSum<'a>,
}

impl NamedSum<'_> {
    fn name(&self) -> (Option<&str>, &str) {
        (self.slice, self.sample)
    }
}

/// What the newest cell measured of a subject.
#[derive(Clone, Debug)]
pub(super) struct Numbers<'a> {
    /// A row of it, for its provenance.
    pub(super) row: &'a Row,
    /// By slice and name, each once.
    pub(super) samples: Vec<NamedSum<'a>>,
    /// Samples that came twice with different numbers.
    pub(super) contradictions: usize,
    /// Cells that measured this subject.
    pub(super) candidates: usize,
}

/// A slice of a cell's samples, `None` for all of them, with its sums.
type Slice<'c, 'a> = (Option<&'a str>, &'c CellSums<'a>);

/// One side of a comparison.
pub(super) type Side<'a> = BTreeMap<Subject<'a>, Numbers<'a>>;

/// Every number of whole samples, and of slices too if asked for.
pub(super) fn pooled(rows: &[Row], slices: bool) -> Side<'_> {
    let wanted = |row: &Row| Metric::of(&row.metric).is_result() && (slices || row.slice.is_none());
    let all = AllSeries::of(rows, Unbounded::Apart, wanted).with_geometric_means();
    let mut side = Side::new();
    for ((key, metric, slice), series) in all.iter() {
        for (policy, candidates) in series {
            let Some((_, sums)) = newest(candidates) else { continue };
            let subject = Subject { key: key.clone(), metric, slice: *slice, policy: policy.clone() };
            side.extend(Numbers::of(&[(*slice, sums)], candidates.len()).map(|numbers| (subject, numbers)));
        }
    }
    side
}

/// The rows that are wanted, with the slices of a sample in the same subject as the whole.
pub(super) fn exact<'a>(rows: &'a [Row], wanted: impl Fn(&Row) -> bool) -> Side<'a> {
    let all = AllSeries::of(rows, Unbounded::Apart, wanted);
    let mut cells: BTreeMap<Subject<'_>, BTreeMap<&str, Vec<Slice<'_, 'a>>>> = BTreeMap::new();
    for ((key, metric, slice), series) in all.iter() {
        for (policy, candidates) in series {
            let subject = Subject { key: key.clone(), metric, slice: None, policy: policy.clone() };
            let subject = cells.entry(subject).or_default();
            candidates.iter().for_each(|(cell, sums)| subject.entry(cell).or_default().push((*slice, sums)));
        }
    }
    let age = |slices: &[Slice<'_, 'a>]| slices.iter().map(|(_, sums)| sums.age).max();
    let newest = cells.into_iter().filter_map(|(subject, cells)| {
        let (_, slices) = cells.iter().max_by_key(|(cell, slices)| (age(slices), **cell))?;
        Some((subject, Numbers::of(slices, cells.len())?))
    });
    newest.collect()
}

impl<'a> Numbers<'a> {
    /// From the slices of one cell, in order; `None` where there is no sample.
    fn of(slices: &[Slice<'_, 'a>], candidates: usize) -> Option<Self> {
        let named = |(slice, sums): &Slice<'_, 'a>| {
            let slice = *slice;
            let named = sums.samples.iter().map(move |(sample, sum)| NamedSum { slice, sample, sum: *sum });
            named.collect::<Vec<_>>()
        };
        let samples: Vec<NamedSum<'a>> = slices.iter().flat_map(named).collect();
        let contradictions = slices.iter().map(|(_, sums)| sums.contradictions).sum();
        Some(Self { row: samples.first()?.sum.row, samples, contradictions, candidates })
    }
}

/// Samples of two sides by name: those both have, those only the first has, and how many only the second has.
pub(super) struct Paired<'a> {
    pub(super) both: Vec<(NamedSum<'a>, NamedSum<'a>)>,
    pub(super) missing: Vec<NamedSum<'a>>,
    pub(super) new: usize,
}

pub(super) fn pair<'a>(before: &[NamedSum<'a>], after: &[NamedSum<'a>]) -> Paired<'a> {
    let mut paired = Paired { both: Vec::new(), missing: Vec::new(), new: 0 };
    let mut rest = after.iter().peekable();
    for sample in before {
        while rest.next_if(|other| other.name() < sample.name()).is_some() {
            paired.new += 1;
        }
        match rest.next_if(|other| other.name() == sample.name()) {
            Some(other) => paired.both.push((*sample, *other)),
            None => paired.missing.push(*sample),
        }
    }
    paired.new += rest.count();
    paired
}
