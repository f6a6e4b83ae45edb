//! A comparison for programs: one JSON object, every point and every sample that moved.
//!
//! The shape is described in docs/compare.md and has a version, which changes when a field changes its meaning or is removed,
//! not when one is added. Numbers that are not finite are `null`.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::chance::Chance;
use super::comparison::Comparison;
use super::point::{Point, Verdict};
use crate::metric::Slice;

/// Version of the shape below.
const SCHEMA_VERSION: u32 = 3;

/// The document, indented, with a newline at its end.
///
/// # Errors
/// None in practice.
pub fn json(comparison: &Comparison) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&Document(comparison))? + "\n")
}

struct Document<'a>(&'a Comparison);

#[derive(Serialize)]
struct Count {
    verdict: Verdict,
    points: usize,
}

struct Record<'a> {
    point: &'a Point,
    allow_missing: bool,
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(of) = self;
        let Chance { intervals, worse, expected, any } = of.chance();
        let allow_missing = of.allow_missing;
        let count = |verdict| Count { verdict, points: of.count(verdict) };
        let record = |point| Record { point, allow_missing };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema_version", &SCHEMA_VERSION)?;
        map.serialize_entry("program", env!("CARGO_PKG_NAME"))?;
        map.serialize_entry("program_version", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("mode", if of.exact.is_some() { "exact" } else { "thresholds" })?;
        map.serialize_entry("tolerance", &of.exact)?;
        map.serialize_entry("failed", &of.failed())?;
        map.serialize_entry("allow_missing", &allow_missing)?;
        map.serialize_entry("baseline", &of.baseline)?;
        map.serialize_entry("results", &of.results)?;
        map.serialize_entry("counts", &Verdict::all().map(count).collect::<Vec<_>>())?;
        map.serialize_entry("numbers_compared", &of.compared())?;
        map.serialize_entry("intervals", &intervals)?;
        map.serialize_entry("intervals_worse", &worse)?;
        map.serialize_entry("intervals_worse_by_chance", &expected)?;
        map.serialize_entry("chance_of_any_worse", &any)?;
        map.serialize_entry("points", &of.points.iter().map(record).collect::<Vec<_>>())?;
        map.serialize_entry("notes", &of.notes)?;
        map.end()
    }
}

impl Serialize for Record<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { point, allow_missing } = self;
        let interval = point.difference.and_then(|difference| difference.interval);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("verdict", &point.verdict)?;
        map.serialize_entry("fails", &point.fails(*allow_missing))?;
        map.serialize_entry("setting", &point.key)?;
        map.serialize_entry("policy", &point.policy)?;
        map.serialize_entry("cache_size", &point.cache_size)?;
        map.serialize_entry("metric", &point.metric.id)?;
        map.serialize_entry("quantity", &point.metric.label)?;
        map.serialize_entry("better", &point.metric.better)?;
        map.serialize_entry("slice", &point.slice.as_ref().map(Slice::to_string))?;
        map.serialize_entry("baseline", &point.before)?;
        map.serialize_entry("results", &point.after)?;
        map.serialize_entry("difference", &point.difference.map(|difference| difference.value))?;
        map.serialize_entry("interval", &interval.map(|interval| [interval.low, interval.high]))?;
        map.serialize_entry("threshold", &point.threshold)?;
        map.serialize_entry("why", &point.why)?;
        map.serialize_entry("samples", &point.samples)?;
        map.serialize_entry("clusters", &point.clusters)?;
        map.serialize_entry("missing_samples", &point.missing_samples)?;
        map.serialize_entry("new_samples", &point.new_samples)?;
        map.serialize_entry("clusters_worse", &point.clusters_worse)?;
        map.serialize_entry("moved", &point.moved)?;
        map.end()
    }
}
