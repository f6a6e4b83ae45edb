//! What single clusters do to a difference: the share of it that one of them carries, and the difference without each.

use std::array;
use std::collections::BTreeMap;

use crate::metric::{Metric, Pooling};
use crate::report::statistics::Sums;
use crate::report::statistics::sign_test::ROUNDING;

/// A cluster that carries more of an effect than this is named beside it.
const MOST: f64 = 1.0 / 3.0;

/// How far a difference rests on single clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct Influence {
    /// The cluster that carries most of the difference.
    pub cluster: String,
    /// The share that it carries; above 1 where the others together pull the other way.
    pub share: f64,
    /// The least and the greatest difference with one cluster left out, in the unit shown.
    pub left_out: [f64; 2],
    /// The range in nats for each token, of two perplexities.
    pub left_out_nats: Option<[f64; 2]>,
}

impl Influence {
    /// The influences on the difference of two numbers of `metric`, `own` minus `other`, of which each table has what the
    /// `clusters` add. `None` with fewer than two clusters, without a difference, or where a number is not finite.
    pub(crate) fn of(metric: &Metric, clusters: &[&str], own: &[Sums], other: &[Sums]) -> Option<Self> {
        let parts = contributions(metric, own, other)?;
        let all: f64 = parts.iter().sum();
        let sizes =
            [own, other].map(|table| table.iter().sum::<Sums>().pooled().map_or(0.0, |[value, ..]| value.abs()));
        if all.abs() <= ROUNDING * sizes[0].max(sizes[1]) {
            return None;
        }
        let (largest, share) =
            parts.iter().map(|part| part / all).enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let without = [own, other].map(leave_one_out);
        let weighs = |at: &usize| own[*at].weight > 0.0 || other[*at].weight > 0.0;
        let pairs = (0..clusters.len())
            .filter(weighs)
            .map(|at| Some([without[0][at].pooled()?, without[1][at].pooled()?]));
        let pairs: Vec<[[f64; 3]; 2]> = pairs.collect::<Option<_>>()?;
        let range = |number: &dyn Fn([f64; 3]) -> f64| -> Option<[f64; 2]> {
            let differences = pairs.iter().map(|of_both| of_both.map(number)).map(|[own, other]| own - other);
            let ends = differences.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], difference| {
                [low.min(difference), high.max(difference)]
            });
            ends.iter().all(|end| end.is_finite()).then_some(ends)
        };
        let is_perplexity = metric.pooling == Pooling::Perplexity;
        Some(Self {
            cluster: clusters.get(largest)?.to_string(),
            share: Some(share).filter(|share| share.is_finite())?,
            left_out: range(&|pooled| metric.of_pooled(pooled))?,
            left_out_nats: if is_perplexity { range(&|[nats, ..]| nats) } else { None },
        })
    }

    /// Negates the range, for the difference from the other side.
    pub(crate) fn turned(&self) -> Self {
        let turned = |[low, high]: [f64; 2]| [0.0 - high, 0.0 - low];
        Self { left_out: turned(self.left_out), left_out_nats: self.left_out_nats.map(turned), ..self.clone() }
    }
}

/// What each cluster adds to the difference of two pooled numbers in the natural scale of the metric: nats of a perplexity,
/// shares of percentages. The sum is that difference; of a geometric mean, the difference to first order.
///
/// `None` where a number is not finite or nothing was weighed.
fn contributions(metric: &Metric, own: &[Sums], other: &[Sums]) -> Option<Vec<f64>> {
    let [all_own, all_other]: [Sums; 2] = [own.iter().sum(), other.iter().sum()];
    let (pooled_own, pooled_other) = (all_own.pooled()?, all_other.pooled()?);
    let middle: [f64; 3] = array::from_fn(|part| f64::midpoint(pooled_own[part], pooled_other[part]));
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
    let one = |(own, other): (&Sums, &Sums)| part_of(own, all_own.weight) - part_of(other, all_other.weight);
    let all: Vec<f64> = own.iter().zip(other).map(one).collect();
    all.iter().all(|part| part.is_finite()).then_some(all)
}

/// The sums of a table without each of its clusters.
fn leave_one_out(table: &[Sums]) -> Vec<Sums> {
    let mut before = Sums::default();
    let mut without: Vec<Sums> = table
        .iter()
        .map(|sums| {
            let so_far = before;
            before += sums;
            so_far
        })
        .collect();
    let mut after = Sums::default();
    for (without, sums) in without.iter_mut().zip(table).rev() {
        *without += &after;
        after += sums;
    }
    without
}

/// Effects that a note names; others are counted.
const NAMED: usize = 3;

