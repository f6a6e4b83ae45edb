//! A pooled number against itself: the difference over the samples both sides have, and its interval from pairs.
//!
//! Clusters are resampled with the draws of a report, the same ones for both sides, so that what the clusters have in common
//! cancels out.

use std::collections::BTreeSet;

use super::point::{Point, Verdict};
use super::side::{NamedSum, Numbers, Paired, pair};
use super::threshold::Threshold;
use crate::metric::Metric;
use crate::report::{Estimate, Interval, Sums, interval, pooled, resample};

pub(super) fn point(blank: Point, before: &Numbers, after: &Numbers, threshold: Threshold) -> Point {
    let Paired { both, missing, new } = pair(&before.samples, &after.samples);
    let sums = PairedSums::of(&both);
    let value = |side: &[Sums]| pooled(side).map_or(f64::NAN, |pooled| blank.metric.of_pooled(pooled));
    let [before, after] = [value(&sums.before), value(&sums.after)];
    let bits = |NamedSum { sum, .. }: &NamedSum| {
        (sum.value.to_bits(), sum.weight.to_bits(), sum.beside.map(f64::to_bits))
    };
    let mut point = Point {
        samples: both.len(),
        clusters: sums.before.len(),
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
            (true, true) if sums.before.len() > 1 => Some(Interval { low: 0.0, high: 0.0 }),
            (false, true) => sums.interval(&point.metric),
            _ => None,
        },
    };
    point.difference = Some(difference);
    if is_equal {
        return point;
    }
    if !finite {
        point.why = Some("not a finite number".to_owned());
        point.verdict = match (before.is_finite(), after.is_finite()) {
            (true, _) => worse(&point.metric),
            (_, true) => better(&point.metric),
            _ => Verdict::Changed,
        };
        return point;
    }
    let (counts, rule) = threshold.decide(before, &difference);
    point.threshold = Some(rule);
    point.verdict = if counts { Point::direction(&point.metric, difference.value) } else { Verdict::WithinNoise };
    point
}

/// A number that is no longer finite is worse, whichever way is better.
fn worse(metric: &Metric) -> Verdict {
    [1.0, -1.0].map(|way| Point::direction(metric, way)).into_iter().min().unwrap_or(Verdict::Changed)
}

fn better(metric: &Metric) -> Verdict {
    match worse(metric) {
        Verdict::Regressed => Verdict::Improved,
        other => other,
    }
}

/// What each cluster adds on either side, in one order of clusters.
struct PairedSums {
    before: Vec<Sums>,
    after: Vec<Sums>,
}

impl PairedSums {
    fn of(both: &[(NamedSum<'_>, NamedSum<'_>)]) -> PairedSums {
        let clusters: BTreeSet<&str> = both.iter().map(|(before, _)| before.sum.row.cluster.as_str()).collect();
        let clusters: Vec<&str> = clusters.into_iter().collect();
        let mut sums = PairedSums {
            before: vec![Sums::default(); clusters.len()],
            after: vec![Sums::default(); clusters.len()],
        };
        for (before, after) in both {
            // The baseline decides a sample's cluster.
            let Ok(cluster) = clusters.binary_search(&before.sum.row.cluster.as_str()) else { continue };
            sums.before[cluster].add(&before.sum);
            sums.after[cluster].add(&after.sum);
        }
        sums
    }

    fn interval(&self, metric: &Metric) -> Option<Interval> {
        let sides = resample(&[&self.before, &self.after]);
        let [before, after] = &sides[..] else { return None };
        let value = |pooled: &Option<[f64; 3]>| pooled.map(|pooled| metric.of_pooled(pooled));
        let difference = before.iter().zip(after).map(|(before, after)| Some(value(after)? - value(before)?));
        interval(&difference.collect::<Vec<_>>())
    }
}
