//! The floor and the ceiling of each cache size, and how far a policy goes from one to the other.
//!
//! The floor is random eviction, the ceiling the best that was measured with the text's own future known (`clairvoyant`).
//! Neither is a policy to choose, and both say what a difference between policies is worth. Perplexities are compared in
//! nats. Rows tell which they are by their score, whatever their name is.

use std::collections::{BTreeMap, BTreeSet};

use crate::eviction::Score;
use crate::metric::{Better, Metric, Pooling};
use crate::report::series::{Cell, Pooled, Size};
use crate::report::statistics::Estimate;

/// Whether the column `score` says that a policy evicts at random.
pub(crate) fn is_floor(score: &str) -> bool {
    Score::of_row(score).is_some_and(Score::is_random)
}

/// Whether the column `score` says that a policy needs the rest of the text.
pub(crate) fn is_ceiling(score: &str) -> bool {
    Score::of_row(score).is_some_and(Score::reads_future)
}

/// Floor and ceiling by cache size.
pub(crate) struct Ends<'p> {
    metric: &'p Metric,
    at: BTreeMap<Size, [&'p Pooled; 2]>,
}

impl<'p> Ends<'p> {
    /// Finds the sizes at which both ends were measured, clearly apart, over all `samples`. Of several cells the worst is the floor and the
    /// best the ceiling.
    pub(crate) fn of(metric: &'p Metric, cells: &'p [Cell<'p>], samples: usize) -> Self {
        let mut at = BTreeMap::new();
        let has_ends = metric.better != Better::Unknown && !metric.is_timed();
        let complete = || cells.iter().filter(|cell| has_ends && cell.sums.samples.len() == samples);
        let sizes: BTreeSet<Size> = complete().filter_map(|cell| cell.cache_size).collect();
        for size in sizes {
            let of_kind = |is_kind: fn(&str) -> bool| {
                let own = complete().filter(move |cell| cell.cache_size == Some(size) && is_kind(cell.score()));
                own.filter_map(|cell| cell.pooled.as_ref())
            };
            let by_loss = |a: &&Pooled, b: &&Pooled| loss(metric, a.value).total_cmp(&loss(metric, b.value));
            let ends = of_kind(is_floor).max_by(by_loss).zip(of_kind(is_ceiling).min_by(by_loss));
            let apart = |(floor, ceiling): &(&Pooled, &Pooled)| {
                let lost = Pooled::function([floor, ceiling], |[floor, ceiling]| {
                    loss(metric, floor) - loss(metric, ceiling)
                });
                floor.pairs_with(ceiling) && lost.interval.map_or(lost.value, |interval| interval.low) > 0.0
            };
            at.extend(ends.filter(apart).map(|(floor, ceiling)| (size, [floor, ceiling])));
        }
        Self { metric, at }
    }

    /// The share of the way that a policy's cell with all samples goes: 0 as the floor, 1 as the ceiling. `None` without both.
    pub(crate) fn share(&self, cell: &Cell<'_>) -> Option<Estimate> {
        let [floor, ceiling] = self.at.get(&cell.cache_size?)?;
        let own = cell.pooled.as_ref().filter(|own| own.pairs_with(floor))?;
        let share = Pooled::function([own, floor, ceiling], |all| {
            let [own, floor, ceiling] = all.map(|value| loss(self.metric, value));
            (floor - own) / (floor - ceiling)
        });
        share.value.is_finite().then_some(share)
    }
}

/// What is worse is more, in the scale that shares are of.
fn loss(metric: &Metric, value: f64) -> f64 {
    match (metric.pooling, metric.better) {
        (Pooling::Perplexity, _) => value.ln(),
        (_, Better::Higher) => -value,
        _ => value,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::eviction::presets::PRESETS;
    use crate::ledger::Row;
    use crate::report::fixture::{cell, changed, panels};

    const BOOKS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

    /// Rows of a policy with this score, whose six books of 10 tokens lose so much against the full cache.
    pub(crate) fn lost(policy: &str, score: &str, lost: [f64; 6]) -> Vec<Row> {
        let of_book = |(at, lost): (usize, f64)| (BOOKS[at], 10.0 * (2.0 + at as f64 + lost), 10.0);
        let samples: Vec<_> = lost.into_iter().enumerate().map(of_book).collect();
        changed(cell("nll", policy, Some(64), &samples), |row| row.score = Some(score.into()))
    }

    /// A share and the ends of its interval.
    type Share = (f64, Option<(f64, f64)>);

    fn shares(rows: &[Vec<Row>]) -> Vec<(String, Option<Share>)> {
        let rounded = |number: f64| (number * 1e9).round() / 1e9;
        let ends = |share: Estimate| share.interval.map(|ends| (rounded(ends.low), rounded(ends.high)));
        let share = |share: Estimate| (rounded(share.value), ends(share));
        let panel = panels(&rows.concat()).remove(0);
        panel.points.iter().map(|point| (point.policy.clone(), point.to_ceiling.map(share))).collect()
    }

    #[test]
    fn a_share_is_of_the_nats_between_floor_and_ceiling() {
        let floor = lost("random", "random", [2.0; 6]);
        let ceilings =
            [lost("seer", "future_attention", [0.5; 6]), lost("other seer", "future_attention", [0.0; 6])];
        let mine = lost("mine", "last_attention", [1.0, 0.5, 0.5, 0.5, 0.5, 0.0]);
        let cut = changed(lost("truncate", "", [3.0; 6]), |row| row.score = None);
        let full = changed(lost("full", "", [0.0; 6]), |row| (row.score, row.cache_size) = (None, None));
        let found = shares(&[full, cut, floor.clone(), ceilings.concat(), mine.clone()]);
        let of = |policy: &str| found.iter().find(|(name, _)| name == policy).unwrap().1;
        assert_eq!(of("random"), Some((0.0, Some((0.0, 0.0)))));
        // The better of those that know the future.
        assert_eq!((of("seer").unwrap().0, of("other seer")), (0.75, Some((1.0, Some((1.0, 1.0))))));
        // Half a nat of two; of 63 subsets of six books the 1.28th from either end, 0.28 from {f} or {a} to a pair with it.
        let (value, ends) = of("mine").unwrap();
        assert_eq!((value, ends), (0.75, Some((0.535, 0.965))));
        assert_eq!((of("full"), of("truncate")), (None, None));
        // A cell without a book, and sizes without one of the ends.
        let part: Vec<Row> = mine.iter().filter(|row| row.sample != "c").cloned().collect();
        let found = shares(&[floor.clone(), ceilings[0].clone(), part]);
        assert!(found.iter().all(|(name, share)| share.is_some() == (name != "mine")), "{found:?}");
        for one in [&floor, &ceilings[0]] {
            assert!(shares(&[one.clone(), mine.clone()]).iter().all(|(_, share)| share.is_none()));
        }
    }

    #[test]
    fn ends_that_are_not_told_apart_give_no_share() {
        let near = lost("random", "random", [0.6, 0.4, 0.6, 0.4, 0.6, 0.6]);
        let found = shares(&[near, lost("clairvoyant", "future_attention", [0.5; 6])]);
        assert!(found.iter().all(|(_, share)| share.is_none()), "{found:?}");
    }

    #[test]
    fn presets_have_a_floor_and_ceilings() {
        let named = |is_kind: fn(&str) -> bool| -> Vec<&str> {
            let of_kind =
                PRESETS.iter().filter(|preset| preset.policy().is_ok_and(|policy| is_kind(policy.score.name())));
            of_kind.map(|preset| preset.name).collect()
        };
        assert_eq!(
            (named(is_floor), named(is_ceiling)),
            (vec!["random"], vec!["clairvoyant", "clairvoyant-head"])
        );
    }
}
