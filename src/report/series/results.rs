//! The rows of a report, reduced once to the series and panels that everything else is made from.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use crate::ledger::{Contrast, Row, Text};
use crate::report::series::{
    AllSeries, Panel, SeriesKey, Size, Unbounded, all_series, panel, place, with_geometric_means,
};

/// Rows with their series and panels.
pub struct Results<'a> {
    pub rows: &'a [Row],
    /// The cells among them that are not complete.
    pub(crate) unfinished: BTreeSet<Text>,
    /// Cells that failed, with reasons.
    pub(crate) failed: Vec<String>,
    pub(crate) series: AllSeries<'a>,
    /// All panels, those of slices too.
    pub panels: Vec<Panel>,
}

impl<'a> Results<'a> {
    /// # Errors
    /// What [`all_series`] refuses, and a number that is NaN.
    pub fn of(rows: &'a [Row]) -> Result<Self> {
        Self::of_sweep(rows, &BTreeMap::new(), &[])
    }

    /// The results of a sweep with its planned `contrasts`, which may not be finished: keys say how many samples they have, of the
    /// number that each `unfinished` cell is to have.
    ///
    /// # Errors
    /// What [`Results::of`] refuses.
    pub fn of_sweep(rows: &'a [Row], unfinished: &BTreeMap<Text, usize>, contrasts: &[Contrast]) -> Result<Self> {
        // What is pooled with it would be no number either, or a gap that nobody sees.
        if let Some(row) = rows.iter().find(|row| row.value.is_nan() || row.weight.is_nan()) {
            let Row { task, model, sample, cell, metric, .. } = row;
            bail!(
                "{task} of {model}, {}: sample {sample} of cell {cell} has no number as its {metric}\n\
                 hint: earlier versions kept what a model with broken weights gave; leave the cell out with --only, or remove its \
                 file from `cells` and run the sweep again",
                place(&row.variant(), Size::of(row))
            );
        }
        let series = with_geometric_means(all_series(rows, Unbounded::BesidePolicies, |_| true)?);
        let series = with_progress(series, unfinished);
        let panels = panel::panels(&series, contrasts);
        let unfinished = unfinished.keys().cloned().collect();
        Ok(Self { rows, unfinished, failed: Vec::new(), series, panels })
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
