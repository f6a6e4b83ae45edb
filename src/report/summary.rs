//! The short answer, for a terminal: a table or two per key, as plain text without colour.

use super::points::Panel;
use super::sheets;
use super::table::{self, Sheet, Show};
use super::throughput::{self, Throughput};
use super::write_report::Report;
use super::{escape, pairing};
use crate::metric::Better;

/// Tables of the first metric of each key (perplexity where there is one) with the difference to the full cache, and of
/// recall; of a timing its one table.
pub(super) fn text(report: &Report<'_>) -> String {
    let mut blocks = Vec::new();
    for of_key in report.panels.chunk_by(|a, b| a.key == b.key) {
        let [panel, others @ ..] = of_key else { continue };
        let title = panel.key.title(&report.keys);
        if let Some(timing) = report.timing(&panel.key) {
            blocks.push(speed(timing, &title));
            continue;
        }
        blocks.push(block(panel, &title) + &outcomes(panel));
        let (recall, others): (Vec<&Panel>, Vec<&Panel>) =
            others.iter().partition(|panel| panel.metric.id == "recall");
        blocks.extend(recall.iter().map(|panel| block(panel, &title)));
        if !others.is_empty() {
            let names: Vec<&str> = others.iter().map(|panel| &*panel.metric.label).collect();
            blocks.push(format!("also measured: {}\n", names.join("; ")));
        }
    }
    blocks.extend(report.smallest.as_ref().map(enough));
    blocks.join("\n")
}

/// One policy against the others, in a line for each outcome.
fn outcomes(panel: &Panel) -> String {
    let Some((legend, outcomes)) = pairing::outcomes(panel) else { return String::new() };
    let lines: String = outcomes.iter().map(|outcome| format!("  {}\n", escape::plain(outcome))).collect();
    format!("{legend}:\n{lines}")
}

/// The smallest caches.
fn enough(sheet: &Sheet) -> String {
    let notes = sheet.notes.iter().map(|note| format!("note: {}\n", escape::plain(note)));
    let notes: String = notes.collect();
    if sheet.grid.lines.is_empty() {
        return notes;
    }
    format!("{}\n{}{notes}", sheet.title, table::text_under(sheet.corner, &sheet.grid))
}

fn speed(table: &Throughput, title: &str) -> String {
    let device = escape::plain(&table.key.device);
    let shown = table::text_under(throughput::CORNER, &table.grid());
    format!("decoding \u{B7} {title}\n{shown}\n{}\n{device}\n", table.legend())
}

fn block(panel: &Panel, title: &str) -> String {
    let name = &panel.metric.label;
    let mut block = format!("{name} \u{B7} {title}\n");
    if let Some(grid) = table::grid(panel, Show::Value) {
        block.push_str(&table::text_under("cache size", &grid));
    }
    if let Some(grid) = table::grid(panel, Show::Difference) {
        block.push_str("\ndifference to full\n");
        block.push_str(&table::text_under("cache size", &grid));
    }
    block.push('\n');
    block += match panel.metric.better {
        Better::Lower => "lower is better; * best policy at that size",
        Better::Higher => "higher is better; * best policy at that size",
        Better::Unknown => "which way is better is not known",
    };
    if panel.points.iter().any(|point| point.estimate.interval.is_some()) {
        block += "; ± half of the 95 % bootstrap interval";
    }
    block += &sheets::guess(panel).map_or_else(String::new, |guess| format!("; {guess}"));
    if panel.points.iter().any(|point| !point.complete) {
        block += "; † not over all samples";
    }
    block += &format!("\n{} samples from {} clusters\n", panel.samples, panel.clusters);
    for note in &panel.notes {
        block.push_str(&format!("note: {}\n", escape::plain(note)));
    }
    block
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cell, table_3, with_report};
    use super::*;

    #[test]
    fn the_short_answer_has_both_tables() {
        let text = with_report(&table_3("meta-llama/Llama-2-7b-hf", 1.0, 20), text);
        for expected in
            ["perplexity · Llama-2-7b-hf · pg19", "difference to full", "9.53*", "20 samples from 20 clusters"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn names_cannot_drive_the_terminal() {
        let text = with_report(&cell("nll", "\u{1b}[2Jmine", Some(8), &[("a", 1.0, 1.0)]), text);
        assert!(!text.contains('\u{1b}') && text.contains("[2Jmine"), "{text}");
    }
}
