//! A pooled number against itself: the difference over the samples both sides have, and its interval from pairs.
//!
//! Both sides are pooled over the same subsets of clusters, as in a report, so that what the clusters have in common cancels
//! out.

use std::collections::BTreeMap;

use super::cluster::{self, Cluster};
use super::point::{Point, Verdict};
use super::side::Numbers;
use super::threshold::{Change, Threshold};
use crate::metric::Better;
use crate::report::{Estimate, Pooled, Sums, pooled};

/// `blank` already has the samples that only one side has.
pub(super) fn point(blank: Point, before: &Numbers, after: &Numbers, threshold: &Threshold) -> Point {
    let both = before.both(after);
    // What each cluster adds on either side; the baseline decides a sample's cluster.
    let mut clusters: BTreeMap<&str, [Sums; 2]> = BTreeMap::new();
    for (_, before, after) in &both {
        let [sums_before, sums_after] = clusters.entry(&before.row.cluster).or_default();
        *sums_before += &before.sums;
        *sums_after += &after.sums;
    }
    let mut point = Point { samples: both.len(), ..blank };
    if both.is_empty() {
        return point.without_common_samples();
    }
    let tables = [0, 1].map(|side| clusters.values().map(|sums| sums[side]).collect::<Vec<_>>());
    let sides = pooled(&point.metric, &[&tables[0], &tables[1]]);
    point.clusters = sides.iter().flatten().map(|side| side.clusters()).max().unwrap_or(0);
    let [before, after] = [0, 1].map(|side| sides[side].as_ref().map_or(f64::NAN, |side| side.value));
    (point.before, point.after) = (Some(before), Some(after));
    let is_equal = both.iter().all(|(_, a, b)| a.sums.bits() == b.sums.bits());
    let is_finite = before.is_finite() && after.is_finite();
    let difference = match &sides[..] {
        [Some(before), Some(after)] if is_finite => {
            Pooled::function([after, before], |[after, before]| after - before)
        }
        _ => Estimate { value: if is_equal { 0.0 } else { f64::NAN }, interval: None },
    };
    point.difference = Some(difference);
    if is_equal {
        return point;
    }
    let better = point.metric.better;
    let of_cluster = |(name, sums): (&&str, &[Sums; 2])| Cluster::of(&point.metric, name, sums);
    let clusters: Vec<Cluster> = clusters.iter().filter_map(of_cluster).collect();
    if is_finite {
        let (verdict, rule) = threshold.decide(&Change { better, before, difference, clusters: &clusters });
        (point.verdict, point.threshold) = (verdict, Some(rule));
    } else {
        point.why = Some("not a finite number".to_owned());
        // Whichever way is better, a number that is no longer finite is worse.
        point.verdict = match (better, before.is_finite(), after.is_finite()) {
            (Better::Unknown, ..) | (_, false, false) => Verdict::Changed,
            (_, true, _) => Verdict::Regressed,
            _ => Verdict::Improved,
        };
    }
    if matches!(point.verdict, Verdict::Regressed | Verdict::Changed) {
        point.clusters_worse = cluster::worst(&clusters, before, better);
    }
    point
}
