//! A comparison as a document: the verdict, failures in full view, the worst first, then other changes.
//!
//! It is limited to a readable length: GitHub allows 65,536 characters in a comment. The JSON has everything.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::cluster::Cluster;
use super::comparison::{Comparison, Origin};
use super::point::{Moved, Point, Verdict};
use crate::format::{counted, first_of};
use crate::report::{Block, Document, Entry, Grid, Group, Line, SeriesKey, Table};

/// Longest name shown, in characters.
const LONGEST: usize = 160;
/// Longest sentence, which may name several things.
const LONGEST_NOTE: usize = 300;

/// What is shown of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Findings of each kind.
    pub most: usize,
    /// Numbers that moved within noise too.
    pub noise: bool,
}

/// The verdict, what was compared, and the findings.
pub fn document(comparison: &Comparison, shown: Shown) -> Document {
    let mut blocks = vec![Block::Paragraph(cut(&sides(comparison), LONGEST_NOTE))];
    blocks.extend(findings(comparison, shown));
    let notes: Vec<String> = comparison.notes.iter().map(|note| cut(note, LONGEST_NOTE)).collect();
    blocks.extend((!notes.is_empty()).then(|| Block::Group(Group::open("Notes", vec![Block::List(notes)]))));
    Document { title: headline(comparison), blocks }
}

/// Everything worth showing.
fn findings(comparison: &Comparison, Shown { most, noise }: Shown) -> Vec<Block> {
    let titles = comparison.titles();
    let fails =
        |verdict: Verdict| comparison.worst(verdict).iter().any(|point| point.fails(comparison.allow_missing));
    let finding = |title: &str, fails: bool, count: usize, block: Block| {
        let group = Group::folded(format!("{title} ({count})"), vec![block]);
        (count > 0).then_some(Block::Group(Group { is_open: fails, ..group }))
    };
    let table = |about: &str, corner: &'static str, columns: &[&str], lines: Vec<Line>, notes: Vec<String>| {
        let left_out = lines.len().saturating_sub(most);
        let columns = columns.iter().map(|column| (*column).into()).collect();
        let lines =
            lines.into_iter().take(most).map(|line| Line { name: cut(&line.name, LONGEST), ..line }).collect();
        let notes = notes.into_iter().take(most).chain(more(left_out)).collect();
        Block::Table(Table { notes, ..Table::new("", about, corner, Grid { columns, lines }) })
    };
    let list = |items: Vec<String>| {
        let left_out = items.len().saturating_sub(most);
        let items = items.into_iter().take(most).map(|item| cut(&item, LONGEST_NOTE));
        Block::List(items.chain(more(left_out)).collect())
    };
    let numbers = |verdict: Verdict, title: &str, fails: bool| {
        let points = comparison.worst(verdict);
        let lines = points.iter().map(|point| number(point, &titles[&point.key])).collect();
        let columns = ["baseline", "results", "difference", "threshold"];
        let about = "Differences are results minus baseline, over the samples both have, with 95 % intervals of the pairs.";
        let notes = points.iter().filter_map(|point| clusters(point, &titles[&point.key]));
        let notes = notes.map(|note| cut(&note, LONGEST_NOTE)).collect();
        finding(title, fails, points.len(), table(about, "number", &columns, lines, notes))
    };
    let places = |verdict: Verdict, title: &str, fails: bool| {
        let of_verdict = comparison.points.iter().filter(|point| point.verdict == verdict);
        finding(title, fails, comparison.count(verdict), list(places(of_verdict, &titles)))
    };
    let moved: Vec<Line> = comparison.moved().into_iter().map(|(point, moved)| movement(point, moved)).collect();
    let about = "Numbers are value / weight of a sample, as the rows have them.";
    let (moves, moved) = (moved.len(), table(about, "sample", &["before", "after", "change"], moved, Vec::new()));
    let incomplete = comparison.points.iter().filter(|point| lacks_samples(point));
    let lacking: Vec<String> = incomplete.map(|point| lacking(point, &titles[&point.key])).collect();
    let findings = [
        numbers(Verdict::Regressed, "regressed", true),
        finding("samples that moved", true, moves, moved),
        places(Verdict::AnotherEngine, "measured by another engine", true),
        places(Verdict::Missing, "missing: in the baseline, not in the results", fails(Verdict::Missing)),
        finding("samples missing", !comparison.allow_missing, lacking.len(), list(lacking)),
        numbers(Verdict::Improved, "improved", false),
        numbers(Verdict::Changed, "changed; which way is better is not known", false),
        places(Verdict::NotComparable, "not comparable", false),
        places(Verdict::New, "new: in the results, not in the baseline", false),
        numbers(Verdict::WithinNoise, "within noise", false).filter(|_| noise),
    ];
    findings.into_iter().flatten().collect()
}

/// How many findings are not shown.
fn more(left_out: usize) -> Option<String> {
    (left_out > 0).then(|| format!("and {left_out} more, which --json FILE names"))
}

