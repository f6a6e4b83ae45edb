//! Two sets of rows compared: what got worse, what is missing, what is exactly as it was.
//!
//! [`compare`] pairs numbers by what they mean and samples by name, and gives each number a [`Verdict`]; [`terminal`],
//! [`markdown`], [`json`] and [`junit`] show the [`Comparison`]. It knows rows, and the series, metrics and draws of a report.

mod exact;
mod json;
mod junit;
mod markdown;
mod point;
mod pooled;
mod side;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod threshold;
mod times;

use std::collections::BTreeSet;

use anyhow::{Context, Result};

pub use json::json;
pub use junit::junit;
pub use markdown::markdown;
pub use point::{Comparison, Moved, Options, Origin, Point, Verdict};
use side::{Numbers, Side, Subject};
pub use terminal::terminal;
pub use threshold::{Margin, Threshold, Thresholds, metric_named, shown_name};

use crate::ledger::Row;
use crate::metric::Metric;
use crate::report::{SeriesKey, label, order};

/// Compares results with a baseline; each side comes with its name.
///
/// # Errors
/// Two cells of one side that measured the same.
pub fn compare(baseline: (&str, &[Row]), results: (&str, &[Row]), options: &Options) -> Result<Comparison> {
    let side = |(name, rows)| side::of(rows, options).with_context(|| format!("{name} cannot be compared"));
    let before = side(baseline)?;
    let after = side::align(&before, side(results)?);
    let mut points = points(&before, &after, options);
    points.sort_by(|a, b| order_of(a).cmp(&order_of(b)));
    let mut notes = notes(&before, &after);
    notes.extend(nearly_paired(&points));
    if options.exact.is_some() {
        notes.extend(exact::notes(baseline.1, results.1));
    }
    Ok(Comparison {
        exact: options.exact,
        allow_missing: options.allow_missing,
        baseline: Origin::of(baseline.0, baseline.1),
        results: Origin::of(results.0, results.1),
        points,
        notes,
    })
}

fn order_of(point: &Point) -> impl Ord + '_ {
    (
        &point.key,
        point.metric.order(),
        point.slice.as_deref().map(order::of_slice),
        order::of(&point.policy),
        point.cache_size,
    )
}

fn points(before: &Side<'_>, after: &Side<'_>, options: &Options) -> Vec<Point> {
    let mut points = Vec::new();
    for (subject, numbers) in before {
        let blank = blank(subject);
        points.push(match after.get(subject) {
            Some(other) => point(blank, numbers, other, options),
            None => missing(blank, subject, numbers, after),
        });
    }
    for (subject, numbers) in after.iter().filter(|(subject, _)| !before.contains_key(subject)) {
        // A time on another device was already reported with the baseline's.
        if elsewhere(subject, before).is_none() {
            points.push(Point { verdict: Verdict::New, new_samples: numbers.samples.len(), ..blank(subject) });
        }
    }
    points
}

fn blank(subject: &Subject<'_>) -> Point {
    Point {
        key: subject.key.clone(),
        metric: Metric::of(subject.metric),
        slice: subject.slice.map(str::to_owned),
        policy: subject.policy.0.to_string(),
        cache_size: subject.policy.1,
        verdict: Verdict::Equal,
        before: None,
        after: None,
        difference: None,
        threshold: None,
        why: None,
        samples: 0,
        clusters: 0,
        missing_samples: Vec::new(),
        new_samples: 0,
        moved: Vec::new(),
    }
}

fn point(blank: Point, before: &Numbers, after: &Numbers, options: &Options) -> Point {
    let threshold = options.thresholds.of(&blank.metric);
    if options.exact.is_none() && blank.metric.is_timed() {
        return times::point(blank, before, after, threshold);
    }
    let new_samples = after.without(before).len();
    let blank = Point { missing_samples: before.without(after), new_samples, ..blank };
    match options.exact {
        Some(tolerance) => exact::point(blank, before, after, tolerance),
        None => pooled::point(blank, before, after, threshold),
    }
}

/// A number that the results lack, or have on another device only.
fn missing(blank: Point, subject: &Subject<'_>, numbers: &Numbers, after: &Side<'_>) -> Point {
    match elsewhere(subject, after) {
        Some(device) => Point {
            verdict: Verdict::NotComparable,
            why: Some(format!("another device: {} in the baseline, {device} here", subject.key.device)),
            ..blank
        },
        None => Point {
            verdict: Verdict::Missing,
            missing_samples: numbers.samples.keys().map(|(_, sample)| (*sample).to_owned()).collect(),
            ..blank
        },
    }
}

/// The device that a side timed the same thing on, if only on another one.
fn elsewhere<'s>(subject: &Subject<'_>, side: &'s Side<'_>) -> Option<&'s str> {
    if subject.key.device.is_empty() {
        return None;
    }
    let wanted = subject.on_any_device();
    side.keys().filter(|other| other.on_any_device() == wanted).map(|other| other.key.device.as_str()).min()
}

/// Keys without a partner although one differs in little: a model trained again, a data set moved.
fn nearly_paired(points: &[Point]) -> Vec<String> {
    let only = |verdict: Verdict| -> Vec<SeriesKey> {
        let (having, paired): (Vec<&Point>, Vec<&Point>) =
            points.iter().partition(|point| point.verdict == verdict);
        let [having, paired] =
            [having, paired].map(|points| points.iter().map(|point| &point.key).collect::<BTreeSet<_>>());
        having.difference(&paired).map(|key| (*key).clone()).collect()
    };
    let (missing, new) = (only(Verdict::Missing), only(Verdict::New));
    let mut notes = Vec::new();
    for key in &missing {
        let others = new.iter().filter(|other| other.task == key.task).map(|other| differences(key, other));
        let Some(nearest) = others.min_by_key(Vec::len).filter(|nearest| nearest.len() <= 3) else { continue };
        let title = key.title(&missing);
        notes.push(format!("{title} pairs with nothing; the nearest results differ in {}", nearest.join(", ")));
    }
    notes
}

/// The fields two keys differ in: `revision 0123 (baseline) and 4567 (results)`.
fn differences(key: &SeriesKey, other: &SeriesKey) -> Vec<String> {
    let pairs = key.fields().into_iter().zip(other.fields());
    let differing = pairs.filter(|((_, a), (_, b))| a != b);
    differing.map(|((name, a), (_, b))| format!("{name} {a} (baseline) and {b} (results)")).collect()
}

/// Warnings about the rows themselves.
fn notes(before: &Side<'_>, after: &Side<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let (mut engines, mut defined, mut weighed) = (BTreeSet::new(), BTreeSet::new(), 0);
    for (subject, numbers) in before {
        let Some(other) = after.get(subject) else { continue };
        let (a, b) = (numbers.row, other.row);
        if a.engine != b.engine {
            engines.insert((a.engine, b.engine));
        }
        let meaning = |row: &Row| (row.score.clone(), row.scope.clone(), row.keep_first, row.keep_recent);
        if meaning(a) != meaning(b) {
            defined.insert(label(a));
        }
        weighed += usize::from(numbers.both(other).iter().any(|(_, a, b)| a.sums.weight != b.sums.weight));
    }
    let engine =
        |(a, b)| format!("engine {a} in the baseline, {b} in the results: numbers may differ by intention");
    notes.extend(engines.into_iter().map(engine));
    let definition = |policy| format!("{policy} is defined otherwise in the baseline than in the results");
    notes.extend(defined.into_iter().map(definition));
    if weighed > 0 {
        notes.push(format!("{weighed} numbers weigh their samples otherwise than in the baseline"));
    }
    notes
}
