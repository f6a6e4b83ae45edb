//! The report as one Markdown file: what was asked, links to the figures, tables with intervals and warnings, and where the
//! numbers come from.

use anyhow::Result;

use crate::format::capital;
use crate::report::document::table::{Entry, Sheet};
use crate::report::escape;
use crate::report::figure::curve::Figure;
use crate::report::figure::scene::Scene;
use crate::report::format::Files;
use crate::report::format::pr_summary;
use crate::report::sections::asked::Asked;
use crate::report::sections::floor_to_ceiling;
use crate::report::sections::pairing;
use crate::report::sections::provenance::Provenance;
use crate::report::sections::retention::Section;
use crate::report::sections::sheets;
use crate::report::series::key::SeriesKey;
use crate::report::series::panel::Panel;
use crate::report::series::results::Results;
use crate::report::write_report::Report;

pub(crate) fn files(report: &Report<'_>) -> Result<Files> {
    Ok(vec![("report.md", file(report)), ("summary.md", pr_summary::file(report))])
}

/// One file of sheets.
pub(crate) fn sheets(sheets: &[Sheet]) -> String {
    let mut file = String::new();
    sheets.iter().for_each(|sheet| push_sheet(&mut file, "##", sheet));
    file
}

fn file(report: &Report<'_>) -> String {
    let mut file = format!("# {}\n\n", escape::markdown(&report.asked.title()));
    push_asked(&mut file, &report.asked);
    report.figures.combined.iter().for_each(|figure| push_figure(&mut file, figure, report.linked));
    let mut last: Option<&SeriesKey> = None;
    for (i, panel) in report.panels.iter().enumerate() {
        let is_first = last != Some(&panel.key);
        if is_first {
            file.push_str(&format!("## {}\n\n", escape::markdown(&panel.key.title(&report.keys))));
            file.push_str(&format!("{}\n\n", panel.key.line(escape::markdown)));
            if let Some(timing) = report.timing(&panel.key) {
                push_sheet(&mut file, "###", &sheets::of_timing(timing));
            }
            last = Some(&panel.key);
        }
        let of_key = report.keys.iter().position(|key| *key == panel.key);
        let enough = of_key.and_then(|at| report.enough_of[at].as_ref()).filter(|_| is_first);
        report.figures_of(i).for_each(|figure| push_figure(&mut file, figure, report.linked));
        push_panel(&mut file, panel, enough, report.reference.as_deref());
        for (parts, _) in report.breakdowns_of(panel) {
            sheets::of_parts(parts).iter().for_each(|(_, sheet)| push_sheet(&mut file, "####", sheet));
        }
        let is_last = report.panels.get(i + 1).is_none_or(|next| next.key != panel.key);
        let evicted = of_key.and_then(|at| report.evicted[at].as_ref()).filter(|_| is_last);
        evicted.into_iter().for_each(|sheet| push_sheet(&mut file, "###", sheet));
    }
    report.enough.iter().for_each(|sheet| push_sheet(&mut file, "##", sheet));
    push_list(&mut file, &report.unmeasured);
    for (section, figures) in report.sections.iter().zip(&report.section_figures) {
        push_section(&mut file, section, figures, report.linked);
    }
    report.extra.iter().for_each(|sheet| push_folded(&mut file, &sheet.title, |file| push_body(file, sheet)));
    file.push_str(&format!("## Where the numbers come from\n\n{}", provenance(report.results)));
    file
}

/// What was asked: models, policies with their definitions, cache sizes and data.
pub(crate) fn push_asked(file: &mut String, asked: &Asked) {
    let models: Vec<String> = asked.models.iter().map(|model| escape::markdown(model)).collect();
    *file += &format!("- **Models:** {}\n- **Policies:**\n", models.join(", "));
    for (name, words) in &asked.policies {
        *file += &format!("  - **{}** {}\n", escape::markdown(name), escape::markdown(words));
    }
    if !asked.sizes.is_empty() {
        *file += &format!("- **Cache sizes:** {}\n", asked.sizes());
    }
    *file += "- **Data:**\n";
    for (title, words) in &asked.data {
        *file += &format!("  - {}: {}\n", escape::markdown(title), escape::markdown(words));
    }
    file.push('\n');
}

/// Which tokens are kept.
pub(crate) fn push_section(
    file: &mut String,
    section: &Section<'_>,
    figures: &[(String, Scene)],
    linked: Option<&str>,
) {
    file.push_str(&format!("## {}\n\n{}\n\n", escape::markdown(&section.heading()), section.about()));
    figures.iter().for_each(|(stem, scene)| push_link(file, &scene.title, stem, linked));
    section.sheets().iter().for_each(|sheet| push_sheet(file, "###", sheet));
}

/// A metric: its numbers, how much cache is enough, and what they are compared with.
fn push_panel(file: &mut String, panel: &Panel, enough: Option<&Sheet>, reference: Option<&str>) {
    let (headline, share) = (sheets::headline(panel), floor_to_ceiling::sheet(panel));
    let (first, rest) = headline.split_at(headline.len().min(1));
    first.iter().chain(enough).chain(rest).chain(&share).for_each(|sheet| push_sheet(file, "###", sheet));
    if let Some(sheet) = pairing::sheet(panel, reference) {
        push_folded(file, &sheet.title, |file| {
            push_body(file, &sheet);
            push_outcomes(file, panel, reference);
        });
    }
}

/// What a reader opens.
fn push_folded(file: &mut String, title: &str, inside: impl FnOnce(&mut String)) {
    *file += &format!("<details><summary>{}</summary>\n\n", escape::markdown(&capital(title)));
    inside(file);
    file.push_str("</details>\n\n");
}

