//! Which differences between policies are more than chance: a sign-flip test over the means of clusters.
//!
//! Each cluster gives one number, the difference of its two means, whatever it weighs. Differences far from the others are limited to a
//! few times the median of their sizes, so that one cluster cannot hide what all others say (winsorised; Maritz, "A note on exact robust
//! confidence intervals for location", Biometrika 66, 1979; Rosenbaum, Biometrics 63, 2007). If two policies are equal, a cluster's
//! difference is as likely to have the other sign. Flipping the signs of whole clusters gives the law of |t|, the sum of the limited
//! differences over the root of the sum of their squares, without a model of how clusters differ. Among many comparisons some are far by
//! chance: the largest |t| of all of them, flipped together, is the law for all at once (max-|t|: Westfall and Young,
//! "Resampling-based multiple testing", 1993; Romano and Wolf, Econometrica 73, 2005). Every pattern of signs is taken up to 12
//! clusters, beyond that random ones. Ranks would not do: the |t| of all clusters with one sign is then the same in every comparison, so that
//! many comparisons leave none clear.

use crate::metric::{Metric, Pooling};
use crate::report::statistics::{ABREAST, CONFIDENCE, ENUMERATED, Sums, count, for_subsets};

/// How likely so large a difference is between equal policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PValue {
    /// Probability for this comparison alone.
    pub own: f64,
    /// Probability that any comparison of the family is so far from zero.
    pub adjusted: f64,
}

impl PValue {
    /// Whether the two are told apart, among all comparisons of the family.
    pub fn is_clear(&self) -> bool {
        self.adjusted <= 1.0 - CONFIDENCE
    }
}

/// The smallest p that so many clusters allow: all have one sign.
pub fn smallest_p(clusters: usize) -> f64 {
    2.0 / 2f64.powi(clusters.try_into().unwrap_or(i32::MAX))
}

/// Whether so many clusters can tell policies apart.
pub fn has_verdicts(clusters: usize) -> bool {
    smallest_p(clusters) <= 1.0 - CONFIDENCE
}

/// Relative differences below this are rounding errors of sums.
pub(crate) const ROUNDING: f64 = 1e-12;
/// Differences are limited to this multiple of the median of their sizes.
const MOST: f64 = 2.5;

/// The difference of the means of each cluster, `own` minus `other`, in the natural scale of the metric: nats of a perplexity, points
/// of percentages. 0 of a cluster that one of them does not weigh.
///
/// `None` where a mean is not finite.
pub(crate) fn differences(metric: &Metric, own: &[Sums], other: &[Sums]) -> Option<Vec<f64>> {
    let natural = |sums: &Sums| {
        let pooled = sums.pooled()?;
        Some(if metric.pooling == Pooling::Perplexity { pooled[0] } else { metric.of_pooled(pooled) })
    };
    let one = |(own, other): (&Sums, &Sums)| {
        let (Some(own), Some(other)) = (natural(own), natural(other)) else { return 0.0 };
        let scale = own.abs().max(other.abs());
        if scale.is_finite() && (own - other).abs() <= ROUNDING * scale { 0.0 } else { own - other }
    };
    let all: Vec<f64> = own.iter().zip(other).map(one).collect();
    all.iter().all(|difference| difference.is_finite()).then_some(all)
}

/// The differences, limited to 2.5 times the median size of those that are not 0.
pub(crate) fn winsorised(differences: &[f64]) -> Vec<f64> {
    let mut sizes: Vec<f64> = differences.iter().map(|one| one.abs()).filter(|size| *size > 0.0).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    let Some(last) = sizes.len().checked_sub(1) else { return differences.to_vec() };
    let most = MOST * f64::midpoint(sizes[last / 2], sizes[sizes.len() / 2]);
    differences.iter().map(|one| one.clamp(-most, most)).collect()
}

/// A comparison of which some cluster differs.
struct Tested {
    /// Limited differences by cluster.
    parts: Vec<f64>,
    sum: f64,
    /// The root of the sum of the squares, which no flip changes.
    scale: f64,
}

impl Tested {
    fn of(differences: &[f64]) -> Option<Self> {
        let parts = winsorised(differences);
        let scale = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
        (scale > 0.0).then(|| Self { sum: parts.iter().sum(), scale, parts })
    }

