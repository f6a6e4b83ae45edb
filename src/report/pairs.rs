//! Every two policies of a panel against each other at each cache size, and which differences hold simultaneously.
//!
//! A pair is compared over the samples both have, with the panel's own draws of clusters. Among many comparisons some differ
//! by chance, so each pair also has an interval that covers simultaneously with all others of the panel: the
//! single-step max-|t| bootstrap (Romano and Wolf, "Stepwise multiple testing as formalized data snooping",
//! Econometrica 73, 2005). `pairing` decides which pairs a report shows.

use super::bootstrap::{self, CONFIDENCE, Estimate, Interval, RESAMPLES};
use super::pool::{Cell, Pool, Resampled};

/// Two policies at one cache size.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub policy: String,
    pub against: String,
    pub cache_size: u32,
    /// The policy's value minus the other's, in the unit shown, over the samples both have.
    pub difference: Estimate,
    /// Holds for all pairs of the panel at once; `None` where there is no spread to judge by.
    pub simultaneous: Option<Interval>,
    pub samples: usize,
    pub clusters: usize,
}

impl Pair {
    /// Whether the two are equal in every resample, as where nothing was evicted.
    pub fn is_equal(&self) -> bool {
        self.difference.value == 0.0
            && self.difference.interval.is_none_or(|interval| interval.low == 0.0 && interval.high == 0.0)
    }

    /// Whether the difference excludes zero simultaneously with all others.
    pub fn holds(&self) -> bool {
        self.simultaneous.is_some_and(|interval| interval.excludes_zero())
    }

    /// The same comparison from the other side.
    pub fn turned(&self) -> Pair {
        Pair {
            policy: self.against.clone(),
            against: self.policy.clone(),
            difference: self.difference.turned(),
            simultaneous: self.simultaneous.map(Interval::turned),
            ..*self
        }
    }
}

/// All pairs but those with `full`, the later of a panel's order minus the earlier.
pub(super) fn of(pool: &Pool<'_>, cells: &[Cell<'_>]) -> Vec<Pair> {
    let (mut pairs, mut differences) = (Vec::new(), Vec::new());
    for (i, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.policy != "full") {
        let Some(cache_size) = cell.cache_size else { continue };
        let others =
            cells[..i].iter().filter(|other| other.policy != "full" && other.cache_size == cell.cache_size);
        for other in others {
            let Some((difference, samples)) = pool.difference(cell, other, apart) else { continue };
            pairs.push(Pair {
                policy: cell.policy.to_owned(),
                against: other.policy.to_owned(),
                cache_size,
                difference: difference.estimate(),
                simultaneous: None,
                samples,
                clusters: difference.clusters,
            });
            differences.push(difference);
        }
    }
    for (pair, interval) in pairs.iter_mut().zip(simultaneous(&differences)) {
        pair.simultaneous = interval.filter(|_| pair.difference.interval.is_some());
    }
    pairs
}

/// Relative differences below this are rounding errors of sums.
const ROUNDING: f64 = 1e-12;

fn apart(own: f64, other: f64) -> f64 {
    let (difference, scale) = (own - other, own.abs().max(other.abs()));
    if scale.is_finite() && difference.abs() <= ROUNDING * scale { 0.0 } else { difference }
}

/// Intervals that cover all differences at once in 95 % of the draws: each as wide as the same number of its own standard
/// errors. `None` for those that hardly any draw has or that are not finite.
fn simultaneous(differences: &[Resampled]) -> Vec<Option<Interval>> {
    let errors: Vec<Option<f64>> = differences.iter().map(standard_error).collect();
    // For each draw, the largest distance of any difference from its measured value.
    let mut farthest = vec![0.0_f64; RESAMPLES];
    for (difference, error) in differences.iter().zip(&errors) {
        let Some(error) = error.filter(|error| *error > 0.0) else { continue };
        for (farthest, draw) in farthest.iter_mut().zip(&difference.draws) {
            *farthest = draw.map_or(*farthest, |draw| farthest.max((draw - difference.value).abs() / error));
        }
    }
    farthest.sort_by(f64::total_cmp);
    let errors_wide = bootstrap::quantile(&farthest, CONFIDENCE);
    let interval = |(difference, error): (&Resampled, &Option<f64>)| {
        let half = errors_wide * (*error)?;
        Some(Interval { low: difference.value - half, high: difference.value + half })
    };
    differences.iter().zip(&errors).map(interval).collect()
}

