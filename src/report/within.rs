//! How small a cache may be: the smallest of each policy that stays within a distance of the full cache.
//!
//! Distances have units, and defaults from the paper's claims. Larger caches need not be better, so a size counts only if all
//! larger ones that were measured are within the distance as well.

use std::str::FromStr;

use indexmap::IndexSet;

use super::bootstrap::Estimate;
use super::points::{self, Panel, Point};
use super::series_key::SeriesKey;
use super::table::{Entry, Grid, Line, Sheet};
use crate::metric::{Better, Property};

/// The unit of a distance.
#[derive(Debug, PartialEq)]
struct Unit {
    /// As users type it.
    name: &'static str,
    /// As it is shown.
    shown: &'static str,
    metric: &'static str,
    /// The distance of the paper's claims (arXiv 2401.06104, Section 6), or a similar one.
    usual: f64,
}

const UNITS: [Unit; 5] = [
    Unit { name: "ppl", shown: "PPL", metric: "nll", usual: 0.4 },
    Unit { name: "f1", shown: "F1", metric: "f1", usual: 1.0 },
    Unit { name: "rouge", shown: "ROUGE", metric: "rouge", usual: 1.0 },
    Unit { name: "recall", shown: "recall", metric: "recall", usual: 1.0 },
    Unit { name: "found", shown: "found", metric: "found", usual: 1.0 },
];

/// How far from the full cache a policy may be: `0.4ppl`, `2recall`, `5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    amount: f64,
    /// `None`: percent of the full cache's value, of any metric.
    unit: Option<&'static Unit>,
}

