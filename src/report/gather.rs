//! Rows sorted into places: which samples stand behind each number, each counted once.
//!
//! It knows that `full` and `truncate` are the same experiment whatever the cache's settings, that a policy whose keys
//! move is another line beside the same one whose keys stay, and that one place can be claimed by more than one cell (a
//! policy redefined, a newer engine). It pools nothing and computes no statistics.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::setting::Setting;
use crate::ledger::Row;

/// Where a number stands inside a panel: a policy at a cache size.
pub(super) type Place<'a> = (Cow<'a, str>, Option<u32>);

/// One sample's share of a pooled metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark<'a> {
    pub(super) cluster: &'a str,
    pub(super) value: f64,
    /// Values of two metrics more, for a quantity made of three.
    pub(super) beside: [f64; 2],
    pub(super) weight: f64,
}

/// What one cell measured for one metric.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured<'a> {
    pub(super) marks: BTreeMap<&'a str, Mark<'a>>,
    /// Engine version and date, by which the newest of several cells is found.
    age: (u32, &'a str),
    /// Samples that came twice with different numbers.
    pub(super) contradictions: usize,
}

/// The cells that claim one place, by id.
pub(super) type Claims<'a> = BTreeMap<&'a str, Measured<'a>>;
/// The places of one panel.
pub(super) type Places<'a> = BTreeMap<Place<'a>, Claims<'a>>;

/// What a panel is about: setting, metric, and the part of the samples; `None`: all of them.
pub(super) type Subject<'a> = (Setting, &'a str, Option<&'a str>);

/// Every panel's places.
pub(super) fn gather(rows: &[Row]) -> BTreeMap<Subject<'_>, Places<'_>> {
    let cells = cells(rows);
    let mut settings: BTreeMap<Setting, BTreeSet<&Setting>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| !is_shared(cell.head)) {
        settings.entry(cell.setting.without_cache()).or_default().insert(&cell.setting);
    }
    let mut panels: BTreeMap<Subject, Places> = BTreeMap::new();
    for cell in &cells {
        let homes: Vec<&Setting> = match settings.get(&cell.setting.without_cache()) {
            Some(homes) if is_shared(cell.head) => homes.iter().copied().collect(),
            _ => vec![&cell.setting],
        };
        for ((metric, group), rows) in &cell.metrics {
            let measured = Measured::of(rows);
            for home in &homes {
                let places = panels.entry(((*home).clone(), metric, *group)).or_default();
                let claims = places.entry((label(cell.head), cell.head.cache_size)).or_default();
                claims.entry(cell.head.cell.as_str()).or_default().join(&measured);
            }
        }
    }
    panels
}

/// Rows that say the same of where they were measured.
struct Cell<'a> {
    head: &'a Row,
    setting: Setting,
    metrics: BTreeMap<(&'a str, Option<&'a str>), Vec<&'a Row>>,
}

/// The rows by cell. Those of a cell follow each other in a ledger, so whether a row continues the last one's cell is
/// asked before anything is looked up; with a million rows that is most of the work.
fn cells(rows: &[Row]) -> Vec<Cell<'_>> {
    rows.chunk_by(is_of_one_cell)
        .map(|rows| {
            let mut metrics: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
            for row in rows {
                metrics.entry((row.metric.as_str(), row.group.as_deref())).or_default().push(row);
            }
            Cell { head: &rows[0], setting: Setting::of(&rows[0]), metrics }
        })
        .collect()
}

/// Whether two rows agree in all that places them.
fn is_of_one_cell(a: &Row, b: &Row) -> bool {
    a.cell == b.cell
        && (&a.policy, a.cache_size, &a.positions) == (&b.policy, b.cache_size, &b.positions)
        && Setting::agree(a, b)
}

/// A metric made of three others, from the cells that measured all of them.
pub(super) fn combine<'a>([first, second, third]: [&Places<'a>; 3]) -> Places<'a> {
    let mut combined = Places::new();
    for (place, claims) in first {
        for (cell, measured) in claims {
            let other = |places: &Places<'a>| places.get(place)?.get(cell).cloned();
            let (Some(second), Some(third)) = (other(second), other(third)) else { continue };
            let mut all = measured.clone();
            all.marks.retain(|sample, mark| {
                let [Some(second), Some(third)] = [&second, &third].map(|other| other.marks.get(sample)) else {
                    return false;
                };
                mark.beside = [second.value, third.value];
                true
            });
            combined.entry(place.clone()).or_default().insert(cell, all);
        }
    }
    combined
}

