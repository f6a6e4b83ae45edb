//! The points of every panel as data for the page's script, to be filtered and exported.
//!
//! Columns are those of `report.csv`, with every digit.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::super::bootstrap::Estimate;
use super::super::escape;
use super::super::points::Panel;
use super::super::series_key::SeriesKey;
use super::super::series_style::SeriesStyles;
use super::figure::marker_path;
use super::json::{Exact, inside_script};

#[derive(Serialize)]
struct Points {
    /// Names of the fields of a key.
    fields: [&'static str; 13],
    settings: Vec<KeyRecord>,
    panels: Vec<Subject>,
    columns: [&'static str; 12],
    points: Vec<Line>,
    /// By policy: its classes, its marker's outline, and whether that is open.
    looks: BTreeMap<String, (String, String, bool)>,
}

#[derive(Serialize)]
struct KeyRecord {
    title: String,
    fields: [String; 13],
}

#[derive(Serialize)]
struct Subject {
    setting: usize,
    metric: String,
    slice: String,
    quantity: String,
    chance: Option<Exact>,
    samples: usize,
}

/// Panel, policy, size; value, low, high; to full, low, high; samples, clusters, weight, complete.
type Line = (usize, String, Option<u32>, [Option<Exact>; 6], usize, usize, Exact, bool);

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
    let record = |key: &SeriesKey| KeyRecord {
        title: key.title(keys),
        fields: key.fields().map(|(_, field)| escape::plain(&field)),
    };
    let subject = |panel: &Panel| Subject {
        setting: keys.iter().position(|key| *key == panel.key).unwrap_or(0),
        metric: escape::plain(&panel.metric.id),
        slice: escape::plain(panel.slice.as_deref().unwrap_or_default()),
        quantity: panel.metric.label.to_string(),
        chance: panel.chance.map(Exact),
        samples: panel.samples,
    };
    let lines = panels.iter().enumerate().flat_map(|(of, panel)| {
        panel.points.iter().map(move |point| {
            let [value, low, high] = numbers(Some(point.estimate));
            let [to_full, to_full_low, to_full_high] = numbers(point.to_full);
            let numbers = [value, low, high, to_full, to_full_low, to_full_high];
            let policy = escape::plain(&point.policy);
            (
                of,
                policy,
                point.cache_size,
                numbers,
                point.samples,
                point.clusters,
                Exact(point.weight),
                point.complete,
            )
        })
    });
    inside_script(&Points {
        fields: SeriesKey::names(),
        settings: keys.iter().map(record).collect(),
        panels: panels.iter().map(subject).collect(),
        columns: COLUMNS,
        points: lines.collect(),
        looks: styles
            .iter()
            .map(|(policy, style)| {
                let (path, filled) = marker_path(style.marker);
                (escape::plain(policy), (style.class(), path, !filled))
            })
            .collect(),
    })
}

fn numbers(estimate: Option<Estimate>) -> [Option<Exact>; 3] {
    let interval = estimate.and_then(|estimate| estimate.interval);
    [
        estimate.map(|estimate| Exact(estimate.value)),
        interval.map(|interval| Exact(interval.low)),
        interval.map(|interval| Exact(interval.high)),
    ]
}
