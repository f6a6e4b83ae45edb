//! A metric by slices of the samples: by how far back a fact was told, by its kind, up to a position in a long text.
//!
//! It knows how panels of slices belong together and which cache sizes to show, and makes tables and charts of them.

use std::collections::BTreeSet;

use indexmap::IndexSet;

use crate::metric::{Metric, Property};
use crate::report::document::table::{self, Entry, Grid, Show};
use crate::report::figure::axis::{Axis, Scale};
use crate::report::figure::chart::{self, Chart, Line, Reference};
use crate::report::figure::needle_map::{NeedleMaps, Place};
use crate::report::series::key::SeriesKey;
use crate::report::series::panel::{Panel, Point, RUNNING};

/// Panels of one key and metric whose slices are of one kind.
pub(crate) struct Breakdown<'a> {
    /// `distance`, `kind`, `length and depth`.
    pub(crate) by: &'a str,
    /// One per slice, in order.
    panels: Vec<&'a Panel>,
}

/// Most cache sizes that have a chart and a table.
const MOST_SIZES: usize = 6;
/// Most columns of a table.
const MOST_COLUMNS: usize = 8;
/// More markers on a curve would hide it.
const MOST_SPOTS: u64 = 24;

/// The breakdowns of the panels that are about slices, except for details.
pub(crate) fn breakdowns(panels: &[Panel]) -> Vec<Breakdown<'_>> {
    let parts: Vec<&Panel> =
        panels.iter().filter(|panel| panel.slice.is_some() && !panel.metric.has(Property::Detail)).collect();
    let mut breakdowns: Vec<Breakdown<'_>> = Vec::new();
    for of_one in parts.chunk_by(|a, b| a.key == b.key && a.metric == b.metric) {
        let first = breakdowns.len();
        for panel in of_one {
            let by = split(panel).0;
            match breakdowns[first..].iter_mut().find(|breakdown| breakdown.by == by) {
                Some(breakdown) => breakdown.panels.push(panel),
                None => breakdowns.push(Breakdown { by, panels: vec![panel] }),
            }
        }
        // What is known by both says more than what is known by each.
        breakdowns[first..].sort_by_key(|breakdown| ![LENGTH_AND_DEPTH, TASK_AND_LENGTH].contains(&breakdown.by));
    }
    breakdowns
}

/// The kind of slices such as `length:512 depth:25`.
pub(crate) const LENGTH_AND_DEPTH: &str = "length and depth";

/// The kind of slices such as `task:vt length:4096`.
pub(crate) const TASK_AND_LENGTH: &str = "task and length";

/// `distance:16-31` as kind and name.
fn split(panel: &Panel) -> (&str, &str) {
    let slice = panel.slice.as_deref().unwrap_or_default();
    match slice.split_once(':') {
        Some(("length", name)) if name.contains(" depth:") => (LENGTH_AND_DEPTH, name),
        Some(("task", name)) if name.contains(" length:") => (TASK_AND_LENGTH, name),
        Some(parts) => parts,
        None => (slice, ""),
    }
}

