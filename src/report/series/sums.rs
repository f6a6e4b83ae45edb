//! Rows reduced to series, once, for reports, comparisons and the paper's figures: the sums of each sample, counted once.
//!
//! A series is one metric, of whole samples or one slice of them, of everything that shares a [`SeriesKey`]; it has a
//! place for each policy and cache size, which one cell measured. All orders are those of the rows. Geometric means are
//! combined here. Nothing is pooled over samples and no statistic is computed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use anyhow::{Result, bail};
use indexmap::{IndexMap, IndexSet};

use crate::ledger::Row;
use crate::metric::{GEOMETRIC_MEANS, Slice};
use crate::report::series::{SeriesKey, Size, SizeUnit, place};
use crate::report::statistics::Sums;

/// A policy, as lines of tables call it, at a cache size; `None` is the unbounded cache.
pub type PolicyAtSize<'a> = (Cow<'a, str>, Option<Size>);

/// A series by what it is about: its key, the metric, and the slice of every sample; `None` is all of it.
pub type SeriesId<'a> = (SeriesKey, &'a str, Option<&'a Slice>);

/// The places of one series.
pub type Series<'a> = IndexMap<PolicyAtSize<'a>, CellSums<'a>>;

/// One sample's part in a pooled metric.
#[derive(Clone, Copy, Debug)]
pub struct SampleSum<'a> {
    /// The first row that has it.
    pub row: &'a Row,
    pub sums: Sums,
    /// Whether another row repeats the first.
    pub is_repeated: bool,
}

/// What one cell measured for one series.
#[derive(Clone, Debug, Default)]
pub struct CellSums<'a> {
    /// The cell's id.
    pub cell: &'a str,
    /// By the sample's name.
    pub samples: BTreeMap<&'a str, SampleSum<'a>>,
}

impl CellSums<'_> {
    /// Bytes that the cache holds, the mean over samples; `None` where a sample does not say it.
    pub fn held_bytes(&self) -> Option<f64> {
        self.mean(|row| row.held_bytes)
    }

    /// Bytes of the cache that a token's prediction reads, the mean over samples; `None` where a sample does not say it.
    pub fn read_bytes(&self) -> Option<f64> {
        self.mean(|row| row.read_bytes)
    }

    fn mean(&self, of: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        let all: Vec<f64> = self.samples.values().map(|sample| of(sample.row)).collect::<Option<_>>()?;
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    /// Least and most entries of a sample's cache; `None` for the unbounded cache.
    pub fn entries(&self) -> Option<(u32, u32)> {
        let entries = || self.samples.values().filter_map(|sample| sample.row.cache_size);
        entries().min().zip(entries().max())
    }

    /// The most bytes that the cache of any sample holds; `None` where a sample does not say it.
    pub fn peak_bytes(&self) -> Option<u64> {
        let peaks: Vec<u64> = self.samples.values().map(|sample| sample.row.peak_bytes).collect::<Option<_>>()?;
        peaks.into_iter().max()
    }
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
pub type AllSeries<'a> = IndexMap<SeriesId<'a>, Series<'a>>;

/// Reduces the rows whose metric and slice are `wanted`.
///
/// # Errors
/// A place that two cells measured, or a sample that one cell has twice with different numbers: neither is better than
/// the other.
pub fn all_series(rows: &[Row], unbounded: Unbounded, wanted: impl Fn(&Row) -> bool) -> Result<AllSeries<'_>> {
    let cells = cells(rows, wanted);
    // The keys of policies, by the unit of sizes. Of cut texts alone there are none.
    let mut bounded: BTreeMap<SeriesKey, BTreeMap<SizeUnit, IndexSet<&SeriesKey>>> = BTreeMap::new();
    for (key, _, rows) in cells.iter().filter(|(_, _, rows)| rows[0].policy != "full") {
        let of_unit = bounded.entry(key.without_cache()).or_default().entry(key.size_unit).or_default();
        of_unit.extend((!rows[0].never_evicts()).then_some(key));
    }
    let entries = BTreeMap::from([(SizeUnit::Entries, IndexSet::new())]);
    let mut all = AllSeries::new();
    for (key, (metric, slice), rows) in &cells {
        let head = rows[0];
        let mut add = |key: SeriesKey| {
            let series = all.entry((key, *metric, *slice)).or_default();
            let sums = series.entry((head.variant(), Size::of(head))).or_default();
            rows.iter().try_for_each(|row| sums.add(row))
        };
        match (head.never_evicts(), unbounded) {
            (false, _) => add(key.clone())?,
            (true, Unbounded::Apart) => add(key.without_cache())?,
            (true, Unbounded::BesidePolicies) => {
                let has_size = head.policy != "full";
                let units = bounded.get(&key.without_cache()).unwrap_or(&entries).iter();
                for (&size_unit, keys) in units.filter(|(unit, _)| !has_size || **unit == key.size_unit) {
                    match keys.is_empty() {
                        true => add(SeriesKey { size_unit, ..key.clone() })?,
                        false => keys.iter().try_for_each(|key| add((*key).clone()))?,
                    }
                }
            }
        }
    }
    Ok(all)
}

