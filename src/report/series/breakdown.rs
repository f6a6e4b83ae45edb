//! A metric by slices of the samples: by how far back a fact was told, by its kind, up to a position in a long text.
//!
//! It knows how panels of slices belong together, and which cache sizes to show.

use std::collections::BTreeSet;

use indexmap::IndexSet;

use crate::metric::{Metric, Property, Slice};
use crate::report::series::{LENGTH_AND_DEPTH, Panel, SeriesKey, Size};

/// Panels of one key and metric whose slices are of one kind.
pub(crate) struct Breakdown<'a> {
    /// `distance`, `kind`, `length and depth`.
    pub(crate) by: &'a str,
    /// One per slice, in order.
    pub(crate) panels: Vec<(&'a Slice, &'a Panel)>,
}

/// Most cache sizes that have a chart and a table.
const MOST_SIZES: usize = 6;
/// The kind of slices of several tasks by both.
pub(crate) const TASK_AND_LENGTH: &str = "task and length";

/// The breakdowns of the panels that are about slices, except for details.
pub(crate) fn breakdowns(panels: &[Panel]) -> Vec<Breakdown<'_>> {
    let parts = panels.iter().filter(|panel| !panel.metric.has(Property::Detail));
    let parts: Vec<(&Slice, &Panel)> = parts.filter_map(|panel| Some((panel.slice.as_ref()?, panel))).collect();
    let mut breakdowns: Vec<Breakdown<'_>> = Vec::new();
    for of_one in parts.chunk_by(|(_, a), (_, b)| a.key == b.key && a.metric == b.metric) {
        let kinds: IndexSet<&str> = of_one.iter().map(|(slice, _)| slice.kind.as_str()).collect();
        let mut of_kinds: Vec<Breakdown<'_>> = kinds
            .into_iter()
            .map(|by| Breakdown { by, panels: of_one.iter().filter(|(slice, _)| slice.is(by)).copied().collect() })
            .collect();
        // What is known by both says more than what is known by each.
        of_kinds.sort_by_key(|breakdown| ![LENGTH_AND_DEPTH, TASK_AND_LENGTH].contains(&breakdown.by));
        breakdowns.extend(of_kinds);
    }
    breakdowns
}

impl Breakdown<'_> {
    /// Any of its panels, for what they share.
    fn any(&self) -> &Panel {
        self.panels[0].1
    }

    pub(crate) fn key(&self) -> &SeriesKey {
        &self.any().key
    }

    pub(crate) fn metric(&self) -> &Metric {
        &self.any().metric
    }

    /// Whether the breakdown has the samples and the metric of `whole`, a panel of whole samples.
    pub(crate) fn is_of(&self, whole: &Panel) -> bool {
        self.any().key == whole.key && *self.metric() == whole.metric
    }

    /// The cache sizes that are smaller than a sample, spread evenly if there are too many.
    pub(crate) fn sizes(&self) -> Vec<Size> {
        let length = self.any().key.length;
        let sizes = self.panels.iter().flat_map(|(_, panel)| panel.sizes()).filter(|size| size.is_below(length));
        let mut sizes: Vec<Size> = sizes.collect::<BTreeSet<Size>>().into_iter().collect();
        if sizes.is_empty() {
            // Only the full cache was measured; it is shown at every size.
            sizes.push(length.into());
        }
        let shown = sizes.len().min(MOST_SIZES);
        (0..shown).map(|i| sizes[(i * (sizes.len() - 1)).checked_div(shown - 1).unwrap_or(0)]).collect()
    }

    /// The policies of any slice, in order.
    pub(crate) fn policies(&self) -> Vec<&str> {
        let policies: IndexSet<&str> = self.panels.iter().flat_map(|(_, panel)| panel.policies()).collect();
        policies.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{changed, panels, recalls};

    #[test]
    fn slices_of_a_kind_belong_together() {
        let panels = panels(&recalls());
        let breakdowns = breakdowns(&panels);
        let [distance, kind] = &breakdowns[..] else { panic!("two breakdowns expected") };
        assert_eq!((distance.by, kind.by), ("distance", "kind"));
        assert!(distance.is_of(&panels[0]) && panels[0].slice.is_none());
        // A cache as large as a sample is the full one.
        assert_eq!(distance.sizes(), [32.into()]);
    }

    #[test]
    fn many_sizes_are_thinned() {
        let rows: Vec<Row> = recalls().into_iter().filter(|row| row.cache_size == Some(32)).collect();
        let all = (1..=20).flat_map(|n| changed(rows.clone(), |row| row.cache_size = Some(n * 8)));
        let panels = panels(&all.collect::<Vec<_>>());
        assert_eq!(breakdowns(&panels)[0].sizes(), [8, 32, 64, 96, 128, 160].map(Size::Entries));
    }
}
