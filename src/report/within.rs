//! How small a cache may be: the smallest of each policy that stays within a distance of the full cache.
//!
//! Distances have units, and defaults from the paper's claims. Larger caches need not be better, so a size counts only if all
//! larger ones that were measured are within the distance as well.

use std::collections::BTreeMap;

use super::distance::Distance;
use super::interval::Estimate;
use super::points::{self, Panel, Point};
use super::series_key::SeriesKey;
use super::table::{Entry, Grid, Line, Sheet};
use crate::metric::Better;

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
        panel
            .points
            .iter()
            .filter(of_policy)
            .filter_map(move |point| Some((point, loss(point.to_full.as_ref()?.shown))))
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

/// What was asked of a panel: within how much of the full cache.
type Wanted<'p> = (&'p Panel, &'p Distance, f64);

/// The panels of the keys that have a full cache and a metric of one of the distances.
fn wanted<'p>(panels: &'p [Panel], distances: &'p [Distance]) -> Vec<Wanted<'p>> {
    let with_full = panels.iter().filter(|panel| panel.full().is_some());
    let of_panel = |panel: &'p Panel| {
        distances.iter().filter_map(move |distance| Some((panel, distance, distance.of(panel)?)))
    };
    with_full.flat_map(of_panel).collect()
}

/// The policies that have a smallest cache to look for, in the order of the panels.
fn policies<'p>(wanted: &[Wanted<'p>]) -> Vec<&'p str> {
    let mut policies: Vec<&str> = Vec::new();
    for (panel, _, within) in wanted {
        for policy in panel.policies() {
            if !policies.contains(&policy) && smallest(panel, policy, *within).is_some() {
                policies.push(policy);
            }
        }
    }
    policies
}

/// The sheet of some panels, which `keys` give titles where there are several; `None` where nothing was measured within any
/// of the distances.
pub(super) fn sheet(panels: &[Panel], keys: &[SeriesKey], distances: &[Distance]) -> Option<Sheet> {
    let wanted = wanted(panels, distances);
    let policies = policies(&wanted);
    let several = panels.iter().any(|panel| panel.key != panels[0].key);
    let mut notes: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for &(panel, distance, within) in wanted.iter().filter(|_| !policies.is_empty()) {
        let title = panel.key.title(keys);
        let name =
            if several { format!("{} \u{B7} {title}", distance.shown(panel)) } else { distance.shown(panel) };
        let found: Vec<_> = policies.iter().map(|policy| (*policy, smallest(panel, policy, within))).collect();
        let size = |found: &Smallest<'_>| found.size.and_then(|point| point.cache_size);
        let own = found.iter().filter(|(policy, _)| *policy != "truncate");
        let sizes: Vec<Option<u32>> = own.filter_map(|(_, found)| found.as_ref().map(size)).collect();
        let best = sizes.iter().flatten().min().filter(|best| sizes.iter().any(|size| *size != Some(**best)));
        let cell = |(policy, found): &(&str, Option<Smallest<'_>>)| {
            let found = found.as_ref()?;
            let best = *policy != "truncate" && best.is_some() && size(found) == best.copied();
            Some(Entry { bold: best, ..entry(found, panel.length) })
        };
        lines.push(Line { name, cells: found.iter().map(cell).collect() });
        let warning = points::few_clusters(panel.clusters);
        let warning = warning.map(|warning| if several { format!("{title}: {warning}") } else { warning });
        notes.extend(warning.filter(|warning| !notes.contains(warning)));
    }
    (!lines.is_empty()).then(|| Sheet {
        title: "How much cache is enough".to_owned(),
        about: "For each policy the smallest measured cache that stays within the distance of the full cache, as do all larger \
                ones, with its share of the sample's length. \"Whole interval\" is the same if the whole paired 95 % bootstrap \
                interval has to stay within the distance. The smallest of each line is bold."
            .to_owned(),
        corner: "within",
        grid: Grid { columns: policies.into_iter().map(str::to_owned).collect(), lines },
        bold: "smallest",
        notes,
    })
}

