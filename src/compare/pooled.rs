//! A pooled number against itself: the difference over the samples both sides have, and its interval from pairs.
//!
//! Clusters are resampled with the draws of a report, the same ones for both sides, so that what the clusters have in common
//! cancels out.

use std::collections::BTreeMap;

use super::point::{Point, Verdict};
use super::side::{NamedSum, Numbers, Paired, pair};
use super::threshold::Threshold;
use crate::metric::{Better, Metric};
use crate::report::{Estimate, Interval, Sums, interval, pooled, resample};

pub(super) fn point(blank: Point, before: &Numbers, after: &Numbers, threshold: Threshold) -> Point {
    let Paired { both, missing, new } = pair(&before.samples, &after.samples);
    let sums = by_cluster(&both);
    let value = |side: &[Sums]| pooled(side).map_or(f64::NAN, |pooled| blank.metric.of_pooled(pooled));
    let [before, after] = [value(&sums[0]), value(&sums[1])];
    let bits = |NamedSum { sum, .. }: &NamedSum| {
        (sum.value.to_bits(), sum.weight.to_bits(), sum.beside.map(f64::to_bits))
    };
    let mut point = Point {
        samples: both.len(),
        clusters: sums[0].len(),
        missing_samples: missing.iter().map(|sample| sample.sample.to_owned()).collect(),
        new_samples: new,
        ..blank
    };
    if both.is_empty() {
        point.verdict = Verdict::Missing;
        point.why = Some("the results have none of its samples".to_owned());
        return point;
    }
    (point.before, point.after) = (Some(before), Some(after));
    let is_equal = both.iter().all(|(a, b)| bits(a) == bits(b));
    let finite = before.is_finite() && after.is_finite();
    let difference = Estimate {
        value: if is_equal { 0.0 } else { after - before },
        interval: match (is_equal, finite) {
            // Every resample is the same on both sides.
            (true, true) if sums[0].len() > 1 => Some(Interval { low: 0.0, high: 0.0 }),
            (false, true) => paired_interval(&sums, &point.metric),
            _ => None,
        },
    };
    point.difference = Some(difference);
    if is_equal {
        return point;
    }
    if !finite {
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

/// What each cluster adds on either side, in one order of clusters.
fn by_cluster(both: &[(NamedSum<'_>, NamedSum<'_>)]) -> [Vec<Sums>; 2] {
    // The baseline decides a sample's cluster.
    let mut clusters: BTreeMap<&str, [Sums; 2]> = BTreeMap::new();
    for (before, after) in both {
        let [sums_before, sums_after] = clusters.entry(&before.sum.row.cluster).or_default();
        sums_before.add(&before.sum);
        sums_after.add(&after.sum);
    }
    [0, 1].map(|side| clusters.values().map(|sums| sums[side]).collect())
}

fn paired_interval([before, after]: &[Vec<Sums>; 2], metric: &Metric) -> Option<Interval> {
    let sides = resample(&[before, after]);
    let value = |pooled: &Option<[f64; 3]>| pooled.map(|pooled| metric.of_pooled(pooled));
    let difference = sides[0].iter().zip(&sides[1]).map(|(before, after)| Some(value(after)? - value(before)?));
    interval(&difference.collect::<Vec<_>>())
}
