//! A panel as a table: policies down, cache sizes across, and the same table as aligned plain text.
//!
//! It decides what stands in a cell and which numbers are marked; every format takes the same [`Grid`].

use crate::metric::Metric;
use crate::report::escape;
use crate::report::published::Beside;
use crate::report::series::pairs::{Outcome, Pair};
use crate::report::series::panel::{Panel, Point};
use crate::report::statistics::interval::Estimate;

/// Which number of a point is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Value,
    /// How far it is from the full cache: of a perplexity the excess in nats.
    Difference,
}

/// A table before it has a format.
#[derive(Clone, Debug)]
pub struct Grid {
    pub columns: Vec<String>,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// One per column; `None` where nothing was measured.
    pub cells: Vec<Option<Entry>>,
}

impl Grid {
    /// Adds columns on the right.
    pub(crate) fn append(&mut self, beside: &Beside) {
        self.columns.extend(beside.columns.iter().map(|column| (*column).to_owned()));
        for (line, cells) in self.lines.iter_mut().zip(&beside.cells) {
            line.cells.extend(cells.iter().cloned());
        }
    }
}

/// The header above claims, whose table has a sentence in each cell.
pub const CLAIM: &str = "claim";

/// A table with its title and explanations; every format of the report shows the same sheets. Plain text throughout:
/// formats escape it.
#[derive(Clone, Debug)]
pub struct Sheet {
    pub title: String,
    /// What the numbers are, in a sentence or two.
    pub about: String,
    /// The header above the names of the lines.
    pub corner: &'static str,
    pub grid: Grid,
    /// What bold cells are, for those who do not see them; empty where none are.
    pub bold: &'static str,
    /// Warnings, one sentence each.
    pub notes: Vec<String>,
}

impl Sheet {
    /// A table without warnings.
    pub fn new(title: impl Into<String>, about: impl Into<String>, corner: &'static str, grid: Grid) -> Self {
        Self { title: title.into(), about: about.into(), corner, grid, bold: "", notes: Vec::new() }
    }

    /// Whether cells are sentences, which take several lines.
    pub(crate) fn has_sentences(&self) -> bool {
        self.corner == CLAIM
    }
}

impl Entry {
    /// A number without an interval, or a word.
    pub fn plain(number: impl Into<String>) -> Self {
        Self { number: number.into(), spread: None, bold: false, partial: false }
    }

    /// A number with its interval.
    fn of(metric: &Metric, Estimate { value, interval }: Estimate) -> Self {
        let spread = interval.map(|interval| metric.show_interval(interval, value));
        Self { spread, ..Self::plain(metric.show(value)) }
    }

    /// How many nats a perplexity is above the full cache's, with its interval.
    fn of_excess(Estimate { value, interval }: Estimate) -> Self {
        // Near the full cache, a few ten-thousandths are told apart.
        let digits = if value != 0.0 && value.abs() < 0.01 { 4 } else { 3 };
        let show = |nats: f64| {
            let shown = format!("{nats:.digits$}");
            let is_zero = shown.chars().all(|c| matches!(c, '-' | '0' | '.'));
            if is_zero { shown.replace('-', "") } else { shown }
        };
        let spread = interval.map(|interval| format!("[{}, {}]", show(interval.low), show(interval.high)));
        Self { spread, ..Self::plain(show(value)) }
    }