/// The distances within which nothing was measured, a sentence each.
pub(super) fn unmeasured(panels: &[Panel], distances: &[Distance]) -> Vec<String> {
    let wanted = wanted(panels, distances);
    let missing = distances.iter().filter(|asked| !wanted.iter().any(|(_, distance, _)| distance == asked));
    let note = |distance: &Distance| {
        let unit = distance.unit.map_or("%", |unit| unit.name);
        format!("within {}{unit}: no metric with this unit was measured beside a full cache", distance.amount)
    };
    missing.map(note).collect()
}

/// One line for each panel and distance: sizes ascending, each with the policies for which it is enough.
pub(super) fn in_short(panels: &[Panel], keys: &[SeriesKey], distances: &[Distance]) -> Vec<String> {
    let several = panels.iter().any(|panel| panel.key != panels[0].key);
    let line = |(panel, distance, within): Wanted<'_>| {
        // Policies by the size that is enough; those without any come last.
        let mut by_size: BTreeMap<(bool, u32), Vec<&str>> = BTreeMap::new();
        for policy in panel.policies() {
            let Some(found) = smallest(panel, policy, within) else { continue };
            let size = found.size.and_then(|point| point.cache_size);
            by_size.entry((size.is_none(), size.unwrap_or_default())).or_default().push(policy);
        }
        let each = by_size.into_iter().map(|((is_none, size), policies)| match is_none {
            true => format!("no measured size for {}", policies.join(", ")),
            false => format!("{} for {}", with_share(size, panel.length), policies.join(", ")),
        });
        let each = each.collect::<Vec<_>>().join("; ");
        let title = if several { format!(" \u{B7} {}", panel.key.title(keys)) } else { String::new() };
        (!each.is_empty()).then(|| format!("at most {} from full{title}: {each}", distance.shown(panel)))
    };
    wanted(panels, distances).into_iter().filter_map(line).collect()
}

fn entry(found: &Smallest<'_>, length: Option<u32>) -> Entry {
    let size = |point: &Point| point.cache_size.unwrap_or_default();
    let number = |point| with_share(size(point), length);
    let spread = match (found.size, found.sure) {
        (Some(_), Some(Some(sure))) => Some(format!("whole interval: {}", size(sure))),
        (Some(_), Some(None)) => Some("whole interval: no size".to_owned()),
        _ => None,
    };
    Entry {
        number: found.size.map_or_else(|| "no measured size is enough".to_owned(), number),
        spread,
        bold: false,
        partial: found.size.is_some_and(|point| !point.complete),
    }
}

/// A size and, where the samples have one length, its share of that.
fn with_share(size: u32, length: Option<u32>) -> String {
    length.map_or_else(|| size.to_string(), |length| format!("{size} ({})", share(size, length)))
}

