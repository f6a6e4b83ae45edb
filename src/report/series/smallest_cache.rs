//! The smallest cache of a policy that stays within a distance of the full cache, and which measured sizes could be it.
//!
//! Larger caches need not be better, so a size counts only if all larger ones that were measured count as well. Nothing is said
//! where a guess is as good as the full cache.

use crate::report::series::{Limit, Panel, Size};
use crate::report::statistics::Estimate;

/// The smallest sufficient cache of one policy.
pub(crate) struct SmallestCache {
    /// The smallest that loses no more than the distance, as do all larger ones.
    pub(crate) size: Option<Size>,
    /// Measured sizes that could be the smallest, as far as the interval of each loss says: `128 to 512`, `256 or more`, `none` where even
    /// the largest is wholly beyond the distance. `None` where there are no intervals.
    pub(crate) not_excluded: Option<String>,
}

/// `None` where the policy has no size that compares with the full cache.
pub(crate) fn smallest_cache(panel: &Panel, policy: &str, limit: Limit) -> Option<SmallestCache> {
    let of_policy = panel.points.iter().filter(|point| point.policy == policy);
    let losses = of_policy.filter_map(|point| Some((point.cache_size?, limit.loss(panel, point)?)));
    let losses: Vec<(Size, Estimate)> = losses.collect();
    losses.first()?;
    // Points come by size, so from the largest down.
    let smallest = |holds: &dyn Fn(&Estimate) -> bool| {
        losses.iter().rev().take_while(|(_, loss)| holds(loss)).last().map(|(size, _)| *size)
    };
    let could_be = |loss: &Estimate| loss.interval.is_none_or(|interval| limit.allows(interval.low));
    let must_be = |loss: &Estimate| loss.interval.is_some_and(|interval| limit.allows(interval.high));
    let has_intervals = losses.iter().any(|(_, loss)| loss.interval.is_some());
    Some(SmallestCache {
        size: smallest(&|loss| limit.allows(loss.value)),
        not_excluded: has_intervals.then(|| match (smallest(&could_be), smallest(&must_be)) {
            (None, _) => "none".to_owned(),
            (Some(from), None) => format!("{from} or more"),
            (Some(from), Some(to)) if to == from => from.to_string(),
            (Some(from), Some(to)) => format!("{from} to {to}"),
        }),
    })
}

