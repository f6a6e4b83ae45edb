//! A document for a terminal: plain text, with faint numbers at most, as wide as the terminal where tables are no wider.
//!
//! Facts and figures are left out, which files show. The short answer leaves out what is folded as well, and all but the first
//! few tables.

use std::ops::Range;

use crate::format::{capital, counted};
use crate::report::document::{Block, Document, Entry, Grid, Line, Table};
use crate::report::escape;

/// What begins and ends faint text on a terminal.
pub const FAINT: [&str; 2] = ["\u{1b}[2m", "\u{1b}[22m"];
/// Columns where there is no terminal.
pub const WIDTH: usize = 110;
/// Most tables of the short answer; the others are counted.
const MOST_TABLES: usize = 6;
/// Most warnings below a table; the others are counted.
const MOST_NOTES: usize = 2;
/// Most lines of a table that has several rows of columns.
const MOST_LINES: usize = 40;

/// Everything, without faint text.
pub fn render(document: &Document, width: usize) -> String {
    everything(document, width, false)
}

/// Everything. Numbers that are worse are faint where the terminal can show that (`is_dimmed`), and else in parentheses.
pub(crate) fn everything(document: &Document, width: usize, is_dimmed: bool) -> String {
    Renderer { width, is_short: false, is_dimmed, tables: 0 }.document(document)
}

/// The short answer.
pub(crate) fn summary(document: &Document, width: usize, is_dimmed: bool) -> String {
    Renderer { width, is_short: true, is_dimmed, tables: 0 }.document(document)
}

