//! Speed and memory of decoding as a table.
//!
//! Medians over repeats with the smallest and the largest, which the panels' pooled numbers do not show. It knows the
//! metrics that are timed and what each column shows of them.

use std::collections::BTreeMap;
use std::rc::Rc;

use indexmap::{IndexMap, IndexSet};

use super::Setting;
use crate::format::{Bytes, capital};
use crate::metric::Metric;
use crate::report::document::{Block, Entry, Grid, Line, Table};
use crate::report::series::{AllSeries, SeriesKey, Size};

/// Policies and sizes of one key, each with its repeats.
pub(crate) struct Speeds {
    pub(crate) key: SeriesKey,
    /// In order.
    pub(crate) lines: Vec<Repeats>,
}

/// What was measured for one policy at one size.
pub(crate) struct Repeats {
    pub(crate) policy: String,
    pub(crate) size: Option<Size>,
    /// By metric, the quotient of each repeat, ascending.
    by_metric: BTreeMap<String, Vec<f64>>,
}

/// The header above the names of policies.
pub(crate) const CORNER: &str = "policy, size";

/// The table of a setting that was timed, beside the curve of its first metric.
pub(super) fn blocks(setting: &Setting<'_>) -> Vec<Block> {
    let Some(table) = table(setting) else { return Vec::new() };
    let figure = setting.panels.first().and_then(|panel| setting.report.figure_of(panel));
    figure.map(|figure| Block::Figure(Rc::clone(figure))).into_iter().chain([Block::Table(table)]).collect()
}

/// The table of decoding speed and memory; `None` where nothing was timed.
pub(super) fn table(setting: &Setting<'_>) -> Option<Table> {
    let timed = setting.report.speeds.iter().find(|speeds| speeds.key == *setting.key)?;
    let about = format!("On {}. {}.", timed.key.device, capital(&timed.legend()));
    Some(Table::new("what decoding costs".to_owned(), about, CORNER, timed.grid()))
}

/// How a column shows a line.
type Cell<'a> = &'a dyn Fn(&Repeats) -> Option<Entry>;

/// The tables of all keys that were timed.
pub(crate) fn all(all: &AllSeries<'_>) -> Vec<Speeds> {
    let mut keys: IndexMap<SeriesKey, IndexMap<_, Repeats>> = IndexMap::new();
    for ((key, metric, _), series) in all.iter().filter(|((_, metric, _), _)| Metric::of(metric).is_timed()) {
        let lines = keys.entry(key.clone()).or_default();
        for ((policy, size), sums) in series {
            let line = lines.entry((policy.clone(), *size)).or_insert_with(|| Repeats {
                policy: policy.to_string(),
                size: *size,
                by_metric: BTreeMap::new(),
            });
            line.by_metric.insert((*metric).to_owned(), sums.quotients());
        }
    }
    let table = |(key, lines): (SeriesKey, IndexMap<_, Repeats>)| {
        let mut lines: Vec<Repeats> = lines.into_values().collect();
        let policies: IndexSet<String> = lines.iter().map(|line| line.policy.clone()).collect();
        lines.sort_by_key(|line| (policies.get_index_of(&line.policy), line.size));
        Speeds { key, lines }
    };
    keys.into_iter().map(table).collect()
}

impl Speeds {
    pub(crate) fn grid(&self) -> Grid {
        let of_full = |line: &Repeats, metric| self.of_full(line, metric);
        let bytes = |line: &Repeats, metric| {
            line.median(metric).map(|n| Entry::plain(Bytes(n.round() as u64).to_string()))
        };
        let per_second = |line: &Repeats, metric| line.spread(metric, |n| rate(1.0 / n));
        let columns: [(&str, Cell<'_>); 9] = [
            ("cache", &|line| bytes(line, "cache_bytes")),
            ("of full", &|line| of_full(line, "cache_bytes").map(|n| Entry::plain(format!("{:.1} %", 100.0 * n)))),
            ("resident", &|line| bytes(line, "resident_bytes")),
            ("batch", &|line| line.median("batch").map(|n| Entry::plain(format!("{n:.0}")))),
            ("tokens/s alone", &|line| per_second(line, "decode")),
            ("in the batch", &|line| per_second(line, "decode_batch")),
            ("relative", &|line| of_full(line, "decode_batch").map(|n| Entry::plain(format!("{:.2}", 1.0 / n)))),
            ("first token", &|line| line.spread("first_token", |n| format!("{:.1} ms", 1e3 * n))),
            ("prompt tokens/s", &|line| per_second(line, "prefill")),
        ];
        let line = |line: &Repeats| {
            let cells = columns.iter().map(|(_, cell)| cell(line)).collect();
            Line { name: line.name(), size: line.size, ..Line::of_policy(&line.policy, cells) }
        };
        let columns = columns.iter().map(|(name, _)| (*name).into()).collect();
        Grid { columns, lines: self.lines.iter().map(line).collect() }
    }

    /// A median, the full cache's being 1.
    fn of_full(&self, line: &Repeats, metric: &str) -> Option<f64> {
        Some(line.median(metric)? / self.line("full", None)?.median(metric)?)
    }

    pub(crate) fn line(&self, policy: &str, size: Option<Size>) -> Option<&Repeats> {
        self.lines.iter().find(|line| line.policy == policy && line.size == size)
    }

    /// Throughput in the largest batch and memory of a policy at a size, the full cache's being 1.
    pub(crate) fn relative(&self, policy: &str, size: Option<Size>) -> (Option<f64>, Option<f64>) {
        let quotient = |metric| self.of_full(self.line(policy, size)?, metric);
        (quotient("decode_batch").map(|seconds| 1.0 / seconds), quotient("cache_bytes"))
    }

    /// How to read the table.
    pub(crate) fn legend(&self) -> String {
        let repeats = self.lines.iter().filter_map(|line| line.by_metric.get("decode")).map(Vec::len).max();
        let times = match repeats {
            Some(1) => "times of one repeat".to_string(),
            repeats => format!("medians of {} repeats, in brackets the least and the most", repeats.unwrap_or(0)),
        };
        format!(
            "{times}; cache: keys and values of one sequence, counted, and \
             resident: what the program grew by for each; batch: as many sequences as fit; relative: tokens/s in the batch, \
             full being 1"
        )
    }
}

impl Repeats {
    pub(crate) fn name(&self) -> String {
        self.size.map_or_else(|| self.policy.clone(), |size| format!("{} {size}", self.policy))
    }

