//! Speed and memory of decoding as a table, beside the paper's Table 1 where the sizes are its own.
//!
//! Medians over repeats with the smallest and the largest, which the panels' pooled numbers do not show. It knows the
//! metrics of the task `timing` and the rows they come from; what a machine is it does not know.

use std::collections::BTreeMap;

use super::gather;
use super::order;
use super::paper::numbers::{self, Speed};
use super::setting::Setting;
use super::table::{self, Entry, Grid, Line};
use crate::ledger::Row;

/// One setting's policies and sizes, each with what was measured.
pub(super) struct Throughput {
    pub(super) setting: Setting,
    measured: Vec<Measured>,
}

/// What was measured for one policy at one size.
struct Measured {
    policy: String,
    size: Option<u32>,
    /// By metric, the quotient of each repeat.
    repeats: BTreeMap<String, Vec<f64>>,
}

/// What stands above the names of policies.
pub(super) const CORNER: &str = "policy, size";

/// The tables of all settings that were timed.
pub(super) fn tables(rows: &[Row]) -> Vec<Throughput> {
    let timed: Vec<Row> = rows.iter().filter(|row| row.task == "timing").cloned().collect();
    let mut settings: BTreeMap<Setting, BTreeMap<_, Measured>> = BTreeMap::new();
    for ((setting, metric, _), places) in gather::gather(&timed) {
        let lines = settings.entry(setting).or_default();
        for ((policy, size), claims) in places {
            let Some((_, newest)) = gather::newest(&claims) else { continue };
            let line = lines.entry((policy.clone(), size)).or_insert_with(|| Measured {
                policy: policy.into_owned(),
                size,
                repeats: BTreeMap::new(),
            });
            let quotients = newest.marks.values().map(|mark| mark.value / mark.weight);
            line.repeats.insert(metric.to_owned(), quotients.collect());
        }
    }
    let table = |(setting, lines): (Setting, BTreeMap<_, Measured>)| {
        let mut measured: Vec<Measured> = lines.into_values().collect();
        measured.sort_by(|a, b| (order::of(&a.policy), a.size).cmp(&(order::of(&b.policy), b.size)));
        Throughput { setting, measured }
    };
    settings.into_iter().map(table).collect()
}

impl Throughput {
    pub(super) fn grid(&self) -> Grid {
        let full = self.measured.iter().find(|measured| measured.policy == "full");
        let of_full = |measured: &Measured, metric: &str| Some(measured.median(metric)? / full?.median(metric)?);
        let mut columns: Vec<(&str, Cells<'_>)> = vec![
            ("cache", Box::new(|m| m.median("cache_bytes").map(|n| plain(amount(n))))),
            (
                "of full",
                Box::new(move |m| of_full(m, "cache_bytes").map(|n| plain(format!("{:.1} %", 100.0 * n)))),
            ),
            ("resident", Box::new(|m| m.median("resident_bytes").map(|n| plain(amount(n))))),
            ("batch", Box::new(|m| m.median("batch").map(|n| plain(format!("{n:.0}"))))),
            ("tokens/s alone", Box::new(|m| m.spread("decode", |n| rate(1.0 / n)))),
            ("in the batch", Box::new(|m| m.spread("decode_batch", |n| rate(1.0 / n)))),
            ("relative", Box::new(move |m| of_full(m, "decode_batch").map(|n| plain(format!("{:.2}", 1.0 / n))))),
            ("first token", Box::new(|m| m.spread("first_token", |n| format!("{:.1} ms", 1e3 * n)))),
            ("prompt tokens/s", Box::new(|m| m.spread("prefill", |n| rate(1.0 / n)))),
        ];
        if self.measured.iter().any(|measured| self.paper(measured).is_some()) {
            columns
                .push(("paper: cache", Box::new(|m| self.paper(m).map(|p| plain(format!("{:.2} GB", p.memory))))));
            columns.push(("batch", Box::new(|m| self.paper(m).map(|p| plain(p.batch.to_string())))));
            columns.push(("relative", Box::new(|m| self.paper(m).map(|p| plain(p.throughput.to_string())))));
        }
        let line = |measured: &Measured| Line {
            name: measured.name(),
            cells: columns.iter().map(|(_, cell)| cell(measured)).collect(),
        };
        Grid {
            lines: self.measured.iter().map(line).collect(),
            columns: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
        }
    }

