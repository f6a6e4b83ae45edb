//! A pooled number against itself: the difference over the samples both sides have, and its interval from pairs.
//!
//! It resamples clusters with the draws of a report, the same ones for both sides, so that what books have in common
//! cancels out. It refuses to know what a threshold is, beyond asking it.

use std::collections::BTreeSet;

use super::pairing::{Measured, Paired, Sample, pair};
use super::point::{Point, Verdict};
use super::threshold::Threshold;
use crate::report::{Estimate, Interval, Quantity, Sums, interval, pooled, resample};

pub(super) fn point(blank: Point, before: &Measured, after: &Measured, threshold: Threshold) -> Point {
    let Paired { both, missing, new } = pair(&before.samples, &after.samples);
    let sums = PairedSums::of(&both);
    let value = |side: &[Sums]| pooled(side).map_or(f64::NAN, |pooled| blank.quantity.of_pooled(pooled));
    let [before, after] = [value(&sums.before), value(&sums.after)];
    let bits =
        |sample: &Sample| (sample.value.to_bits(), sample.weight.to_bits(), sample.beside.map(f64::to_bits));
    let mut point = Point {
        samples: both.len(),
        clusters: sums.before.len(),
        missing_samples: missing.iter().map(|sample| sample.name.to_owned()).collect(),
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
            // Nothing to draw: every resample has the same on both sides.
            (true, true) if sums.before.len() > 1 => Some(Interval { low: 0.0, high: 0.0 }),
            (false, true) => sums.interval(&point.quantity),
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
            (true, _) => worse(&point.quantity),
            (_, true) => better(&point.quantity),
            _ => Verdict::Changed,
        };
        return point;
    }
    let (counts, rule) = threshold.decide(before, &difference);
    point.threshold = Some(rule);
    point.verdict =
        if counts { Point::direction(&point.quantity, difference.value) } else { Verdict::WithinNoise };
    point
}

fn worse(quantity: &Quantity) -> Verdict {
    // Either direction: one of them is worse where one is better.
    [1.0, -1.0].map(|way| Point::direction(quantity, way)).into_iter().min().unwrap_or(Verdict::Changed)
}

fn better(quantity: &Quantity) -> Verdict {
    match worse(quantity) {
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
    fn of(both: &[(Sample<'_>, Sample<'_>)]) -> PairedSums {
        let clusters: BTreeSet<&str> = both.iter().map(|(before, _)| before.cluster).collect();
        let clusters: Vec<&str> = clusters.into_iter().collect();
        let mut sums = PairedSums {
            before: vec![Sums::default(); clusters.len()],
            after: vec![Sums::default(); clusters.len()],
        };
        for (before, after) in both {
            // The baseline says which cluster a sample is of.
            let Ok(cluster) = clusters.binary_search(&before.cluster) else { continue };
            add(&mut sums.before[cluster], before);
            add(&mut sums.after[cluster], after);
        }
        sums
    }

    fn interval(&self, quantity: &Quantity) -> Option<Interval> {
        let sides = resample(&[&self.before, &self.after]);
        let [before, after] = &sides[..] else { return None };
        let value = |pooled: &Option<[f64; 3]>| pooled.map(|pooled| quantity.of_pooled(pooled));
        let difference = before.iter().zip(after).map(|(before, after)| Some(value(after)? - value(before)?));
        interval(&difference.collect::<Vec<_>>())
    }
}

fn add(sums: &mut Sums, sample: &Sample<'_>) {
    sums.value += sample.value;
    sums.weight += sample.weight;
    sums.beside[0] += sample.beside[0];
    sums.beside[1] += sample.beside[1];
}
