//! How sure a pooled number is: percentile intervals from resampling whole clusters.
//!
//! Chunks of one book resemble each other, so books are drawn and not chunks. Every point of a panel is resampled with the
//! same draws, so that differences are paired.

use std::iter::Sum;
use std::ops::AddAssign;

/// Resamples behind every interval.
pub const RESAMPLES: usize = 2000;
/// The share of resamples inside an interval.
pub const CONFIDENCE: f64 = 0.95;
/// Fixed, so that the same rows always give the same report.
const SEED: u64 = 0x7061_6972_6564;

/// A number and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// `None` where fewer than two clusters, or numbers that are not finite, allow no interval.
    pub interval: Option<Interval>,
}

impl Estimate {
    /// The same difference from the other side. Zero stays positive.
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
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Of the same difference from the other side.
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
    /// Of the metric, and of two more where it is a geometric mean of three.
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

/// A metric, and the two beside it, pooled in each draw; `None` where a draw weighs nothing.
pub type Resamples = Vec<Option<[f64; 3]>>;

/// Draws that are summed together, in one vector register.
const ABREAST: usize = 8;

/// Of each table, which has what every cluster adds, the pooled metrics in all resamples of the clusters.
///
/// The draws are the same for all tables, and the same again wherever there are as many clusters, so numbers pair. A draw that
/// weighs nothing is `None`; fewer than two clusters leave nothing to draw, and the lists are empty. Memory does not grow
/// with the number of draws.
pub fn resample(tables: &[&[Sums]]) -> Vec<Resamples> {
    let clusters = tables.first().map_or(0, |table| table.len());
    let mut resamples = vec![Vec::new(); tables.len()];
    let Some(count) = u32::try_from(clusters).ok().filter(|count| *count > 1) else { return resamples };
    let mut rng = fastrand::Rng::with_seed(SEED);
    let mut times = vec![[0.0; ABREAST]; clusters];
    for _ in 0..RESAMPLES / ABREAST {
        times.fill([0.0; ABREAST]);
        (0..ABREAST).for_each(|draw| {
            for _ in 0..clusters {
                times[rng.u32(0..count) as usize][draw] += 1.0;
            }
        });
        for (table, of_table) in tables.iter().zip(&mut resamples) {
            of_table.extend(drawn(table, &times));
        }
    }
    resamples
}

/// A table pooled in some draws, `times` saying how often each has a cluster.
fn drawn(table: &[Sums], times: &[[f64; ABREAST]]) -> [Option<[f64; 3]>; ABREAST] {
    let mut sums = [[0.0; ABREAST]; 4];
    for (own, times) in table.iter().zip(times) {
        for (sum, part) in sums.iter_mut().zip(own.values.into_iter().chain([own.weight])) {
            for (sum, times) in sum.iter_mut().zip(times) {
                *sum += times * part;
            }
        }
    }
    let [values @ .., weight] = sums;
    std::array::from_fn(|draw| Sums { values: values.map(|value| value[draw]), weight: weight[draw] }.pooled())
}

/// The percentile interval of a statistic's resamples.
pub fn interval(resamples: &[Option<f64>]) -> Option<Interval> {
    let mut values: Vec<f64> = resamples.iter().copied().flatten().collect();
    // A point that most draws miss, or that is NaN somewhere, has no interval worth printing.
    if values.len() < RESAMPLES * 9 / 10 || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let outside = (1.0 - CONFIDENCE) / 2.0;
    Some(Interval { low: quantile(&values, outside), high: quantile(&values, 1.0 - outside) })
}

/// Linear between the two nearest of the sorted values.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    // Not a weighted mean: equal neighbours must give exactly themselves, infinite ones too.
    if below == above { below } else { below + (above - below) * place.fract() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval_of_mean(sums: &[Sums]) -> Option<Interval> {
        let means: Vec<Option<f64>> =
            resample(&[sums]).remove(0).into_iter().map(|pooled| pooled.map(|[value, ..]| value)).collect();
        interval(&means)
    }

    fn sums(value: f64, weight: f64) -> Sums {
        Sums { values: [value, 0.0, 0.0], weight }
    }

    #[test]
    fn intervals_of_few_clusters_are_known() {
        let ends = |clusters: &[Sums]| interval_of_mean(clusters).map(|interval| (interval.low, interval.high));
        assert_eq!(ends(&[]), None);
        assert_eq!(ends(&[sums(6.0, 3.0)]), None);
        assert_eq!(ends(&[sums(6.0, 3.0); 7]), Some((2.0, 2.0)));
        // A quarter of the draws takes the same cluster twice, so the 2.5 % ends are the clusters themselves.
        assert_eq!(ends(&[sums(1.0, 1.0), sums(3.0, 1.0)]), Some((1.0, 3.0)));
        assert!(resample(&[]).is_empty());
    }

    #[test]
    fn the_interval_of_a_mean_has_the_textbook_width() {
        // 0..100 equally often: standard error = sqrt((n^2 - 1) / 12 / n) = 2.887, half width 1.96 of those.
        let sums: Vec<Sums> = (0..100).map(|i| sums(f64::from(i), 1.0)).collect();
        let interval = interval_of_mean(&sums).unwrap();
        assert!((interval.half_width() - 1.96 * 2.887).abs() < 0.3, "{interval:?}");
        assert_eq!(interval_of_mean(&sums), Some(interval), "the same draws every time");
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.25), 1.25);
        assert_eq!(quantile(&[f64::INFINITY, f64::INFINITY], 0.3), f64::INFINITY);
    }
}