    /// The paper's numbers, where they are of this length and size: of TOVA and of the full cache.
    fn paper(&self, measured: &Measured) -> Option<&'static Speed> {
        let size = match (measured.policy.as_str(), measured.size) {
            ("full", None) => numbers::LENGTH,
            ("tova", Some(size)) if size < numbers::LENGTH => size,
            _ => return None,
        };
        numbers::TABLE_1.iter().find(|known| known.size == size && self.setting.length == numbers::LENGTH)
    }

    /// What was measured minus what the paper has, where it has the size; `None` where it has none of them.
    pub(super) fn minus_paper(&self) -> Option<Grid> {
        let full = self.measured.iter().find(|measured| measured.policy == "full");
        let lines = self.measured.iter().filter_map(|measured| {
            let paper = self.paper(measured)?;
            let speed = |measured: &Measured| measured.median("decode_batch").map(|seconds| 1.0 / seconds);
            let relative = full.and_then(|full| Some(speed(measured)? / speed(full)?));
            let shown = |own: Option<f64>, theirs: f64, digits: usize| {
                own.map(|own| plain(table::signed(own - theirs, digits)))
            };
            let cells = vec![
                shown(measured.median("cache_bytes").map(|bytes| bytes / 1e9), paper.memory, 3),
                shown(measured.median("batch"), f64::from(paper.batch), 0),
                shown(relative, paper.throughput, 2),
            ];
            Some(Line { name: measured.name(), cells })
        });
        let lines: Vec<Line> = lines.collect();
        let columns = ["cache (GB)", "batch", "relative"].map(str::to_owned).to_vec();
        (!lines.is_empty()).then_some(Grid { columns, lines })
    }

    /// Of TOVA at a size: its throughput in the largest batch and its memory, the full cache's being 1.
    pub(super) fn relative(&self, policy: &str, size: u32) -> Option<(Option<f64>, Option<f64>)> {
        let find = |policy: &str, size| {
            self.measured.iter().find(|measured| measured.policy == policy && measured.size == size)
        };
        let (full, own) = (find("full", None)?, find(policy, Some(size))?);
        let quotient = |metric: &str| Some(own.median(metric)? / full.median(metric)?);
        Some((quotient("decode_batch").map(|seconds| 1.0 / seconds), quotient("cache_bytes")))
    }

    /// How to read the table.
    pub(super) fn legend(&self) -> String {
        let repeats = self.measured.iter().flat_map(|measured| measured.repeats.get("decode")).map(Vec::len).max();
        let mut legend = format!(
            "medians of {} repeats, in brackets the least and the most; cache: keys and values of one sequence, counted, and \
             resident: what the program grew by for each; batch: as many sequences as fit; relative: tokens/s in the batch, \
             full being 1",
            repeats.unwrap_or(0)
        );
        if self.measured.iter().any(|measured| self.paper(measured).is_some()) {
            legend.push_str(&format!("; paper: {} on a V100, arXiv 2401.06104, Table 1", numbers::MODEL));
        }
        legend
    }
}

/// How a column shows a line.
type Cells<'a> = Box<dyn Fn(&Measured) -> Option<Entry> + 'a>;

impl Measured {
    fn name(&self) -> String {
        self.size.map_or_else(|| self.policy.clone(), |size| format!("{} {size}", self.policy))
    }

    fn sorted(&self, metric: &str) -> Option<Vec<f64>> {
        let mut values = self.repeats.get(metric).filter(|values| !values.is_empty())?.clone();
        values.sort_by(f64::total_cmp);
        Some(values)
    }

    fn median(&self, metric: &str) -> Option<f64> {
        let values = self.sorted(metric)?;
        let (below, above) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some((below + above) / 2.0)
    }