/// Why no size of a panel can be called sufficient, where a guess is not known to be worse than the full cache, or is itself
/// within the distance of it.
pub(crate) fn not_stated(panel: &Panel, limit: Limit) -> Option<String> {
    let (guess, value, above) = (panel.metric.guess?, panel.guess?, panel.above_guess?);
    let [full, value] = [panel.full()?.estimate.value, value].map(|value| panel.metric.show(value));
    if !panel.beats_guess() {
        let (difference, metric) = (panel.metric.show_difference(above.value), &panel.metric);
        let range = above.interval.map_or_else(String::new, |interval| {
            let [low, high] = [interval.low, interval.high].map(|end| metric.show_difference(end));
            format!(" at 95 %: the difference is {difference} [{low}, {high}]")
        });
        return Some(format!("full ({full}) is not above {} ({value}){range}", guess.by));
    }
    let is_near = limit.allows(above.value);
    is_near.then(|| format!("{} ({value}) is within this distance of full ({full}) as well", guess.by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{at_share, cell, changed, panels};
    use crate::report::series::Distance;

    /// Of four equal books the ends of an interval are the least and the greatest book, so they can be told by hand.
    const BOOKS: [&str; 4] = ["a", "b", "c", "d"];

    /// F1 of a policy, or of `full` without a size, in percent of each book.
    fn f1(metric: &str, policy: &str, size: Option<u32>, books: &[f64]) -> Vec<Row> {
        let samples: Vec<(&str, f64, f64)> =
            BOOKS.into_iter().zip(books).map(|(book, percent)| (book, percent / 100.0, 1.0)).collect();
        cell(metric, policy, size, &samples)
    }

    /// The only panel of a policy with these losses of F1 against a full cache of 80 %.
    fn of_losses<const N: usize>(losses: &[(u32, [f64; N])]) -> Panel {
        let of_size =
            |(size, books): &(u32, [f64; N])| f1("f1", "tova", Some(*size), &books.map(|lost| 80.0 - lost));
        let mut all = f1("f1", "full", None, &[80.0; N]);
        all.extend(losses.iter().flat_map(of_size));
        panels(&all).remove(0)
    }

    fn limit(panel: &Panel, distance: &str) -> Limit {
        distance.parse::<Distance>().unwrap().of(panel).unwrap()
    }

    /// The smallest measured size within a distance, and the sizes not excluded where there are intervals.
    fn found(panel: &Panel, distance: &str) -> (Option<u32>, Option<String>) {
        let found = smallest_cache(panel, "tova", limit(panel, distance)).unwrap();
        (found.size.and_then(Size::entries), found.not_excluded)
    }

    fn sizes(measured: Option<u32>, not_excluded: &str) -> (Option<u32>, Option<String>) {
        (measured, Some(not_excluded.to_owned()))
    }

    #[test]
    fn a_size_counts_only_if_all_larger_ones_do() {
        let all = [
            // Within by luck: 128 is not.
            (64, [0.2; 4]),
            (128, [5.0, 4.0, 5.0, 4.0]),
            // 2 on average, in [0.5, 2.5].
            (256, [0.5, 2.5, 2.5, 2.5]),
            // 0.5 on average, in [-1, 2].
            (512, [-1.0, 2.0, 0.5, 0.5]),
            (600, [0.5; 4]),
            (1024, [0.0; 4]),
        ];
        assert_eq!(found(&of_losses(&all), "1f1"), sizes(Some(512), "256 to 600"));
        // Without the sizes whose intervals are wholly within, it may be that none is enough.
        assert_eq!(found(&of_losses(&all[..4]), "1f1"), sizes(Some(512), "256 or more"));
        assert_eq!(found(&of_losses(&all[..3]), "1f1"), sizes(None, "256 or more"));
        assert_eq!(found(&of_losses(&all[..2]), "1f1"), sizes(None, "none"));
        assert_eq!(found(&of_losses(&all[..1]), "1f1"), sizes(Some(64), "64"));
        // An end of an interval that is the distance itself is within, whatever 79.0 / 100 is in binary.
        assert_eq!(found(&of_losses(&[(64, [1.0, 0.9, 0.8, 1.0])]), "1f1"), sizes(Some(64), "64"));
        // A gain is never too far.
        assert_eq!(found(&of_losses(&[(64, [-9.0; 4])]), "0f1"), sizes(Some(64), "64"));
    }

    #[test]
    fn shares_are_sizes_too() {
        let at = |share: f64, lost: f64| at_share(share, f1("f1", "tova", None, &[80.0 - lost; 4]));
        let full = f1("f1", "full", None, &[80.0; 4]);
        let panels = panels(&[full, at(0.5, 0.5), at(0.25, 0.75), at(0.125, 2.0)].concat());
        let found = smallest_cache(&panels[0], "tova", limit(&panels[0], "1f1")).unwrap();
        assert_eq!(found.size, Some(Size::Share(2500)));
        assert_eq!(found.not_excluded.as_deref(), Some("25%"));
    }

    #[test]
    fn three_books_exclude_no_size() {
        let all = [(64, [5.0, 5.0, 5.0]), (128, [0.0, 0.0, 0.0])];
        assert_eq!(found(&of_losses(&all), "1f1"), (Some(128), None));
        // A size that only three books have has no interval, so it is neither excluded nor wholly within.
        let mut rows = f1("f1", "full", None, &[80.0; 4]);
        rows.extend(f1("f1", "tova", Some(64), &[60.0; 3]));
        rows.extend(f1("f1", "tova", Some(128), &[80.0; 4]));
        assert_eq!(found(&panels(&rows)[0], "1f1"), sizes(Some(128), "64 to 128"));
    }

    #[test]
    fn percent_of_perplexity_are_a_ratio_in_every_book() {
        // Perplexities from e to e^4; each book loses 0.04 nats, which are 4.08 %.
        let nats = |more: f64| {
            [("a", 1.0 + more, 1.0), ("b", 2.0 + more, 1.0), ("c", 3.0 + more, 1.0), ("d", 4.0 + more, 1.0)]
        };
        let rows = [cell("nll", "full", None, &nats(0.0)), cell("nll", "tova", Some(64), &nats(0.04))].concat();
        let panel = &panels(&rows)[0];
        assert_eq!(found(panel, "5%"), sizes(Some(64), "64"));
        assert_eq!(found(panel, "4%"), sizes(None, "none"));
        assert_eq!(found(panel, "0.04nats"), sizes(Some(64), "64"));
        assert_eq!(found(panel, "0.039nats"), sizes(None, "none"));
        // e^2.5 is 12.18 and 4.08 % of it 0.50, from 0.11 in the first book to 2.23 in the last.
        assert_eq!(found(panel, "0.6ppl"), sizes(Some(64), "64 or more"));
    }

    /// Why nothing is stated, where F1 of the commonest answer and of the full cache are these, in percent of each book.
    fn why_not(full: &[f64], guess: &[f64], distance: &str) -> Option<String> {
        let mut rows = f1("f1", "full", None, full);
        rows.extend(f1("f1_trivial", "full", None, guess));
        rows.extend(f1("f1", "tova", Some(64), full));
        let panel = &panels(&rows)[0];
        not_stated(panel, limit(panel, distance))
    }

    #[test]
    fn nothing_is_stated_where_a_guess_is_as_good_as_full() {
        let worse = why_not(&[11.0; 4], &[12.0, 13.0, 12.0, 13.0], "1f1").unwrap();
        let expected = "full (11.00) is not above the commonest answer (12.50) at 95 %: the difference is -1.50 [-2.00, -1.00]";
        assert_eq!(worse, expected);
        let unclear = why_not(&[11.0; 4], &[12.0, 5.0, 5.0, 5.0], "1f1").unwrap();
        assert!(unclear.ends_with("the difference is +4.25 [-1.00, +6.00]"), "{unclear}");
        // 4.75 more, in [1, 6].
        let above = |distance| why_not(&[11.0; 4], &[10.0, 5.0, 5.0, 5.0], distance);
        assert_eq!(above("1f1"), None);
        assert_eq!(
            above("5f1").unwrap(),
            "the commonest answer (6.25) is within this distance of full (11.00) as well"
        );
        // 50 % of 11 are 5.5.
        assert!(above("40%").is_none() && above("50%").is_some());
    }

    #[test]
    fn without_intervals_full_must_be_above_a_guess_as_measured() {
        assert_eq!(why_not(&[11.0; 3], &[12.0, 5.0, 5.0], "1f1"), None);
        let below = why_not(&[11.0; 3], &[5.0, 16.0, 12.0], "1f1");
        assert_eq!(below.as_deref(), Some("full (11.00) is not above the commonest answer (11.00)"));
        // Metrics without a guess have nothing to be above.
        let panel = of_losses(&[(64, [0.0; 4])]);
        assert_eq!(not_stated(&panel, limit(&panel, "1f1")), None);
    }

    #[test]
    fn whole_texts_only() {
        let rows = f1("f1", "tova", Some(64), &[80.0; 4]);
        let all = [f1("f1", "full", None, &[80.0; 4]), changed(rows, |row| row.slice = Some("kind:home".into()))];
        let panels = panels(&all.concat());
        assert!(smallest_cache(&panels[0], "tova", limit(&panels[0], "1f1")).is_none());
    }
}
