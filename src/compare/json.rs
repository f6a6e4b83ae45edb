//! A comparison for programs: one JSON object, every point and every sample that moved.
//!
//! The shape is described in docs/compare.md and has a version, which changes when a field changes its meaning or is removed,
//! not when one is added. Numbers that are not finite are `null`.

use serde_json::{Value, json};

use super::comparison::Comparison;
use super::point::{Point, Verdict};
use crate::metric::Slice;

/// The version of the document's shape.
const SCHEMA_VERSION: u32 = 5;

/// Writes the document, indented, with a newline at its end.
///
/// # Errors
/// None in practice.
pub fn json(comparison: &Comparison) -> serde_json::Result<String> {
    let count = |(verdict, _)| json!({ "verdict": verdict, "points": comparison.count(verdict) });
    let points = comparison.points.iter().map(|point| record(point, comparison.allow_missing));
    let document = json!({
        "schema_version": SCHEMA_VERSION,
        "program": env!("CARGO_PKG_NAME"),
        "program_version": env!("CARGO_PKG_VERSION"),
        "mode": if comparison.exact.is_some() { "exact" } else { "thresholds" },
        "tolerance": comparison.exact,
        "failed": comparison.failed(),
        "allow_missing": comparison.allow_missing,
        "baseline": comparison.baseline,
        "results": comparison.results,
        "counts": Verdict::NAMES.map(count),
        "numbers_compared": comparison.compared(),
        "points": points.collect::<Vec<_>>(),
        "notes": comparison.notes,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn record(point: &Point, allow_missing: bool) -> Value {
    let interval = point.difference.and_then(|difference| difference.interval);
    json!({
        "verdict": point.verdict,
        "fails": point.fails(allow_missing),
        "setting": point.key,
        "policy": point.policy,
        "cache_size": point.cache_size,
        "metric": point.metric.id,
        "quantity": point.metric.label,
        "better": point.metric.better,
        "slice": point.slice.as_ref().map(Slice::to_string),
        "baseline": point.before,
        "results": point.after,
        "difference": point.difference.map(|difference| difference.value),
        "interval": interval.map(|interval| [interval.low, interval.high]),
        "threshold": point.threshold,
        "why": point.why,
        "samples": point.samples,
        "clusters": point.clusters,
        "missing_samples": point.missing_samples,
        "new_samples": point.new_samples,
        "clusters_worse": point.clusters_worse,
        "moved": point.moved,
    })
}
