//! The cells of a panel, pooled and resampled with the same draws of clusters, so that their differences pair.

use super::bootstrap::{self, Estimate, Resamples, Sums, pooled};
use super::series::CellSums;
use crate::metric::Metric;

/// What all cells of a panel have in common when they are pooled.
pub(super) struct Pool<'a> {
    pub(super) metric: &'a Metric,
    /// Sorted; a table of sums has an entry for each.
    pub(super) clusters: &'a [&'a str],
}

/// A metric over all clusters, and in each draw of them.
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

    /// The difference of two numbers, draw by draw.
    fn minus(&self, other: &Self, difference: impl Fn(f64, f64) -> f64) -> Self {
        let draws = self.draws.iter().zip(&other.draws).map(|(own, other)| Some(difference((*own)?, (*other)?)));
        Self { value: difference(self.value, other.value), draws: draws.collect(), ..*self }
    }
}

impl Pool<'_> {
    /// Each cell over all its samples; `None` where nothing was weighed.
    pub(super) fn each(&self, cells: &[&CellSums]) -> Vec<Option<Resampled>> {
        let tables: Vec<Vec<Sums>> = cells.iter().map(|cell| self.sums(cell, |_| true)).collect();
        let samples: Vec<usize> = cells.iter().map(|cell| cell.samples.len()).collect();
        self.resampled(&tables, &samples)
    }

    /// The difference of two cells, each with what it resampled to, over the samples both have.
    pub(super) fn difference(
        &self,
        (one, own): (&CellSums, &Resampled),
        (other, others): (&CellSums, &Resampled),
        minus: fn(f64, f64) -> f64,
    ) -> Option<Resampled> {
        // Nearly always both have the same samples, and then one resampling of each serves all comparisons.
        if one.samples.keys().eq(other.samples.keys()) {
            return Some(own.minus(others, minus));
        }
        let [own, others] = self.both(one, other)?;
        Some(own.minus(&others, minus))
    }

    fn both(&self, one: &CellSums, other: &CellSums) -> Option<[Resampled; 2]> {
        let tables = [(one, other), (other, one)]
            .map(|(own, with)| self.sums(own, |sample| with.samples.contains_key(sample)));
        let common = one.samples.keys().filter(|sample| other.samples.contains_key(*sample)).count();
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
                value: self.metric.of_pooled(pooled(table)?),
                draws: draws.into_iter().map(|draw| draw.map(|pooled| self.metric.of_pooled(pooled))).collect(),
                samples,
                clusters: table.iter().filter(|sums| sums.weight > 0.0).count(),
                weight: table.iter().map(|sums| sums.weight).sum(),
            })
        };
        let all = tables.iter().zip(draws).zip(samples);
        all.map(|((table, draws), samples)| of(table, draws, *samples)).collect()
    }

    /// One entry per cluster of the panel; clusters that were not measured weigh nothing.
    fn sums(&self, cell: &CellSums, counts: impl Fn(&str) -> bool) -> Vec<Sums> {
        let mut sums = vec![Sums::default(); self.clusters.len()];
        for (_, sum) in cell.samples.iter().filter(|(sample, _)| counts(sample)) {
            if let Ok(cluster) = self.clusters.binary_search(&sum.row.cluster.as_str()) {
                sums[cluster].add(sum);
            }
        }
        sums
    }
}
