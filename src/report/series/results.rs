//! The rows of a report, reduced once to the series and panels that everything else is made from.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::ledger::{Row, Text};
use crate::report::series::{AllSeries, Panel, SeriesKey, Unbounded, all_series, panel, with_geometric_means};

/// Rows with their series and panels.
pub struct Results<'a> {
    pub rows: &'a [Row],
    /// The cells among them that are not complete.
    pub(crate) unfinished: BTreeSet<Text>,
    pub(crate) series: AllSeries<'a>,
    /// All panels, those of slices too.
    pub panels: Vec<Panel>,
}

impl<'a> Results<'a> {
    /// # Errors
    /// As [`all_series`].
    pub fn of(rows: &'a [Row]) -> Result<Self> {
        Self::of_unfinished(rows, &BTreeMap::new())
    }

    /// The results of a sweep that is not finished: keys say how many samples they have, of the number that each unfinished cell
    /// is to have.
    ///
    /// # Errors
    /// As [`all_series`].
    pub fn of_unfinished(rows: &'a [Row], unfinished: &BTreeMap<Text, usize>) -> Result<Self> {
        let series = with_geometric_means(all_series(rows, Unbounded::BesidePolicies, |_| true)?);
        let series = with_progress(series, unfinished);
        let panels = panel::panels(&series);
        Ok(Self { rows, unfinished: unfinished.keys().cloned().collect(), series, panels })
    }

    /// The panels of whole samples.
    pub fn whole(&self) -> Vec<Panel> {
        self.panels.iter().filter(|panel| panel.slice.is_none()).cloned().collect()
    }
}

/// Adds to the keys with unfinished cells how many of their samples any cell has.
fn with_progress<'a>(series: AllSeries<'a>, unfinished: &BTreeMap<Text, usize>) -> AllSeries<'a> {
    if unfinished.is_empty() {
        return series;
    }
    let mut keys: BTreeMap<SeriesKey, (BTreeSet<&str>, usize)> = BTreeMap::new();
    for ((key, ..), places) in &series {
        let (done, all) = keys.entry(key.clone()).or_default();
        for sums in places.values() {
            done.extend(sums.samples.keys());
            *all = (*all).max(unfinished.get(sums.cell).copied().unwrap_or(0));
        }
    }
    let progress = |key: &SeriesKey| keys.get(key).map(|(done, all)| [done.len(), *all]);
    let named = |((key, metric, slice), places)| {
        let unfinished = progress(&key).filter(|[done, all]| done < all);
        ((SeriesKey { unfinished, ..key }, metric, slice), places)
    };
    series.into_iter().map(named).collect()
}