    /// |t| with the signs of all clusters flipped that are not in a subset, for eight subsets.
    fn flipped(&self, members: &[[f64; ABREAST]]) -> [f64; ABREAST] {
        let mut kept = [0.0; ABREAST];
        for (part, members) in self.parts.iter().zip(members) {
            kept.iter_mut().zip(members).for_each(|(sum, is_in)| *sum += is_in * part);
        }
        kept.map(|kept| (2.0 * kept - self.sum).abs() / self.scale)
    }

    /// Whether a flipped |t| is as large as the measured one; what only rounding makes smaller is. |t| is of the order of one,
    /// or zero but for rounding.
    fn is_reached(&self, t: f64) -> bool {
        t >= self.sum.abs() / self.scale - 1e-9
    }
}

/// The p-values of a family of comparisons, each given by the [`differences`] of its clusters, in one order; `None` of a comparison
/// that could not be made, or in which no cluster differs.
pub(crate) fn p_values(family: &[Option<&[f64]>]) -> Vec<Option<PValue>> {
    let clusters = family.iter().flatten().map(|of_one| of_one.len()).next().unwrap_or(0);
    let tested: Vec<Option<Tested>> = family.iter().map(|of_one| Tested::of((*of_one)?)).collect();
    let mut alone = vec![0_usize; family.len()];
    let mut largest = Vec::with_capacity(count(clusters));
    for_subsets(clusters, |members| {
        let mut of_all = [0.0_f64; ABREAST];
        for (tested, alone) in tested.iter().zip(&mut alone) {
            let Some(tested) = tested else { continue };
            for (of_all, t) in of_all.iter_mut().zip(tested.flipped(members)) {
                *alone += usize::from(tested.is_reached(t));
                *of_all = of_all.max(t);
            }
        }
        largest.extend(of_all);
    });
    largest.sort_by(f64::total_cmp);
    // Among drawn patterns the measured one is one more.
    let measured = usize::from(clusters > ENUMERATED);
    let share = |reached: usize| (reached + measured) as f64 / (largest.len() + measured) as f64;
    let p_value = |(tested, alone): (&Option<Tested>, usize)| {
        let tested = tested.as_ref()?;
        let below = largest.partition_point(|t| !tested.is_reached(*t));
        Some(PValue { own: share(alone), adjusted: share(largest.len() - below) })
    };
    tested.iter().zip(alone).map(p_value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(family: &[&[f64]]) -> Vec<[f64; 2]> {
        let family: Vec<Option<&[f64]>> = family.iter().copied().map(Some).collect();
        p_values(&family).into_iter().map(|p| p.map_or([f64::NAN; 2], |p| [p.own, p.adjusted])).collect()
    }

    #[test]
    fn p_values_by_counting() {
        // All of one sign: only this pattern and its mirror image are so far from zero.
        assert_eq!(adjusted(&[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]), [[2.0 / 64.0; 2]]);
        // 1 + 2 + 3 - 4 = 2: of the 16 sums from -10 to 10 in steps of 2, two patterns give 0 and the others at least 2.
        assert_eq!(adjusted(&[&[1.0, 2.0, 3.0, -4.0]]), [[14.0 / 16.0; 2]]);
        // A second comparison, which is less far by itself but far in other patterns: |t| of the first is 4 / 2 = 2, of
        // which only two patterns are as far; of the second it is 2 / 2, and 10 patterns are (8 with one odd sign, and 2).
        let both = adjusted(&[&[1.0, 1.0, 1.0, 1.0], &[1.0, 1.0, 1.0, -1.0]]);
        assert_eq!(both, [[2.0 / 16.0, 4.0 / 16.0], [10.0 / 16.0, 1.0]]);
    }

    #[test]
    fn clusters_that_do_not_differ_do_not_count() {
        let of = |parts: &[f64]| adjusted(&[parts])[0][0];
        assert_eq!(of(&[3.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]), of(&[3.0, 2.0, 1.0]));
        assert!(adjusted(&[&[0.0; 8]])[0][0].is_nan() && p_values(&[None, None]) == [None, None]);
    }

    #[test]
    fn beyond_twelve_clusters_patterns_are_drawn() {
        // The normal law: 40 differences of 1 and 24 of -1 are 16 / 8 = 2 standard errors, p = 0.046 (0.059 by counting).
        let parts: Vec<f64> = (0..64).map(|i| if i < 40 { 1.0 } else { -1.0 }).collect();
        let [own, adjusted_] = adjusted(&[&parts])[0];
        assert!((own - 0.06).abs() < 0.012 && own == adjusted_, "{own}");
        // All of one sign is further than any drawn pattern.
        assert_eq!(adjusted(&[&[1.0; 64]])[0][0], 1.0 / 4097.0);
    }

    #[test]
    fn six_clusters_are_the_fewest_with_verdicts() {
        assert!(!has_verdicts(5) && has_verdicts(6));
        assert_eq!((smallest_p(4), smallest_p(5)), (0.125, 0.0625));
    }

    #[test]
    fn differences_are_limited_to_a_multiple_of_the_median_size() {
        // Sizes 1, 2, 3 and 40, of which 2.5 is in the middle; zeros do not count.
        assert_eq!(winsorised(&[1.0, -2.0, 0.0, 3.0, -40.0]), [1.0, -2.0, 0.0, 3.0, -6.25]);
        assert_eq!(winsorised(&[1.0, 2.0, -9.0]), [1.0, 2.0, -5.0]);
        assert_eq!((winsorised(&[0.0; 3]), winsorised(&[])), (vec![0.0; 3], vec![]));
    }

    #[test]
    fn one_cluster_far_from_the_others_does_not_hide_them() {
        let of = |last: f64| adjusted(&[&[1.0, 1.5, 0.9, 1.1, 0.8, 1.2, 1.3, last]])[0][0];
        // The median size is 1.15, so that any size beyond 2.875 is the same.
        assert_eq!([of(-3.0), of(-3000.0)], [of(-2.875); 2]);
        // By hand: 7.8 against 2.875 is 4.925 of 10.675 in all, so that patterns reach it that flip 2.875 or less of the sizes, or all but that.
        let sizes = [1.0, 1.5, 0.9, 1.1, 0.8, 1.2, 1.3, 2.875];
        let flipped = |members: u32| (0..8).filter(|at| members >> at & 1 == 1).map(|at| sizes[at]).sum::<f64>();
        let reached = (0..256_u32).filter(|members| flipped(*members) < 2.8751 || flipped(*members) > 7.7999);
        assert_eq!(of(-3000.0), reached.count() as f64 / 256.0);
    }

    #[test]
    fn many_comparisons_leave_one_clear_in_which_all_clusters_agree() {
        // Ten clusters, of which all agree in one comparison and signs are all patterns of seven of them in 64 others, which ranks
        // would not tell from it.
        let agreed: Vec<f64> = (0..10).map(|at| 1.0 + 0.02 * f64::from(at)).collect();
        let mixed = |members: u32| {
            (0..10).map(move |at| f64::from(at + 1) * if members >> at & 1 == 1 { -1.0 } else { 1.0 })
        };
        let others: Vec<Vec<f64>> = (0..64).map(|members| mixed(8 * members).collect()).collect();
        let family: Vec<&[f64]> = std::iter::once(&agreed).chain(&others).map(Vec::as_slice).collect();
        assert_eq!(adjusted(&family)[0], [2.0 / 1024.0; 2]);
    }

    #[test]
    fn differences_are_of_the_means_of_clusters_in_the_natural_scale() {
        let table = |values: &[(f64, f64)]| -> Vec<Sums> {
            values.iter().map(|(value, weight)| Sums { values: [*value; 3], weight: *weight }).collect()
        };
        let [own, other] = [table(&[(6.0, 3.0), (80.0, 20.0)]), table(&[(3.0, 3.0), (6.0, 1.0)])];
        // 2 - 1 nats and 4 - 6, however much the clusters weigh.
        assert_eq!(differences(&Metric::of("nll"), &own, &other), Some(vec![1.0, -2.0]));
        // Of three equal shares the geometric mean is the share.
        let found = differences(&Metric::of("rouge"), &own, &other).unwrap();
        assert!((found[0] - 100.0).abs() < 1e-9 && (found[1] + 200.0).abs() < 1e-9, "{found:?}");
        assert_eq!(differences(&Metric::of("nll"), &own, &own), Some(vec![0.0; 2]));
        assert_eq!(differences(&Metric::of("nll"), &table(&[(f64::INFINITY, 1.0)]), &table(&[(1.0, 1.0)])), None);
        assert_eq!(differences(&Metric::of("nll"), &table(&[(1.0, 0.0)]), &table(&[(1.0, 1.0)])), Some(vec![0.0]));
    }
}