/// The standard deviation over the draws; 0 where only rounding varies.
fn standard_error(difference: &Resampled) -> Option<f64> {
    let draws: Vec<f64> = difference.draws.iter().copied().flatten().collect();
    if draws.len() < RESAMPLES * 9 / 10 {
        return None;
    }
    let mean = draws.iter().sum::<f64>() / draws.len() as f64;
    let squares: f64 = draws.iter().map(|draw| (draw - mean).powi(2)).sum();
    let error = (squares / (draws.len() - 1) as f64).sqrt();
    error.is_finite().then_some(if error > ROUNDING * mean.abs() { error } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cell, panels, table_3};
    use super::*;
    use crate::ledger::Row;

    /// A metric that is shown as it is, so that values can be told by hand.
    fn costs(policy: &str, size: u32, values: &[(&str, f64)]) -> Vec<Row> {
        let samples: Vec<_> = values.iter().map(|(name, value)| (*name, *value, 1.0)).collect();
        cell("cost", policy, Some(size), &samples)
    }

    fn pair<'p>(pairs: &'p [Pair], policy: &str, against: &str, size: u32) -> &'p Pair {
        let wanted = |pair: &&Pair| (&*pair.policy, &*pair.against, pair.cache_size) == (policy, against, size);
        pairs.iter().find(wanted).unwrap()
    }

    #[test]
    fn two_books_have_three_resamples_and_all_are_known() {
        // The differences are 1 and 5: a draw has 1, 3 or 5 as its mean, the middle in half of all draws.
        let all = [costs("window", 8, &[("a", 1.0), ("b", 2.0)]), costs("tova", 8, &[("a", 2.0), ("b", 7.0)])];
        let panels = panels(&all.concat());
        let [pair] = &panels[0].pairs[..] else { panic!("one pair expected") };
        assert_eq!((&*pair.policy, &*pair.against, pair.cache_size), ("tova", "window", 8));
        assert_eq!((pair.samples, pair.clusters, pair.difference.value), (2, 2, 3.0));
        assert_eq!(pair.difference.interval, Some(Interval { low: 1.0, high: 5.0 }));
        // Of one comparison |t| is 0 or 2 / error, so the interval is 3 ± 2 whatever the error.
        let simultaneous = pair.simultaneous.unwrap();
        assert!((simultaneous.low - 1.0).abs() < 1e-9 && (simultaneous.high - 5.0).abs() < 1e-9, "{pair:?}");
        assert!(pair.holds() && !pair.is_equal());
    }

    #[test]
    fn many_comparisons_need_wider_intervals() {
        // Sixteen books, and policies whose costs are the signs of its 15 orthogonal contrasts: each differs from window by
        // a mean of independent signs, so one comparison is as wide as the textbook says, and the farthest of many farther.
        let names: Vec<String> = (0..16).map(|book| format!("book{book:02}")).collect();
        let values = |of: &dyn Fn(usize) -> f64| -> Vec<(&str, f64)> {
            names.iter().enumerate().map(|(book, name)| (name.as_str(), of(book))).collect()
        };
        let contrast = |policy: usize| {
            move |book: usize| 1.0 + if (policy & book).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 }
        };
        let mut all = costs("window", 8, &values(&|_| 1.0));
        all.extend(costs("contrast01", 8, &values(&contrast(1))));
        let one = panels(&all)[0].pairs[0].clone();
        for policy in 2..16 {
            all.extend(costs(&format!("contrast{policy:02}"), 8, &values(&contrast(policy))));
        }
        let panels = panels(&all);
        let of_many = pair(&panels[0].pairs, "contrast01", "window", 8);
        assert_eq!(panels[0].pairs.len(), 16 * 15 / 2);
        assert_eq!(one.difference, of_many.difference, "its own interval knows nothing of the others");
        let [one, many] = [&one, of_many].map(|pair| pair.simultaneous.unwrap().half_width());
        // A mean of 16 signs has the error 1/4; 1.96 of them for one. For 15 independent ones the normal law says 2.93,
        // and Bonferroni 3.59 for all 120.
        assert!((one / 0.25 - 1.96).abs() < 0.1, "{one}");
        assert!(many / 0.25 > 2.8 && many / 0.25 < 3.6, "{many}");
    }

    #[test]
    fn equal_policies_are_equal_and_constant_differences_hold() {
        let books = |shift: f64| [("a", 1.0 + shift), ("b", 4.0 + shift), ("c", 9.0 + shift)];
        let all =
            [costs("window", 8, &books(0.0)), costs("window+4", 8, &books(0.0)), costs("tova", 8, &books(0.1))];
        let panels = panels(&all.concat());
        let equal = pair(&panels[0].pairs, "window+4", "window", 8);
        assert!(equal.is_equal() && !equal.holds(), "{equal:?}");
        let constant = pair(&panels[0].pairs, "tova", "window", 8);
        assert!((constant.difference.value - 0.1).abs() < 1e-12 && constant.holds(), "{constant:?}");
        assert!(constant.turned().holds() && constant.turned().difference.value < 0.0);
    }

    #[test]
    fn differences_are_those_of_the_points() {
        let panels = panels(&table_3("m", 1.0, 20));
        let panel = &panels[0];
        assert_eq!(panel.pairs.len(), 7 * 8 * 7 / 2, "all of eight at seven sizes");
        let value = |policy: &str, size| panel.point(policy, Some(size)).unwrap().estimate.value;
        for pair in &panel.pairs {
            let difference = value(&pair.policy, pair.cache_size) - value(&pair.against, pair.cache_size);
            assert!((pair.difference.value - difference).abs() <= 1e-9, "{pair:?}");
            assert_eq!((pair.samples, pair.clusters), (20, 20));
            let (turned, interval) = (pair.turned(), pair.difference.interval.unwrap());
            assert_eq!((turned.difference.value, turned.turned()), (-pair.difference.value, pair.clone()));
            assert_eq!(turned.difference.interval.unwrap().low, -interval.high);
        }
    }

    #[test]
    fn a_pair_is_over_the_samples_both_have() {
        let all = [
            costs("window", 8, &[("a", 1.0), ("b", 2.0), ("c", 3.0)]),
            costs("h2o", 8, &[("b", 4.0), ("c", 6.0), ("d", 100.0)]),
            costs("tova", 8, &[("a", 1.0)]),
        ];
        let panels = panels(&all.concat());
        let h2o = pair(&panels[0].pairs, "h2o", "window", 8);
        // (4 + 6) / 2 - (2 + 3) / 2.
        assert_eq!((h2o.difference.value, h2o.samples, h2o.clusters), (2.5, 2, 2));
        let tova = pair(&panels[0].pairs, "tova", "window", 8);
        assert_eq!((tova.difference.value, tova.samples, tova.simultaneous), (0.0, 1, None));
        assert!(!panels[0].pairs.iter().any(|pair| pair.policy == "tova" && pair.against == "h2o"));
    }

    #[test]
    fn one_book_and_infinite_numbers_have_no_simultaneous_interval() {
        let one = panels(&[costs("window", 8, &[("a", 1.0)]), costs("tova", 8, &[("a", 2.0)])].concat());
        assert_eq!((one[0].pairs[0].simultaneous, one[0].pairs[0].holds()), (None, false));
        let infinite = [
            costs("window", 8, &[("a", f64::INFINITY), ("b", 1.0)]),
            costs("h2o", 8, &[("a", 2.0), ("b", 2.0)]),
            costs("tova", 8, &[("a", 3.0), ("b", 5.0)]),
        ];
        let panels = panels(&infinite.concat());
        assert_eq!(pair(&panels[0].pairs, "tova", "window", 8).simultaneous, None);
        assert!(pair(&panels[0].pairs, "tova", "h2o", 8).holds(), "others are judged all the same");
    }
}
