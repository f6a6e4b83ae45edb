//! A comparison for programs: one JSON object, every point and every sample that moved.
//!
//! The shape is described in results/README.md and numbered: a field that changes its meaning or goes away makes another
//! version, a new field does not. Numbers that are not finite are `null`, as JSON has no others.

use serde::Serialize;

use super::point::{Comparison, Moved, Origin, Point, Verdict};
use crate::metric::Better;
use crate::report::SeriesKey;

/// Version of the shape below.
const SCHEMA_VERSION: u32 = 1;

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
    setting: SettingRecord<'a>,
    policy: &'a str,
    cache_size: Option<u32>,
    metric: &'a str,
    quantity: &'a str,
    better: &'static str,
    group: Option<&'a str>,
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
    moved: Vec<MovedRecord<'a>>,
}

#[derive(Serialize)]
struct SettingRecord<'a> {
    task: &'a str,
    dataset: &'a str,
    model: &'a str,
    model_revision: &'a str,
    dtype: &'a str,
    length: u32,
    stride: u32,
    bos: bool,
    tail: &'a str,
    asked: &'a str,
    seed: u64,
    prefill: &'a str,
    device: &'a str,
}

#[derive(Serialize)]
struct MovedRecord<'a> {
    sample: &'a str,
    group: Option<&'a str>,
    before: f64,
    after: f64,
    change: f64,
    weight_before: f64,
    weight_after: f64,
    text_differs: bool,
}

/// The document, indented, with a newline at its end.
///
/// # Errors
/// None that a comparison can cause.
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
        counts: Verdict::ALL.map(|verdict| Count { verdict, points: comparison.count(verdict) }).into(),
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
        setting: setting(&point.key),
        policy: &point.policy,
        cache_size: point.cache_size,
        metric: &point.metric.id,
        quantity: &point.metric.label,
        better: match point.metric.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
            Better::Unknown => "unknown",
        },
        group: point.slice.as_deref(),
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
        moved: point.moved.iter().map(moved).collect(),
    }
}

fn setting(key: &SeriesKey) -> SettingRecord<'_> {
    SettingRecord {
        task: &key.task,
        dataset: &key.dataset,
        model: &key.model,
        model_revision: &key.model_revision,
        dtype: &key.dtype,
        length: key.length,
        stride: key.stride,
        bos: key.bos,
        tail: &key.tail,
        asked: &key.asked,
        seed: key.seed,
        prefill: &key.prefill,
        device: &key.device,
    }
}

fn moved(moved: &Moved) -> MovedRecord<'_> {
    MovedRecord {
        sample: &moved.sample,
        group: moved.slice.as_deref(),
        before: moved.before,
        after: moved.after,
        change: moved.change,
        weight_before: moved.weights[0],
        weight_after: moved.weights[1],
        text_differs: moved.text,
    }
}
