//! Which differences between policies are more than chance: the sign-flip test over clusters.
//!
//! If two policies are equal, a cluster's difference is as likely to have the other sign. Flipping the signs of whole clusters
//! gives the law of |t|, the sum of the differences over the root of the sum of their squares, without a model of how clusters
//! differ. Among many comparisons some are far by chance: the largest |t| of all of them, flipped together, is the law for
//! all at once (max-|t|: Westfall and Young, "Resampling-based multiple testing", 1993; Romano and Wolf, Econometrica 73,
//! 2005). Every pattern of signs is taken up to 12 clusters, beyond that random ones.

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

/// What each cluster adds to the difference of two pooled numbers in the natural scale of the metric: nats of a perplexity,
/// shares of percentages. The sum is that difference; of a geometric mean, the difference to first order.
///
/// `None` where a number is not finite or nothing was weighed.
pub(crate) fn contributions(metric: &Metric, own: &[Sums], other: &[Sums]) -> Option<Vec<f64>> {
    let [all_own, all_other]: [Sums; 2] = [own.iter().sum(), other.iter().sum()];
    let (pooled_own, pooled_other) = (all_own.pooled()?, all_other.pooled()?);
    let middle: [f64; 3] = std::array::from_fn(|part| f64::midpoint(pooled_own[part], pooled_other[part]));
    let slopes = match metric.pooling {
        Pooling::GeometricShare => {
            let mean = middle.iter().product::<f64>().cbrt();
            middle.map(|part| if part == 0.0 { 0.0 } else { mean / 3.0 / part })
        }
        _ => [1.0, 0.0, 0.0],
    };
    let part_of = |sums: &Sums, weight: f64| -> f64 {
        let parts = (0..3).filter(|part| slopes[*part] != 0.0);
        parts.map(|part| slopes[part] * (sums.values[part] - middle[part] * sums.weight) / weight).sum()
    };
    let one = |(own, other): (&Sums, &Sums)| {
        let difference = part_of(own, all_own.weight) - part_of(other, all_other.weight);
        let size = |sums: &Sums, all: &Sums| (slopes[0] * sums.values[0] / all.weight).abs();
        let rounding = ROUNDING * size(own, &all_own).max(size(other, &all_other));
        if difference.abs() <= rounding { 0.0 } else { difference }
    };
    let all: Vec<f64> = own.iter().zip(other).map(one).collect();
    all.iter().all(|part| part.is_finite()).then_some(all)
}

/// A comparison of which some cluster differs.
struct Tested<'a> {
    parts: &'a [f64],
    sum: f64,
    /// The root of the sum of the squares, which no flip changes.
    scale: f64,
}

impl<'a> Tested<'a> {
    fn of(parts: &'a [f64]) -> Option<Self> {
        let scale = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
        (scale > 0.0).then(|| Self { parts, sum: parts.iter().sum(), scale })
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

/// The p-values of a family of comparisons, each given by what the clusters add to it, in one order; `None` of a comparison
/// that could not be made, or in which no cluster differs.
pub(crate) fn p_values(family: &[Option<Vec<f64>>]) -> Vec<Option<PValue>> {
    let clusters = family.iter().flatten().map(Vec::len).next().unwrap_or(0);
    let tested: Vec<Option<Tested<'_>>> = family.iter().map(|parts| Tested::of(parts.as_deref()?)).collect();
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
    let p_value = |(tested, alone): (&Option<Tested<'_>>, usize)| {
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
        let family: Vec<Option<Vec<f64>>> = family.iter().map(|parts| Some(parts.to_vec())).collect();
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
    fn contributions_sum_to_the_difference_in_the_natural_scale() {
        let table = |values: &[(f64, f64)]| -> Vec<Sums> {
            values.iter().map(|(value, weight)| Sums { values: [*value; 3], weight: *weight }).collect()
        };
        let [own, other] = [table(&[(6.0, 3.0), (8.0, 2.0)]), table(&[(3.0, 3.0), (6.0, 1.0)])];
        // 14 / 5 - 9 / 4 nats, also where the weights differ.
        let parts = contributions(&Metric::of("nll"), &own, &other).unwrap();
        assert!((parts.iter().sum::<f64>() - 0.55).abs() < 1e-12, "{parts:?}");
        // Of three equal shares the geometric mean is the share.
        let parts = contributions(&Metric::of("rouge"), &own, &other).unwrap();
        assert!((parts.iter().sum::<f64>() - 0.55).abs() < 1e-12, "{parts:?}");
        assert_eq!(contributions(&Metric::of("nll"), &own, &own), Some(vec![0.0; 2]));
        assert_eq!(contributions(&Metric::of("nll"), &table(&[(f64::NAN, 1.0)]), &table(&[(1.0, 1.0)])), None);
    }
}
