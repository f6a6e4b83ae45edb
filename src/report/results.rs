//! The rows of a report, reduced once to the series and panels that everything else is made from.

use super::points::{self, Panel};
use super::series::{AllSeries, Unbounded, all_series, with_geometric_means};
use crate::ledger::Row;

/// Rows with their series and panels.
pub struct Results<'a> {
    pub rows: &'a [Row],
    pub(crate) series: AllSeries<'a>,
    /// All panels, those of slices too.
    pub panels: Vec<Panel>,
}

impl<'a> Results<'a> {
    pub fn of(rows: &'a [Row]) -> Self {
        let series = with_geometric_means(all_series(rows, Unbounded::BesidePolicies, |_| true));
        let panels = points::panels(&series);
        Self { rows, series, panels }
    }

    /// The panels of whole samples.
    pub fn whole(&self) -> Vec<Panel> {
        self.panels.iter().filter(|panel| panel.slice.is_none()).cloned().collect()
    }
}