impl FromStr for Distance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{text}` is no distance: write a number and its unit, such as 0.4ppl, 1f1, 1rouge, 2recall, 1found, or 5% \
                 of the full cache's value"
            )
        };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refused)?;
        let (amount, unit) = text.split_at(end);
        let amount: f64 = amount.parse().ok().filter(|amount: &f64| amount.is_finite()).ok_or_else(refused)?;
        let unit = match unit {
            "%" => None,
            typed => Some(UNITS.iter().find(|unit| unit.name == typed).ok_or_else(refused)?),
        };
        Ok(Self { amount, unit })
    }
}

impl Distance {
    /// Those of the paper's claims.
    pub fn usual() -> Vec<Self> {
        UNITS.iter().map(|unit| Self { amount: unit.usual, unit: Some(unit) }).collect()
    }

    /// As a table names it.
    fn shown(&self, panel: &Panel) -> String {
        match self.unit {
            Some(unit) => format!("{} {}", self.amount, unit.shown),
            None => format!("{} % of {}", self.amount, panel.metric.label.trim_end_matches(" (%)")),
        }
    }

    /// In the unit shown; `None` where the panel has another metric.
    fn of(&self, panel: &Panel) -> Option<f64> {
        let known = panel.metric.better != Better::Unknown && !panel.metric.has(Property::NoDifference);
        match self.unit {
            _ if !known || panel.slice.is_some() => None,
            Some(unit) => (unit.metric == panel.metric.id).then_some(self.amount),
            // Details only say more about another metric.
            None if panel.metric.has(Property::Detail) => None,
            None => Some(self.amount / 100.0 * panel.full()?.estimate.value.abs()),
        }
    }
}

/// The smallest cache of one policy.
struct Smallest<'p> {
    size: Option<&'p Point>,
    /// The smallest whose whole interval is within the distance; `None` where there are no intervals.
    sure: Option<Option<&'p Point>>,
}

fn smallest<'p>(panel: &'p Panel, policy: &str, distance: f64) -> Option<Smallest<'p>> {
    // What is lost, which is positive where it is worse.
    let loss = |to_full: Estimate| if panel.metric.better == Better::Lower { to_full } else { to_full.turned() };
    let sizes = || {
        let of_policy = move |point: &&Point| point.policy == policy && point.cache_size.is_some();
        panel.points.iter().filter(of_policy).filter_map(move |point| Some((point, loss(point.to_full?))))
    };
    sizes().next()?;
    // Points come by size, so from the largest down as long as all are within.
    let from_largest = |loss: fn(Estimate) -> Option<f64>| {
        let within = |to_full: Estimate| loss(to_full).is_some_and(|loss| loss <= distance + ROUNDING);
        sizes().rev().take_while(|(_, to_full)| within(*to_full)).last().map(|(point, _)| point)
    };
    let has_intervals = sizes().any(|(_, to_full)| to_full.interval.is_some());
    Some(Smallest {
        size: from_largest(|loss| Some(loss.value)),
        sure: has_intervals.then(|| from_largest(|loss| Some(loss.interval?.high))),
    })
}

/// 7.56 - 7.16 is a little more than 0.4.
const ROUNDING: f64 = 1e-9;

/// The length of a panel's samples; `None` where they have several lengths, as the needles of one panel may. Its slices among
/// all `panels` tell.
fn length_of(panel: &Panel, panels: &[Panel]) -> Option<u32> {
    let slices = panels.iter().filter(|part| part.key == panel.key && part.metric == panel.metric);
    let lengths = slices.filter_map(|part| part.slice.as_deref()?.strip_prefix("length:")?.parse::<u32>().ok());
    (lengths.count() < 2).then_some(panel.key.length)
}

/// The sheet over all keys; `None` where nothing is measured in any of the units, and none was asked for.
pub(super) fn sheet(panels: &[Panel], distances: &[Distance]) -> Option<Sheet> {
    let keys: Vec<SeriesKey> = panels.iter().map(|panel| panel.key.clone()).collect();
    let usual = Distance::usual();
    let asked = if distances.is_empty() { &usual } else { distances };
    let mut wanted: Vec<(&Panel, &Distance, f64)> = Vec::new();
    for panel in panels.iter().filter(|panel| panel.full().is_some()) {
        wanted.extend(asked.iter().filter_map(|distance| Some((panel, distance, distance.of(panel)?))));
    }
    let measured =
        |policy: &&str| wanted.iter().any(|(panel, _, within)| smallest(panel, policy, *within).is_some());
    let policies: IndexSet<&str> = wanted.iter().flat_map(|(panel, ..)| panel.policies()).collect();
    let policies: Vec<&str> = policies.into_iter().filter(measured).collect();
    let mut notes: Vec<String> = Vec::new();
    for distance in distances.iter().filter(|asked| !wanted.iter().any(|(_, distance, _)| distance == asked)) {
        let unit = distance.unit.map_or("%", |unit| unit.name);
        notes
            .push(format!("within {}{unit}: nothing measured beside a full cache is counted so", distance.amount));
    }
    let mut lines = Vec::new();
    for &(panel, distance, within) in wanted.iter().filter(|_| !policies.is_empty()) {
        let title = panel.key.title(&keys);
        let name = format!("{} \u{B7} {title}", distance.shown(panel));
        let length = length_of(panel, panels);
        let found: Vec<_> = policies.iter().map(|policy| (*policy, smallest(panel, policy, within))).collect();
        let size = |found: &Smallest<'_>| found.size.and_then(|point| point.cache_size);
        let own = found.iter().filter(|(policy, _)| *policy != "truncate");
        let sizes: Vec<Option<u32>> = own.filter_map(|(_, found)| found.as_ref().map(size)).collect();
        let best = sizes.iter().flatten().min().filter(|best| sizes.iter().any(|size| *size != Some(**best)));
        let cell = |(policy, found): &(&str, Option<Smallest<'_>>)| {
            let found = found.as_ref()?;
            let best = *policy != "truncate" && best.is_some() && size(found) == best.copied();
            Some(Entry { best, ..entry(found, length) })
        };
        lines.push(Line { name, cells: found.iter().map(cell).collect() });
        let warning = points::few_clusters(panel.clusters).map(|warning| format!("{title}: {warning}"));
        notes.extend(warning.filter(|warning| !notes.contains(warning)));
    }
    (!lines.is_empty() || !distances.is_empty()).then(|| Sheet {
        title: "The smallest cache that is enough".to_owned(),
        about: "The smallest measured cache from which on every larger one is within the distance of the full cache, and \
                its share of the sample's length; with it the size from which on the farther end of the paired 95 % \
                bootstrap interval is within too. The smallest of each line is bold."
            .to_owned(),
        corner: "within",
        grid: Grid { columns: policies.into_iter().map(str::to_owned).collect(), lines },
        notes,
    })
}

fn entry(found: &Smallest<'_>, length: Option<u32>) -> Entry {
    let size = |point: &Point| point.cache_size.unwrap_or_default();
    let number = |point| match length {
        Some(length) => format!("{} ({})", size(point), share(size(point), length)),
        None => size(point).to_string(),
    };
    let spread = match (found.size, found.sure) {
        (Some(smallest), Some(Some(sure))) if smallest == sure => Some("for sure".to_owned()),
        (Some(_), Some(Some(sure))) => Some(format!("{} to be sure", size(sure))),
        (Some(_), Some(None)) => Some("none is sure".to_owned()),
        _ => None,
    };
    Entry {
        number: found.size.map_or_else(|| "none measured".to_owned(), number),
        spread,
        best: false,
        partial: found.size.is_some_and(|point| !point.complete),
    }
}

/// A share of the length: `1/8` where that is exact, else in percent.
fn share(size: u32, length: u32) -> String {
    match (size, length) {
        (0, _) | (_, 0) => "0".to_owned(),
        _ if size >= length => "all".to_owned(),
        _ if length.is_multiple_of(size) => format!("1/{}", length / size),
        _ => format!("{:.1} %", 100.0 * f64::from(size) / f64::from(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cell, changed, panels, table_3};
    use super::*;
    use crate::ledger::Row;

    fn distance(text: &str) -> Distance {
        text.parse().unwrap()
    }

    /// By policy, what stands in the only line.
    fn answers(sheet: &Sheet) -> Vec<(&str, &str, Option<&str>)> {
        let [line] = &sheet.grid.lines[..] else { panic!("one line expected") };
        let cells = line.cells.iter().map(|cell| cell.as_ref().unwrap());
        let answers = sheet.grid.columns.iter().zip(cells);
        answers.map(|(policy, entry)| (policy.as_str(), entry.number.as_str(), entry.spread.as_deref())).collect()
    }

    #[test]
    fn the_paper_s_table_says_an_eighth_for_tova() {
        let panels = panels(&table_3("meta-llama/Llama-2-7b-hf", 1.0, 100));
        let sheet = sheet(&panels, &[]).unwrap();
        assert_eq!(sheet.grid.lines[0].name, "0.4 PPL · Llama-2-7b-hf · pg19");
        let found: Vec<(&str, &str)> =
            answers(&sheet).into_iter().map(|(policy, size, _)| (policy, size)).collect();
        // Against 7.16: 7.41 at 512; 7.46, 7.49, 7.50 and 7.52 at 1024; 7.50 at 2048; window only at full size.
        let expected = [
            ("truncate", "2048 (1/2)"),
            ("window", "4096 (all)"),
            ("window+1", "1024 (1/4)"),
            ("window+4", "1024 (1/4)"),
            ("h2o", "1024 (1/4)"),
            ("tova-head", "1024 (1/4)"),
            ("tova", "512 (1/8)"),
            ("tova+4", "512 (1/8)"),
        ];
        assert_eq!(found, expected);
        let bold = sheet.grid.lines[0].cells.iter().flatten().filter(|entry| entry.best).count();
        assert_eq!(bold, 2, "tova and tova+4");
        // 5 % of 7.16 are 0.358: 7.49 and 7.50 are still within, 7.52 is not.
        let relative = super::sheet(&panels, &[distance("5%")]).unwrap();
        assert_eq!(relative.grid.lines[0].name, "5 % of perplexity · Llama-2-7b-hf · pg19");
        let found = answers(&relative);
        assert_eq!((found[4].1, found[5].1, found[6].1), ("1024 (1/4)", "2048 (1/2)", "512 (1/8)"));
    }

    /// Two books; a policy's loss at a size in each.
    fn losses(policy: &str, losses: &[(u32, [f64; 2])]) -> Vec<Row> {
        let at = |size: Option<u32>, [a, b]: [f64; 2]| {
            let samples = [("a", 0.8 - a / 100.0, 1.0), ("b", 0.8 - b / 100.0, 1.0)];
            let policy = if size.is_some() { policy } else { "full" };
            changed(cell("f1", policy, size, &samples), |row| row.length = 1000)
        };
        let sized = losses.iter().flat_map(|(size, values)| at(Some(*size), *values));
        at(None, [0.0; 2]).into_iter().chain(sized).collect()
    }

    #[test]
    fn sizes_count_only_if_all_larger_ones_are_within() {
        // Of two books the interval's ends are the books: at 512 the mean loses 0.5, one of the books 2.
        let mut all = losses(
            "tova",
            &[(64, [0.2, 0.2]), (128, [5.0, 5.0]), (512, [-1.0, 2.0]), (600, [0.5, 0.5]), (1024, [0.0, 0.0])],
        );
        all.extend(losses("window", &[(512, [3.0, 3.0]), (1024, [3.0, 3.0])]));
        all.extend(losses("h2o", &[(512, [0.9, 1.0])]));
        all.extend(losses("mine", &[(512, [0.0, 1.9])]));
        let panels = panels(&all);
        let sheet = sheet(&panels, &[]).unwrap();
        // That 64 is within by luck does not count: 128 is not.
        let expected = [
            ("tova", "512 (51.2 %)", Some("600 to be sure")),
            ("window", "none measured", None),
            ("h2o", "512 (51.2 %)", Some("for sure")),
            ("mine", "512 (51.2 %)", Some("none is sure")),
        ];
        assert_eq!(answers(&sheet), expected);
        assert_eq!(sheet.notes.len(), 1, "{:?}", sheet.notes);
        assert!(sheet.notes[0].contains("2 clusters only"), "{:?}", sheet.notes);
        // A gain is never too far.
        let gain = super::sheet(
            &super::super::fixture::panels(&losses("tova", &[(64, [-9.0, -9.0])])),
            &[distance("0f1")],
        );
        assert_eq!(answers(&gain.unwrap())[0], ("tova", "64 (6.4 %)", Some("for sure")));
    }

    #[test]
    fn a_share_is_of_the_sample_s_own_length() {
        let needles = |lengths: &[u32]| {
            let at = |policy: &str, size, slice: Option<String>| {
                let samples = [("a", 1.0, 1.0), ("b", 1.0, 1.0)];
                changed(cell("found", policy, size, &samples), |row| {
                    (row.length, row.slice) = (1024, slice.as_deref().map(Into::into));
                })
            };
            let slices = lengths.iter().map(|length| Some(format!("length:{length}")));
            let slices = slices.chain([None, Some("length:1024 depth:0".to_owned())]);
            slices
                .flat_map(|slice| [at("full", None, slice.clone()), at("tova", Some(256), slice)].concat())
                .collect()
        };
        let number =
            |rows: Vec<Row>| sheet(&panels(&rows), &[]).unwrap().grid.lines[0].cells[0].clone().unwrap().number;
        assert_eq!(number(needles(&[1024])), "256 (1/4)");
        // Of the shorter texts it is a half, so there is no share that is true of all.
        assert_eq!(number(needles(&[512, 1024])), "256");
    }

    #[test]
    fn distances_without_results_are_listed() {
        let panels = panels(&table_3("m", 1.0, 10));
        let asked = sheet(&panels, &[distance("1f1"), distance("0.4ppl")]).unwrap();
        assert_eq!((asked.grid.lines.len(), asked.notes.len()), (1, 1));
        assert!(asked.notes[0].starts_with("within 1f1: nothing"), "{:?}", asked.notes);
        assert!(sheet(&[], &[]).is_none());
    }

    #[test]
    fn distances_are_read_strictly() {
        assert_eq!(distance("0.4ppl"), Distance { amount: 0.4, unit: Some(&UNITS[0]) });
        assert_eq!(distance("5%"), Distance { amount: 5.0, unit: None });
        // The amount ends before the unit's own letters and digits.
        assert_eq!(distance("1f1").unit.unwrap().metric, "f1");
        let long = format!("{}ppl", "9".repeat(400));
        for wrong in
            ["", "0.4", "ppl", "-1f1", "0.4 ppl", "0.4PPL", "1.2.3f1", "NaNppl", "1e3ppl", "4%%", ".ppl", &long]
        {
            let error = wrong.parse::<Distance>().unwrap_err();
            assert!(error.contains("0.4ppl") && error.contains("5%"), "{wrong}: {error}");
        }
    }
}