/// A share of the length: `1/8` where that is exact, else in percent.
fn share(size: u32, length: u32) -> String {
    match (size, length) {
        (0, _) | (_, 0) => "0".to_owned(),
        _ if size >= length => "whole text".to_owned(),
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
        let keys = [panels[0].key.clone()];
        let sheet = sheet(&panels, &keys, &Distance::usual()).unwrap();
        assert_eq!(sheet.grid.lines[0].name, "0.4 PPL");
        let found: Vec<(&str, &str)> =
            answers(&sheet).into_iter().map(|(policy, size, _)| (policy, size)).collect();
        // Against 7.16: 7.41 at 512; 7.46, 7.49, 7.50 and 7.52 at 1024; 7.50 at 2048; window only at full size.
        let expected = [
            ("truncate", "2048 (1/2)"),
            ("window", "4096 (whole text)"),
            ("window+1", "1024 (1/4)"),
            ("window+4", "1024 (1/4)"),
            ("h2o", "1024 (1/4)"),
            ("tova-head", "1024 (1/4)"),
            ("tova", "512 (1/8)"),
            ("tova+4", "512 (1/8)"),
        ];
        assert_eq!(found, expected);
        let bold = sheet.grid.lines[0].cells.iter().flatten().filter(|entry| entry.bold).count();
        assert_eq!(bold, 2, "tova and tova+4");
        // 5 % of 7.16 are 0.358: 7.49 and 7.50 are still within, 7.52 is not.
        let relative = super::sheet(&panels, &keys, &[distance("5%")]).unwrap();
        assert_eq!(relative.grid.lines[0].name, "5 % of perplexity");
        let found = answers(&relative);
        assert_eq!((found[4].1, found[5].1, found[6].1), ("1024 (1/4)", "2048 (1/2)", "512 (1/8)"));
        // The same in a line, and that no size is enough where none is.
        let [line] = &in_short(&panels, &keys, &Distance::usual())[..] else { panic!("one line expected") };
        assert_eq!(
            line,
            "at most 0.4 PPL from full: 512 (1/8) for tova, tova+4; 1024 (1/4) for window+1, window+4, h2o, tova-head; \
             2048 (1/2) for truncate; 4096 (whole text) for window"
        );
        let window: Vec<Row> = table_3("m", 1.0, 100)
            .into_iter()
            .filter(|row| row.policy == "full" || (row.policy == "window" && row.cache_size < Some(4096)))
            .collect();
        let panels = super::super::fixture::panels(&window);
        let [line] = &in_short(&panels, &keys, &Distance::usual())[..] else { panic!("one line expected") };
        assert_eq!(line, "at most 0.4 PPL from full: no measured size for window");
    }

    #[test]
    fn several_keys_are_named_in_their_lines() {
        let both = [table_3("a/one", 1.0, 20), table_3("b/two", 1.0, 20)].concat();
        let panels = panels(&both);
        let keys = [panels[0].key.clone(), panels[1].key.clone()];
        let sheet = sheet(&panels, &keys, &Distance::usual()).unwrap();
        let names: Vec<&str> = sheet.grid.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["0.4 PPL · one · pg19", "0.4 PPL · two · pg19"]);
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
        let keys = [panels[0].key.clone()];
        let sheet = sheet(&panels, &keys, &Distance::usual()).unwrap();
        // That 64 is within by luck does not count: 128 is not.
        let expected = [
            ("tova", "512 (51.2 %)", Some("whole interval: 600")),
            ("window", "no measured size is enough", None),
            ("h2o", "512 (51.2 %)", Some("whole interval: 512")),
            ("mine", "512 (51.2 %)", Some("whole interval: no size")),
        ];
        assert_eq!(answers(&sheet), expected);
        assert_eq!(sheet.notes.len(), 1, "{:?}", sheet.notes);
        assert!(sheet.notes[0].contains("2 clusters only"), "{:?}", sheet.notes);
        // A gain is never too far.
        let gain = super::sheet(
            &super::super::fixture::panels(&losses("tova", &[(64, [-9.0, -9.0])])),
            &keys,
            &[distance("0f1")],
        );
        assert_eq!(answers(&gain.unwrap())[0], ("tova", "64 (6.4 %)", Some("whole interval: 64")));
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
        let number = |rows: Vec<Row>| {
            let panels = panels(&rows);
            let whole: Vec<Panel> = panels.into_iter().filter(|panel| panel.slice.is_none()).collect();
            let keys = [whole[0].key.clone()];
            sheet(&whole, &keys, &Distance::usual()).unwrap().grid.lines[0].cells[0].clone().unwrap().number
        };
        assert_eq!(number(needles(&[1024])), "256 (1/4)");
        // Of the shorter texts it is a half, so there is no share that is true of all.
        assert_eq!(number(needles(&[512, 1024])), "256");
    }

    #[test]
    fn distances_without_results_are_listed() {
        let panels = panels(&table_3("m", 1.0, 10));
        let asked = [distance("1f1"), distance("0.4ppl")];
        let keys = [panels[0].key.clone()];
        assert_eq!(sheet(&panels, &keys, &asked).unwrap().grid.lines.len(), 1);
        let [note] = &unmeasured(&panels, &asked)[..] else { panic!("one note expected") };
        assert!(note.starts_with("within 1f1: no metric"), "{note}");
        assert!(sheet(&[], &[], &asked).is_none() && sheet(&panels, &keys, &asked[..1]).is_none());
    }
}
