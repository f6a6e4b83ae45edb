//! Two sets of rows compared: what got worse, what is missing, what is exactly as it was.
//!
//! [`compare`] pairs numbers by what they mean and samples by name, and gives each number a [`Verdict`]; [`document`] is the [`Comparison`]
//! for readers, [`json`] and [`junit`] are it for programs. It knows rows, and the series, metrics and intervals of a report.

mod cluster;
mod comparison;
mod document;
mod exact;
#[cfg(test)]
mod exact_tests;
#[cfg(test)]
mod format_tests;
mod json;
mod junit;
mod notes;
mod point;
mod pooled;
mod side;
#[cfg(test)]
mod tests;
mod threshold;
mod times;

use anyhow::{Context, Result};

pub use cluster::Cluster;
pub use comparison::{Comparison, Options, Origin};
pub use document::{Shown, document};
pub use json::json;
pub use junit::junit;
pub use point::{Moved, Point, Verdict};
use side::{Numbers, Side, Subject};
pub use threshold::{Margin, Rule, Threshold, Thresholds, metric_named, shown_name};

use crate::ledger::Row;
use crate::report::series::order;

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
    let mut notes = notes::of(&before, &after, &points);
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
    (&point.key, point.metric.order(), &point.slice, order::of(&point.policy), point.cache_size)
}

fn points(before: &Side<'_>, after: &Side<'_>, options: &Options) -> Vec<Point> {
    if let Some(tolerance) = options.exact {
        return exact::points(before, after, tolerance);
    }
    let mut points = Vec::new();
    for (subject, numbers) in before {
        let blank = Point::blank(subject);
        points.push(match after.get(subject) {
            Some(other) => point(blank, numbers, other, options),
            None => missing(blank, subject, numbers, after),
        });
    }
    for (subject, numbers) in after.iter().filter(|(subject, _)| !before.contains_key(subject)) {
        // A time on another device was already reported with the baseline's.
        if other_device(subject, before).is_none() {
            let new_samples = numbers.samples.len();
            points.push(Point { verdict: Verdict::New, new_samples, ..Point::blank(subject) });
        }
    }
    points
}

fn point(blank: Point, before: &Numbers, after: &Numbers, options: &Options) -> Point {
    let threshold = options.thresholds.of(&blank.metric);
    if blank.metric.is_timed() {
        return times::point(blank, before, after, &threshold);
    }
    let (missing_samples, new_samples) = (before.without(after), after.without(before).len());
    pooled::point(Point { missing_samples, new_samples, ..blank }, before, after, &threshold)
}

/// A number that the results lack, or have on another device only.
fn missing(blank: Point, subject: &Subject<'_>, numbers: &Numbers, after: &Side<'_>) -> Point {
    match other_device(subject, after) {
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
fn other_device<'s>(subject: &Subject<'_>, side: &'s Side<'_>) -> Option<&'s str> {
    if subject.key.device.is_empty() {
        return None;
    }
    let wanted = subject.on_any_device();
    side.keys().filter(|other| other.on_any_device() == wanted).map(|other| other.key.device.as_str()).min()
}
