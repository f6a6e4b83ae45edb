//! Rows sorted into places: which samples stand behind each number, each counted once.
//!
//! It knows that `full` and `truncate` are the same experiment whatever the cache's settings, that a policy whose keys
//! move is another line beside the same one whose keys stay, and that one place can be claimed by more than one cell (a
//! policy redefined, a newer engine). It pools nothing and computes no statistics.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::setting::Setting;
use crate::results::Row;

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
    let mut settings: BTreeMap<Setting, BTreeSet<Setting>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !is_shared(row)) {
        let setting = Setting::of(row);
        settings.entry(setting.without_cache()).or_default().insert(setting);
    }
    let mut panels: BTreeMap<Subject, Places> = BTreeMap::new();
    for row in rows {
        let own = Setting::of(row);
        let homes = match settings.get(&own.without_cache()) {
            Some(homes) if is_shared(row) => homes.iter().cloned().collect(),
            _ => vec![own],
        };
        for home in homes {
            let places = panels.entry((home, row.metric.as_str(), row.group.as_deref())).or_default();
            let claims = places.entry((label(row), row.cache_size)).or_default();
            claims.entry(row.cell.as_str()).or_default().add(row);
        }
    }
    panels
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
pub(super) fn label(row: &Row) -> Cow<'_, str> {
    if row.positions == "absolute" || is_shared(row) {
        Cow::Borrowed(&row.policy)
    } else {
        Cow::Owned(format!("{}@{}", row.policy, row.positions))
    }
}

/// `full` and `truncate` never evict, so where a cache's keys live and how it is filled does not concern them.
fn is_shared(row: &Row) -> bool {
    matches!(row.policy.as_str(), "full" | "truncate")
}

impl<'a> Measured<'a> {
    fn add(&mut self, row: &'a Row) {
        let mark = Mark { cluster: &row.cluster, value: row.value, beside: [0.0; 2], weight: row.weight };
        self.age = self.age.max((row.engine, &row.date));
        if let Some(first) = self.marks.get(row.sample.as_str()) {
            // The same file read twice is harmless; two numbers for one sample are not.
            let same = first.value.to_bits() == mark.value.to_bits() && first.weight == mark.weight;
            self.contradictions += usize::from(!same);
            return;
        }
        self.marks.insert(&row.sample, mark);
    }
}

/// The newest of the cells that claim a place: a later engine's, else the later date's.
pub(super) fn newest<'c, 'a>(claims: &'c Claims<'a>) -> Option<(&'a str, &'c Measured<'a>)> {
    claims.iter().max_by_key(|(cell, measured)| (measured.age, **cell)).map(|(cell, measured)| (*cell, measured))
}
