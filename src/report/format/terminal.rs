//! A document for a terminal: plain text without colour, as wide as the terminal where tables are no wider.
//!
//! Facts and figures are left out, which files show. The short answer leaves out what is folded as well, and all but the first
//! few tables.

use std::ops::Range;

use crate::format::{capital, counted};
use crate::report::document::table::{Entry, Grid, Line, Table};
use crate::report::document::{Block, Document};
use crate::report::escape;

/// Columns where there is no terminal.
pub const WIDTH: usize = 110;
/// Most tables of the short answer; the others are counted.
const MOST_TABLES: usize = 6;
/// Most warnings below a table; the others are counted.
const MOST_NOTES: usize = 2;
/// Most lines of a table that has several rows of columns.
const MOST_LINES: usize = 30;

/// Everything.
pub fn render(document: &Document, width: usize) -> String {
    Renderer { width, is_short: false, tables: 0 }.document(document)
}

/// The short answer.
pub(crate) fn summary(document: &Document, width: usize) -> String {
    Renderer { width, is_short: true, tables: 0 }.document(document)
}

struct Renderer {
    width: usize,
    is_short: bool,
    /// How many were shown.
    tables: usize,
}

impl Renderer {
    fn document(mut self, document: &Document) -> String {
        let title = (!self.is_short && !document.title.is_empty()).then(|| self.wrapped(&document.title));
        let mut parts = Vec::from_iter(title);
        self.push(&mut parts, &document.blocks, None);
        if self.is_short && self.tables > MOST_TABLES {
            parts.push(format!("{} more in the report\n", counted(self.tables - MOST_TABLES, "table")));
        }
        parts.join("\n")
    }

    /// Paragraphs of blocks that are about a setting.
    fn push(&mut self, parts: &mut Vec<String>, blocks: &[Block], setting: Option<&str>) {
        for block in blocks {
            match block {
                Block::Section(section) => {
                    let setting = section.setting.map(|_| section.title.as_str()).or(setting);
                    self.push(parts, &section.blocks, setting);
                }
                Block::Group(group) if self.is_short && !group.is_open => {}
                Block::Group(group) => {
                    let mut inside = Vec::new();
                    self.push(&mut inside, &group.blocks, setting);
                    // A table has a title of its own.
                    let has_title = |block: &Block| match block {
                        Block::Table(table) => !table.title.is_empty(),
                        block => matches!(block, Block::Group(_) | Block::Figure(_)),
                    };
                    let title = group.title.as_ref().filter(|_| !group.blocks.iter().any(has_title));
                    if let (Some(title), Some(first)) = (title, inside.first_mut()) {
                        let setting = setting.map_or_else(String::new, |setting| format!(" \u{B7} {setting}"));
                        *first = self.wrapped(&format!("{}{setting}", capital(title))) + first;
                    }
                    parts.extend(inside);
                }
                Block::Table(table) => {
                    self.tables += 1;
                    if !self.is_short || self.tables <= MOST_TABLES {
                        parts.push(self.table(table, setting));
                    }
                }
                Block::Paragraph(text) => parts.push(self.wrapped(text)),
                Block::List(items) => {
                    parts.push(items.iter().map(|item| self.wrapped(&format!("  {item}"))).collect());
                }
                Block::Facts(_) | Block::Figure(_) | Block::Samples => {}
            }
        }
    }

    fn table(&self, table: &Table, setting: Option<&str>) -> String {
        let setting = setting.map_or_else(String::new, |setting| format!(" \u{B7} {setting}"));
        let title = format!("{}{setting}", capital(&table.title));
        let mut text = if title.is_empty() { String::new() } else { self.wrapped(&title) };
        let (grid, corner) = (&table.grid, table.corner);
        let mut hidden = false;
        text += &match grid.lines.is_empty() {
            true => String::new(),
            false if table.has_sentences() => sentences(grid),
            false => in_groups(corner, grid, self.width, self.is_short).unwrap_or_else(|| {
                hidden = self.is_short && grid.entries().any(|entry| entry.spread.is_some());
                if self.is_short { without_spreads(corner, grid) } else { text_under(corner, grid) }
            }),
        };
        if !table.about.is_empty() {
            text += &self.wrapped(&table.about);
        }
        if hidden {
            text += &self.wrapped("Intervals are in the report.");
        }
        let shown = if self.is_short { MOST_NOTES } else { table.notes.len() };
        for note in table.notes.iter().take(shown) {
            text += &self.wrapped(&format!("note: {note}"));
        }
        if table.notes.len() > shown {
            text += &format!("note: {} more in the report\n", counted(table.notes.len() - shown, "warning"));
        }
        text
    }