impl Breakdown<'_> {
    pub(crate) fn key(&self) -> &SeriesKey {
        &self.panels[0].key
    }

    pub(crate) fn metric(&self) -> &Metric {
        &self.panels[0].metric
    }

    /// Whether it is of the same samples and metric as a panel of whole samples.
    pub(crate) fn is_of(&self, whole: &Panel) -> bool {
        self.panels[0].key == whole.key && *self.metric() == whole.metric
    }

    /// The cache sizes that are smaller than a sample, spread evenly if there are too many.
    pub(crate) fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.panels.iter().flat_map(|panel| panel.sizes()).collect();
        sizes.retain(|size| *size < self.panels[0].key.length);
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() {
            // Only the full cache was measured; it is shown at every size.
            sizes.push(self.panels[0].key.length);
        }
        let shown = sizes.len().min(MOST_SIZES);
        (0..shown).map(|i| sizes[(i * (sizes.len() - 1)).checked_div(shown - 1).unwrap_or(0)]).collect()
    }

    /// The slices shown in a table: all, but only a few points of a curve.
    fn columns(&self) -> Vec<&'_ Panel> {
        let all = &self.panels;
        let shown = if self.by == RUNNING { all.len().min(MOST_COLUMNS) } else { all.len() };
        // The last is the whole text.
        (1..=shown).map(|column| all[column * all.len() / shown - 1]).collect()
    }

    /// Policies down, slices across, at one cache size; below them what a guess would reach, and how much was measured.
    pub(crate) fn grid(&self, size: u32) -> Grid {
        match self.by {
            LENGTH_AND_DEPTH => {
                let mut places = self.needle_places();
                places.sort_by_key(|(_, depth, _)| *depth);
                let named = places.into_iter().map(|(length, depth, panel)| (length, format!("{depth} %"), panel));
                return self.grid_by_length(size, &named.collect::<Vec<_>>());
            }
            TASK_AND_LENGTH => {
                let named = self.panels.iter().filter_map(|&panel| {
                    let (task, length) = split(panel).1.split_once(" length:")?;
                    Some((length.parse().ok()?, task.to_owned(), panel))
                });
                return self.grid_by_length(size, &named.collect::<Vec<_>>());
            }
            _ => {}
        }
        let columns: Vec<(&Panel, Option<u32>)> =
            self.columns().into_iter().map(|panel| (panel, Some(size))).collect();
        let mut lines = table::lines(&self.policies(), &columns, Show::Value);
        let mut fixed = |name: &str, number: fn(&Panel) -> Option<String>| {
            let cells: Vec<Option<Entry>> =
                columns.iter().map(|(panel, _)| number(panel).map(Entry::plain)).collect();
            if cells.iter().any(Option::is_some) {
                lines.push(table::Line { name: name.to_owned(), cells });
            }
        };
        fixed("(chance)", |panel| panel.chance.map(|chance| panel.metric.show(chance)));
        fixed("(measured)", |panel| {
            let weights =
                panel.points.iter().map(|point| point.weight).filter(|_| !panel.metric.has(Property::Uncountable));
            weights.max_by(f64::total_cmp).map(|weight| weight.to_string())
        });
        Grid { columns: columns.iter().map(|(panel, _)| split(panel).1.to_owned()).collect(), lines }
    }

    /// Policies with depths or tasks down, lengths across. Each place has a length and the name of its line.
    fn grid_by_length(&self, size: u32, places: &[(u32, String, &Panel)]) -> Grid {
        let lengths: BTreeSet<u32> = places.iter().map(|(length, ..)| *length).collect();
        let names: IndexSet<&str> = places.iter().map(|(_, name, _)| name.as_str()).collect();
        let mut lines = Vec::new();
        for policy in self.policies() {
            for &name in &names {
                let cell = |length: &u32| {
                    let panel = places.iter().find(|place| (place.0, place.1.as_str()) == (*length, name))?.2;
                    let point = panel.shown_at(policy, Some(size))?;
                    let number = Entry::plain(panel.metric.show(point.estimate.value));
                    Some(Entry { partial: !point.complete, ..number })
                };
                let cells: Vec<Option<Entry>> = lengths.iter().map(cell).collect();
                let name = format!("{policy}, {name}");
                lines.extend(cells.iter().any(Option::is_some).then_some(table::Line { name, cells }));
            }
        }
        Grid { columns: lengths.iter().map(u32::to_string).collect(), lines }
    }

    /// The panels by length and depth.
    fn needle_places(&self) -> Vec<Place<'_>> {
        let place = |panel: &&'_ Panel| {
            let (length, depth) = split(panel).1.split_once(" depth:")?;
            Some((length.parse().ok()?, depth.parse().ok()?))
        };
        let placed = self.panels.iter().filter_map(|panel| Some((place(panel)?, *panel)));
        placed.map(|((length, depth), panel)| (length, depth, panel)).collect()
    }

    /// A map for each policy and cache size.
    pub(crate) fn needle_maps(&self) -> NeedleMaps {
        NeedleMaps::of(&self.needle_places(), &self.policies(), &self.sizes())
    }

    /// A chart over octaves at one cache size; `None` where the slices are not octaves.
    pub(crate) fn chart(&self, size: u32) -> Option<Chart> {
        let octaves: Vec<(u32, u32)> = self.panels.iter().map(|panel| octave(panel)).collect::<Option<_>>()?;
        // A marker is in the middle of its octave, and ticks are at the borders.
        let middle = |(first, last): &(u32, u32)| (f64::from(*first) * (f64::from(*last) + 1.0)).sqrt();
        let spots: Vec<(&Panel, f64)> = self.panels.iter().copied().zip(octaves.iter().map(middle)).collect();
        let (first, end) = (octaves.first()?.0, octaves.last()?.1.checked_add(1)?);
        let borders: Vec<u32> =
            std::iter::successors(Some(first), |border| border.checked_mul(2)).take_while(|b| *b <= end).collect();
        let chance = spots.iter().filter_map(|(panel, middle)| Some((*middle, panel.chance?))).collect();
        let across = ("tokens between the fact and the answer", Axis::of_sizes(&borders));
        Some(self.curves(size, &spots, |_| true, across, chance))
    }

    /// The running average over a long text at one cache size, from where the text is longer than any usual sample.
    pub(crate) fn running(&self, size: u32) -> Option<Chart> {
        let ends: Vec<u64> = self.panels.iter().map(|panel| split(panel).1.parse().ok()).collect::<Option<_>>()?;
        let step = ends.last()? / MOST_SPOTS;
        let mut shown: Vec<(&Panel, f64)> = Vec::new();
        let mut next = 4096.max(step);
        for (i, (panel, &end)) in self.panels.iter().zip(&ends).enumerate() {
            if end >= next || i + 1 == ends.len() {
                shown.push((panel, end as f64));
                next = end + step;
            }
        }
        let ends: Vec<f64> = shown.iter().map(|(_, end)| *end).collect();
        // Books differ far more than policies do: bands that are not of differences to full would hide everything.
        let has_band = |point: &Point| point.to_full.is_some() || point.is_full();
        let across = ("tokens read", Axis::of_values(&ends, Scale::Linear));
        Some(self.curves(size, &shown, has_band, across, Vec::new()))
    }

    /// A chart of each policy's points at one cache size, panels being at places along the axis.
    fn curves(
        &self,
        size: u32,
        panels: &[(&Panel, f64)],
        has_band: impl Fn(&Point) -> bool,
        across: (&'static str, Axis),
        chance: Vec<(f64, f64)>,
    ) -> Chart {
        let spots = |policy: &str| -> Vec<chart::Measurement> {
            let spot = |(panel, place): &(&Panel, f64)| {
                let point = panel.shown_at(policy, Some(size))?;
                let spot = chart::measurement(panel, point, *place);
                Some(chart::Measurement { band: spot.band.filter(|_| has_band(point)), ..spot })
            };
            panels.iter().filter_map(spot).collect()
        };
        let policies = self.policies().into_iter().filter(|policy| *policy != "full");
        let lines = policies.map(|policy| Line { policy: policy.to_owned(), spots: spots(policy) });
        let full = spots("full").into_iter().map(|spot| (spot.across, spot.point.estimate.value)).collect();
        let curve = |spots: Vec<(f64, f64)>| (!spots.is_empty()).then_some(Reference::Curve(spots));
        let title = (format!("cache size {size}"), self.metric());
        Chart::new(title, across, Scale::Linear, lines.collect(), curve(full), curve(chance))
    }

    /// The policies of any slice, in order.
    fn policies(&self) -> Vec<&str> {
        let policies: IndexSet<&str> = self.panels.iter().flat_map(|panel| panel.policies()).collect();
        policies.into_iter().collect()
    }
}

