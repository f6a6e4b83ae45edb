//! How sure a pooled number is: percentile intervals from resampling whole clusters.
//!
//! It knows sums per cluster and nothing of policies or metrics. Chunks of one book resemble each other, so books are
//! drawn and not chunks; and every point of a panel sees the same draws, so their differences pair.

/// Resamples behind every interval.
pub const RESAMPLES: usize = 2000;
/// The share of resamples inside an interval.
pub const CONFIDENCE: f64 = 0.95;
/// Fixed, so that the same rows always give the same report.
const SEED: u64 = 0x7061_6972_6564;

/// A number and how far it may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// `None` where fewer than two clusters, or numbers that are not finite, allow no interval.
    pub interval: Option<Interval>,
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

    /// Whether all of it is on one side of zero.
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// What one cluster adds to a pooled metric: `sum(value)` and `sum(weight)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub value: f64,
    /// Sums of two metrics more, for a quantity made of three.
    pub beside: [f64; 2],
    pub weight: f64,
}

/// `sum(value) / sum(weight)` of a metric and the two beside it; `None` where nothing was weighed.
pub fn pooled<'a>(sums: impl IntoIterator<Item = &'a Sums>) -> Option<[f64; 3]> {
    let mut all = Sums::default();
    for sums in sums {
        all.value += sums.value;
        all.beside[0] += sums.beside[0];
        all.beside[1] += sums.beside[1];
        all.weight += sums.weight;
    }
    (all.weight > 0.0).then(|| [all.value, all.beside[0], all.beside[1]].map(|sum| sum / all.weight))
}

/// The draws that every point of a panel shares.
pub struct Draws {
    clusters: usize,
    /// `RESAMPLES` runs of `clusters` indices.
    indices: Vec<u32>,
}

impl Draws {
    /// Draws of so many clusters, always the same ones.
    pub fn new(clusters: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(SEED);
        let indices = match u32::try_from(clusters) {
            Ok(count) if count > 1 => (0..RESAMPLES * clusters).map(|_| rng.u32(0..count)).collect(),
            _ => Vec::new(),
        };
        Self { clusters, indices }
    }

    /// The interval of a statistic over resampled clusters; the statistic may decline a draw that has nothing of it.
    pub fn interval(&self, statistic: impl Fn(&[u32]) -> Option<f64>) -> Option<Interval> {
        interval(&self.resamples(statistic))
    }

    /// The statistic of every draw, in their order, so that those of two points pair; empty where fewer than two clusters
    /// leave nothing to draw.
    pub(super) fn resamples(&self, statistic: impl Fn(&[u32]) -> Option<f64>) -> Vec<Option<f64>> {
        match self.clusters {
            0 | 1 => Vec::new(),
            clusters => self.indices.chunks(clusters).map(statistic).collect(),
        }
    }
}

/// The percentile interval of a statistic's resamples.
pub(super) fn interval(resamples: &[Option<f64>]) -> Option<Interval> {
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

    fn mean_of(sums: &[Sums]) -> impl Fn(&[u32]) -> Option<f64> {
        |draw| pooled(draw.iter().map(|&cluster| &sums[cluster as usize])).map(|[value, ..]| value)
    }

    #[test]
    fn pooling_weighs() {
        // (10 + 2) / (4 + 2), not the mean of 2.5 and 1.
        let sums = [
            Sums { value: 10.0, weight: 4.0, ..Sums::default() },
            Sums { value: 2.0, weight: 2.0, ..Sums::default() },
        ];
        assert_eq!(pooled(&sums), Some([2.0, 0.0, 0.0]));
        assert_eq!(pooled(&[]), None);
    }

    #[test]
    fn constant_data_has_an_interval_without_width() {
        let sums = vec![Sums { value: 6.0, weight: 3.0, ..Sums::default() }; 7];
        let interval = Draws::new(7).interval(mean_of(&sums)).unwrap();
        assert_eq!((interval.low, interval.high), (2.0, 2.0));
    }

    #[test]
    fn one_cluster_gives_no_interval() {
        assert_eq!(Draws::new(1).interval(mean_of(&[Sums { value: 6.0, weight: 3.0, ..Sums::default() }])), None);
        assert_eq!(Draws::new(0).interval(|_| Some(1.0)), None);
    }

    #[test]
    fn two_clusters_reach_both_ends() {
        // A quarter of the draws takes the same cluster twice, so the 2.5 % ends are the clusters themselves.
        let sums = [
            Sums { value: 1.0, weight: 1.0, ..Sums::default() },
            Sums { value: 3.0, weight: 1.0, ..Sums::default() },
        ];
        let interval = Draws::new(2).interval(mean_of(&sums)).unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 3.0));
    }

    #[test]
    fn the_interval_of_a_mean_has_the_textbook_width() {
        // 0..100 equally often: standard error = sqrt((n^2 - 1) / 12 / n) = 2.887, half width 1.96 of those.
        let sums: Vec<Sums> =
            (0..100).map(|i| Sums { value: f64::from(i), weight: 1.0, ..Sums::default() }).collect();
        let interval = Draws::new(100).interval(mean_of(&sums)).unwrap();
        assert!((interval.half_width() - 1.96 * 2.887).abs() < 0.3, "{interval:?}");
        assert_eq!(Draws::new(100).interval(mean_of(&sums)), Some(interval), "the same draws every time");
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.25), 1.25);
        assert_eq!(quantile(&[f64::INFINITY, f64::INFINITY], 0.3), f64::INFINITY);
    }
}