/// Adds the samples of a part to sums over the parts before it.
pub(super) fn accumulate<'a>(sums: &mut Places<'a>, part: &Places<'a>) {
    for (place, claims) in part {
        for (cell, measured) in claims {
            let sums = sums.entry(place.clone()).or_default().entry(cell).or_default();
            sums.age = measured.age;
            sums.contradictions += measured.contradictions;
            for (sample, mark) in &measured.marks {
                let sum = sums.marks.entry(sample).or_insert(Mark { value: 0.0, weight: 0.0, ..*mark });
                sum.value += mark.value;
                sum.weight += mark.weight;
            }
        }
    }
}

/// Sums of those samples that a part has too.
pub(super) fn limited_to<'a>(sums: &Places<'a>, part: &Places<'a>) -> Places<'a> {
    let mut limited = Places::new();
    for (place, claims) in part {
        for (cell, measured) in claims {
            let Some(sums) = sums.get(place).and_then(|claims| claims.get(cell)) else { continue };
            let mut sums = sums.clone();
            sums.marks.retain(|sample, _| measured.marks.contains_key(sample));
            limited.entry(place.clone()).or_default().insert(cell, sums);
        }
    }
    limited
}

/// What a policy's line is called, as a sweep would write it: `tova`, or `tova@squeezed` where keys move.
pub fn label(row: &Row) -> Cow<'_, str> {
    if row.positions == "absolute" || is_shared(row) {
        Cow::Borrowed(&row.policy)
    } else {
        Cow::Owned(format!("{}@{}", row.policy, row.positions))
    }
}

/// `full` and `truncate` never evict, so where a cache's keys live and how it is filled does not concern them.
pub fn is_shared(row: &Row) -> bool {
    matches!(row.policy.as_str(), "full" | "truncate")
}

impl<'a> Measured<'a> {
    /// Of several rows of one sample the first counts.
    fn of(rows: &[&'a Row]) -> Self {
        let age = rows.iter().map(|row| (row.engine, row.date.as_str())).max().unwrap_or_default();
        let mut marks: Vec<(&str, Mark)> = rows
            .iter()
            .map(|row| {
                let mark = Mark { cluster: &row.cluster, value: row.value, beside: [0.0; 2], weight: row.weight };
                (row.sample.as_str(), mark)
            })
            .collect();
        marks.sort_by_key(|(sample, _)| *sample);
        let mut contradictions = 0;
        marks.dedup_by(|later, first| {
            contradictions += usize::from(later.0 == first.0 && first.1.contradicts(&later.1));
            later.0 == first.0
        });
        Self { marks: marks.into_iter().collect(), age, contradictions }
    }

    /// Adds what the same cell measured elsewhere in the rows.
    fn join(&mut self, other: &Self) {
        self.age = self.age.max(other.age);
        self.contradictions += other.contradictions;
        if self.marks.is_empty() {
            self.marks.clone_from(&other.marks);
            return;
        }
        for (sample, mark) in &other.marks {
            match self.marks.get(sample) {
                Some(first) => self.contradictions += usize::from(first.contradicts(mark)),
                None => {
                    self.marks.insert(sample, *mark);
                }
            }
        }
    }
}

impl Mark<'_> {
    /// The same file read twice is harmless; two numbers for one sample are not.
    fn contradicts(&self, other: &Self) -> bool {
        self.value.to_bits() != other.value.to_bits() || self.weight != other.weight
    }
}

/// The newest of the cells that claim a place: a later engine's, else the later date's.
pub(super) fn newest<'c, 'a>(claims: &'c Claims<'a>) -> Option<(&'a str, &'c Measured<'a>)> {
    claims.iter().max_by_key(|(cell, measured)| (measured.age, **cell)).map(|(cell, measured)| (*cell, measured))
}
