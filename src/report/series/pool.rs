//! The cells of a panel, pooled over all clusters and over the same subsets of them, so that their differences pair.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::metric::{Better, Metric, Pooling};
use crate::report::series::{CellSums, Influence, PolicyAtSize, Size};
use crate::report::statistics::{Estimate, Sums, interval, sign_test};

/// A policy at a cache size, with what was measured.
pub(crate) struct Cell<'a> {
    pub(crate) policy: &'a str,
    pub(crate) cache_size: Option<Size>,
    pub(crate) sums: &'a CellSums<'a>,
    /// What each of the pool's clusters adds.
    table: Vec<Sums>,
    /// `None` where nothing was weighed.
    pub(crate) pooled: Option<Pooled>,
}

impl Cell<'_> {
    /// What its policy is by; empty for the full cache and cut texts.
    pub(crate) fn score(&self) -> &str {
        let row = self.sums.samples.values().next().map(|sample| sample.row);
        row.and_then(|row| row.score.as_deref()).unwrap_or_default()
    }
}

/// A metric over all clusters, and over each subset of them.
pub struct Pooled {
    pub value: f64,
    of_subsets: Vec<Option<f64>>,
    /// Which clusters of the tables add anything.
    members: Vec<bool>,
    pub(crate) weight: f64,
}

/// A metric of each table, which has what every cluster adds; `None` where nothing was weighed. Subsets are of the clusters
/// that any of the tables has.
pub fn pooled(metric: &Metric, tables: &[&[Sums]]) -> Vec<Option<Pooled>> {
    let clusters = tables.first().map_or(0, |table| table.len());
    // An empty text has no byte to divide by, but the token before it has a likelihood.
    let adds = |sums: &Sums| sums.weight > 0.0 || sums.values[0] != 0.0;
    let members: Vec<bool> =
        (0..clusters).map(|cluster| tables.iter().any(|table| adds(&table[cluster]))).collect();
    let own = |table: &&[Sums]| -> Vec<Sums> {
        table.iter().zip(&members).filter(|(_, is_in)| **is_in).map(|(sums, _)| *sums).collect()
    };
    let tables: Vec<Vec<Sums>> = tables.iter().map(own).collect();
    let of_subsets = interval::of_subsets(&tables.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let of = |(table, of_subsets): (&Vec<Sums>, interval::OfSubsets)| {
        let all: Sums = table.iter().sum();
        Some(Pooled {
            value: metric.of_pooled(all.pooled()?),
            of_subsets: of_subsets.into_iter().map(|pooled| Some(metric.of_pooled(pooled?))).collect(),
            members: members.clone(),
            weight: all.weight,
        })
    };
    tables.iter().zip(of_subsets).map(of).collect()
}

impl Pooled {
    pub fn estimate(&self) -> Estimate {
        let interval = interval::interval(&self.of_subsets).filter(|_| self.value.is_finite());
        Estimate { value: self.value, interval }
    }

    /// How many clusters it is over.
    pub fn clusters(&self) -> usize {
        self.members.iter().filter(|is_in| **is_in).count()
    }

    /// A function of numbers of the same clusters, such as the difference of two.
    pub fn function<const N: usize>(of: [&Self; N], f: impl Fn([f64; N]) -> f64) -> Estimate {
        let subset = |at: usize| {
            let mut values = [0.0; N];
            for (value, pooled) in values.iter_mut().zip(of) {
                *value = pooled.of_subsets[at]?;
            }
            Some(f(values))
        };
        let of_subsets: Vec<Option<f64>> = (0..of[0].of_subsets.len()).map(subset).collect();
        let value = f(of.map(|pooled| pooled.value));
        Estimate { value, interval: interval::interval(&of_subsets).filter(|_| value.is_finite()) }
    }

    /// Whether both weigh the same clusters, so that their subsets pair.
    pub(crate) fn pairs_with(&self, other: &Self) -> bool {
        self.members == other.members
    }
}

/// Two numbers compared over the samples that both have.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// In the unit shown.
    pub shown: Estimate,
    /// Difference of two perplexities in nats for each token; `None` of other metrics.
    pub nats: Option<Estimate>,
    pub samples: usize,
    pub clusters: usize,
    /// How far it rests on single clusters; `None` where there are fewer than two, or no difference.
    pub influence: Option<Influence>,
}

impl Difference {
    fn of(metric: &Metric, [own, other]: [&Pooled; 2], samples: usize, influence: Option<Influence>) -> Self {
        Self {
            shown: Pooled::function([own, other], |[own, other]| apart(own, other)),
            nats: (metric.pooling == Pooling::Perplexity)
                .then(|| Pooled::function([own, other], |[own, other]| apart(own.ln(), other.ln()))),
            samples,
            clusters: own.clusters(),
            influence,
        }
    }

