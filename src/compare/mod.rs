//! Two sets of rows compared: what got worse, what is missing, what is exactly as it was.
//!
//! [`compare`] pairs numbers by what they mean and samples by name, and gives each number a [`Verdict`]; [`document`] is the [`Comparison`]
//! for readers, [`json`] for programs. It knows rows, and the series, metrics and intervals of a report.

mod comparison;
mod document;
mod exact;
mod json;
mod notes;
mod point;
mod pooled;
mod side;
#[cfg(test)]
mod tests;
mod threshold;

use std::collections::BTreeSet;

use anyhow::{Context, Result};

pub use comparison::{Comparison, Options, Origin};
pub use document::document;
pub use json::json;
pub use point::{Moved, Point, Verdict};
pub use pooled::Cluster;
use side::Subject;
pub use threshold::{Threshold, Thresholds, metric_named, shown_name};

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
    let both = options.exact.map(|_| exact::samples_of_both(&before, &after)).unwrap_or_default();
    let subjects: BTreeSet<&Subject<'_>> = before.keys().chain(after.keys()).collect();
    let point_of = |subject: &Subject<'_>| point::of(subject, [&before, &after], &both, options);
    let mut points: Vec<Point> = subjects.into_iter().map(point_of).collect();
    points.sort_by(|a, b| order_of(a).cmp(&order_of(b)));
    let mut notes = notes::of(&before, &after);
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