/// The ends of `distance:16-31`.
fn octave(panel: &Panel) -> Option<(u32, u32)> {
    let (first, last) = split(panel).1.split_once('-')?;
    Some((first.parse().ok().filter(|first| *first > 0)?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{cell, changed, panels};

    /// Recall of two facts in each of two octaves and of one kind.
    fn recalls() -> Vec<Row> {
        let at = |policy: &str, size, metric: &str, slice: &str, value| {
            let slice = |row: &mut Row| row.slice = (!slice.is_empty()).then(|| slice.into());
            changed(cell(metric, policy, size, &[("a", value, 2.0)]), slice)
        };
        let mut all = Vec::new();
        for group in ["", "distance:16-31", "distance:64-127", "kind:home"] {
            all.extend(at("full", None, "recall", group, 2.0));
            all.extend(at("full", None, "recall_chance", group, 0.5));
            for size in [32, 4096] {
                all.extend(at("tova", Some(size), "recall", group, 1.0));
            }
        }
        all.extend(at("window", Some(32), "recall", "distance:16-31", 2.0));
        all
    }

    #[test]
    fn parts_become_tables_and_charts() {
        let panels = panels(&recalls());
        let breakdowns = breakdowns(&panels);
        let [distance, kind] = &breakdowns[..] else { panic!("two breakdowns expected") };
        assert_eq!((distance.by, kind.by), ("distance", "kind"));
        assert!(distance.is_of(&panels[0]) && panels[0].slice.is_none());
        // A cache as large as a sample is the full one.
        assert_eq!(distance.sizes(), [32]);
        let shown = table::text_under("cache size", &distance.grid(32));
        let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            &["cache", "size", "16-31", "64-127"][..],
            &["full", "100.0", "100.0"],
            &["tova", "50.00", "50.00"],
            &["window", "100.0", "-"],
            &["(chance)", "25.00", "25.00"],
            &["(measured)", "2", "2"],
        ];
        assert_eq!(words, expected, "{shown}");
        let chart = distance.chart(32).unwrap();
        assert!(chart.full.is_some() && chart.chance.is_some());
        assert_eq!((chart.shown("tova"), chart.shown("h2o")), (Some(chart::Shown::All), None));
        assert!(kind.chart(32).is_none());
    }

    #[test]
    fn tasks_are_lines_and_lengths_columns() {
        let at = |policy: &str, size, slice: &str, value| {
            changed(cell("ruler", policy, size, &[("a", value, 1.0)]), |row| row.slice = Some(slice.into()))
        };
        let rows = [
            at("full", None, "task:vt length:8192", 0.8),
            at("full", None, "task:vt length:512", 1.0),
            at("full", None, "task:cwe length:512", 0.4),
            at("tova", Some(32), "task:vt length:512", 0.5),
            at("full", None, "task:vt", 0.9),
            at("full", None, "length:512", 0.7),
        ];
        let panels = panels(&rows.concat());
        let breakdowns = breakdowns(&panels);
        assert_eq!(
            breakdowns.iter().map(|parts| parts.by).collect::<Vec<_>>(),
            ["task and length", "length", "task"]
        );
        let shown = table::text_under("policy", &breakdowns[0].grid(32));
        let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            &["policy", "512", "8192"][..],
            &["full,", "cwe", "40.00", "-"],
            &["full,", "vt", "100.0", "80.00"],
            &["tova,", "vt", "50.00", "-"],
        ];
        assert_eq!(words, expected, "{shown}");
    }

    #[test]
    fn many_sizes_are_thinned() {
        let rows: Vec<Row> = recalls().into_iter().filter(|row| row.cache_size == Some(32)).collect();
        let all = (1..=20).flat_map(|n| changed(rows.clone(), |row| row.cache_size = Some(n * 8)));
        let panels = panels(&all.collect::<Vec<_>>());
        assert_eq!(breakdowns(&panels)[0].sizes(), [8, 32, 64, 96, 128, 160]);
    }
}
