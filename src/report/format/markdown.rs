//! A document as Markdown, as GitHub shows it: folded groups are `<details>`, figures are links to their files.

use anyhow::Result;

use super::{Files, Sources};
use crate::format::capital;
use crate::report::document::{Block, Document, Entry, Fact, Item, Table};
use crate::report::escape;

pub(super) fn files(sources: &Sources<'_>) -> Result<Files> {
    let linked = Renderer { linked: sources.linked };
    Ok(vec![("report.md", linked.document(sources.document)), ("summary.md", render(sources.summary))])
}

/// The file, without figures.
pub fn render(document: &Document) -> String {
    Renderer { linked: None }.document(document)
}

struct Renderer {
    /// The ending of the figures that are linked, where any are on disk.
    linked: Option<&'static str>,
}

impl Renderer {
    fn document(&self, document: &Document) -> String {
        let mut file = format!("# {}\n\n", escape::markdown(&document.title));
        self.push(&mut file, &document.blocks, 2, None);
        file
    }

    /// Blocks under a heading of the level above; a table with the `title` of its group does not repeat it.
    fn push(&self, file: &mut String, blocks: &[Block], level: usize, title: Option<&String>) {
        let heading = |title: &str| format!("{} {}\n\n", "#".repeat(level), escape::markdown(&capital(title)));
        for block in blocks {
            match block {
                Block::Section(section) => {
                    *file += &format!("{} {}\n\n", "#".repeat(level), escape::markdown(&section.title));
                    self.push(file, &section.blocks, level + 1, None);
                }
                Block::Group(group) => match &group.title {
                    None => self.push(file, &group.blocks, level, None),
                    Some(title) if group.is_open => {
                        file.push_str(&heading(title));
                        self.push(file, &group.blocks, level + 1, Some(title));
                    }
                    Some(title) => {
                        let summary = escape::markdown(&capital(title));
                        *file += &format!("<details><summary>{summary}</summary>\n\n");
                        self.push(file, &group.blocks, level, Some(title));
                        file.push_str("</details>\n\n");
                    }
                },
                Block::Facts(facts) => {
                    facts.iter().for_each(|fact| push_fact(file, fact));
                    file.push('\n');
                }
                Block::Table(table) => {
                    if !table.title.is_empty() && title != Some(&table.title) {
                        file.push_str(&heading(&table.title));
                    }
                    push_table(file, table);
                }
                Block::Figure(figure) => {
                    let Some(format) = self.linked else { continue };
                    for (stem, title) in figure.files() {
                        *file += &format!("![{}](figures/{stem}.{format})\n\n", escape::markdown(&title));
                    }
                }
                Block::Paragraph(text) => *file += &format!("{}\n\n", escape::markdown(text)),
                Block::List(items) => push_list(file, items),
                Block::Links(links) => {
                    let link =
                        |(words, page): &(String, String)| format!("* [{}]({page})\n", escape::markdown(words));
                    *file += &(links.iter().map(link).collect::<String>() + "\n");
                }
                Block::Samples => {}
            }
        }
    }
}

fn push_fact(file: &mut String, Fact { name, items }: &Fact) {
    let name = escape::markdown(&capital(name));
    if items.iter().all(|item| item.name.is_empty()) {
        let values: Vec<String> = items.iter().map(|item| escape::markdown(&item.words)).collect();
        *file += &format!("- **{name}:** {}\n", values.join(", "));
        return;
    }
    *file += &format!("- **{name}:**\n");
    for Item { name, words, .. } in items {
        *file += &format!("  - **{}** {}\n", escape::markdown(name), escape::markdown(words));
    }
}

/// A table without its title.
fn push_table(file: &mut String, table: &Table) {
    let Table { about, corner, grid, notes, .. } = table;
    if !about.is_empty() {
        *file += &format!("{}\n\n", escape::markdown(about));
    }
    if !grid.lines.is_empty() {
        let columns: Vec<String> = grid.columns.iter().map(|column| escape::markdown(&column.name)).collect();
        let alignment = if table.has_sentences { "---|" } else { "---:|" };
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

fn cell(entry: &Entry) -> String {
    let dagger = if entry.partial { "†" } else { "" };
    let spread = entry.spread.as_ref().map_or_else(String::new, |spread| format!(" {spread}"));
    let shown = format!("{}{dagger}{spread}", escape::markdown(&entry.number));
    // GitHub shows no grey, but smaller text.
    if entry.worse { format!("<sub>{shown}</sub>") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::{Grid, Line};
    use crate::report::fixture::{cell, documents, table_3};

    #[test]
    fn a_table_is_a_heading_a_table_and_notes() {
        let line = Line::new("a|b", vec![Some(Entry::plain("1")), None]);
        let grid = Grid { columns: vec!["64".into(), "<128>".into()], lines: vec![line] };
        let table = Table { notes: vec!["a warning".into()], ..Table::new("T*", "About.", "policy", grid) };
        let shown = render(&Document { title: "All".into(), blocks: vec![Block::Table(table)] });
        let expected = "# All\n\n## T\\*\n\nAbout.\n\n| policy | 64 | &lt;128&gt; |\n|---|---:|---:|\n| a\\|b | 1 |  |\n\n- a warning\n\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_file_begins_with_what_was_asked_and_ends_with_where_it_comes_from() {
        let [file, summary] = documents(&table_3("meta-llama/Llama-2-7b-hf", 1.0, 12)).each_ref().map(render);
        assert!(summary.len() < file.len() / 2);
        insta::assert_snapshot!(file);
        // What was asked, the first table of each setting and the smallest sufficient cache.
        insta::assert_snapshot!(summary);
    }

    #[test]
    fn names_cannot_break_the_table() {
        let at = |policy, value| cell("nll", policy, Some(64), &[("a", value, 1.0)]);
        let mut all = [at("a|b", 1.0), at("tova", 2.0)].concat();
        all.iter_mut().for_each(|row| row.model = "x|y<script>".into());
        let [file, _] = documents(&all).each_ref().map(render);
        assert!(file.contains("| a\\|b | 2.72 |"), "{file}");
        assert!(file.contains("| tova | 7.39 |"), "{file}");
        assert!(!file.contains("<script>"), "{file}");
    }
}
