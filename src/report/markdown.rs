//! The report as one Markdown file: what was measured, tables with intervals, doubts, and links to the figures.
//!
//! It knows where figures lie relative to the file and how to say what a number means; it computes nothing.

use std::collections::BTreeSet;

use super::breakdown::Breakdown;
use super::points::Panel;
use super::setting::Setting;
use super::sheets::{self, capital};
use super::table::{self, Entry, Grid, Sheet, Show};
use super::{escape, pairing, throughput};
use crate::ledger::{Row, Text};

/// A figure to link: alternative text, and the path relative to the report.
pub(super) struct Link {
    pub(super) title: String,
    pub(super) path: String,
}

/// The whole file; `links` has the figures of each panel, and `overview` those that show panels side by side.
pub(super) fn file(
    rows: &[Row],
    panels: &[Panel],
    breakdowns: &[Breakdown<'_>],
    links: &[Vec<Link>],
    overview: &[Link],
    within: Option<&Sheet>,
) -> String {
    let mut file = String::from("# Cache size against quality\n\n");
    file.push_str(&provenance(rows));
    file.push_str(
        "`full` is the model with an unbounded cache, `truncate` the same on texts cut to as many tokens (the paper's \
         Baseline); neither is a policy.\n\n",
    );
    if let Some(within) = within {
        push_sheet(&mut file, "##", within);
    }
    push_links(&mut file, overview);
    let settings: Vec<Setting> = panels.iter().map(|panel| panel.setting.clone()).collect();
    let timed = throughput::tables(rows);
    let mut last: Option<&Setting> = None;
    for (panel, links) in panels.iter().zip(links) {
        if last != Some(&panel.setting) {
            file.push_str(&format!("## {}\n\n", escape::markdown(&panel.setting.title(&settings))));
            file.push_str(&setting_line(&panel.setting));
            if let Some(table) = timed.iter().find(|table| table.setting == panel.setting) {
                push_grid(&mut file, throughput::CORNER, &table.grid());
                file.push_str(&format!("{}.\n\n", capital(&table.legend())));
            }
            last = Some(&panel.setting);
        }
        push_panel(&mut file, panel, links);
        for parts in breakdowns.iter().filter(|parts| parts.is_of(panel)) {
            push_breakdown(&mut file, parts);
        }
    }
    file
}

fn push_panel(file: &mut String, panel: &Panel, links: &[Link]) {
    file.push_str(&format!(
        "### {}\n\n{}\n\n",
        escape::markdown(&capital(&panel.quantity.name)),
        sheets::meaning(panel)
    ));
    if let Some(grid) = table::grid(panel, Show::Value) {
        push_grid(file, "policy", &grid);
    }
    if let Some(grid) = table::grid(panel, Show::Difference) {
        file.push_str("Difference to the full cache:\n\n");
        push_grid(file, "policy", &grid);
    }
    if panel.points.iter().any(|point| !point.complete) {
        file.push_str("† not over all samples of this table\n\n");
    }
    for note in &panel.notes {
        file.push_str(&format!("- {}\n", escape::markdown(note)));
    }
    if !panel.notes.is_empty() {
        file.push('\n');
    }
    if let Some(sheet) = pairing::sheet(panel) {
        push_folded(file, &sheet, |file| push_verdicts(file, panel));
    }
    push_links(file, links);
}

/// A sheet behind a line that a reader opens, and something after it.
fn push_folded(file: &mut String, sheet: &Sheet, more: impl Fn(&mut String)) {
    let title = escape::markdown(&capital(&sheet.title));
    file.push_str(&format!("<details><summary>{title}</summary>\n\n"));
    push_body(file, sheet);
    more(file);
    file.push_str("</details>\n\n");
}

/// A sheet under a heading.
pub(super) fn push_sheet(file: &mut String, level: &str, sheet: &Sheet) {
    file.push_str(&format!("{level} {}\n\n", escape::markdown(&capital(&sheet.title))));
    push_body(file, sheet);
}

fn push_body(file: &mut String, sheet: &Sheet) {
    if !sheet.about.is_empty() {
        file.push_str(&format!("{}\n\n", escape::markdown(&sheet.about)));
    }
    if !sheet.grid.lines.is_empty() {
        push_grid(file, sheet.corner, &sheet.grid);
    }
    for note in &sheet.notes {
        file.push_str(&format!("- {}\n", escape::markdown(note)));
    }
    if !sheet.notes.is_empty() {
        file.push('\n');
    }
}

/// Lines on what holds of one policy against the others.
pub(super) fn push_verdicts(file: &mut String, panel: &Panel) {
    let verdicts = pairing::verdicts(panel);
    if verdicts.is_empty() {
        return;
    }
    file.push_str(&format!("{}:\n\n", sheets::capital(&pairing::legend(panel))));
    for verdict in verdicts {
        file.push_str(&format!("- {}\n", escape::markdown(&verdict)));
    }
    file.push('\n');
}

/// A table for each cache size.
fn push_breakdown(file: &mut String, parts: &Breakdown<'_>) {
    file.push_str(&format!("#### {}\n\n", escape::markdown(&capital(&sheets::title_of_parts(parts)))));
    let about = sheets::about_parts(parts);
    if !about.is_empty() {
        file.push_str(&format!("{about}\n\n"));
    }
    for size in parts.sizes() {
        push_grid(file, &format!("cache size {size}"), &parts.grid(size));
    }
}

/// A table, under a corner that needs no escaping.
pub fn push_grid(file: &mut String, corner: &str, grid: &Grid) {
    let columns: Vec<String> = grid.columns.iter().map(|column| escape::markdown(column)).collect();
    file.push_str(&format!("| {corner} | {} |\n", columns.join(" | ")));
    file.push_str(&format!("|---|{}\n", "---:|".repeat(grid.columns.len())));
    for line in &grid.lines {
        let cells: Vec<String> =
            line.cells.iter().map(|entry| entry.as_ref().map_or_else(String::new, cell)).collect();
        file.push_str(&format!("| {} | {} |\n", escape::markdown(&line.name), cells.join(" | ")));
    }
    file.push('\n');
}

fn cell(entry: &Entry) -> String {
    let number = escape::markdown(&entry.number);
    let mut cell = if entry.best { format!("**{number}**") } else { number };
    if entry.partial {
        cell.push('†');
    }
    if let Some(spread) = &entry.spread {
        cell.push(' ');
        cell.push_str(spread);
    }
    cell
}

fn setting_line(setting: &Setting) -> String {
    let mut fields = vec![
        format!("model {}", escape::markdown(&setting.model)),
        format!("dataset {}", escape::markdown(&setting.dataset)),
        format!("task {}", escape::markdown(&setting.task)),
    ];
    let details = setting.details();
    let told = details.iter().filter(|(_, value)| !value.is_empty());
    fields.extend(told.map(|(name, value)| format!("{name} {}", escape::markdown(value))));
    format!("{}\n\n", fields.join(" \u{B7} "))
}

/// Where the numbers come from, in one line.
fn provenance(rows: &[Row]) -> String {
    let list = |name: &str, values: BTreeSet<Text>| {
        let shown: Vec<String> = values.iter().take(4).map(|value| escape::markdown(value)).collect();
        let more = if values.len() > shown.len() {
            format!(" and {} more", values.len() - shown.len())
        } else {
            String::new()
        };
        if shown.is_empty() { String::new() } else { format!(" \u{B7} {name} {}{more}", shown.join(", ")) }
    };
    let cells: BTreeSet<&str> = rows.iter().map(|row| row.cell.as_str()).collect();
    format!(
        "{} rows of {} cells{}{}{}{}\n\n",
        rows.len(),
        cells.len(),
        list("sweep", rows.iter().map(|row| row.sweep.clone()).collect()),
        list("engine", rows.iter().map(|row| row.engine.to_string().into()).collect()),
        list("commit", rows.iter().filter_map(|row| row.commit.clone()).collect()),
        list("device", rows.iter().map(|row| row.device.clone()).collect()),
    )
}

fn push_links(file: &mut String, links: &[Link]) {
    for Link { title, path } in links {
        file.push_str(&format!("![{}]({path})\n\n", escape::markdown(title)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Sample, rows};
    use super::super::points::panels;
    use super::*;

    #[test]
    fn a_sheet_is_a_heading_a_table_and_doubts() {
        let line = table::Line { name: "a|b".into(), cells: vec![Some(Entry::plain("1")), None] };
        let mut shown = String::new();
        push_sheet(
            &mut shown,
            "###",
            &Sheet {
                title: "T*".into(),
                about: "About.".into(),
                corner: "policy",
                grid: Grid { columns: vec!["64".into(), "<128>".into()], lines: vec![line] },
                notes: vec!["a doubt".into()],
            },
        );
        let expected = "### T\\*\n\nAbout.\n\n| policy | 64 | &lt;128&gt; |\n|---|---:|---:|\n| a\\|b | 1 |  |\n\n- a doubt\n\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn names_cannot_break_the_table() {
        let at =
            |policy, value| rows(policy, Some(64), &[Sample { sample: "a", cluster: "a", value, weight: 1.0 }]);
        let all: Vec<Row> = [at("a|b", 1.0), at("tova", 2.0)]
            .concat()
            .into_iter()
            .map(|row| Row { model: "x|y<script>".into(), ..row })
            .collect();
        let file = file(&all, &panels(&all), &[], &[vec![]], &[], None);
        assert!(file.contains("| a\\|b | **2.72** |"), "{file}");
        assert!(file.contains("| tova | 7.39 |"), "{file}");
        assert!(!file.contains("<script>"), "{file}");
    }
}