    /// A difference with its sign and its interval.
    pub(crate) fn of_difference(metric: &Metric, Estimate { value, interval }: Estimate) -> Self {
        let spread = interval.map(|interval| metric.show_interval_of_difference(interval));
        Self { spread, ..Self::plain(metric.show_difference(value)) }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub number: String,
    /// The ends of its interval, or of the repeats.
    pub spread: Option<String>,
    /// Shown in bold, for what the sheet says.
    pub bold: bool,
    /// Not over all samples of the panel.
    pub partial: bool,
}

/// The table of a panel; `None` where it would be empty, as differences are without a full cache.
pub(crate) fn grid(panel: &Panel, show: Show) -> Option<Grid> {
    let sizes = panel.sizes();
    let columns: Vec<(&Panel, Option<u32>)> = match sizes.is_empty() {
        true => vec![(panel, None)],
        false => sizes.iter().map(|size| (panel, Some(*size))).collect(),
    };
    let name = |(_, size): &(&Panel, Option<u32>)| size.map_or_else(|| "all".to_owned(), |size| size.to_string());
    let lines = lines(&panel.policies(), &columns, show);
    (!lines.is_empty()).then(|| Grid { columns: columns.iter().map(name).collect(), lines })
}

/// A line for each policy that was measured in any column, which is a panel at a cache size.
pub(crate) fn lines(policies: &[&str], columns: &[(&Panel, Option<u32>)], show: Show) -> Vec<Line> {
    let best: Vec<Vec<&str>> = columns.iter().map(|(panel, size)| best(panel, *size)).collect();
    let line = |policy: &&str| {
        let cell = |(&(panel, size), best): (&(&Panel, Option<u32>), &Vec<&str>)| {
            let point = panel.shown_at(policy, size)?;
            let mut entry = match show {
                Show::Value => Entry::of(&panel.metric, point.estimate),
                Show::Difference => {
                    let to_full = point.to_full.as_ref()?;
                    let nats = to_full.nats.filter(|_| panel.metric.excess().is_some());
                    nats.map_or_else(|| Entry::of_difference(&panel.metric, to_full.shown), Entry::of_excess)
                }
            };
            entry.bold = best.contains(policy);
            entry.partial = !point.complete;
            Some(entry)
        };
        Line { name: (*policy).to_owned(), cells: columns.iter().zip(&best).map(cell).collect() }
    };
    policies.iter().map(line).filter(|line| line.cells.iter().any(Option::is_some)).collect()
}

/// The policies at a size that no other is better than, as far as the panel's pairs are told apart; none where that leaves
/// all of them.
fn best(panel: &Panel, size: Option<u32>) -> Vec<&str> {
    let at_size = |point: &&Point| panel.is_choice(&point.policy) && point.cache_size == size;
    let all: Vec<&str> = panel.points.iter().filter(at_size).map(|point| point.policy.as_str()).collect();
    let worse = |pair: &Pair| match pair.outcome(panel.metric.better) {
        Outcome::Better => Some(pair.against.clone()),
        Outcome::Worse => Some(pair.policy.clone()),
        _ => None,
    };
    let is_policy = |policy: &String| all.contains(&policy.as_str());
    let pairs = panel.pairs.iter().filter(|pair| Some(pair.cache_size) == size);
    let pairs = pairs.filter(|pair| is_policy(&pair.policy) && is_policy(&pair.against));
    let worse: Vec<String> = pairs.filter_map(worse).collect();
    if worse.is_empty() {
        return Vec::new();
    }
    all.into_iter().filter(|policy| worse.iter().all(|worse| worse != policy)).collect()
}

/// A grid under a header, in aligned columns, with intervals on a second line under each policy. No line ends in a
/// space.
pub fn text_under(corner: &str, grid: &Grid) -> String {
    let plain = |text: &str| (text.to_owned(), String::new());
    let mut rows: Vec<(String, Vec<(String, String)>)> =
        vec![(corner.to_owned(), grid.columns.iter().map(|column| plain(column)).collect())];
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

/// A difference with its sign; "-0.00" would claim a direction that the digits shown do not have.
pub(crate) fn signed(difference: f64, digits: usize) -> String {
    let shown = format!("{difference:+.digits$}");
    match shown.chars().any(|c| ('1'..='9').contains(&c)) || !difference.is_finite() {
        true => shown,
        false => shown.replace(['+', '-'], ""),
    }
}

/// A sheet for a terminal.
pub(crate) fn sheet_text(sheet: &Sheet) -> String {
    let grid = match sheet.has_sentences() {
        true => sentences(&sheet.grid),
        false => text_under(sheet.corner, &sheet.grid),
    };
    let mut text = format!("{}\n{grid}", escape::plain(&sheet.title));
    if !sheet.about.is_empty() {
        text.push_str(&format!("\n{}\n", escape::plain(&sheet.about)));
    }
    for note in &sheet.notes {
        text.push_str(&format!("note: {}\n", escape::plain(note)));
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
                text += &format!("  {}: {}\n", escape::plain(column), escape::plain(&entry.number));
            }
        }
    }
    text
}

