//! Every two policies of a panel against each other at each cache size, and which are told apart among all of one size.
//!
//! A pair is compared over the samples both have. `sign_test` says how likely so large a difference is between equal policies,
//! alone, among all pairs of its size, and among the contrasts that were planned. `pairing` decides which pairs a report shows.

use std::collections::BTreeMap;

use crate::metric::Better;
use crate::report::series::{Cell, Difference, Pool, Size};
use crate::report::statistics::{PValue, sign_test};

/// Two policies at one cache size.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub policy: String,
    pub against: String,
    pub cache_size: Size,
    /// The policy's value minus the other's.
    pub difference: Difference,
    /// Whether no cluster differs, as where nothing was evicted.
    pub is_equal: bool,
    /// Whether the interval of the difference leaves out zero, on the side to which the clusters' own differences lean. Without that, no
    /// p-value is a verdict: the number shown and the verdict would disagree.
    pub is_agreed: bool,
    /// Among all pairs of this size; `None` where they are equal or a number is not finite.
    pub p: Option<PValue>,
    /// Among the planned contrasts of this size; `None` where this is none of them.
    pub planned: Option<PValue>,
}

/// What a pair says of its first policy, in the order of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Better,
    Worse,
    Equal,
    /// Not told apart.
    NoClearDifference,
}

impl Outcome {
    /// The word of tables and files.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Outcome::Better => "better",
            Outcome::Worse => "worse",
            Outcome::Equal => "equal",
            Outcome::NoClearDifference => "not told apart",
        }
    }
}

impl Pair {
    /// Whether the two are told apart, among all pairs of the size (95 %).
    pub fn is_clear(&self) -> bool {
        self.is_told_apart(self.p)
    }

    fn is_told_apart(&self, p: Option<PValue>) -> bool {
        self.is_agreed && p.is_some_and(|p| p.is_clear())
    }

    /// What it says of the first policy of a metric with this direction, among all pairs of the size; of a metric without a direction,
    /// never which is better.
    pub fn outcome(&self, better: Better) -> Outcome {
        self.outcome_of(self.is_clear(), better)
    }

    /// What it says of the first policy among the planned contrasts of the size alone.
    pub fn planned_outcome(&self, better: Better) -> Outcome {
        self.outcome_of(self.is_told_apart(self.planned), better)
    }

    fn outcome_of(&self, is_clear: bool, better: Better) -> Outcome {
        match (is_clear, self.difference.shown.value < 0.0, better) {
            _ if self.is_equal => Outcome::Equal,
            (false, ..) | (_, _, Better::Unknown) => Outcome::NoClearDifference,
            (true, true, Better::Lower) | (true, false, Better::Higher) => Outcome::Better,
            _ => Outcome::Worse,
        }
    }

    /// Swaps the two policies.
    pub fn turned(&self) -> Pair {
        Pair {
            policy: self.against.clone(),
            against: self.policy.clone(),
            difference: self.difference.turned(),
            ..*self
        }
    }
}

/// All pairs but those with `full`, the later of a panel's order minus the earlier; with p-values among those of one size, and of the
/// contrasts that were `planned` among these.
pub(crate) fn of(pool: &Pool<'_>, cells: &[Cell<'_>], planned: &[[String; 2]]) -> Vec<Pair> {
    let (mut pairs, mut clusters) = (Vec::new(), Vec::new());
    for (i, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.policy != "full") {
        let Some(cache_size) = cell.cache_size else { continue };
        let others =
            cells[..i].iter().filter(|other| other.policy != "full" && other.cache_size == cell.cache_size);
        for other in others {
            let Some(difference) = pool.difference(cell, other) else { continue };
            let differences = pool.differences(cell, other);
            pairs.push(Pair {
                policy: cell.policy.to_owned(),
                against: other.policy.to_owned(),
                cache_size,
                is_equal: differences.as_ref().is_some_and(|all| all.iter().all(|one| *one == 0.0)),
                is_agreed: differences.as_ref().is_some_and(|all| is_agreed(&difference, all)),
                difference,
                p: None,
                planned: None,
            });
            clusters.push(differences);
        }
    }
    // Pairs of one size are one family, and the contrasts among them another, whatever other sizes there are.
    let mut families: BTreeMap<(Size, bool), Vec<usize>> = BTreeMap::new();
    for (at, pair) in pairs.iter().enumerate() {
        families.entry((pair.cache_size, false)).or_default().push(at);
        let names = [&pair.policy, &pair.against];
        if planned.iter().any(|[one, other]| names == [one, other] || names == [other, one]) {
            families.entry((pair.cache_size, true)).or_default().push(at);
        }
    }
    for ((_, is_planned), family) in families {
        let of_family: Vec<_> = family.iter().map(|at| clusters[*at].as_deref()).collect();
        for (at, p) in family.into_iter().zip(sign_test::p_values(&of_family)) {
            *(if is_planned { &mut pairs[at].planned } else { &mut pairs[at].p }) = p;
        }
    }
    pairs
}

