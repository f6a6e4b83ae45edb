//! The points of every panel as data for the page's script: what a reader can filter and take away.
//!
//! Columns are those of `report.csv`, every digit included. It pools nothing.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::super::bootstrap::Estimate;
use super::super::escape;
use super::super::points::Panel;
use super::super::series_style::SeriesStyles;
use super::super::setting::Setting;
use super::figure::marker_path;
use super::json::{Exact, inside_script};

#[derive(Serialize)]
struct Points {
    /// Names of the fields of a setting.
    fields: [&'static str; 13],
    settings: Vec<Home>,
    panels: Vec<Subject>,
    columns: [&'static str; 12],
    points: Vec<Line>,
    /// By policy: its classes, its marker's outline, and whether that is open.
    looks: BTreeMap<String, (String, String, bool)>,
}

#[derive(Serialize)]
struct Home {
    title: String,
    fields: [String; 13],
}

#[derive(Serialize)]
struct Subject {
    setting: usize,
    metric: String,
    group: String,
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

/// The JSON; `settings` are the page's, in its order.
pub(super) fn json(panels: &[Panel], settings: &[Setting], styles: &SeriesStyles) -> Result<String> {
    let home = |setting: &Setting| Home {
        title: setting.title(settings),
        fields: setting.fields().map(|field| escape::plain(&field)),
    };
    let subject = |panel: &Panel| Subject {
        setting: settings.iter().position(|setting| *setting == panel.setting).unwrap_or(0),
        metric: escape::plain(&panel.quantity.metric),
        group: escape::plain(panel.group.as_deref().unwrap_or_default()),
        quantity: panel.quantity.name.clone(),
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
        fields: Setting::FIELDS,
        settings: settings.iter().map(home).collect(),
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