/// A sentence for each cluster that carries more than a third of some effects, each of which has a name: the largest shares first.
pub(crate) fn notes<'a>(effects: impl Iterator<Item = (String, &'a Influence)>) -> Vec<String> {
    let mut by_cluster: BTreeMap<&str, Vec<(f64, String)>> = BTreeMap::new();
    for (name, Influence { cluster, share, .. }) in effects.filter(|(_, influence)| influence.share > MOST) {
        by_cluster.entry(cluster).or_default().push((*share, name));
    }
    let note = |(cluster, mut effects): (&str, Vec<(f64, String)>)| {
        effects.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let others = effects.len().saturating_sub(NAMED);
        let named = effects.iter().take(NAMED).map(|(share, name)| format!("{:.0} % of {name}", 100.0 * share));
        let others = (others > 0).then(|| format!("and of {others} others"));
        let all: Vec<String> = named.chain(others).collect();
        format!("{cluster} alone carries more than a third of an effect: {}", all.join(", "))
    };
    by_cluster.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(values: &[(f64, f64)]) -> Vec<Sums> {
        values.iter().map(|(value, weight)| Sums { values: [*value; 3], weight: *weight }).collect()
    }

    #[test]
    fn the_largest_cluster_and_the_range_without_each_by_hand() {
        // Means of 1, 1 and 10 more in three clusters of weight 2: 4 in the mean, of which the third has 10/12.
        let [own, other] =
            [table(&[(4.0, 2.0), (6.0, 2.0), (28.0, 2.0)]), table(&[(2.0, 2.0), (4.0, 2.0), (8.0, 2.0)])];
        let found = Influence::of(&Metric::of("cost"), &["a", "b", "c"], &own, &other).unwrap();
        assert_eq!((found.cluster.as_str(), found.left_out, found.left_out_nats), ("c", [1.0, 5.5], None));
        assert!((found.share - 10.0 / 12.0).abs() < 1e-12, "{found:?}");
        assert_eq!(found.turned().left_out, [-5.5, -1.0]);
        // Of perplexities, in nats: without c (4 + 6) / 4 against (2 + 4) / 4.
        let found = Influence::of(&Metric::of("nll"), &["a", "b", "c"], &own, &other).unwrap();
        let low = 2.5f64.exp() - 1.5f64.exp();
        assert!((found.left_out[0] - low).abs() < 1e-12, "{found:?}");
        assert_eq!(found.left_out_nats, Some([1.0, 5.5]));
    }

    #[test]
    fn a_share_is_above_one_where_the_others_pull_the_other_way() {
        let found = |values: &[f64]| {
            let own: Vec<(f64, f64)> = values.iter().map(|value| (*value, 1.0)).collect();
            let zeros = vec![(0.0, 1.0); values.len()];
            Influence::of(&Metric::of("cost"), &["a", "b", "c"][..values.len()], &table(&own), &table(&zeros))
        };
        // Of 8 in all the first has 10.
        let first = found(&[10.0, -4.0, 2.0]).unwrap();
        assert_eq!((first.left_out, &*first.cluster), ([-1.0, 6.0], "a"));
        assert!((first.share - 1.25).abs() < 1e-12, "{first:?}");
        // A negative effect is carried by what is most negative.
        let first = found(&[-10.0, 4.0, -2.0]).unwrap();
        assert!(first.cluster == "a" && (first.share - 1.25).abs() < 1e-12, "{first:?}");
        assert_eq!([found(&[1.0]), found(&[1.0, -1.0]), found(&[f64::INFINITY, 1.0])], [None, None, None]);
    }

    #[test]
    fn contributions_sum_to_the_difference_in_the_natural_scale() {
        let [own, other] = [table(&[(6.0, 3.0), (8.0, 2.0)]), table(&[(3.0, 3.0), (6.0, 1.0)])];
        // 14 / 5 - 9 / 4 nats, also where the weights differ; of three equal shares the geometric mean is the share.
        for metric in ["nll", "rouge"] {
            let parts = contributions(&Metric::of(metric), &own, &other).unwrap();
            assert!((parts.iter().sum::<f64>() - 0.55).abs() < 1e-12, "{parts:?}");
        }
    }

    #[test]
    fn notes_name_clusters_that_carry_more_than_a_third() {
        let influence = |cluster: &str, share| Influence {
            cluster: cluster.into(),
            share,
            left_out: [0.0; 2],
            left_out_nats: None,
        };
        let shares = [0.4, 0.3, 0.79, 0.35, 0.5];
        let all: Vec<Influence> =
            shares.into_iter().map(|share| influence("x", share)).chain([influence("y", 0.3)]).collect();
        let found = notes(["a", "b", "c", "d", "e", "f"].map(str::to_owned).into_iter().zip(&all));
        let expected =
            "x alone carries more than a third of an effect: 79 % of c, 50 % of e, 40 % of a, and of 1 others";
        assert_eq!(found, [expected]);
    }
}