/// What a policy at a size has of whole samples.
pub(crate) fn cell_of<'s>(
    all: &'s AllSeries<'s>,
    key: &SeriesKey,
    metric: &'s str,
    (policy, size): (&'s str, Option<Size>),
) -> Option<&'s CellSums<'s>> {
    all.get(&(key.clone(), metric, None))?.get(&(policy.into(), size))
}

/// Adds geometric means of three metrics, such as ROUGE, from the cells that measured all three.
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
type Part<'a> = (SeriesKey, (&'a str, Option<&'a Slice>), Vec<&'a Row>);

/// The rows by cell, metric and slice. Rows of a cell follow each other in a ledger, so comparing neighbours avoids most of
/// the look-ups, which matters with a million rows.
fn cells<'a>(rows: &'a [Row], wanted: impl Fn(&Row) -> bool) -> Vec<Part<'a>> {
    let mut cells = Vec::new();
    for rows in rows.chunk_by(is_of_one_cell) {
        let mut metrics: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            metrics.entry((row.metric.as_str(), row.slice.as_ref())).or_default().push(row);
        }
        let wanted = metrics.into_iter().filter(|(_, rows)| wanted(rows[0]));
        cells.extend(wanted.map(|(of, rows)| (SeriesKey::of(rows[0]), of, rows)));
    }
    cells
}

/// Whether two rows belong to the same place of the same cell.
fn is_of_one_cell(a: &Row, b: &Row) -> bool {
    a.cell == b.cell
        && (&a.policy, Size::of(a), &a.positions) == (&b.policy, Size::of(b), &b.positions)
        && SeriesKey::agree(a, b)
}

/// A metric made of three others, from the cells that measured all of them.
fn combine<'a>([first, second, third]: [&Series<'a>; 3]) -> Series<'a> {
    let mut combined = Series::new();
    for (place, sums) in first {
        let (Some(second), Some(third)) = (second.get(place), third.get(place)) else { continue };
        let mut all = sums.clone();
        all.samples.retain(|sample, sum| {
            let [Some(second), Some(third)] = [second, third].map(|other| other.samples.get(sample)) else {
                return false;
            };
            sum.sums.values = [sum, second, third].map(|of| of.sums.values[0]);
            true
        });
        combined.insert(place.clone(), all);
    }
    combined
}

/// Adds the samples of a slice to sums over the slices before it; returns the sums of those samples that it has.
pub(crate) fn accumulate<'a>(sums: &mut Series<'a>, slice: &Series<'a>) -> Series<'a> {
    let mut limited = Series::new();
    for (place, own) in slice {
        let sums = sums.entry(place.clone()).or_default();
        sums.cell = own.cell;
        for (sample, own) in &own.samples {
            let none = SampleSum { sums: Sums::default(), ..*own };
            sums.samples.entry(sample).or_insert(none).sums += &own.sums;
        }
        let mut sums = sums.clone();
        sums.samples.retain(|sample, _| own.samples.contains_key(sample));
        limited.insert(place.clone(), sums);
    }
    limited
}

impl<'a> CellSums<'a> {
    /// Adds a row of one of the cell's samples, which may come twice, as when a folder is read twice.
    ///
    /// # Errors
    /// A row of another cell, or a sample that has another number already.
    fn add(&mut self, row: &'a Row) -> Result<()> {
        let at = place(&row.variant(), Size::of(row));
        if self.samples.is_empty() {
            self.cell = &row.cell;
        } else if self.cell != row.cell {
            bail!(
                "{} of {}, {at}, was measured by two cells, {} and {}, which may differ\n\
                 hint: report or compare the folders one by one, or remove one of the two files from `cells`",
                row.task,
                row.model,
                self.cell,
                row.cell
            );
        }
        let sums = Sums { values: [row.value, 0.0, 0.0], weight: row.weight };
        let first = match self.samples.entry(&row.sample) {
            Entry::Vacant(place) => {
                place.insert(SampleSum { row, sums, is_repeated: false });
                return Ok(());
            }
            Entry::Occupied(first) => first.into_mut(),
        };
        first.is_repeated = true;
        if first.sums.bits() != sums.bits() {
            bail!(
                "{} of {}, {at}: cell {} has the sample {} twice with different numbers\n\
                 hint: leave out one of the folders",
                row.task,
                row.model,
                row.cell,
                row.sample
            );
        }
        Ok(())
    }

    /// The number of each sample by itself, ascending.
    pub(crate) fn quotients(&self) -> Vec<f64> {
        let mut quotients: Vec<f64> =
            self.samples.values().map(|sum| sum.sums.values[0] / sum.sums.weight).collect();
        quotients.sort_by(f64::total_cmp);
        quotients
    }

    /// All samples together; `None` where nothing was weighed.
    pub(crate) fn pooled(&self) -> Option<[f64; 3]> {
        self.samples.values().map(|sum| &sum.sums).sum::<Sums>().pooled()
    }
}
