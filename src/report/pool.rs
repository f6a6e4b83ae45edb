//! The cells of a panel, pooled and resampled with the same draws of clusters, so that their differences pair.
//!
//! It knows samples, clusters and sums; which cells are set against each other, and what is said of them, it is told.

use super::bootstrap::{self, Estimate, Resamples, Sums, pooled};
use super::gather::Measured;
use super::quantity::Quantity;

/// What all cells of a panel share when they are pooled.
pub(super) struct Pool<'a> {
    pub(super) quantity: &'a Quantity,
    /// Sorted; a table of sums has an entry for each.
    pub(super) clusters: &'a [&'a str],
}

/// A quantity over all clusters, and in each draw of them.
pub(super) struct Resampled {
    pub(super) value: f64,
    pub(super) draws: Vec<Option<f64>>,
    pub(super) samples: usize,
    pub(super) clusters: usize,
    pub(super) weight: f64,
}

impl Resampled {
    pub(super) fn estimate(&self) -> Estimate {
        let interval = bootstrap::interval(&self.draws).filter(|_| self.value.is_finite());
        Estimate { value: self.value, interval }
    }

    /// What is left of two numbers by a difference, draw by draw.
    pub(super) fn minus(&self, other: &Self, difference: impl Fn(f64, f64) -> f64) -> Self {
        let draws = self.draws.iter().zip(&other.draws).map(|(own, other)| Some(difference((*own)?, (*other)?)));
        Self { value: difference(self.value, other.value), draws: draws.collect(), ..*self }
    }
}

impl Pool<'_> {
    /// Each cell over all its samples; `None` where nothing was weighed.
    pub(super) fn each(&self, cells: &[&Measured]) -> Vec<Option<Resampled>> {
        let tables: Vec<Vec<Sums>> = cells.iter().map(|cell| self.sums(cell, |_| true)).collect();
        let samples: Vec<usize> = cells.iter().map(|cell| cell.marks.len()).collect();
        self.resampled(&tables, &samples)
    }

    /// Two cells over the samples both have.
    pub(super) fn both(&self, one: &Measured, other: &Measured) -> Option<[Resampled; 2]> {
        let tables = [(one, other), (other, one)]
            .map(|(own, with)| self.sums(own, |sample| with.marks.contains_key(sample)));
        let common = one.marks.keys().filter(|sample| other.marks.contains_key(*sample)).count();
        match &mut self.resampled(&tables, &[common; 2])[..] {
            [one, other] => Some([one.take()?, other.take()?]),
            _ => None,
        }
    }

    fn resampled(&self, tables: &[Vec<Sums>], samples: &[usize]) -> Vec<Option<Resampled>> {
        let slices: Vec<&[Sums]> = tables.iter().map(Vec::as_slice).collect();
        let draws = bootstrap::resample(&slices);
        let of = |table: &[Sums], draws: Resamples, samples: usize| {
            Some(Resampled {
                value: self.quantity.of_pooled(pooled(table)?),
                draws: draws.into_iter().map(|draw| draw.map(|pooled| self.quantity.of_pooled(pooled))).collect(),
                samples,
                clusters: table.iter().filter(|sums| sums.weight > 0.0).count(),
                weight: table.iter().map(|sums| sums.weight).sum(),
            })
        };
        let all = tables.iter().zip(draws).zip(samples);
        all.map(|((table, draws), samples)| of(table, draws, *samples)).collect()
    }

    /// One entry per cluster of the panel; clusters that were not measured weigh nothing.
    fn sums(&self, measured: &Measured, counts: impl Fn(&str) -> bool) -> Vec<Sums> {
        let mut sums = vec![Sums::default(); self.clusters.len()];
        for (_, mark) in measured.marks.iter().filter(|(sample, _)| counts(sample)) {
            if let Ok(cluster) = self.clusters.binary_search(&mark.cluster) {
                sums[cluster].value += mark.value;
                sums[cluster].beside[0] += mark.beside[0];
                sums[cluster].beside[1] += mark.beside[1];
                sums[cluster].weight += mark.weight;
            }
        }
        sums
    }
}
