//! How sure a pooled number is: intervals from the subsets of its clusters.
//!
//! A metric is pooled over every subset of the clusters, over random ones where there are many, and the interval leaves out
//! the outermost of these values (Hartigan, "Using subsample values as typical values", JASA 64, 1969). Chunks of one book resemble each other, so subsets are of books
//! and not of chunks. Numbers of the same clusters are pooled over the same subsets, so that differences are paired.

use std::iter::Sum;
use std::ops::AddAssign;

/// What intervals cover, and verdicts are sure of.
pub const CONFIDENCE: f64 = 0.95;
/// The share of subsets that an interval leaves out at either end. For symmetric clusters 2.5 % would be enough. What a policy
/// costs is skewed, since some books suffer much more than others, and then 2.5 % cover 92 to 93 %; this covers 93 to 97 % of
/// both (tests/it/statistics.rs).
const LEFT_OUT: f64 = 0.02;
/// Fewer clusters have no intervals.
pub const FEWEST: usize = 4;
/// Largest number of clusters whose subsets are all taken; of more, subsets are drawn.
pub(crate) const ENUMERATED: usize = 12;
/// How many are drawn: as many as 12 clusters have.
const DRAWN: usize = 1 << ENUMERATED;
/// Fixed, so that the same rows always give the same report.
const SEED: u64 = 0x7061_6972_6564;

/// A number and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// `None` where fewer than four clusters, or numbers that are not finite, allow no interval.
    pub interval: Option<Interval>,
}