    /// The median, and the least and the most as they are shown.
    fn spread(&self, metric: &str, show: impl Fn(f64) -> String) -> Option<Entry> {
        let values = self.sorted(metric)?;
        let [least, most] = [values[0], values[values.len() - 1]];
        // A rate is least where the seconds are most.
        let [least, most] = if metric == "first_token" { [least, most] } else { [most, least] };
        let number = show(self.median(metric)?);
        Some(Entry {
            spread: (values.len() > 1).then(|| format!("({}–{})", show(least), show(most))),
            ..plain(number)
        })
    }
}

fn plain(number: String) -> Entry {
    Entry { number, spread: None, best: false, partial: false }
}

fn rate(per_second: f64) -> String {
    match per_second {
        _ if !per_second.is_finite() => "-".to_owned(),
        _ if per_second < 100.0 => format!("{per_second:.1}"),
        _ => format!("{per_second:.0}"),
    }
}

/// Bytes with three digits.
fn amount(bytes: f64) -> String {
    let (unit, name) = match bytes {
        _ if bytes < 1e6 => (1e3, "kB"),
        _ if bytes < 1e9 => (1e6, "MB"),
        _ => (1e9, "GB"),
    };
    let amount = bytes / unit;
    let digits = if amount < 10.0 { 2 } else { usize::from(amount < 100.0) };
    format!("{amount:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Sample, rows};
    use super::*;

    /// Three repeats of one metric.
    fn timed(policy: &str, size: Option<u32>, metric: &str, values: [f64; 3], weight: f64) -> Vec<Row> {
        let names = ["repeat#0", "repeat#1", "repeat#2"];
        let samples: Vec<Sample> = names
            .iter()
            .zip(values)
            .map(|(sample, value)| Sample { sample, cluster: "repeats", value, weight })
            .collect();
        let rows = rows(policy, size, &samples).into_iter();
        rows.map(|row| Row { task: "timing".into(), metric: metric.into(), ..row }).collect()
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
    fn medians_ratios_and_the_paper_s_numbers_by_hand() {
        let tables = tables(&table_1());
        let [table] = &tables[..] else { panic!("one setting") };
        let shown = table::text_under(CORNER, &table.grid());
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        // 8,000 tokens in 100 s in the mean; between 140 and 90 s.
        let full = ["full", "2.00", "GB", "100.0", "%", "-", "8", "-", "80.0", "1.00", "600.0", "ms", "-"];
        assert_eq!(lines[1][..full.len()], full, "{shown}");
        assert_eq!(lines[1][full.len()..], ["2.18", "GB", "8", "1"], "{shown}");
        assert_eq!(lines[2], ["(57.1–88.9)", "(500.0", "ms–700.0", "ms)"], "{shown}");
        assert_eq!(lines[3][..3], ["tova", "300", "-"], "no such size in the paper: {shown}");
        // 70,000 tokens in 175 s are 400 a second, five times as many.
        let tova = ["tova", "512", "250", "MB", "12.5", "%", "-", "70", "-", "400", "5.00", "-", "-"];
        assert_eq!(lines[4][..tova.len()], tova, "{shown}");
        assert_eq!(lines[4][tova.len()..], ["0.28", "GB", "70", "4.8"], "{shown}");
        assert!(table.legend().contains("medians of 0 repeats") && table.legend().contains("V100"));
    }

    #[test]
    fn other_lengths_do_not_stand_beside_the_paper() {
        let rows: Vec<Row> = table_1().into_iter().map(|row| Row { length: 1024, ..row }).collect();
        let grid = tables(&rows)[0].grid();
        assert!(!grid.columns.iter().any(|column| column.contains("paper")), "{:?}", grid.columns);
        let elsewhere: Vec<Row> =
            table_1().into_iter().map(|row| Row { device: "another".into(), ..row }).collect();
        assert_eq!(tables(&[table_1(), elsewhere].concat()).len(), 2, "machines do not mix");
    }

    #[test]
    fn nothing_timed_gives_no_table() {
        assert!(tables(&rows("full", None, &[])).is_empty());
    }
}