struct Renderer {
    width: usize,
    is_short: bool,
    is_dimmed: bool,
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
        shown_marks(&parts.join("\n"), self.is_dimmed)
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
                Block::Facts(_) | Block::Figure(_) | Block::Links(_) | Block::Samples => {}
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
            false if table.has_sentences => sentences(grid),
            false => in_groups(corner, grid, self.width, self.is_short).unwrap_or_else(|| {
                hidden = self.is_short && grid.entries().any(|entry| entry.spread.is_some());
                if self.is_short { without_spreads(corner, grid) } else { marked(corner, grid) }
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

/// A table as several below each other, each with as many columns as fit; `None` where even one does not, or they would be too long.
fn in_groups(corner: &str, grid: &Grid, width: usize, is_short: bool) -> Option<String> {
    let columns = grid.columns.len();
    let of_groups = |most: usize| -> Option<String> {
        let groups = (0..columns).step_by(most).map(|first| first..columns.min(first + most));
        let shown = groups.map(|group| marked(corner, &columns_of(grid, group))).collect::<String>();
        Some(shown).filter(|shown| fits(shown, width))
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

/// Around a number that is worse, until lines are as wide as they will be. No other text has them, as names lose such characters.
const WORSE: [char; 2] = ['\u{1}', '\u{2}'];

/// Parentheses around numbers that are worse, or such numbers faint, which takes the same columns.
fn shown_marks(text: &str, is_dimmed: bool) -> String {
    if !is_dimmed {
        return text.replace(WORSE[0], "(").replace(WORSE[1], ")");
    }
    let dimmed = |line: &str| {
        let [begin, end] = FAINT;
        let line = line.replace(WORSE[0], &format!(" {begin}")).replace(WORSE[1], &format!("{end} "));
        line.trim_end_matches(' ').to_owned()
    };
    text.split('\n').map(dimmed).collect::<Vec<_>>().join("\n")
}

/// A grid under a header, in aligned columns, with intervals on a second line under each policy. No line ends in a
/// space.
#[cfg(test)]
pub(crate) fn text_under(corner: &str, grid: &Grid) -> String {
    shown_marks(&marked(corner, grid), false)
}

/// A grid under a header, with [`WORSE`] around numbers.
fn marked(corner: &str, grid: &Grid) -> String {
    let plain = |text: &str| (text.to_owned(), String::new());
    let mut rows: Vec<(String, Vec<(String, String)>)> =
        vec![(corner.to_owned(), grid.columns.iter().map(|column| plain(&column.name)).collect())];
    for line in &grid.lines {
        let number = |entry: &Option<Entry>| entry.as_ref().map_or_else(|| plain("-"), number_and_marks);
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

/// What is aligned of a cell, and what hangs after it.
fn number_and_marks(Entry { number, worse, partial, .. }: &Entry) -> (String, String) {
    let [before, after] = WORSE.map(|mark| worse.then_some(mark));
    let marks = after.into_iter().chain(partial.then_some('†')).collect();
    (before.into_iter().chain(number.chars()).collect(), marks)
}

fn without_spreads(corner: &str, grid: &Grid) -> String {
    let mut shown = grid.clone();
    let entries = shown.lines.iter_mut().flat_map(|line| line.cells.iter_mut().flatten());
    entries.for_each(|entry| entry.spread = None);
    marked(corner, &shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{cell, changed, documents, panels, table_3};
    use crate::report::sections::values::{self, Show};

    /// The short answer, and everything.
    fn short(rows: &[Row], width: usize) -> String {
        summary(&documents(rows)[1], width, false)
    }

    /// Words, wherever lines break.
    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn everything(rows: &[Row]) -> String {
        render(&documents(rows)[0], WIDTH)
    }

    #[test]
    fn the_short_answer_has_one_table_and_the_smallest_cache() {
        let text = short(&table_3("meta-llama/Llama-2-7b-hf", 1.0, 20), WIDTH);
        // ln(9.53 / 7.16), and not 9.53 with the interval between books.
        assert!(text.contains(" 0.286 ") && !text.contains("9.53") && text.lines().count() < 56, "{text}");
        let numbers = ["Full cache: perplexity 7.16", "at most 0.0544 nats (0.40 PPL here) from full"];
        assert!(numbers.iter().all(|number| words(&text).contains(number)), "{text}");
        insta::assert_snapshot!(text);
        assert!(fits(&text, WIDTH), "{text}");
    }

    #[test]
    fn intervals_stand_below_the_numbers_where_they_fit() {
        let samples = |value: f64| {
            ["a", "b", "c", "d"].map(|name| (name, value + 0.1 * f64::from(u8::from(name < "c")), 1.0))
        };
        let rows = |sizes: u32| -> Vec<Row> {
            (1..=sizes).flat_map(|size| cell("nll", "tova", Some(100 * size), &samples(1.0))).collect()
        };
        let few = short(&rows(3), WIDTH);
        assert!(few.contains("[2.72, 3.00]") && words(&few).contains("which cover 88 % at most"), "{few}");
        insta::assert_snapshot!(few);
        // Where that is too wide, the sizes stand in several rows, and where that is too long, in the report.
        let many = short(&rows(12), WIDTH);
        let sizes: Vec<&str> =
            many.lines().filter_map(|line| line.strip_prefix("policy")).flat_map(str::split_whitespace).collect();
        assert_eq!(sizes, (1..=12).map(|size| (100 * size).to_string()).collect::<Vec<_>>(), "{many}");
        assert!(many.matches("[2.72, 3.00]").count() == 12 && fits(&many, WIDTH), "{many}");
        let policies = (0..20).map(|i| {
            changed(rows(12), |row| {
                (row.policy, row.cell) = (format!("p{i}").into(), format!("{i}-{}", row.cell).into());
            })
        });
        let long = short(&policies.collect::<Vec<_>>().concat(), WIDTH);
        assert!(!long.contains("[2.72") && long.contains("Intervals are in the report."), "{long}");
        // All of them are in the other answer.
        assert!(everything(&rows(12)).contains("[2.72, 3.00]"));
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
        let shown = short(&[at("full", None, 0.0), at("tova", Some(64), 0.5)].concat(), WIDTH);
        let lines: Vec<&str> = shown.lines().skip_while(|line| !line.starts_with("tova")).take(2).collect();
        let tova = lines.join(" ");
        let numbers: Vec<f64> =
            tova.split(|c: char| !(c.is_ascii_digit() || c == '.')).filter_map(|n| n.parse().ok()).collect();
        let [value, low, high] = numbers[..] else { panic!("{shown}") };
        assert!(value == 0.505 && 0.5 <= low && low < value && value < high && high <= 0.51, "{tova}");
        // exp(3.5).
        assert!(words(&shown).contains("Full cache: perplexity 33.12"), "{shown}");
        // A policy that is better than the full cache is below it.
        let better = short(&[at("full", None, 0.0), at("tova", Some(64), -0.25)].concat(), WIDTH);
        assert!(better.contains("-0.25"), "{better}");
    }

    #[test]
    fn a_narrow_terminal_has_narrow_lines() {
        let rows = table_3("meta-llama/Llama-2-7b-hf", 1.0, 20);
        let narrow = short(&rows, 70);
        assert!(fits(&narrow, 70) && narrow.contains("Smallest sufficient cache"), "{narrow}");
    }

    #[test]
    fn more_keys_than_fit_a_screen_are_counted() {
        let of_model = |model: usize| {
            changed(cell("nll", "tova", Some(8), &[("a", 1.0, 1.0)]), |row| row.model = format!("m{model}").into())
        };
        let rows: Vec<Row> = (0..9).flat_map(of_model).collect();
        let short = short(&rows, WIDTH);
        assert!(
            short.contains(" · m5 · ") && !short.contains(" · m6 · ") && short.contains("3 tables more"),
            "{short}"
        );
        assert!(everything(&rows).contains("m8"));
    }

    #[test]
    fn names_cannot_drive_the_terminal() {
        let rows = cell("nll", "\u{1b}[2Jmine", Some(8), &[("a", 1.0, 1.0)]);
        for text in [short(&rows, WIDTH), everything(&rows)] {
            assert!(!text.contains('\u{1b}') && text.contains("[2Jmine"), "{text}");
        }
    }

    #[test]
    fn worse_numbers_are_faint_or_in_parentheses_in_the_same_columns() {
        let entry = |number: &str, worse| Some(Entry { worse, ..Entry::plain(number) });
        let lines = vec![
            Line::new("tova", vec![entry("9.53", false), entry("1", false)]),
            Line::new(
                "window",
                vec![entry("4812", true), Some(Entry { partial: true, ..entry("7", true).unwrap() })],
            ),
        ];
        let grid = Grid { columns: vec!["64".into(), "128".into()], lines };
        let document =
            Document { title: String::new(), blocks: vec![Block::Table(Table::new("", "", "policy", grid))] };
        let expected = "\
policy     64    128
tova     9.53      1
window  (4812)    (7)\u{2020}
";
        assert_eq!(render(&document, WIDTH), expected);
        let faint = super::everything(&document, WIDTH, true);
        let [begin, end] = FAINT;
        assert!(
            faint.contains(&format!(" {begin}4812{end} "))
                && faint.contains(&format!(" {begin}7{end} \u{2020}\n")),
            "{faint:?}"
        );
        assert_eq!(faint.replace(FAINT[0], "").replace(FAINT[1], ""), expected.replace(['(', ')'], " "));
    }

    #[test]
    fn columns_align() {
        let panels = panels(&table_3("m", 1.0, 20));
        let shown = text_under("cache size", &values::grid(&panels[0], Show::Value).unwrap());
        let numbers = || shown.lines().filter(|line| !line.starts_with(' '));
        let end_of = |number: &str| {
            let line = numbers().find(|line| line.contains(number)).unwrap();
            line[..line.find(number).unwrap() + number.len()].chars().count()
        };
        // The first column, at 64: a header, short and long numbers, and marked ones.
        let ends = ["64", "7.16", "17.65", "4812", "10.28", "9.53"].map(end_of);
        assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?} {shown}");
        assert!(shown.lines().all(|line| !line.ends_with(' ')) && shown.contains('['), "{shown}");
    }
}