    fn sorted(&self, metric: &str) -> Option<&[f64]> {
        self.by_metric.get(metric).map(Vec::as_slice).filter(|values| !values.is_empty())
    }

    pub(crate) fn median(&self, metric: &str) -> Option<f64> {
        self.sorted(metric).map(median)
    }

    /// The median, and the least and the most as they are shown.
    fn spread(&self, metric: &str, show: impl Fn(f64) -> String) -> Option<Entry> {
        let values = self.sorted(metric)?;
        let [least, most] = [values[0], values[values.len() - 1]];
        // A rate is least where the seconds are most.
        let [least, most] = if metric == "first_token" { [least, most] } else { [most, least] };
        Some(Entry {
            spread: (values.len() > 1).then(|| format!("({}–{})", show(least), show(most))),
            ..Entry::plain(show(median(values)))
        })
    }
}

/// The middle of sorted values, which must not be empty.
pub fn median(sorted: &[f64]) -> f64 {
    let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    (below + above) / 2.0
}

fn rate(per_second: f64) -> String {
    match per_second {
        _ if !per_second.is_finite() => "-".to_owned(),
        _ if per_second < 100.0 => format!("{per_second:.1}"),
        _ => format!("{per_second:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{cell, changed};
    use crate::report::format::terminal::text_under;
    use crate::report::series::Results;

    fn tables_of(rows: &[Row]) -> Vec<Speeds> {
        all(&Results::of(rows).unwrap().series)
    }

    /// Three repeats of one metric.
    fn timed(policy: &str, size: Option<u32>, metric: &str, [a, b, c]: [f64; 3], weight: f64) -> Vec<Row> {
        let samples = [("repeat#0", a, weight), ("repeat#1", b, weight), ("repeat#2", c, weight)];
        changed(cell(metric, policy, size, &samples), |row| row.task = "timing".into())
    }

    fn table_1() -> Vec<Row> {
        [
            timed("full", None, "cache_bytes", [2.0e9; 3], 1.0),
            timed("full", None, "batch", [8.0; 3], 1.0),
            timed("full", None, "decode_batch", [100.0, 90.0, 140.0], 8000.0),
            timed("full", None, "first_token", [0.5, 0.7, 0.6], 1.0),
            timed("tova", Some(512), "cache_bytes", [0.25e9; 3], 1.0),
            timed("tova", Some(512), "batch", [70.0; 3], 1.0),
            timed("tova", Some(512), "decode_batch", [175.0, 350.0, 140.0], 70_000.0),
            timed("tova", Some(300), "batch", [90.0; 3], 1.0),
        ]
        .concat()
    }

    #[test]
    fn medians_and_ratios_by_hand() {
        let tables = tables_of(&table_1());
        let [table] = &tables[..] else { panic!("one table expected") };
        let shown = text_under(CORNER, &table.grid());
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        // 8,000 tokens in 100 s in the mean; between 140 and 90 s.
        let full = ["full", "2.00", "GB", "100.0", "%", "-", "8", "-", "80.0", "1.00", "600.0", "ms", "-"];
        assert_eq!(lines[1], full, "{shown}");
        assert_eq!(lines[2], ["(57.1–88.9)", "(500.0", "ms–700.0", "ms)"], "{shown}");
        // 70,000 tokens in 175 s are 400 a second, five times as many.
        let tova = ["tova", "512", "250", "MB", "12.5", "%", "-", "70", "-", "400", "5.00", "-", "-"];
        assert_eq!(lines[4], tova, "{shown}");
    }

    #[test]
    fn machines_do_not_mix() {
        let elsewhere = changed(table_1(), |row| row.device = "another".into());
        assert_eq!(tables_of(&[table_1(), elsewhere].concat()).len(), 2);
        assert!(tables_of(&cell("nll", "full", None, &[("a", 1.0, 1.0)])).is_empty());
    }
}