impl Estimate {
    /// Negates a difference, so that it is from the other side. Zero stays positive.
    pub fn turned(self) -> Self {
        Self { value: 0.0 - self.value, interval: self.interval.map(Interval::turned) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Negates the ends, which change places.
    pub fn turned(self) -> Self {
        Self { low: 0.0 - self.high, high: 0.0 - self.low }
    }

    /// Whether all of it is on one side of zero.
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// What a sample or a cluster adds to a pooled metric.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Sums of the metric, and of two more where it is a geometric mean of three.
    pub values: [f64; 3],
    pub weight: f64,
}

impl Sums {
    /// `sum(value) / sum(weight)` of each metric; `None` where nothing was weighed.
    pub fn pooled(&self) -> Option<[f64; 3]> {
        (self.weight > 0.0).then(|| self.values.map(|sum| sum / self.weight))
    }

    /// For exact comparisons, in which NaN equals itself.
    pub fn bits(&self) -> [u64; 4] {
        let [first, second, third] = self.values;
        [first, second, third, self.weight].map(f64::to_bits)
    }
}

impl AddAssign<&Sums> for Sums {
    fn add_assign(&mut self, other: &Sums) {
        self.values.iter_mut().zip(other.values).for_each(|(sum, value)| *sum += value);
        self.weight += other.weight;
    }
}

impl<'a> Sum<&'a Sums> for Sums {
    fn sum<I: Iterator<Item = &'a Sums>>(all: I) -> Self {
        let mut sum = Self::default();
        all.for_each(|sums| sum += sums);
        sum
    }
}

/// A metric, and the two beside it, pooled over each subset; `None` of a subset that weighs nothing.
pub type OfSubsets = Vec<Option<[f64; 3]>>;

/// Subsets that are summed together, in one vector register.
pub(crate) const ABREAST: usize = 8;

/// Calls a function with subsets of some clusters, eight at a time: for each cluster, 1 or 0 by subset. The empty subset is
/// among them, and of up to 12 clusters every subset. They are the same again wherever there are as many clusters.
pub(crate) fn for_subsets(clusters: usize, mut f: impl FnMut(&[[f64; ABREAST]])) {
    let mut rng = fastrand::Rng::with_seed(SEED);
    let mut members = vec![[0.0; ABREAST]; clusters];
    for first in (0..count(clusters)).step_by(ABREAST) {
        for (cluster, of_cluster) in members.iter_mut().enumerate() {
            let drawn = rng.u8(..);
            for (place, member) in of_cluster.iter_mut().enumerate() {
                let is_in = match clusters <= ENUMERATED {
                    true => (first + place) >> cluster & 1,
                    false => usize::from(drawn >> place & 1),
                };
                *member = is_in as f64;
            }
        }
        f(&members);
    }
}

/// How many subsets of some clusters are taken.
pub(crate) fn count(clusters: usize) -> usize {
    if clusters <= ENUMERATED { 1 << clusters } else { DRAWN }
}

/// Pools each table, which has what every cluster adds, over the subsets of clusters. Nothing where intervals
/// need more clusters.
pub fn of_subsets(tables: &[&[Sums]]) -> Vec<OfSubsets> {
    let clusters = tables.first().map_or(0, |table| table.len());
    let mut all = vec![Vec::new(); tables.len()];
    if clusters < FEWEST {
        return all;
    }
    for_subsets(clusters, |members| {
        for (table, of_table) in tables.iter().zip(&mut all) {
            of_table.extend(pooled(table, members));
        }
    });
    all
}

/// A table pooled over eight subsets.
fn pooled(table: &[Sums], members: &[[f64; ABREAST]]) -> [Option<[f64; 3]>; ABREAST] {
    let mut sums = [[0.0; ABREAST]; 4];
    for (own, members) in table.iter().zip(members) {
        for (sum, part) in sums.iter_mut().zip(own.values.into_iter().chain([own.weight])) {
            for (sum, is_in) in sum.iter_mut().zip(members) {
                *sum += is_in * part;
            }
        }
    }
    let [values @ .., weight] = sums;
    std::array::from_fn(|at| Sums { values: values.map(|value| value[at]), weight: weight[at] }.pooled())
}

/// The interval of a statistic from its values over subsets.
pub fn interval(of_subsets: &[Option<f64>]) -> Option<Interval> {
    let mut values: Vec<f64> = of_subsets.iter().copied().flatten().collect();
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    values.sort_unstable_by(f64::total_cmp);
    // The values divide the line into one part more than there are values, all equally likely; the outermost have no end.
    let outside = (LEFT_OUT * (values.len() + 1) as f64).max(1.0) - 1.0;
    let last = (values.len() - 1) as f64;
    let ([below_low, _], low) = between(&values, outside);
    let ([_, above_high], high) = between(&values, last - outside);
    // An end lies between two subsets. Where a difference has one sign in one of them and none or the other sign in the other,
    // zero is not excluded: so signs alone decide, and they are the same in nats and in perplexity, of tokens and of words.
    Some(Interval {
        low: if below_low <= 0.0 { low.min(0.0) } else { low },
        high: if above_high >= 0.0 { high.max(0.0) } else { high },
    })
}

/// The two nearest of the sorted values, and linearly between them.
fn between(sorted: &[f64], place: f64) -> ([f64; 2], f64) {
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    // Not a weighted mean: equal neighbours must give exactly themselves, infinite ones too.
    ([below, above], if below == above { below } else { below + (above - below) * place.fract() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval_of_mean(sums: &[Sums]) -> Option<Interval> {
        let means: Vec<Option<f64>> =
            of_subsets(&[sums]).remove(0).into_iter().map(|pooled| pooled.map(|[value, ..]| value)).collect();
        interval(&means)
    }

    fn sums(value: f64, weight: f64) -> Sums {
        Sums { values: [value, 0.0, 0.0], weight }
    }

    #[test]
    fn intervals_of_few_clusters_are_known() {
        let ends = |clusters: &[Sums]| interval_of_mean(clusters).map(|interval| (interval.low, interval.high));
        assert_eq!((ends(&[]), ends(&[sums(6.0, 3.0)]), ends(&[sums(6.0, 3.0); 3])), (None, None, None));
        assert_eq!(ends(&[sums(6.0, 3.0); 7]), Some((2.0, 2.0)));
        // Of 15 means the outermost are the clusters themselves.
        let four = [sums(1.0, 1.0), sums(3.0, 1.0), sums(8.0, 2.0), sums(7.0, 1.0)];
        assert_eq!(ends(&four), Some((1.0, 7.0)));
        // Of 63 subsets the 1.28th from either end: 10 and then 10.5, which is {10, 11}; 41 and then 29.5, {18, 41}.
        let six = [10.0, 11.0, 13.0, 15.0, 18.0, 41.0].map(|value| sums(value, 1.0));
        let (low, high) = ends(&six).unwrap();
        assert!((low - 10.14).abs() < 1e-12 && (high - (41.0 - 0.28 * 11.5)).abs() < 1e-12, "{low} {high}");
        // One cluster fell by a little: the end would be 0.28 of the way to the next subset, which rose.
        let five_rose = [-0.01, 1.0, 3.0, 5.0, 8.0, 31.0].map(|value| sums(value, 1.0));
        assert_eq!(ends(&five_rose).unwrap().0, 0.0);
    }

    #[test]
    fn the_interval_of_a_mean_has_the_textbook_width() {
        // 0..100 equally often: standard error = sqrt((n^2 - 1) / 12 / n) = 2.887, half width 2.05 of those.
        let sums: Vec<Sums> = (0..100).map(|i| sums(f64::from(i), 1.0)).collect();
        let interval = interval_of_mean(&sums).unwrap();
        assert!(((interval.high - interval.low) / 2.0 - 2.05 * 2.887).abs() < 0.3, "{interval:?}");
        assert_eq!(interval_of_mean(&sums), Some(interval), "the same subsets every time");
    }

    #[test]
    fn up_to_twelve_clusters_have_every_subset_once() {
        for clusters in [4, 5, 12] {
            let mut seen = std::collections::BTreeSet::new();
            for_subsets(clusters, |members| {
                for place in 0..ABREAST {
                    seen.insert(members.iter().map(|of| of[place] as u8).collect::<Vec<_>>());
                }
            });
            assert_eq!(seen.len(), 1 << clusters);
        }
    }
}
