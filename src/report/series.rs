//! Rows reduced to series, once, for reports, comparisons and the paper's figures: the sums of each sample, counted once.
//!
//! A series is one metric, of whole samples or one slice of them, of everything that shares a [`SeriesKey`]; it has a
//! place for each policy and cache size. A place may have several cells (a policy redefined, a newer engine): the newest
//! counts. Geometric means are combined here. Nothing is pooled over samples and no statistic is computed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::bootstrap::Sums;
use super::series_key::SeriesKey;
use crate::ledger::Row;
use crate::metric::GEOMETRIC_MEANS;

/// A policy, as lines of tables call it, at a cache size; `None` is the unbounded cache.
pub type PolicyAtSize<'a> = (Cow<'a, str>, Option<u32>);

/// A series by what it is about: its key, the metric, and the slice of every sample; `None` is all of it.
pub type SeriesId<'a> = (SeriesKey, &'a str, Option<&'a str>);

/// The cells that measured one place, by id.
pub type Candidates<'a> = BTreeMap<&'a str, CellSums<'a>>;

/// The places of one series.
pub type Series<'a> = BTreeMap<PolicyAtSize<'a>, Candidates<'a>>;

/// One sample's part in a pooled metric.
#[derive(Clone, Copy, Debug)]
pub struct SampleSum<'a> {
    /// The first row that has it.
    pub row: &'a Row,
    pub sums: Sums,
}

/// What one cell measured for one series.
#[derive(Clone, Debug, Default)]
pub struct CellSums<'a> {
    /// By the sample's name.
    pub samples: BTreeMap<&'a str, SampleSum<'a>>,
    /// Engine version and date, by which the newest of several cells is found.
    pub age: (u32, &'a str),
    /// Samples that came twice with different numbers.
    pub contradictions: usize,
}

/// Where `full` and `truncate` are placed. They never evict, so it does not matter to them how a bounded cache is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbounded {
    /// In every series of policies whose key differs in nothing else.
    BesidePolicies,
    /// In series of their own.
    Apart,
}

/// All series of some rows.
pub type AllSeries<'a> = BTreeMap<SeriesId<'a>, Series<'a>>;

/// Reduces the rows whose metric and slice are `wanted`.
pub fn all_series(rows: &[Row], unbounded: Unbounded, wanted: impl Fn(&Row) -> bool) -> AllSeries<'_> {
    let cells = cells(rows, wanted);
    let mut bounded: BTreeMap<SeriesKey, BTreeSet<&SeriesKey>> = BTreeMap::new();
    for (key, ..) in cells.iter().filter(|(_, _, rows)| !is_shared(rows[0])) {
        bounded.entry(key.without_cache()).or_default().insert(key);
    }
    let mut all = AllSeries::new();
    for (key, (metric, slice), rows) in &cells {
        let head = rows[0];
        let mut add = |key: SeriesKey| {
            let series = all.entry((key, metric, *slice)).or_default();
            let candidates = series.entry((label(head), head.cache_size)).or_default();
            let sums = candidates.entry(head.cell.as_str()).or_default();
            rows.iter().for_each(|row| sums.add(row));
        };
        match (is_shared(head), unbounded) {
            (false, _) => add(key.clone()),
            (true, Unbounded::Apart) => add(key.without_cache()),
            (true, Unbounded::BesidePolicies) => match bounded.get(&key.without_cache()) {
                Some(bounded) => bounded.iter().for_each(|key| add((*key).clone())),
                None => add(key.clone()),
            },
        }
    }
    all
}

/// The same with geometric means of three metrics, such as ROUGE, from the cells that measured all three.
pub fn with_geometric_means(mut all: AllSeries<'_>) -> AllSeries<'_> {
    for (whole, parts) in GEOMETRIC_MEANS {
        let first = all.iter().filter(|((_, metric, _), _)| *metric == parts[0]);
        let combined = first.filter_map(|((key, _, slice), first)| {
            let other = |metric| all.get(&(key.clone(), metric, *slice));
            Some(((key.clone(), whole, *slice), combine([first, other(parts[1])?, other(parts[2])?])))
        });
        let combined: Vec<_> = combined.collect();
        all.extend(combined);
    }
    all
}

/// Rows of one cell, metric and slice that follow each other, with their key.
type Part<'a> = (SeriesKey, (&'a str, Option<&'a str>), Vec<&'a Row>);