/// A sheet under a heading.
pub(crate) fn push_sheet(file: &mut String, level: &str, sheet: &Sheet) {
    file.push_str(&format!("{level} {}\n\n", escape::markdown(&capital(&sheet.title))));
    push_body(file, sheet);
}

/// A sheet without its title; the corner is not escaped.
pub fn push_body(file: &mut String, sheet: &Sheet) {
    let Sheet { about, corner, grid, notes, .. } = sheet;
    if !about.is_empty() {
        *file += &format!("{}\n\n", escape::markdown(about));
    }
    if !grid.lines.is_empty() {
        let columns: Vec<String> = grid.columns.iter().map(|column| escape::markdown(column)).collect();
        let alignment = if sheet.has_sentences() { "---|" } else { "---:|" };
        *file += &format!("| {corner} | {} |\n|---|{}\n", columns.join(" | "), alignment.repeat(columns.len()));
        for line in &grid.lines {
            let cells = line.cells.iter().map(|entry| entry.as_ref().map_or_else(String::new, cell));
            let cells: Vec<String> = std::iter::once(escape::markdown(&line.name)).chain(cells).collect();
            *file += &format!("| {} |\n", cells.join(" | "));
        }
        file.push('\n');
    }
    push_list(file, notes);
}

fn push_list(file: &mut String, items: &[String]) {
    items.iter().for_each(|item| *file += &format!("- {}\n", escape::markdown(item)));
    if !items.is_empty() {
        file.push('\n');
    }
}

/// One policy against the others, in a line for each outcome.
pub(crate) fn push_outcomes(file: &mut String, panel: &Panel, reference: Option<&str>) {
    let Some((legend, outcomes)) = pairing::outcomes(panel, reference) else { return };
    file.push_str(&format!("{}:\n\n", capital(&legend)));
    push_list(file, &outcomes);
}

fn cell(entry: &Entry) -> String {
    let (bold, dagger) = (if entry.bold { "**" } else { "" }, if entry.partial { "†" } else { "" });
    let spread = entry.spread.as_ref().map_or_else(String::new, |spread| format!(" {spread}"));
    format!("{bold}{}{bold}{dagger}{spread}", escape::markdown(&entry.number))
}

/// Most values of one kind that are named; more are counted.
const MOST_NAMED: usize = 4;

/// Where the numbers come from, in one line.
fn provenance(results: &Results<'_>) -> String {
    let all = Provenance::of(results);
    let fact = |(name, values): (&str, Vec<String>)| {
        let shown: Vec<String> = values.iter().take(MOST_NAMED).map(|value| escape::markdown(value)).collect();
        let more = values.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!shown.is_empty()).then(|| format!("{name} {}{more}", shown.join(", ")))
    };
    let facts = all.facts().into_iter().filter_map(fact);
    let line: Vec<String> = std::iter::once(all.counted()).chain(facts).collect();
    format!("{}\n\n", line.join(" \u{B7} "))
}

fn push_figure(file: &mut String, figure: &Figure, linked: Option<&str>) {
    figure.files().iter().for_each(|(stem, title)| push_link(file, title, stem, linked));
}

fn push_link(file: &mut String, title: &str, stem: &str, linked: Option<&str>) {
    if let Some(format) = linked {
        file.push_str(&format!("![{}](figures/{stem}.{format})\n\n", escape::markdown(title)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::table::{Grid, Line};
    use crate::report::fixture::{cell, table_3, with_report};

    #[test]
    fn a_sheet_is_a_heading_a_table_and_notes() {
        let line = Line { name: "a|b".into(), cells: vec![Some(Entry::plain("1")), None] };
        let sheet = Sheet {
            title: "T*".into(),
            about: "About.".into(),
            corner: "policy",
            grid: Grid { columns: vec!["64".into(), "<128>".into()], lines: vec![line] },
            bold: "",
            notes: vec!["a warning".into()],
        };
        let shown = sheets(&[sheet]);
        let expected = "## T\\*\n\nAbout.\n\n| policy | 64 | &lt;128&gt; |\n|---|---:|---:|\n| a\\|b | 1 |  |\n\n- a warning\n\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_file_begins_with_what_was_asked_and_ends_with_where_it_comes_from() {
        let file = with_report(&table_3("meta-llama/Llama-2-7b-hf", 1.0, 12), file);
        let order = [
            "# Cache size against quality: test",
            "- **Models:** meta-llama/Llama-2-7b-hf (bf16)",
            "  - **full** the model with an unbounded cache",
            "- **Cache sizes:** 64, 128",
            "pg19: perplexity, 12 samples of 4096 tokens",
            "### Perplexity: excess over full (nats/token)\n",
            "### How much cache is enough",
            "### Perplexity\n",
            "<details><summary>Perplexity: window against the others",
            "## Where the numbers come from",
        ];
        let places: Vec<Option<usize>> = order.iter().map(|part| file.find(part)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {file}");
    }

    #[test]
    fn names_cannot_break_the_table() {
        let at = |policy, value| cell("nll", policy, Some(64), &[("a", value, 1.0)]);
        let mut all = [at("a|b", 1.0), at("tova", 2.0)].concat();
        all.iter_mut().for_each(|row| row.model = "x|y<script>".into());
        let file = with_report(&all, file);
        assert!(file.contains("| a\\|b | 2.72 |"), "{file}");
        assert!(file.contains("| tova | 7.39 |"), "{file}");
        assert!(!file.contains("<script>"), "{file}");
    }
}