pub(crate) fn marks(entry: &Entry) -> String {
    [(entry.bold, '*'), (entry.partial, '†')].iter().filter(|(has, _)| *has).map(|(_, mark)| mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, panels, table_3};

    #[test]
    fn policies_that_no_other_is_better_than_are_marked_and_baselines_never_are() {
        let at = |policy, size, values: [f64; 7]| {
            let samples = ["a", "b", "c", "d", "e", "f", "g"].into_iter().zip(values);
            cell("nll", policy, size, &samples.map(|(name, value)| (name, value, 1.0)).collect::<Vec<_>>())
        };
        let all = [
            at("full", None, [1.0; 7]),
            at("truncate", Some(64), [1.1; 7]),
            at("window", Some(64), [3.0; 7]),
            // In the mean a little worse than tova, in three books better.
            at("h2o", Some(64), [1.8, 2.3, 1.8, 2.3, 1.8, 2.3, 2.0]),
            at("tova", Some(64), [2.0; 7]),
            at("tova", Some(128), [1.5; 7]),
        ];
        let panels = panels(&all.concat());
        let expected = "\
cache size     64    128
full         2.72   2.72
truncate     3.00      -
window      20.09      -
h2o          7.71*     -
tova         7.39*  4.48
";
        let mut shown = grid(&panels[0], Show::Value).unwrap();
        shown
            .lines
            .iter_mut()
            .flat_map(|line| line.cells.iter_mut().flatten())
            .for_each(|cell| cell.spread = None);
        assert_eq!(text_under("cache size", &shown), expected);
        let difference = text_under("", &grid(&panels[0], Show::Difference).unwrap());
        // Of a perplexity in nats: window has 3, the full cache 1.
        assert!(!difference.contains("full") && difference.contains("2.000 "), "{difference}");
        assert!(difference.contains("1.043*") && difference.contains("1.000*"), "{difference}");
        // Five books tell nothing apart, so nothing is marked.
        let five: Vec<_> = all.concat().into_iter().filter(|row| row.sample < "f".into()).collect();
        let shown = text_under("", &grid(&crate::report::fixture::panels(&five)[0], Show::Value).unwrap());
        assert!(!shown.contains('*') && shown.contains("20.09"), "{shown}");
        let without_full = crate::report::fixture::panels(&at("tova", Some(64), [2.0; 7]));
        assert!(grid(&without_full[0], Show::Difference).is_none());
    }

    #[test]
    fn columns_align() {
        let panels = panels(&table_3("m", 1.0, 20));
        let shown = text_under("cache size", &grid(&panels[0], Show::Value).unwrap());
        let numbers = || shown.lines().filter(|line| !line.starts_with(' '));
        let end_of = |number: &str| {
            let line = numbers().find(|line| line.contains(number)).unwrap();
            line[..line.find(number).unwrap() + number.len()].chars().count()
        };
        // The first column, at 64: a header, short and long numbers, and a marked one.
        let ends = ["64", "7.16", "17.65", "4812", "10.28", "9.53"].map(end_of);
        assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?} {shown}");
        assert!(shown.lines().all(|line| !line.ends_with(' ')) && shown.contains('['), "{shown}");
    }
}
