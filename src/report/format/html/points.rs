//! The points of every panel as data for the page's script, to be filtered and exported.
//!
//! Columns are those of `report.csv`, with every digit.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};

use super::figure::marker_path;
use super::json::{Exact, inside_script};
use crate::metric::Slice;
use crate::report::escape;
use crate::report::figure::{SeriesStyle, SeriesStyles};
use crate::report::series::{Panel, Point, SeriesKey};

const COLUMNS: [&str; 12] = [
    "policy",
    "cache_size",
    "value",
    "interval_low",
    "interval_high",
    "minus_full",
    "minus_full_low",
    "minus_full_high",
    "samples",
    "clusters",
    "weight",
    "complete",
];

/// The JSON; `keys` are the page's, in its order.
pub(super) fn json(panels: &[Panel], keys: &[SeriesKey], styles: &SeriesStyles) -> Result<String> {
    let setting = |key: &SeriesKey| {
        let fields = key.fields().map(|(_, field)| escape::plain(&field));
        json!({ "title": key.title(keys), "fields": fields })
    };
    let subject = |panel: &Panel| {
        json!({
            "setting": keys.iter().position(|key| *key == panel.key).unwrap_or(0),
            "metric": escape::plain(&panel.metric.id),
            "slice": escape::plain(&Slice::text(panel.slice.as_ref())),
            "quantity": panel.metric.label,
            "chance": panel.guess.map(Exact),
            "samples": panel.samples,
        })
    };
    let points = panels.iter().enumerate().flat_map(|(at, panel)| panel.points.iter().map(move |p| point(at, p)));
    // By policy: its classes, its marker's outline, and whether that is open.
    let look = |(policy, style): (&str, SeriesStyle)| {
        let (path, filled) = marker_path(style.marker);
        (escape::plain(policy), json!([style.class(), path, !filled]))
    };
    inside_script(&json!({
        "fields": SeriesKey::names(),
        "settings": keys.iter().map(setting).collect::<Vec<_>>(),
        "panels": panels.iter().map(subject).collect::<Vec<_>>(),
        "columns": COLUMNS,
        "points": points.collect::<Vec<_>>(),
        "looks": styles.iter().map(look).collect::<BTreeMap<_, _>>(),
    }))
}

/// The panel, policy, size; value, low, high, to full, low, high; samples, clusters, weight, complete.
fn point(panel: usize, point: &Point) -> Value {
    let numbers = [Some(point.estimate), point.to_full.as_ref().map(|to_full| to_full.shown)].map(|estimate| {
        let interval = estimate.and_then(|estimate| estimate.interval);
        let numbers = [estimate.map(|e| e.value), interval.map(|i| i.low), interval.map(|i| i.high)];
        numbers.map(|number| number.map(Exact))
    });
    let policy = escape::plain(&point.policy);
    json!([
        panel,
        policy,
        point.cache_size,
        numbers.as_flattened(),
        point.samples,
        point.clusters,
        Exact(point.weight),
        point.complete
    ])
}
