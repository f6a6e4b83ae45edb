//! The short answer, for a terminal: one table a task, how much cache is enough, and nothing else; or every table.
//!
//! Plain text without colour.

use std::collections::BTreeSet;

use super::points::{self, Panel};
use super::sheets;
use super::sign_test::has_verdicts;
use super::table::{self, Entry, Grid, Line, Show};
use super::throughput::{self, Throughput};
use super::write_report::Report;
use super::{escape, pairing, retention};
use crate::format::counted;
use crate::metric::Better;

/// Most tables of the short answer; the others are counted.
const MOST_TABLES: usize = 6;
/// Most warnings below a table; the others are counted.
const MOST_NOTES: usize = 2;

/// The table of the first metric of each key (perplexity where there is one), of a timing its one table, and how much cache
/// is enough. As wide as the terminal, where the tables are no wider.
pub(super) fn text(report: &Report<'_>) -> String {
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
    blocks.push(legend(&of_keys, blocks.iter().any(|block| block.contains('[')), width));
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
pub(super) fn everything(report: &Report<'_>) -> String {
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
    let narrower = (1..=grid.columns.len()).rev().map(|columns| {
        let lines = grid.lines.iter().map(|line| Line { cells: line.cells[..columns].to_vec(), ..line.clone() });
        let grid = Grid { columns: grid.columns[..columns].to_vec(), lines: lines.collect() };
        without_spreads(throughput::CORNER, &grid)
    });
    let shown =
        beside(throughput::CORNER, &grid, width).or_else(|| narrower.into_iter().find(|shown| fits(shown, width)));
    let shown = shown.unwrap_or_else(|| without_spreads(throughput::CORNER, &grid));
    let title = wrapped(&format!("decoding \u{B7} {title} \u{B7} {device}"), width);
    format!("{title}{shown}{}", wrapped(&table.legend(), width))
}

/// A panel under one line that says what it is and over how many samples.
fn block(panel: &Panel, title: &str, width: usize) -> String {
    let better = match panel.metric.better {
        Better::Lower => ", lower is better",
        Better::Higher => ", higher is better",
        Better::Unknown => "",
    };
    let few = few(panel).map_or_else(String::new, |(mark, _)| format!(" ({mark})"));
    let counts = format!("{}, {}{few}", counted(panel.samples, "sample"), counted(panel.clusters, "cluster"));
    let mut block = wrapped(&format!("{}{better} \u{B7} {title} \u{B7} {counts}", panel.metric.label), width);
    if let Some(grid) = table::grid(panel, Show::Value) {
        block += &beside(sheets::POLICY, &grid, width).unwrap_or_else(|| without_spreads(sheets::POLICY, &grid));
    }
    // The legend says it.
    let said = points::few_clusters(panel.clusters);
    let notes: Vec<&String> = panel.notes.iter().filter(|note| Some(*note) != said.as_ref()).collect();
    for note in notes.iter().take(MOST_NOTES) {
        block += &wrapped(&format!("note: {}", escape::plain(note)), width);
    }
    if notes.len() > MOST_NOTES {
        block += &format!("note: {} more in the report\n", counted(notes.len() - MOST_NOTES, "warning"));
    }
    block
}

/// A table with intervals beside the numbers; `None` where it would be too wide.
fn beside(corner: &str, grid: &Grid, width: usize) -> Option<String> {
    let entry = |entry: &Entry| {
        let spread = entry.spread.as_ref().map_or_else(String::new, |spread| format!(" {spread}"));
        Entry { number: format!("{}{spread}", entry.number), spread: None, ..entry.clone() }
    };
    let shown = table::text_under(corner, &with_entries(grid, entry));
    Some(shown).filter(|shown| fits(shown, width))
}

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

/// The mark of a panel of few clusters, and what it means.
fn few(panel: &Panel) -> Option<(&'static str, &'static str)> {
    points::few_clusters(panel.clusters).filter(|_| !panel.metric.is_timed())?;
    Some(match has_verdicts(panel.clusters) {
        true => ("few", "few: fewer than 30 clusters, intervals may cover less than 95 %"),
        false => ("too few", "too few: 6 clusters are needed to tell policies apart"),
    })
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
fn legend(of_keys: &[&[Panel]], has_intervals: bool, width: usize) -> String {
    let shown: Vec<&Panel> = of_keys.iter().take(MOST_TABLES).filter_map(|panels| panels.first()).collect();
    let marked = shown.iter().any(|panel| panel.pairs.iter().any(|pair| pair.is_clear()));
    let all = || shown.iter().flat_map(|panel| &panel.points);
    let parts = [
        (marked, "* no other policy of its size is better, as far as they can be told apart (95 %)"),
        (has_intervals, "[ ] 95 % interval"),
        (all().any(|point| !point.complete), "† not over all samples"),
    ];
    let mut parts: Vec<&str> =
        parts.into_iter().filter(|(is_there, _)| *is_there).map(|(_, words)| words).collect();
    let few: BTreeSet<(&str, &str)> = shown.iter().filter_map(|panel| few(panel)).collect();
    parts.extend(few.into_iter().map(|(_, words)| words));
    match parts.is_empty() {
        true => String::new(),
        false => wrapped(&format!("columns: cache sizes; {}", parts.join("; ")), width),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cell, changed, table_3, with_report};
    use super::super::results::Results;
    use super::super::write_report::{Options, WIDTH};
    use super::*;
    use crate::ledger::Row;

    #[test]
    fn the_short_answer_has_one_table_and_how_much_is_enough() {
        let text = with_report(&table_3("meta-llama/Llama-2-7b-hf", 1.0, 20), text);
        for expected in [
            "perplexity, lower is better · Llama-2-7b-hf · pg19 · 20 samples, 20 clusters",
            "9.53",
            "How much cache is enough",
            "at most 0.0544 nats (0.40 PPL here) from full",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("difference to full") && text.lines().count() < 25, "{text}");
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
            few.contains("2.86 [2.72, 3.00]") && few.contains("4 clusters (too few)") && few.contains("[ ]"),
            "{few}"
        );
        let many = with_report(&rows(12), text);
        assert!(many.contains("2.86") && !many.contains('['), "{many}");
        // All of them are in the other answer.
        assert!(with_report(&rows(12), everything).contains("[2.72, 3.00]"));
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