/// Whether the interval is on the side of zero to which the test's differences of the clusters lean.
fn is_agreed(difference: &Difference, clusters: &[f64]) -> bool {
    let lean: f64 = sign_test::winsorised(clusters).iter().sum();
    let interval = difference.shown.interval.filter(|interval| interval.excludes_zero());
    interval.is_some_and(|interval| (interval.low > 0.0) == (lean > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{cell, panels, table_3};
    use crate::report::series::Influence;

    /// A metric that is shown as it is, so that values can be told by hand.
    fn costs_of(policy: &str, size: u32, values: &[(&str, f64)]) -> Vec<Row> {
        let samples: Vec<_> = values.iter().map(|(name, value)| (*name, *value, 1.0)).collect();
        cell("cost", policy, Some(size), &samples)
    }

    fn pair<'p>(pairs: &'p [Pair], policy: &str, against: &str, size: u32) -> &'p Pair {
        let wanted =
            |pair: &&Pair| (&*pair.policy, &*pair.against, pair.cache_size) == (policy, against, size.into());
        pairs.iter().find(wanted).unwrap()
    }

    fn six(values: [f64; 6]) -> Vec<(&'static str, f64)> {
        ["a", "b", "c", "d", "e", "f"].into_iter().zip(values).collect()
    }

    #[test]
    fn six_books_are_told_apart_only_if_all_differ_alike() {
        let zeros = costs_of("window", 8, &six([0.0; 6]));
        let of = |values| panels(&[zeros.clone(), costs_of("tova", 8, &six(values))].concat())[0].pairs[0].clone();
        let pair = of([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]);
        assert_eq!((&*pair.policy, &*pair.against, pair.cache_size), ("tova", "window", 8.into()));
        let Difference { shown, nats, samples, clusters, .. } = pair.difference;
        assert_eq!((shown.value, nats, samples, clusters), (4.0, None, 6, 6));
        // Every cluster differs upwards: one of 32 patterns and its mirror image.
        assert_eq!(pair.p, Some(PValue { own: 2.0 / 64.0, adjusted: 2.0 / 64.0 }));
        assert!(pair.is_clear() && !pair.is_equal);
        // One book the other way, by however little: twice as many patterns are as far.
        let pair = of([1.0, 2.0, 3.0, 4.0, 5.0, -0.001]);
        assert_eq!((pair.p.unwrap().own, pair.is_clear()), (4.0 / 64.0, false));
    }

    #[test]
    fn among_many_comparisons_of_one_size_a_pair_must_be_farther_apart() {
        let names: Vec<String> = (0..12).map(|book| format!("book{book:02}")).collect();
        let mut rng = fastrand::Rng::with_seed(3);
        let mut at = |policy: &str, size: u32, shift: f64| {
            let costs: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), shift + rng.f64())).collect();
            costs_of(policy, size, &costs)
        };
        let two = [at("window", 8, 0.0), at("p00", 8, 0.45)].concat();
        let others: Vec<Row> = (1..14).flat_map(|policy| at(&format!("p{policy:02}"), 8, 0.0)).collect();
        let of_other_size: Vec<Row> = (0..14).flat_map(|policy| at(&format!("p{policy:02}"), 16, 0.0)).collect();
        let among = |more: &[Row]| {
            let all = panels(&[two.clone(), more.to_vec()].concat());
            pair(&all[0].pairs, "p00", "window", 8).clone()
        };
        let [one, many] = [among(&[]), among(&others)];
        assert_eq!(one.p.unwrap().own, many.p.unwrap().own);
        assert!(one.is_clear() && many.p.unwrap().adjusted > 5.0 * one.p.unwrap().adjusted, "{one:?} {many:?}");
        // Other sizes are other families.
        assert_eq!([among(&of_other_size).p, among(&[others, of_other_size].concat()).p], [one.p, many.p]);
    }

    #[test]
    fn a_verdict_needs_the_pair_s_own_interval() {
        // Eleven books a little better, one far worse, so that the pooled difference is above zero.
        let names: Vec<String> = (0..12).map(|book| format!("book{book:02}")).collect();
        let of = |policy: &str, cost: &dyn Fn(usize) -> f64| {
            let costs: Vec<(&str, f64)> =
                names.iter().enumerate().map(|(at, name)| (name.as_str(), cost(at))).collect();
            costs_of(policy, 8, &costs)
        };
        let far = |last: f64| {
            let better = move |book: usize| if book == 11 { last } else { -0.1 - 0.01 * book as f64 };
            panels(&[of("window", &|_| 0.0), of("tova", &better)].concat())[0].pairs[0].clone()
        };
        let found = far(20.0);
        assert!(found.p.unwrap().is_clear() && found.difference.shown.value > 0.0, "{found:?}");
        assert_eq!((found.is_agreed, found.outcome(Better::Lower)), (false, Outcome::NoClearDifference));
        assert_eq!(far(-0.3).outcome(Better::Lower), Outcome::Better);
    }

    #[test]
    fn clusters_that_agree_are_found_whatever_they_weigh() {
        // Ten papers with 16 to 305 answer tokens, as QASPER's are: all agree, and one weighs as much as five others.
        let papers = [16.0, 20.0, 25.0, 30.0, 40.0, 60.0, 80.0, 120.0, 180.0, 305.0];
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let of = |policy: &str, nats: &dyn Fn(usize) -> f64| {
            let samples: Vec<_> = (0..10).map(|at| (names[at], nats(at) * papers[at], papers[at])).collect();
            cell("nll", policy, Some(8), &samples)
        };
        let all = [of("a2sf", &|_| 1.0), of("knorm", &|at| 2.3 + 0.35 * at as f64)].concat();
        let found = panels(&all)[0].pairs[0].clone();
        assert_eq!((found.p.unwrap().own, found.outcome(Better::Lower)), (2.0 / 1024.0, Outcome::Worse));
        let Influence { cluster, share, .. } = found.difference.influence.unwrap();
        assert!(cluster == "j" && share > 0.4, "{cluster} {share}");
    }

    #[test]
    fn equal_policies_are_equal_and_constant_differences_are_clear() {
        let books = |shift: f64| six([1.0, 4.0, 9.0, 2.0, 3.0, 7.0].map(|cost| cost + shift));
        let all = [
            costs_of("window", 8, &books(0.0)),
            costs_of("window+4", 8, &books(0.0)),
            costs_of("tova", 8, &books(0.1)),
        ];
        let panels = panels(&all.concat());
        let equal = pair(&panels[0].pairs, "window+4", "window", 8);
        assert!(equal.is_equal && !equal.is_clear(), "{equal:?}");
        let constant = pair(&panels[0].pairs, "tova", "window", 8);
        let value = constant.difference.shown.value;
        assert!((value - 0.1).abs() < 1e-12 && constant.is_clear(), "{constant:?}");
        assert!(constant.turned().is_clear() && constant.turned().difference.shown.value < 0.0);
        assert_eq!(constant.outcome(Better::Lower), Outcome::Worse);
        assert_eq!(constant.turned().outcome(Better::Lower), Outcome::Better);
        assert_eq!(constant.outcome(Better::Unknown), Outcome::NoClearDifference);
    }

    #[test]
    fn differences_are_those_of_the_points() {
        let panels = panels(&table_3("m", 1.0, 20));
        let panel = &panels[0];
        assert_eq!(panel.pairs.len(), 7 * 8 * 7 / 2, "all of eight at seven sizes");
        let value = |policy: &str, size: Size| panel.point(policy, Some(size)).unwrap().estimate.value;
        for pair in &panel.pairs {
            let [own, other] = [&pair.policy, &pair.against].map(|policy| value(policy, pair.cache_size));
            let Difference { shown, nats, samples, clusters, .. } = &pair.difference;
            assert!((shown.value - (own - other)).abs() <= 1e-9, "{pair:?}");
            assert!((nats.unwrap().value - (own / other).ln()).abs() <= 1e-9, "{pair:?}");
            assert_eq!((*samples, *clusters), (20, 20));
            let turned = pair.turned();
            assert_eq!((turned.difference.shown.value, turned.turned()), (-shown.value, pair.clone()));
            assert_eq!(turned.difference.shown.interval.unwrap().low, -shown.interval.unwrap().high);
        }
    }

    #[test]
    fn word_and_token_level_perplexity_have_one_verdict() {
        // Books whose words have more or fewer tokens; the same nats.
        let nats = six([210.0, 190.0, 205.0, 199.0, 220.0, 201.0]);
        let rows = |metric: &str, weights: [f64; 6]| {
            let of = |policy: &str, more: f64| {
                let samples = nats.iter().zip(weights).map(|((name, nats), weight)| (*name, nats + more, weight));
                cell(metric, policy, Some(8), &samples.collect::<Vec<_>>())
            };
            [of("window", 0.0), of("tova", 3.0)].concat()
        };
        let all = [rows("nll", [100.0; 6]), rows("nll_word", [80.0, 60.0, 75.0, 71.0, 90.0, 66.0])].concat();
        let panels = panels(&all);
        assert_eq!((panels.len(), panels[0].pairs[0].p), (2, panels[1].pairs[0].p));
        // All books agree, whatever their words weigh.
        assert!(panels.iter().all(|panel| panel.pairs[0].is_clear()));
    }

    #[test]
    fn a_pair_is_over_the_samples_both_have() {
        let all = [
            costs_of("window", 8, &[("a", 1.0), ("b", 2.0), ("c", 3.0)]),
            costs_of("h2o", 8, &[("b", 4.0), ("c", 6.0), ("d", 100.0)]),
            costs_of("tova", 8, &[("a", 1.0)]),
        ];
        let panels = panels(&all.concat());
        let h2o = &pair(&panels[0].pairs, "h2o", "window", 8).difference;
        // (4 + 6) / 2 - (2 + 3) / 2.
        assert_eq!((h2o.shown.value, h2o.samples, h2o.clusters), (2.5, 2, 2));
        let tova = &pair(&panels[0].pairs, "tova", "window", 8).difference;
        assert_eq!((tova.shown.value, tova.samples, tova.shown.interval), (0.0, 1, None));
        assert!(!panels[0].pairs.iter().any(|pair| pair.policy == "tova" && pair.against == "h2o"));
    }

    #[test]
    fn infinite_numbers_are_told_apart_from_nothing() {
        let infinite = [
            costs_of("window", 8, &six([f64::INFINITY, 1.0, 1.0, 1.0, 1.0, 1.0])),
            costs_of("h2o", 8, &six([2.0; 6])),
            costs_of("tova", 8, &six([3.0, 5.0, 3.0, 5.0, 3.0, 5.0])),
        ];
        let panels = panels(&infinite.concat());
        assert_eq!(pair(&panels[0].pairs, "tova", "window", 8).p, None);
        assert!(pair(&panels[0].pairs, "tova", "h2o", 8).is_clear(), "others are judged all the same");
    }
}
