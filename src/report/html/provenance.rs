//! Where the numbers come from: sweeps, models, data, engine, commits, devices, dates and the time they took.

use std::collections::{BTreeSet, HashSet};

use maud::{Markup, html};

use super::super::escape;
use crate::ledger::Row;

/// Values of one field that are shown; more are counted.
const MOST: usize = 12;

#[derive(Default)]
struct Provenance<'a> {
    cells: HashSet<&'a str>,
    samples: usize,
    seconds: f64,
    sweeps: BTreeSet<&'a str>,
    models: BTreeSet<(&'a str, &'a str, &'a str)>,
    datasets: BTreeSet<&'a str>,
    engines: BTreeSet<u32>,
    commits: BTreeSet<&'a str>,
    devices: BTreeSet<&'a str>,
    dates: Option<(&'a str, &'a str)>,
}

impl<'a> Provenance<'a> {
    fn of(rows: &'a [Row]) -> Self {
        let mut all = Self::default();
        // A sample's seconds stand on each of its rows.
        let mut timed: HashSet<(&str, &str)> = HashSet::new();
        let mut last: Option<&Row> = None;
        for row in rows {
            let same_cell = last.is_some_and(|last| last.cell == row.cell);
            let same_sample = same_cell && last.is_some_and(|last| last.sample == row.sample);
            if !same_sample && timed.insert((&row.cell, &row.sample)) {
                all.seconds += row.seconds;
                all.samples += 1;
                let (first, end) = all.dates.unwrap_or((&row.date, &row.date));
                all.dates = Some((first.min(&row.date), end.max(&row.date)));
            }
            if !same_cell {
                all.cells.insert(&row.cell);
                all.sweeps.insert(&row.sweep);
                all.models.insert((&row.model, &row.model_revision, &row.dtype));
                all.datasets.insert(&row.dataset);
                all.engines.insert(row.engine);
                all.commits.extend(row.commit.as_deref());
                all.devices.insert(&row.device);
            }
            last = Some(row);
        }
        all
    }
}

/// The origin in one line, and all of it below.
pub(super) fn fold(rows: &[Row]) -> Markup {
    let all = Provenance::of(rows);
    let texts = |texts: &BTreeSet<&str>| texts.iter().map(|text| escape::plain(text)).collect::<Vec<_>>();
    let models = all.models.iter().map(|(model, revision, dtype)| {
        escape::plain(&if revision.is_empty() {
            format!("{model}, {dtype}")
        } else {
            format!("{model}, {dtype}, {revision}")
        })
    });
    let dates = match all.dates {
        Some((first, end)) if first == end => escape::plain(first),
        Some((first, end)) => format!("{} to {}", escape::plain(first), escape::plain(end)),
        None => String::new(),
    };
    let seconds = duration(all.seconds);
    html! {
        details.fold.origin {
            summary {
                (rows.len()) " rows of " (all.cells.len()) " cells: where they come from"
            }
            dl.facts {
                (fact("rows", &[format!("{} of {} cells, {} samples read", rows.len(), all.cells.len(), all.samples)]))
                (fact("sweep", &texts(&all.sweeps)))
                (fact("model", &models.collect::<Vec<_>>()))
                (fact("data", &texts(&all.datasets)))
                (fact("engine", &all.engines.iter().map(u32::to_string).collect::<Vec<_>>()))
                (fact("commit", &texts(&all.commits)))
                (fact("device", &texts(&all.devices)))
                (fact("measured", &[dates]))
                (fact("time spent", &[seconds]))
            }
        }
    }
}

/// A name and its values; nothing where there are none.
pub(super) fn fact(name: &str, values: &[String]) -> Markup {
    let values: Vec<&String> = values.iter().filter(|value| !value.is_empty()).collect();
    html! {
        @if !values.is_empty() {
            dt { (name) }
            dd {
                @for value in values.iter().take(MOST) { span { (value) } }
                @if values.len() > MOST { span { "and " (values.len() - MOST) " more" } }
            }
        }
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        _ if !seconds.is_finite() || seconds < 0.0 => String::new(),
        _ if seconds < 120.0 => format!("{seconds:.1} s of computing"),
        _ if seconds < 7200.0 => format!("{:.1} minutes of computing", seconds / 60.0),
        _ => format!("{:.1} hours of computing", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{Sample, rows};
    use super::*;

    #[test]
    fn seconds_of_a_sample_count_once() {
        let sample = |sample| Sample { sample, cluster: "a", value: 1.0, weight: 1.0 };
        let one = rows("tova", Some(8), &[sample("a"), sample("b")]);
        let of =
            |metric: &str| one.iter().cloned().map(|row| Row { metric: metric.into(), ..row }).collect::<Vec<_>>();
        let mut all = [of("nll"), of("nll_word")].concat();
        all.extend(
            rows("full", None, &[sample("a")])
                .into_iter()
                .map(|row| Row { date: "2025-05-05T00:00:00Z".into(), ..row }),
        );
        let told = Provenance::of(&all);
        assert_eq!((told.seconds, told.samples, told.cells.len()), (3.0, 3, 2));
        assert_eq!(told.dates, Some(("2025-05-05T00:00:00Z", "2026-01-01T00:00:00Z")));
        assert_eq!(duration(90.0), "90.0 s of computing");
        assert_eq!(duration(7200.0), "2.0 hours of computing");
    }
}
