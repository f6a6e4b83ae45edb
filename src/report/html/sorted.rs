//! The rows sorted for looking at single samples: cells with their columns, and the places of a setting that they claim.
//!
//! One pass over the rows. It knows which rows a reader of one sample wants, and that the newest of several cells speaks for a
//! place; what the page has room for it does not know.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::super::setting::Setting;
use super::super::{gather, order};
use crate::ledger::Row;

/// A metric and the part of the sample it is about.
pub(super) type Column<'a> = (&'a str, Option<&'a str>);

/// What one cell measured.
pub(super) struct Cell<'a> {
    id: &'a str,
    first: &'a Row,
    /// Engine version and date, by which the newest of several cells is found.
    age: (u32, &'a str),
    pub(super) columns: BTreeMap<Column<'a>, Vec<(u32, &'a Row)>>,
    /// The rows that carry text.
    pub(super) written: Vec<(u32, &'a Row)>,
}

/// The rows, sorted: cells with their columns, and the samples' names.
pub(super) struct Sorted<'a> {
    cells: Vec<Cell<'a>>,
    /// What cells measured: own settings, and what `full` and `truncate` share them by.
    homes: Vec<(Setting, Setting)>,
    /// Name and cluster.
    pub(super) samples: Vec<(&'a str, &'a str)>,
}

pub(super) fn sort(rows: &[Row]) -> Sorted<'_> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut samples: HashMap<(&str, &str), u32> = HashMap::new();
    let mut sorted = Sorted { cells: Vec::new(), homes: Vec::new(), samples: Vec::new() };
    let mut last: Option<(usize, u32, &Row)> = None;
    for row in rows.iter().filter(|row| is_shown(row)) {
        let cell = match last {
            Some((cell, _, before)) if before.cell == row.cell => cell,
            _ => *places.entry(&row.cell).or_insert_with(|| {
                let (age, columns) = ((row.engine, row.date.as_str()), BTreeMap::new());
                sorted.cells.push(Cell { id: &row.cell, first: row, age, columns, written: Vec::new() });
                sorted.cells.len() - 1
            }),
        };
        let sample = match last {
            Some((_, sample, before)) if before.sample == row.sample && before.cluster == row.cluster => sample,
            _ => *samples.entry((&row.sample, &row.cluster)).or_insert_with(|| {
                sorted.samples.push((&row.sample, &row.cluster));
                u32::try_from(sorted.samples.len() - 1).unwrap_or(u32::MAX)
            }),
        };
        last = Some((cell, sample, row));
        let cell = &mut sorted.cells[cell];
        cell.age = cell.age.max((row.engine, &row.date));
        cell.columns.entry((&row.metric, row.group.as_deref())).or_default().push((sample, row));
        if row.metric == "new_tokens" && row.output.is_some() {
            cell.written.push((sample, row));
        }
    }
    let home = |cell: &Cell<'_>| Setting::of(cell.first);
    sorted.homes = sorted.cells.iter().map(home).map(|own| (own.clone(), own.without_cache())).collect();
    sorted
}

impl<'a> Sorted<'a> {
    /// The places of a setting, as tables order them.
    pub(super) fn places(&'a self, setting: &Setting) -> Vec<Place<'a>> {
        let without_cache = setting.without_cache();
        let is_here = |cell: &Cell<'_>, (own, shared): &(Setting, Setting)| {
            // `full` and `truncate` evict nobody, so they stand beside every way to fill a cache.
            let shares = matches!(cell.first.policy.as_str(), "full" | "truncate");
            own == setting || (shares && *shared == without_cache)
        };
        let mut places: BTreeMap<(Cow<'a, str>, Option<u32>), Vec<&'a Cell<'a>>> = BTreeMap::new();
        for (cell, _) in self.cells.iter().zip(&self.homes).filter(|(cell, home)| is_here(cell, home)) {
            places.entry((gather::label(cell.first), cell.first.cache_size)).or_default().push(cell);
        }
        let place = |((policy, size), mut cells): ((Cow<'a, str>, Option<u32>), Vec<&'a Cell<'a>>)| {
            cells.sort_by_key(|cell| std::cmp::Reverse((cell.age, cell.id)));
            Place { policy, size, cells }
        };
        let mut places: Vec<Place<'_>> = places.into_iter().map(place).collect();
        places.sort_by(|a, b| (order::of(&a.policy), a.size).cmp(&(order::of(&b.policy), b.size)));
        places
    }
}

/// Whole samples, and their course; what a guess would reach and lists of tokens are no reader's.
fn is_shown(row: &Row) -> bool {
    let part = row.group.as_deref();
    part.is_none_or(is_place)
        && !row.metric.ends_with("_trivial")
        && !row.metric.ends_with("_chance")
        && !matches!(row.metric.as_str(), "kept_until" | "lifetime_by_token")
}

/// Whether a part is a stretch of the sample.
fn is_place(group: &str) -> bool {
    group.starts_with("position:") || group.starts_with("piece:")
}

/// A policy at a size, and the cells that claim it, the newest first.
pub(super) struct Place<'a> {
    pub(super) policy: Cow<'a, str>,
    pub(super) size: Option<u32>,
    pub(super) cells: Vec<&'a Cell<'a>>,
}

impl<'a> Place<'a> {
    /// What was written for each sample; `None` where the task writes nothing.
    pub(super) fn outputs(&self, listed: &HashMap<u32, usize>, samples: usize) -> Option<Vec<Option<&'a str>>> {
        let written = &self.cells.iter().find(|cell| !cell.written.is_empty())?.written;
        let mut outputs = vec![None; samples];
        for (sample, row) in written {
            if let Some(&listed) = listed.get(sample) {
                outputs[listed] = outputs[listed].or(row.output.as_deref());
            }
        }
        Some(outputs)
    }
}
