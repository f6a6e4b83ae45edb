//! A comparison for programs: one JSON object, every point and every sample that moved.
//!
//! The shape is described in results/README.md and has a version, which changes when a field changes its meaning or is removed,
//! not when one is added. Numbers that are not finite are `null`.

use serde::Serialize;

use super::point::{Comparison, Moved, Origin, Point, Verdict};
use crate::metric::Better;
use crate::report::SeriesKey;

/// Version of the shape below.
const SCHEMA_VERSION: u32 = 2;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    program: &'static str,
    program_version: &'static str,
    /// `thresholds` or `exact`.
    mode: &'static str,
    tolerance: Option<f64>,
    failed: bool,
    allow_missing: bool,
    baseline: &'a Origin,
    results: &'a Origin,
    counts: Vec<Count>,
    numbers_compared: usize,
    intervals: usize,
    intervals_excluding_zero: usize,
    intervals_excluding_zero_by_chance: f64,
    points: Vec<PointRecord<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct Count {
    verdict: Verdict,
    points: usize,
}

#[derive(Serialize)]
struct PointRecord<'a> {
    verdict: Verdict,
    fails: bool,
    setting: &'a SeriesKey,
    policy: &'a str,
    cache_size: Option<u32>,
    metric: &'a str,
    quantity: &'a str,
    better: Better,
    slice: Option<&'a str>,
    baseline: Option<f64>,
    results: Option<f64>,
    difference: Option<f64>,
    interval: Option<[f64; 2]>,
    threshold: Option<&'a str>,
    why: Option<&'a str>,
    samples: usize,
    clusters: usize,
    missing_samples: &'a [String],
    new_samples: usize,
    moved: &'a [Moved],
}

/// The document, indented, with a newline at its end.
///
/// # Errors
/// None in practice.
pub fn json(comparison: &Comparison) -> serde_json::Result<String> {
    let intervals = comparison.intervals();
    let document = Document {
        schema_version: SCHEMA_VERSION,
        program: env!("CARGO_PKG_NAME"),
        program_version: env!("CARGO_PKG_VERSION"),
        mode: if comparison.exact.is_some() { "exact" } else { "thresholds" },
        tolerance: comparison.exact,
        failed: comparison.failed(),
        allow_missing: comparison.allow_missing,
        baseline: &comparison.baseline,
        results: &comparison.results,
        counts: Verdict::all().map(|verdict| Count { verdict, points: comparison.count(verdict) }).collect(),
        numbers_compared: comparison.compared(),
        intervals,
        intervals_excluding_zero: comparison.excluding_zero(),
        intervals_excluding_zero_by_chance: intervals as f64 / 20.0,
        points: comparison.points.iter().map(|point| record(point, comparison.allow_missing)).collect(),
        notes: &comparison.notes,
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn record(point: &Point, allow_missing: bool) -> PointRecord<'_> {
    PointRecord {
        verdict: point.verdict,
        fails: point.fails(allow_missing),
        setting: &point.key,
        policy: &point.policy,
        cache_size: point.cache_size,
        metric: &point.metric.id,
        quantity: &point.metric.label,
        better: point.metric.better,
        slice: point.slice.as_deref(),
        baseline: point.before,
        results: point.after,
        difference: point.difference.map(|difference| difference.value),
        interval: point.difference.and_then(|of| of.interval).map(|interval| [interval.low, interval.high]),
        threshold: point.threshold.as_deref(),
        why: point.why.as_deref(),
        samples: point.samples,
        clusters: point.clusters,
        missing_samples: &point.missing_samples,
        new_samples: point.new_samples,
        moved: &point.moved,
    }
}
