//! A pooled number against itself: the difference over the samples both sides have, and its interval from pairs.
//!
//! Both sides are pooled over the same subsets of clusters, as in a report, so that what the clusters have in common cancels
//! out. A pooled number hides what happened to a few clusters (books, stories, papers), so those that got worse are named.

use std::collections::BTreeMap;

use serde::Serialize;

use super::point::{Point, Verdict};
use super::threshold::{Change, Threshold};
use crate::metric::Better;
use crate::report::{CellSums, Estimate, Interval, Pooled, SampleSum, Sums, median, pooled};

/// The number of clusters that are named of a point.
const NAMED: usize = 5;

/// A metric of one cluster on both sides, in the unit shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    pub name: String,
    pub before: f64,
    pub after: f64,
}

impl Cluster {
    /// The share by which the cluster got worse, negative where it got better; of a metric without a better direction, the share
    /// by which it moved. It is a share of the cluster's baseline or of `pooled`, the baseline of all clusters, whichever is
    /// larger, so that a cluster near zero may move as far as the others.
    pub(super) fn worse_by(&self, pooled: f64, better: Better) -> f64 {
        let worse = worsening(better, self.before, self.after);
        let whole = f64::max(self.before.abs(), pooled.abs()).max(f64::MIN_POSITIVE);
        if worse.is_finite() { worse / whole } else { worse }
    }
}

/// The distance that a number moved for the worse, negative for the better; without a better direction, the distance that it moved.
/// Whichever way is better, a number that is no longer finite is worse.
fn worsening(better: Better, before: f64, after: f64) -> f64 {
    match (before.is_finite(), after.is_finite(), better) {
        (false, false, _) => 0.0,
        (true, false, _) => f64::INFINITY,
        (false, true, _) => f64::NEG_INFINITY,
        (true, true, Better::Lower) => after - before,
        (true, true, Better::Higher) => before - after,
        (true, true, Better::Unknown) => (after - before).abs(),
    }
}

/// Fills in the metric over the samples of both sides, at least one, and its difference. Returns the clusters of the samples; the
/// baseline decides which cluster a sample belongs to.
pub(super) fn fill(point: &mut Point, pairs: &[(&str, &SampleSum<'_>, &SampleSum<'_>)]) -> Vec<Cluster> {
    let mut clusters: BTreeMap<&str, [Sums; 2]> = BTreeMap::new();
    for (_, before, after) in pairs {
        let [sums_before, sums_after] = clusters.entry(&before.row.cluster).or_default();
        *sums_before += &before.sums;
        *sums_after += &after.sums;
    }
    let tables = [0, 1].map(|side| clusters.values().map(|sums| sums[side]).collect::<Vec<_>>());
    let sides = pooled(&point.metric, &[&tables[0], &tables[1]]);
    point.clusters = sides.iter().flatten().map(|side| side.clusters()).max().unwrap_or(0);
    let [before, after] = [0, 1].map(|side| sides[side].as_ref().map_or(f64::NAN, |side| side.value));
    (point.before, point.after) = (Some(before), Some(after));
    let is_equal = tables[0].iter().zip(&tables[1]).all(|(a, b)| a.bits() == b.bits());
    point.difference = Some(match &sides[..] {
        [Some(of_before), Some(of_after)] if before.is_finite() && after.is_finite() => {
            Pooled::function([of_after, of_before], |[after, before]| after - before)
        }
        _ => Estimate { value: if is_equal { 0.0 } else { f64::NAN }, interval: None },
    });
    // A cluster that weighs nothing on one side is left out.
    let cluster = |(name, sides): (&str, [Sums; 2])| {
        let [before, after] = [sides[0].pooled()?, sides[1].pooled()?].map(|sums| point.metric.of_pooled(sums));
        Some(Cluster { name: name.to_owned(), before, after })
    };
    clusters.into_iter().filter_map(cluster).collect()
}

/// Fills in medians of the repeats of a time. Repeats are not texts, so the interval is not one over clusters: it is from the least
/// to the greatest difference between a repeat of one side and one of the other.
pub(super) fn fill_times(point: &mut Point, cells: [&CellSums<'_>; 2]) {
    let metric = &point.metric;
    let [was, is] = cells.map(|cell| {
        let shown = |sum: &SampleSum<'_>| metric.of_pooled(sum.sums.values.map(|value| value / sum.sums.weight));
        let mut values: Vec<f64> = cell.samples.values().map(shown).collect();
        values.sort_by(f64::total_cmp);
        values
    });
    let [before, after] = [median(&was), median(&is)];
    let interval = Interval { low: is[0] - was[was.len() - 1], high: is[is.len() - 1] - was[0] };
    (point.before, point.after) = (Some(before), Some(after));
    point.difference = Some(Estimate { value: after - before, interval: Some(interval) });
}

/// The verdict of the threshold on a number that differs, with the clusters that explain it.
pub(super) fn decide(point: &mut Point, mut clusters: Vec<Cluster>, threshold: &Threshold) -> Verdict {
    let better = point.metric.better;
    let [before, after] = [point.before, point.after].map(|value| value.unwrap_or(f64::NAN));
    let verdict = match point.difference {
        Some(difference) if before.is_finite() && after.is_finite() => {
            let (verdict, rule) = threshold.decide(Change { better, before, difference, clusters: &clusters });
            point.threshold = Some(rule);
            verdict
        }
        _ => {
            point.why = Some("not a finite number".to_owned());
            match worsening(better, before, after) {
                worse if worse == 0.0 || better == Better::Unknown => Verdict::Changed,
                worse if worse > 0.0 => Verdict::Regressed,
                _ => Verdict::Improved,
            }
        }
    };
    if matches!(verdict, Verdict::Regressed | Verdict::Changed) {
        let worse_by = |cluster: &Cluster| cluster.worse_by(before, better);
        clusters.retain(|cluster| worse_by(cluster) > 0.0);
        clusters.sort_by(|a, b| worse_by(b).total_cmp(&worse_by(a)));
        clusters.truncate(NAMED);
        point.clusters_worse = clusters;
    }
    verdict
}