    /// A line of words as several that fit, all but the first indented.
    fn wrapped(&self, text: &str) -> String {
        let (mut all, mut line) = (String::new(), String::new());
        for word in escape::plain(text).split_inclusive(' ') {
            let is_full = line.chars().count() + word.trim_end().chars().count() > self.width;
            if is_full && !line.trim().is_empty() {
                all += &format!("{}\n", line.trim_end());
                line = " ".repeat(4);
            }
            line += word;
        }
        format!("{all}{}\n", line.trim_end())
    }
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
        let (marked, spreads) = (most(&marks), most(&spread));
        if spreads == 0 {
            continue;
        }
        // Numbers are in line, and so are their intervals.
        for entry in &mut entries {
            let number = format!("{}{:<marked$} {:<spreads$}", entry.number, marks(entry), spread(entry));
            **entry = Entry::plain(number);
        }
    }
    let shown = text_under(corner, &shown);
    Some(shown).filter(|shown| fits(shown, width))
}

/// The same as several tables below each other, each with as many columns as fit; `None` where even one does not, or they would
/// be too long.
fn in_groups(corner: &str, grid: &Grid, width: usize, is_short: bool) -> Option<String> {
    let columns = grid.columns.len();
    let of_groups = |most: usize| -> Option<String> {
        let groups = (0..columns).step_by(most).map(|first| first..columns.min(first + most));
        groups.map(|group| beside(corner, &columns_of(grid, group), width)).collect()
    };
    let (most, shown) = (1..=columns).rev().find_map(|most| Some((most, of_groups(most)?)))?;
    Some(shown).filter(|shown| !is_short || most == columns || shown.lines().count() <= MOST_LINES)
}

fn columns_of(grid: &Grid, columns: Range<usize>) -> Grid {
    let line = |line: &Line| Line { cells: line.cells[columns.clone()].to_vec(), ..line.clone() };
    Grid { columns: grid.columns[columns.clone()].to_vec(), lines: grid.lines.iter().map(line).collect() }
}

fn fits(text: &str, width: usize) -> bool {
    text.lines().all(|line| line.chars().count() <= width)
}

/// A grid under a header, in aligned columns, with intervals on a second line under each policy. No line ends in a
/// space.
fn text_under(corner: &str, grid: &Grid) -> String {
    let plain = |text: &str| (text.to_owned(), String::new());
    let mut rows: Vec<(String, Vec<(String, String)>)> =
        vec![(corner.to_owned(), grid.columns.iter().map(|column| plain(&column.name)).collect())];
    for line in &grid.lines {
        let number = |entry: &Option<Entry>| {
            entry.as_ref().map_or_else(|| plain("-"), |entry| (entry.number.clone(), marks(entry)))
        };
        rows.push((escape::plain(&line.name), line.cells.iter().map(number).collect()));
        let spreads = || line.cells.iter().map(|entry| entry.as_ref()?.spread.as_deref());
        if spreads().any(|spread| spread.is_some()) {
            rows.push((String::new(), spreads().map(|spread| plain(spread.unwrap_or_default())).collect()));
        }
    }
    let width = |text: &str| text.chars().count();
    let first = rows.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let widest = |column: usize| rows.iter().map(|(_, cells)| width(&cells[column].0)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..grid.columns.len()).map(widest).collect();
    let marked = rows.iter().flat_map(|(_, cells)| cells).map(|(_, marks)| width(marks)).max().unwrap_or(0);
    let mut text = String::new();
    for (name, cells) in &rows {
        let mut line = format!("{name:<first$}");
        for ((shown, marks), width) in cells.iter().zip(&widths) {
            line += &format!("  {shown:>width$}{marks:<marked$}");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Each line as its name and a list of its cells.
fn sentences(grid: &Grid) -> String {
    let mut text = String::new();
    for line in &grid.lines {
        text += &format!("- {}\n", escape::plain(&line.name));
        for (column, entry) in grid.columns.iter().zip(&line.cells) {
            if let Some(entry) = entry {
                text += &format!("  {}: {}\n", escape::plain(&column.name), escape::plain(&entry.number));
            }
        }
    }
    text
}

fn marks(entry: &Entry) -> String {
    [(entry.bold, '*'), (entry.partial, '†')].iter().filter(|(has, _)| *has).map(|(_, mark)| mark).collect()
}

fn without_spreads(corner: &str, grid: &Grid) -> String {
    text_under(corner, &with_entries(grid, |entry| Entry { spread: None, ..entry.clone() }))
}

fn with_entries(grid: &Grid, change: impl Fn(&Entry) -> Entry) -> Grid {
    let line = |line: &Line| {
        let cells = line.cells.iter().map(|cell| cell.as_ref().map(&change)).collect();
        Line { cells, ..line.clone() }
    };
    Grid { columns: grid.columns.clone(), lines: grid.lines.iter().map(line).collect() }
}