    /// To another number, such that what is worse is positive, whichever way the metric improves.
    pub fn loss(&self, better: Better) -> Self {
        if better == Better::Higher { self.turned() } else { self.clone() }
    }

    /// Swaps the two numbers: what was more becomes less.
    pub fn turned(&self) -> Self {
        Self {
            shown: self.shown.turned(),
            nats: self.nats.map(Estimate::turned),
            influence: self.influence.as_ref().map(Influence::turned),
            ..*self
        }
    }
}

fn apart(own: f64, other: f64) -> f64 {
    let (difference, scale) = (own - other, own.abs().max(other.abs()));
    if scale.is_finite() && difference.abs() <= sign_test::ROUNDING * scale { 0.0 } else { difference }
}

/// What all cells of a panel have in common when they are pooled.
pub(crate) struct Pool<'a> {
    metric: &'a Metric,
    /// Sorted; a table of sums has an entry for each.
    pub(crate) clusters: Vec<&'a str>,
}

impl<'a> Pool<'a> {
    pub(crate) fn of<'s>(metric: &'a Metric, cells: impl Iterator<Item = &'s CellSums<'a>>) -> Self
    where
        'a: 's,
    {
        let samples = cells.flat_map(|cell| cell.samples.values());
        let clusters: BTreeSet<&str> = samples.map(|sum| sum.row.cluster.as_str()).collect();
        Self { metric, clusters: clusters.into_iter().collect() }
    }

    pub(crate) fn cell<'s>(&self, (policy, cache_size): &'s PolicyAtSize<'_>, sums: &'s CellSums<'s>) -> Cell<'s> {
        let table = self.table(sums, |_| true);
        let pooled = pooled(self.metric, &[&table]).remove(0);
        Cell { policy, cache_size: *cache_size, sums, table, pooled }
    }

    /// A cell over those of its samples that count.
    fn table(&self, cell: &CellSums<'_>, counts: impl Fn(&str) -> bool) -> Vec<Sums> {
        let mut table = vec![Sums::default(); self.clusters.len()];
        for (_, sum) in cell.samples.iter().filter(|(sample, _)| counts(sample)) {
            if let Ok(cluster) = self.clusters.binary_search(&sum.row.cluster.as_str()) {
                table[cluster] += &sum.sums;
            }
        }
        table
    }

    /// What each cluster adds to two cells over the samples both have, and how many these are.
    fn common<'c>(&self, one: &'c Cell<'_>, other: &'c Cell<'_>) -> ([Cow<'c, [Sums]>; 2], usize) {
        let samples = [one, other].map(|cell| &cell.sums.samples);
        // Nearly always both have the same ones.
        if samples[0].keys().eq(samples[1].keys()) {
            return ([one, other].map(|cell| Cow::Borrowed(&cell.table[..])), samples[0].len());
        }
        let in_both = |sample: &str| samples.iter().all(|samples| samples.contains_key(sample));
        let tables = [one, other].map(|cell| Cow::Owned(self.table(cell.sums, in_both)));
        (tables, samples[0].keys().filter(|sample| in_both(sample)).count())
    }

    /// The difference of two cells over the samples both have.
    pub(crate) fn difference(&self, one: &Cell<'_>, other: &Cell<'_>) -> Option<Difference> {
        let (tables, samples) = self.common(one, other);
        let influence = Influence::of(self.metric, &self.clusters, &tables[0], &tables[1]);
        // Then the subsets of each serve all comparisons.
        if let (Some(own), Some(other), [Cow::Borrowed(_), _]) = (&one.pooled, &other.pooled, &tables)
            && own.pairs_with(other)
        {
            return Some(Difference::of(self.metric, [own, other], samples, influence));
        }
        let pooled = pooled(self.metric, &[&tables[0], &tables[1]]);
        let both = [pooled[0].as_ref()?, pooled[1].as_ref()?];
        Some(Difference::of(self.metric, both, samples, influence))
    }

    /// The difference of the means of each cluster, for the sign-flip test.
    pub(crate) fn differences(&self, one: &Cell<'_>, other: &Cell<'_>) -> Option<Vec<f64>> {
        let ([own, other], _) = self.common(one, other);
        sign_test::differences(self.metric, &own, &other)
    }
}

/// One measurement minus another, over the samples that both have: of one metric at two places of a text, or of two metrics
/// that pool alike.
pub(crate) fn difference<'a>(metric: &'a Metric, one: &CellSums<'a>, other: &CellSums<'a>) -> Option<Difference> {
    let pool = Pool::of(metric, [one, other].into_iter());
    let place = (Cow::Borrowed(""), None);
    let [one, other] = [one, other].map(|sums| pool.cell(&place, sums));
    pool.difference(&one, &other)
}
