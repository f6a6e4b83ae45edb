//! The short answer, for a terminal: one table a task, how much cache is enough, and nothing else; or every table.
//!
//! Plain text without colour.

use std::ops::Range;

use crate::format::counted;
use crate::metric::Better;
use crate::report::document::table::{self, Entry, Grid, Line, Show};
use crate::report::escape;
use crate::report::sections::pairing;
use crate::report::sections::retention;
use crate::report::sections::sheets;
use crate::report::sections::throughput::{self, Throughput};
use crate::report::series::panel::{self, Panel};
use crate::report::write_report::Report;

/// Most tables of the short answer; the others are counted.
const MOST_TABLES: usize = 6;
/// Most warnings below a table; the others are counted.
const MOST_NOTES: usize = 2;
/// Most lines of a table that has several rows of columns.
const MOST_LINES: usize = 30;

/// The table of the first metric of each key (perplexity where there is one), of a timing its one table, and how much cache
/// is enough. As wide as the terminal, where the tables are no wider.
pub(crate) fn text(report: &Report<'_>) -> String {
    let width = report.width;
    let of_keys: Vec<&[Panel]> = report.panels.chunk_by(|a, b| a.key == b.key).collect();
    let mut blocks: Vec<String> = Vec::new();
    for panel in of_keys.iter().take(MOST_TABLES).filter_map(|panels| panels.first()) {
        let title = panel.key.title(&report.keys);
        blocks.push(match report.timing(&panel.key) {
            Some(timing) => speed(timing, &title, width),
            None => block(panel, &title, width),
        });
    }
    if of_keys.len() > MOST_TABLES {
        blocks.push(format!("{} more in the report\n", counted(of_keys.len() - MOST_TABLES, "table")));
    }
    blocks.push(legend(&of_keys, width));
    if !report.enough_in_short.is_empty() {
        let lines =
            report.enough_in_short.iter().map(|line| wrapped(&format!("  {}", escape::plain(line)), width));
        blocks.push(format!("How much cache is enough\n{}", lines.collect::<String>()));
    }
    if !report.unmeasured.is_empty() {
        blocks.push(report.unmeasured.iter().map(|note| format!("note: {note}\n")).collect());
    }
    blocks.push(retention::terminal(&report.sections).lines().map(|line| wrapped(line, width)).collect());
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

/// Every table of the report, with outcomes of pairs.
pub(crate) fn everything(report: &Report<'_>) -> String {
    let mut blocks: Vec<String> = Vec::new();
    for (title, sheets) in sheets::all(report) {
        for sheet in sheets {
            let title = title.as_ref().map_or_else(String::new, |title| format!(" \u{B7} {title}"));
            blocks.push(table::sheet_text(&table::Sheet { title: format!("{}{title}", sheet.title), ..sheet }));
        }
    }
    for panel in &report.panels {
        let Some((legend, outcomes)) = pairing::outcomes(panel, report.reference.as_deref()) else { continue };
        let lines: String = outcomes.iter().map(|outcome| format!("  {}\n", escape::plain(outcome))).collect();
        let name = format!("{} \u{B7} {}", panel.metric.label, panel.key.title(&report.keys));
        blocks.push(format!("{name}: {legend}\n{lines}"));
    }
    blocks.extend(Some(retention::terminal(&report.sections)).filter(|kept| !kept.is_empty()));
    blocks.join("\n")
}

fn speed(table: &Throughput, title: &str, width: usize) -> String {
    let device = escape::plain(&table.key.device);
    let grid = table.grid();
    // Where it is too wide, the last columns are in the report only.
    let narrower = (1..=grid.columns.len())
        .rev()
        .map(|columns| without_spreads(throughput::CORNER, &columns_of(&grid, 0..columns)));
    let shown =
        beside(throughput::CORNER, &grid, width).or_else(|| narrower.into_iter().find(|shown| fits(shown, width)));
    let shown = shown.unwrap_or_else(|| without_spreads(throughput::CORNER, &grid));
    let title = wrapped(&format!("decoding \u{B7} {title} \u{B7} {device}"), width);
    format!("{title}{shown}{}", wrapped(&table.legend(), width))
}

/// A panel under one line that says what it is and over how many samples: how far the policies are from the full cache, or
/// their values where there is none.
fn block(panel: &Panel, title: &str, width: usize) -> String {
    let better = match panel.metric.better {
        Better::Lower => ", lower is better",
        Better::Higher => ", higher is better",
        Better::Unknown => "",
    };
    let counts = format!("{}, {}", counted(panel.samples, "sample"), counted(panel.clusters, "cluster"));
    let (name, paired, grid) = match table::grid(panel, Show::Difference) {
        Some(grid) => (sheets::name_of_difference(&panel.metric), "paired ", Some(grid)),
        None => (panel.metric.label.to_string(), "", table::grid(panel, Show::Value)),
    };
    let full = sheets::full(panel).filter(|_| !paired.is_empty());
    let glued = std::iter::once(counts).chain(full).map(|part| format!(" \u{B7} {}", part.replace(' ', UNBROKEN)));
    let heading = format!("{name}{better} \u{B7} {title}{}", glued.collect::<String>());
    let mut block = wrapped(&heading, width).replace(UNBROKEN, " ");
    if let Some(grid) = grid {
        let with_intervals = in_groups(sheets::POLICY, &grid, width);
        let intervals = format!("{paired}95 % intervals over clusters{}", panel::coverage(panel.clusters));
        block += &with_intervals.clone().unwrap_or_else(|| without_spreads(sheets::POLICY, &grid));
        if has_spreads(&grid) {
            let where_they_are = if with_intervals.is_some() { "[ ]" } else { "in the report:" };
            block += &wrapped(&format!("{where_they_are} {intervals}"), width);
        }
    }
    for note in panel.notes.iter().take(MOST_NOTES) {
        block += &wrapped(&format!("note: {}", escape::plain(note)), width);
    }
    if panel.notes.len() > MOST_NOTES {
        block += &format!("note: {} more in the report\n", counted(panel.notes.len() - MOST_NOTES, "warning"));
    }
    block
}

/// A table with intervals beside the numbers; `None` where it would be too wide.
fn beside(corner: &str, grid: &Grid, width: usize) -> Option<String> {
    let spread = |entry: &Entry| entry.spread.clone().unwrap_or_default();
    let mut shown = grid.clone();
    for column in 0..grid.columns.len() {
        let mut entries: Vec<&mut Entry> =
            shown.lines.iter_mut().filter_map(|line| line.cells[column].as_mut()).collect();
        let most = |of: &dyn Fn(&Entry) -> String| {
            entries.iter().map(|entry| of(entry).chars().count()).max().unwrap_or(0)
        };
        let (marked, spreads) = (most(&table::marks), most(&spread));
        if spreads == 0 {
            continue;
        }
        // Numbers are in line, and so are their intervals.
        for entry in &mut entries {
            let number = format!("{}{:<marked$} {:<spreads$}", entry.number, table::marks(entry), spread(entry));
            **entry = Entry::plain(number);
        }
    }
    let shown = table::text_under(corner, &shown);
    Some(shown).filter(|shown| fits(shown, width))
}

/// The same as several tables below each other, each with as many columns as fit; `None` where even one does not, or they would
/// be too long.
fn in_groups(corner: &str, grid: &Grid, width: usize) -> Option<String> {
    let columns = grid.columns.len();
    let of_groups = |most: usize| -> Option<String> {
        let groups = (0..columns).step_by(most).map(|first| first..columns.min(first + most));
        groups.map(|group| beside(corner, &columns_of(grid, group), width)).collect()
    };
    let (most, shown) = (1..=columns).rev().find_map(|most| Some((most, of_groups(most)?)))?;
    Some(shown).filter(|shown| most == columns || shown.lines().count() <= MOST_LINES)
}

fn columns_of(grid: &Grid, columns: Range<usize>) -> Grid {
    let line = |line: &Line| Line { cells: line.cells[columns.clone()].to_vec(), ..line.clone() };
    Grid { columns: grid.columns[columns.clone()].to_vec(), lines: grid.lines.iter().map(line).collect() }
}

fn has_spreads(grid: &Grid) -> bool {
    grid.lines.iter().flat_map(|line| line.cells.iter().flatten()).any(|entry| entry.spread.is_some())
}

/// A space at which no line ends.
const UNBROKEN: &str = "\u{A0}";

fn fits(text: &str, width: usize) -> bool {
    text.lines().all(|line| line.chars().count() <= width)
}

/// A line of words as several that fit, all but the first indented.
fn wrapped(text: &str, width: usize) -> String {
    let (mut all, mut line) = (String::new(), String::new());
    for word in text.split_inclusive(' ') {
        if line.chars().count() + word.trim_end().chars().count() > width && !line.trim().is_empty() {
            all += &format!("{}\n", line.trim_end());
            line = " ".repeat(4);
        }
        line += word;
    }
    format!("{all}{}\n", line.trim_end())
}

fn without_spreads(corner: &str, grid: &Grid) -> String {
    table::text_under(corner, &with_entries(grid, |entry| Entry { spread: None, ..entry.clone() }))
}

fn with_entries(grid: &Grid, change: impl Fn(&Entry) -> Entry) -> Grid {
    let line = |line: &Line| Line {
        name: line.name.clone(),
        cells: line.cells.iter().map(|cell| cell.as_ref().map(&change)).collect(),
    };
    Grid { columns: grid.columns.clone(), lines: grid.lines.iter().map(line).collect() }
}

/// What the marks of the tables mean, once for all.
fn legend(of_keys: &[&[Panel]], width: usize) -> String {
    let shown = of_keys.iter().take(MOST_TABLES).filter_map(|panels| panels.first());
    let shown: Vec<&Panel> = shown.filter(|panel| !panel.metric.is_timed()).collect();
    let has_sizes = shown.iter().any(|panel| !panel.sizes().is_empty());
    let is_excess = |panel: &&Panel| panel.full().is_some() && panel.metric.excess().is_some();
    let marked = shown.iter().any(|panel| panel.pairs.iter().any(|pair| pair.is_clear()));
    let all = || shown.iter().flat_map(|panel| &panel.points);
    let parts = [
        (has_sizes, "columns: cache sizes"),
        (has_sizes && shown.iter().any(is_excess), sheets::NATS),
        (!shown.is_empty(), "clusters: books, papers or stories"),
        (marked, "* no other policy of its size is better, as far as they can be told apart (95 %)"),
        (all().any(|point| !point.complete), "† not over all samples"),
    ];
    let parts = parts.into_iter().filter(|(is_there, _)| *is_there);
    parts.map(|(_, words)| wrapped(words, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{cell, changed, table_3, with_report};
    use crate::report::series::results::Results;
    use crate::report::write_report::{Options, WIDTH};

    #[test]
    fn the_short_answer_has_one_table_and_how_much_is_enough() {
        let text = with_report(&table_3("meta-llama/Llama-2-7b-hf", 1.0, 20), text);
        for expected in [
            "perplexity: excess over full (nats/token), lower is better · Llama-2-7b-hf · pg19",
            "20 samples, 20 clusters",
            "full cache: perplexity 7.16",
            // ln(9.53 / 7.16), and not 9.53 with the interval between books.
            " 0.286* [0.",
            "may cover less where a few",
            "How much cache is enough",
            "at most 0.0544 nats (0.40 PPL here) from full",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("9.53") && text.lines().count() < 40, "{text}");
        assert!(fits(&text, WIDTH), "{text}");
    }

    #[test]
    fn intervals_stand_beside_the_numbers_where_they_fit() {
        let samples = |value: f64| {
            ["a", "b", "c", "d"].map(|name| (name, value + 0.1 * f64::from(u8::from(name < "c")), 1.0))
        };
        let rows = |sizes: u32| -> Vec<Row> {
            (1..=sizes).flat_map(|size| cell("nll", "tova", Some(100 * size), &samples(1.0))).collect()
        };
        let few = with_report(&rows(3), text);
        assert!(
            few.contains("2.86 [2.72, 3.00]")
                && few.contains("[ ] 95 % intervals over clusters, which cover 88 % at most"),
            "{few}"
        );
        assert!(few.contains("note: 4 clusters cannot tell policies apart"), "{few}");
        // Where that is too wide, the sizes stand in several rows, and where that is too long, in the report.
        let many = with_report(&rows(12), text);
        let sizes: Vec<&str> =
            many.lines().filter_map(|line| line.strip_prefix("policy")).flat_map(str::split_whitespace).collect();
        assert_eq!(sizes, (1..=12).map(|size| (100 * size).to_string()).collect::<Vec<_>>(), "{many}");
        assert!(many.matches("2.86 [2.72, 3.00]").count() == 12 && fits(&many, WIDTH), "{many}");
        let policies = (0..20).map(|i| {
            changed(rows(12), |row| {
                (row.policy, row.cell) = (format!("p{i}").into(), format!("{i}-{}", row.cell).into());
            })
        });
        let long = with_report(&policies.collect::<Vec<_>>().concat(), text);
        assert!(!long.contains("[2.72") && long.contains("in the report: 95 % intervals"), "{long}");
        // All of them are in the other answer.
        assert!(with_report(&rows(12), everything).contains("[2.72, 3.00]"));
    }

    #[test]
    fn the_difference_to_the_full_cache_pairs_books() {
        // Books from 1 to 6 nats, of which the policy costs each 0.5 to 0.51: perplexities overlap, differences do not.
        let books = ["a", "b", "c", "d", "e", "f"].into_iter().zip([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let at = |policy, size, more: f64| {
            let samples = books
                .clone()
                .map(|(book, nats)| (book, nats + more + if nats > 3.0 { more / 50.0 } else { 0.0 }, 1.0));
            cell("nll", policy, size, &samples.collect::<Vec<_>>())
        };
        let shown = with_report(&[at("full", None, 0.0), at("tova", Some(64), 0.5)].concat(), text);
        let tova = shown.lines().find(|line| line.starts_with("tova")).unwrap();
        let numbers: Vec<f64> =
            tova.split(|c: char| !(c.is_ascii_digit() || c == '.')).filter_map(|n| n.parse().ok()).collect();
        let [value, low, high] = numbers[..] else { panic!("{shown}") };
        assert!(value == 0.505 && 0.5 <= low && low < value && value < high && high <= 0.51, "{tova}");
        // exp(3.5).
        assert!(shown.contains("full cache: perplexity 33.12"), "{shown}");
        // A policy that is better than the full cache is below it.
        let better = with_report(&[at("full", None, 0.0), at("tova", Some(64), -0.25)].concat(), text);
        assert!(better.contains("-0.25"), "{better}");
    }

    #[test]
    fn a_narrow_terminal_has_narrow_lines() {
        let rows = table_3("meta-llama/Llama-2-7b-hf", 1.0, 20);
        let (results, options) = (Results::of(&rows).unwrap(), Options { width: 70, ..Options::everything("") });
        let narrow = text(&Report::of(&results, &options, &()));
        assert!(fits(&narrow, 70) && narrow.contains("How much cache is enough"), "{narrow}");
    }

    #[test]
    fn more_keys_than_fit_a_screen_are_counted() {
        let of_model = |model: usize| {
            changed(cell("nll", "tova", Some(8), &[("a", 1.0, 1.0)]), |row| row.model = format!("m{model}").into())
        };
        let rows: Vec<Row> = (0..9).flat_map(of_model).collect();
        let short = with_report(&rows, text);
        assert!(short.contains("m5 · ") && !short.contains("m6 · ") && short.contains("3 tables more"), "{short}");
        assert!(with_report(&rows, everything).contains("m8"));
    }

    #[test]
    fn names_cannot_drive_the_terminal() {
        let rows = cell("nll", "\u{1b}[2Jmine", Some(8), &[("a", 1.0, 1.0)]);
        for text in [with_report(&rows, text), with_report(&rows, everything)] {
            assert!(!text.contains('\u{1b}') && text.contains("[2Jmine"), "{text}");
        }
    }
}
