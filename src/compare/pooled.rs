//! A pooled number against itself: the difference over the samples both sides have, and its interval from pairs.
//!
//! Clusters are resampled with the draws of a report, the same ones for both sides, so that what the clusters have in common
//! cancels out.

use std::collections::BTreeMap;

use super::point::{Point, Verdict};
use super::side::Numbers;
use super::threshold::Threshold;
use crate::metric::Better;
use crate::report::{Estimate, Interval, Sums, pooled};

/// `blank` already has the samples that only one side has.
pub(super) fn point(blank: Point, before: &Numbers, after: &Numbers, threshold: Threshold) -> Point {
    let both = before.both(after);
    // What each cluster adds on either side; the baseline decides a sample's cluster.
    let mut clusters: BTreeMap<&str, [Sums; 2]> = BTreeMap::new();
    for (_, before, after) in &both {
        let [sums_before, sums_after] = clusters.entry(&before.row.cluster).or_default();
        *sums_before += &before.sums;
        *sums_after += &after.sums;
    }
    let mut point = Point { samples: both.len(), clusters: clusters.len(), ..blank };
    if both.is_empty() {
        point.verdict = Verdict::Missing;
        point.why = Some("the results have none of its samples".to_owned());
        return point;
    }
    let tables = [0, 1].map(|side| clusters.values().map(|sums| sums[side]).collect::<Vec<_>>());
    let sides = pooled(&point.metric, &[&tables[0], &tables[1]]);
    let [before, after] = [0, 1].map(|side| sides[side].as_ref().map_or(f64::NAN, |side| side.value));
    (point.before, point.after) = (Some(before), Some(after));
    let is_equal = both.iter().all(|(_, a, b)| a.sums.bits() == b.sums.bits());
    let is_finite = before.is_finite() && after.is_finite();
    let difference = match (&sides[..], is_equal) {
        ([Some(before), Some(after)], false) => {
            let difference = after.with(before, |after, before| after - before);
            Estimate { interval: difference.interval.filter(|_| is_finite), ..difference }
        }
        (_, false) => Estimate { value: f64::NAN, interval: None },
        (_, true) => {
            // Every resample is the same on both sides.
            let has_interval = is_finite && clusters.len() > 1;
            Estimate { value: 0.0, interval: has_interval.then_some(Interval { low: 0.0, high: 0.0 }) }
        }
    };
    point.difference = Some(difference);
    if is_equal {
        return point;
    }
    if !is_finite {
        point.why = Some("not a finite number".to_owned());
        // Whichever way is better, a number that is no longer finite is worse.
        point.verdict = match (point.metric.better, before.is_finite(), after.is_finite()) {
            (Better::Unknown, ..) | (_, false, false) => Verdict::Changed,
            (_, true, _) => Verdict::Regressed,
            _ => Verdict::Improved,
        };
        return point;
    }
    let (counts, rule) = threshold.decide(before, &difference);
    point.threshold = Some(rule);
    point.verdict = if counts { Point::direction(&point.metric, difference.value) } else { Verdict::WithinNoise };
    point
}