/// The rows by cell, metric and slice. Rows of a cell follow each other in a ledger, so comparing neighbours avoids most of
/// the look-ups, which matters with a million rows.
fn cells<'a>(rows: &'a [Row], wanted: impl Fn(&Row) -> bool) -> Vec<Part<'a>> {
    let mut cells = Vec::new();
    for rows in rows.chunk_by(is_of_one_cell) {
        let mut metrics: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            metrics.entry((row.metric.as_str(), row.slice.as_deref())).or_default().push(row);
        }
        let wanted = metrics.into_iter().filter(|(_, rows)| wanted(rows[0]));
        cells.extend(wanted.map(|(of, rows)| (SeriesKey::of(rows[0]), of, rows)));
    }
    cells
}

/// Whether two rows belong to the same place of the same cell.
fn is_of_one_cell(a: &Row, b: &Row) -> bool {
    a.cell == b.cell
        && (&a.policy, a.cache_size, &a.positions) == (&b.policy, b.cache_size, &b.positions)
        && SeriesKey::agree(a, b)
}

/// A metric made of three others, from the cells that measured all of them.
fn combine<'a>([first, second, third]: [&Series<'a>; 3]) -> Series<'a> {
    let mut combined = Series::new();
    for (place, candidates) in first {
        for (cell, sums) in candidates {
            let other = |series: &Series<'a>| series.get(place)?.get(cell).cloned();
            let (Some(second), Some(third)) = (other(second), other(third)) else { continue };
            let mut all = sums.clone();
            all.samples.retain(|sample, sum| {
                let [Some(second), Some(third)] = [&second, &third].map(|other| other.samples.get(sample)) else {
                    return false;
                };
                sum.sums.values = [sum, second, third].map(|of| of.sums.values[0]);
                true
            });
            combined.entry(place.clone()).or_default().insert(cell, all);
        }
    }
    combined
}

/// Adds the samples of a slice to sums over the slices before it; returns the sums of those samples that it has.
pub(super) fn accumulate<'a>(sums: &mut Series<'a>, slice: &Series<'a>) -> Series<'a> {
    let mut limited = Series::new();
    for (place, candidates) in slice {
        for (cell, own) in candidates {
            let sums = sums.entry(place.clone()).or_default().entry(cell).or_default();
            sums.age = own.age;
            sums.contradictions += own.contradictions;
            for (sample, own) in &own.samples {
                let none = SampleSum { sums: Sums::default(), ..*own };
                sums.samples.entry(sample).or_insert(none).sums += &own.sums;
            }
            let mut sums = sums.clone();
            sums.samples.retain(|sample, _| own.samples.contains_key(sample));
            limited.entry(place.clone()).or_default().insert(cell, sums);
        }
    }
    limited
}

/// A policy's name in tables, as a sweep would write it: `tova`, or `tova@squeezed` where positions are not absolute.
pub fn label(row: &Row) -> Cow<'_, str> {
    if row.positions == "absolute" || is_shared(row) {
        Cow::Borrowed(&row.policy)
    } else {
        Cow::Owned(format!("{}@{}", row.policy, row.positions))
    }
}

/// Whether a row's cache never evicts, so that positions and prefill do not matter to it.
pub fn is_shared(row: &Row) -> bool {
    matches!(row.policy.as_str(), "full" | "truncate")
}

impl<'a> CellSums<'a> {
    /// Of several rows of one sample the first counts. (The same file read twice is harmless.)
    fn add(&mut self, row: &'a Row) {
        self.age = self.age.max((row.engine, row.date.as_str()));
        let sums = Sums { values: [row.value, 0.0, 0.0], weight: row.weight };
        let first = self.samples.entry(&row.sample).or_insert(SampleSum { row, sums });
        self.contradictions += usize::from(first.sums.bits() != sums.bits());
    }

    /// All samples together; `None` where nothing was weighed.
    pub(super) fn pooled(&self) -> Option<[f64; 3]> {
        self.samples.values().map(|sum| &sum.sums).sum::<Sums>().pooled()
    }
}

/// The newest of the cells of a place: a later engine's, else the later date's.
pub fn newest<'c, 'a>(candidates: &'c Candidates<'a>) -> Option<(&'a str, &'c CellSums<'a>)> {
    candidates.iter().max_by_key(|(cell, sums)| (sums.age, **cell)).map(|(cell, sums)| (*cell, sums))
}
