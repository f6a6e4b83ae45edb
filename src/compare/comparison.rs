//! Two sides compared: what was compared with what, all points, and whether a gate fails.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::point::{Moved, Point, Verdict};
use super::threshold::Thresholds;
use crate::ledger::{Row, Text};
use crate::report::SeriesKey;

/// Settings of a comparison: what is compared, and how much may differ.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub thresholds: Thresholds,
    /// Compare the slices of samples as well.
    pub slices: bool,
    /// Compare sample by sample instead, slices too, within this tolerance.
    pub exact: Option<f64>,
    /// Do not fail where numbers or samples are missing.
    pub allow_missing: bool,
}

/// The provenance of one side's rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Origin {
    /// The name on the command line.
    pub name: String,
    pub rows: usize,
    pub cells: usize,
    pub engines: BTreeSet<u32>,
    pub devices: BTreeSet<Text>,
    pub commits: BTreeSet<Text>,
    /// The first and the last, RFC 3339.
    pub dates: Option<(Text, Text)>,
}

impl Origin {
    pub fn of(name: &str, rows: &[Row]) -> Origin {
        let dates = || rows.iter().map(|row| &row.date);
        Origin {
            name: name.to_owned(),
            rows: rows.len(),
            cells: rows.iter().map(|row| &row.cell).collect::<BTreeSet<_>>().len(),
            engines: rows.iter().map(|row| row.engine).collect(),
            devices: rows.iter().map(|row| row.device.clone()).collect(),
            commits: rows.iter().filter_map(|row| row.commit.clone()).collect(),
            dates: dates().min().cloned().zip(dates().max().cloned()),
        }
    }
}

/// Two sides compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The tolerance, where samples were compared one by one.
    pub exact: Option<f64>,
    pub allow_missing: bool,
    pub baseline: Origin,
    pub results: Origin,
    /// Sorted by key, metric, slice, policy and size.
    pub points: Vec<Point>,
    /// Facts that a reader must know, one sentence each.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Whether anything got worse, or is missing and should not be. Nothing in common is no success, whatever is allowed.
    pub fn failed(&self) -> bool {
        !self.has_common() || self.points.iter().any(|point| point.fails(self.allow_missing))
    }

    /// Whether any number is on both sides.
    pub fn has_common(&self) -> bool {
        self.points.len() > self.count(Verdict::Missing) + self.count(Verdict::New)
    }

    /// Counts the points of a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.points.iter().filter(|point| point.verdict == verdict).count()
    }

    /// Counts the points that were on both sides and were compared.
    pub fn compared(&self) -> usize {
        let is_apart =
            |point: &&Point| [Verdict::Missing, Verdict::New, Verdict::NotComparable].contains(&point.verdict);
        self.points.len() - self.points.iter().filter(is_apart).count()
    }

    /// The points of a verdict, worst first.
    pub fn worst(&self, verdict: Verdict) -> Vec<&Point> {
        let mut points: Vec<&Point> = self.points.iter().filter(|point| point.verdict == verdict).collect();
        points.sort_by(|a, b| b.severity().total_cmp(&a.severity()));
        points
    }

    /// Every sample that moved, worst first, with its point.
    pub fn moved<'s>(&'s self) -> Vec<(&'s Point, &'s Moved)> {
        let of_point = |point: &'s Point| point.moved.iter().map(move |moved| (point, moved));
        let mut moved: Vec<_> = self.points.iter().flat_map(of_point).collect();
        moved.sort_by(|(_, a), (_, b)| b.change.total_cmp(&a.change));
        moved
    }

    /// The titles of keys beside each other.
    pub fn titles(&self) -> BTreeMap<&SeriesKey, String> {
        let keys: BTreeSet<&SeriesKey> = self.points.iter().map(|point| &point.key).collect();
        // Without a bounded cache `prefill` is empty, which would make all other titles name theirs.
        let alike = |key: &SeriesKey| -> Vec<SeriesKey> {
            let same = |other: &&&SeriesKey| other.prefill.is_empty() == key.prefill.is_empty();
            keys.iter().filter(same).map(|other| (*other).clone()).collect()
        };
        keys.iter().map(|key| (*key, key.title(&alike(key)))).collect()
    }
}