fn cut(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars().take(longest).chain(['\u{2026}']).collect()
}

/// The verdict with its counts, in a line.
fn headline(comparison: &Comparison) -> String {
    let verdict = match (comparison.failed(), comparison.exact.is_some()) {
        (true, true) => "NOT THE SAME",
        (false, true) => "the same",
        (true, false) => "REGRESSION",
        (false, false) => "no regression",
    };
    let counts: Vec<String> = Verdict::all()
        .map(|verdict| (verdict, comparison.count(verdict)))
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{count} {}", verdict.name()))
        .collect();
    let incomplete = comparison.points.iter().filter(|point| lacks_samples(point)).count();
    let incomplete = if incomplete > 0 { format!(", {incomplete} lack samples") } else { String::new() };
    format!("{verdict}: {}{incomplete}", counts.join(", "))
}

/// What was compared with what, in a line.
fn sides(comparison: &Comparison) -> String {
    let side = |origin: &Origin| {
        let engines: Vec<String> = origin.engines.iter().map(u32::to_string).collect();
        let cells = counted(origin.cells, "cell");
        format!("{} (engine {}, {cells})", origin.name, engines.join(" and "))
    };
    let numbers = counted(comparison.compared(), "number");
    let how = match comparison.exact {
        Some(tolerance) => {
            let samples: usize = comparison.points.iter().map(|point| point.samples).sum();
            format!(", sample by sample ({samples} of them, parts included) within {tolerance:e}")
        }
        None => String::new(),
    };
    let [results, baseline] = [side(&comparison.results), side(&comparison.baseline)];
    format!("{numbers} of {results} compared with {baseline}{how}")
}

fn lacks_samples(point: &Point) -> bool {
    point.verdict != Verdict::Missing && !point.missing_samples.is_empty()
}

fn number(point: &Point, title: &str) -> Line {
    let value = |value: Option<f64>| value.map(|value| Entry::plain(point.metric.show(value)));
    let difference = point.difference.map(|of| Entry::estimate(of, |end| point.show_difference(end)));
    let threshold = point.threshold.clone().map(Entry::plain);
    let name = format!("{} \u{B7} {} \u{B7} {title}", point.place(), point.metric.label);
    Line::new(name, vec![value(point.before), value(point.after), difference, threshold])
}

/// The clusters that a number moved by, in a line.
fn clusters(point: &Point, title: &str) -> Option<String> {
    let named: Vec<String> = point.clusters_worse.iter().map(|cluster| in_cluster(point, cluster)).collect();
    let what = if point.verdict == Verdict::Regressed { "got worse" } else { "changed" };
    let place = format!("{} \u{B7} {} \u{B7} {title}", point.place(), point.metric.label);
    (!named.is_empty()).then(|| format!("{place}: clusters that {what}: {}", named.join(", ")))
}

/// `book.txt 93.10 -> 224.0`.
fn in_cluster(point: &Point, Cluster { name, before, after }: &Cluster) -> String {
    format!("{name} {} -> {}", point.metric.show(*before), point.metric.show(*after))
}

fn movement(point: &Point, moved: &Moved) -> Line {
    let slice = moved.slice.as_ref().map_or_else(String::new, |slice| format!(" ({slice})"));
    let metric = format!("{}{slice}", point.metric.id);
    let name = [&*point.key.model, &point.place(), &point.key.task, &moved.sample, &metric].join(" \u{B7} ");
    let cells = [moved.before.map(digits), moved.after.map(digits), Some(moved.what())];
    Line::new(name, cells.map(|shown| shown.map(Entry::plain)).into())
}

/// A line for each policy at a size, with its metrics.
fn places<'a>(points: impl Iterator<Item = &'a Point>, titles: &BTreeMap<&SeriesKey, String>) -> Vec<String> {
    let mut found: IndexMap<String, Vec<&str>> = IndexMap::new();
    for point in points {
        let why = point.why.as_ref().map_or_else(String::new, |why| format!(" \u{B7} {why}"));
        let place = format!("{} \u{B7} {}{why}", point.place(), titles[&point.key]);
        found.entry(place).or_default().push(&point.metric.label);
    }
    found.into_iter().map(|(place, names)| format!("{place}: {}", first_of(&names, 6))).collect()
}

/// A point that lacks samples, with the first of them.
fn lacking(point: &Point, title: &str) -> String {
    let names: Vec<&str> = point.missing_samples.iter().map(String::as_str).collect();
    let (n, some) = (counted(names.len(), "sample"), first_of(&names, 4));
    format!("{} \u{B7} {} \u{B7} {title}: {n}: {some}", point.place(), point.metric.label)
}

/// Ten digits: more than the default tolerance sees.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 1e7 || (size < 1e-3 && size > 0.0) => format!("{value:.9e}"),
        size => format!("{value:.*}", if size >= 1000.0 { 6 } else { 9 }),
    }
}
