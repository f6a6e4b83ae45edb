//! The cells of a panel, pooled and resampled with the same draws of clusters, so that their differences pair.

use super::bootstrap::{self, Estimate, Sums};
use super::series::CellSums;
use crate::metric::Metric;

/// A policy at a cache size, with what was measured.
pub(super) struct Cell<'a> {
    pub(super) policy: &'a str,
    pub(super) cache_size: Option<u32>,
    pub(super) sums: &'a CellSums<'a>,
    /// `None` where nothing was weighed.
    pub(super) resampled: Option<Resampled>,
}

/// A metric over all clusters, and in each draw of them.
pub struct Resampled {
    pub value: f64,
    pub(super) draws: Vec<Option<f64>>,
    /// Those with a weight.
    pub clusters: usize,
    pub(super) weight: f64,
}

/// A metric of each table, which has what every cluster adds; `None` where nothing was weighed.
pub fn resampled(metric: &Metric, tables: &[&[Sums]]) -> Vec<Option<Resampled>> {
    let draws = bootstrap::resample(tables);
    let of = |(table, draws): (&&[Sums], bootstrap::Resamples)| {
        let all: Sums = table.iter().sum();
        Some(Resampled {
            value: metric.of_pooled(all.pooled()?),
            draws: draws.into_iter().map(|draw| draw.map(|pooled| metric.of_pooled(pooled))).collect(),
            clusters: table.iter().filter(|sums| sums.weight > 0.0).count(),
            weight: all.weight,
        })
    };
    tables.iter().zip(draws).map(of).collect()
}

impl Resampled {
    pub fn estimate(&self) -> Estimate {
        let interval = bootstrap::interval(&self.draws).filter(|_| self.value.is_finite());
        Estimate { value: self.value, interval }
    }

    /// The difference of two numbers, draw by draw.
    pub fn minus(&self, other: &Self, difference: fn(f64, f64) -> f64) -> Self {
        let draws = self.draws.iter().zip(&other.draws).map(|(own, other)| Some(difference((*own)?, (*other)?)));
        Self { value: difference(self.value, other.value), draws: draws.collect(), ..*self }
    }
}

/// What all cells of a panel have in common when they are pooled.
pub(super) struct Pool<'a> {
    pub(super) metric: &'a Metric,
    /// Sorted; a table of sums has an entry for each.
    pub(super) clusters: Vec<&'a str>,
}

impl Pool<'_> {
    /// Each cell over those of its samples that count.
    pub(super) fn resampled(&self, cells: &[&CellSums], counts: impl Fn(&str) -> bool) -> Vec<Option<Resampled>> {
        let table = |cell: &&CellSums| {
            let mut table = vec![Sums::default(); self.clusters.len()];
            for (_, sum) in cell.samples.iter().filter(|(sample, _)| counts(sample)) {
                if let Ok(cluster) = self.clusters.binary_search(&sum.row.cluster.as_str()) {
                    table[cluster] += &sum.sums;
                }
            }
            table
        };
        let tables: Vec<Vec<Sums>> = cells.iter().map(table).collect();
        resampled(self.metric, &tables.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// The difference of two cells over the samples both have, and how many these are.
    pub(super) fn difference(
        &self,
        one: &Cell<'_>,
        other: &Cell<'_>,
        difference: fn(f64, f64) -> f64,
    ) -> Option<(Resampled, usize)> {
        let samples = [one, other].map(|cell| &cell.sums.samples);
        let in_both = |sample: &str| samples.iter().all(|samples| samples.contains_key(sample));
        // Nearly always both have the same samples, and then one resampling of each serves all comparisons.
        if samples[0].keys().eq(samples[1].keys()) {
            let difference = one.resampled.as_ref()?.minus(other.resampled.as_ref()?, difference);
            return Some((difference, samples[0].len()));
        }
        let resampled = self.resampled(&[one.sums, other.sums], in_both);
        let common = samples[0].keys().filter(|sample| in_both(sample)).count();
        Some((resampled[0].as_ref()?.minus(resampled[1].as_ref()?, difference), common))
    }
}
