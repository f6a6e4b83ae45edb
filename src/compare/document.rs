//! A comparison as a document: the verdict, failures in full view, the worst first, then other changes.
//!
//! It is limited to a readable length: GitHub allows 65,536 characters in a comment. The JSON has everything.

use indexmap::IndexMap;

use super::comparison::{Comparison, Origin};
use super::point::{Moved, Point, Verdict};
use crate::format::{counted, first_of};
use crate::report::{Block, Document, Entry, Grid, Group, Line, Table};

/// The longest name shown, in characters.
const LONGEST: usize = 160;
/// The longest sentence, which may name several things.
const LONGEST_NOTE: usize = 300;

/// The most findings shown of each kind.
const MOST_SHOWN: usize = 20;

/// The verdict, what was compared, and the findings.
pub fn document(comparison: &Comparison) -> Document {
    let mut blocks = vec![Block::Paragraph(cut(&sides(comparison), LONGEST_NOTE))];
    blocks.extend(findings(comparison));
    let notes: Vec<String> = comparison.notes.iter().map(|note| cut(note, LONGEST_NOTE)).collect();
    blocks.extend((!notes.is_empty()).then(|| Block::Group(Group::open("Notes", vec![Block::List(notes)]))));
    Document { title: headline(comparison), blocks }
}

/// Everything worth showing; numbers that moved within noise are in the counts only.
fn findings(comparison: &Comparison) -> Vec<Block> {
    let titles = comparison.titles();
    let named = |point: &Point| format!("{} \u{B7} {}", point.place(), titles[&point.key]);
    let number =
        |point: &Point| format!("{} \u{B7} {} \u{B7} {}", point.place(), point.metric.label, titles[&point.key]);
    let more = |count: usize| {
        (count > MOST_SHOWN).then(|| format!("and {} more, which --json FILE names", count - MOST_SHOWN))
    };
    let finding = |title: &str, is_open: bool, count: usize, block: Block| {
        let group = Group::folded(format!("{title} ({count})"), vec![block]);
        (count > 0).then_some(Block::Group(Group { is_open, ..group }))
    };
    let table = |about: &str, corner: &'static str, columns: &[&str], lines: Vec<Line>, notes: Vec<String>| {
        let notes = notes.into_iter().take(MOST_SHOWN).chain(more(lines.len())).collect();
        let columns = columns.iter().map(|column| (*column).into()).collect();
        let lines = lines
            .into_iter()
            .take(MOST_SHOWN)
            .map(|line| Line { name: cut(&line.name, LONGEST), ..line })
            .collect();
        Block::Table(Table { notes, ..Table::new("", about, corner, Grid { columns, lines }) })
    };
    let list = |items: Vec<String>| {
        let more = more(items.len());
        Block::List(items.into_iter().take(MOST_SHOWN).map(|item| cut(&item, LONGEST_NOTE)).chain(more).collect())
    };
    let numbers = |verdict: Verdict, title: &str, fails: bool| {
        let points = comparison.worst(verdict);
        let lines = points.iter().map(|point| Line::new(number(point), values(point))).collect();
        let columns = ["baseline", "results", "difference", "threshold"];
        let about = "Differences are results minus baseline, over the samples both have, with 95 % intervals of the pairs.";
        let notes = points.iter().filter(|point| !point.clusters_worse.is_empty());
        let notes = notes.map(|point| cut(&format!("{}: {}", number(point), clusters(point)), LONGEST_NOTE));
        finding(title, fails, points.len(), table(about, "number", &columns, lines, notes.collect()))
    };
    // A line for each policy at a size, with its metrics.
    let places = |verdict: Verdict, title: &str, fails: bool| {
        let mut places: IndexMap<String, Vec<&str>> = IndexMap::new();
        for point in comparison.points.iter().filter(|point| point.verdict == verdict) {
            let why = point.why.as_ref().map_or_else(String::new, |why| format!(" \u{B7} {why}"));
            places.entry(named(point) + &why).or_default().push(&point.metric.label);
        }
        let items = places.iter().map(|(place, metrics)| format!("{place}: {}", first_of(metrics, 6)));
        finding(title, fails, comparison.count(verdict), list(items.collect()))
    };
    let moved: Vec<Line> = comparison.moved().into_iter().map(|(point, moved)| movement(point, moved)).collect();
    let about = "Numbers are value / weight of a sample, as the rows have them.";
    let (moves, moved) = (moved.len(), table(about, "sample", &["before", "after", "change"], moved, Vec::new()));
    let lacking = comparison.points.iter().filter(|point| lacks_samples(point)).map(|point| {
        let names: Vec<&str> = point.missing_samples.iter().map(String::as_str).collect();
        format!("{}: {}: {}", number(point), counted(names.len(), "sample"), first_of(&names, 4))
    });
    let lacking: Vec<String> = lacking.collect();
    let missing = comparison.worst(Verdict::Missing).iter().any(|point| point.fails(comparison.allow_missing));
    let findings = [
        numbers(Verdict::Regressed, "regressed", true),
        finding("samples that moved", true, moves, moved),
        places(Verdict::AnotherEngine, "measured by another engine", true),
        places(Verdict::Missing, "missing: in the baseline, not in the results", missing),
        finding("samples missing", !comparison.allow_missing, lacking.len(), list(lacking)),
        numbers(Verdict::Improved, "improved", false),
        numbers(Verdict::Changed, "changed; which way is better is not known", false),
        places(Verdict::NotComparable, "not comparable", false),
        places(Verdict::New, "new: in the results, not in the baseline", false),
    ];
    findings.into_iter().flatten().collect()
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
    let counts = Verdict::NAMES.map(|(verdict, name)| (comparison.count(verdict), name)).into_iter();
    let lacking = comparison.points.iter().filter(|point| lacks_samples(point)).count();
    let counts = counts.chain([(lacking, "lack samples")]).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    format!("{verdict}: {}", counts.join(", "))
}

/// A line that says what was compared with what.
fn sides(comparison: &Comparison) -> String {
    let side = |origin: &Origin| {
        let engines: Vec<String> = origin.engines.iter().map(u32::to_string).collect();
        let cells = counted(origin.cells, "cell");
        format!("{} (engine {}, {cells})", origin.name, engines.join(" and "))
    };
    let numbers = counted(comparison.compared(), "number");
    let how = comparison.exact.map_or_else(String::new, |tolerance| {
        let samples: usize = comparison.points.iter().map(|point| point.samples).sum();
        format!(", sample by sample ({samples} of them, parts included) within {tolerance:e}")
    });
    let [results, baseline] = [side(&comparison.results), side(&comparison.baseline)];
    format!("{numbers} of {results} compared with {baseline}{how}")
}

fn lacks_samples(point: &Point) -> bool {
    point.verdict != Verdict::Missing && !point.missing_samples.is_empty()
}

/// The cells of a number's line: both sides, the difference, and the threshold.
fn values(point: &Point) -> Vec<Option<Entry>> {
    let value = |value: Option<f64>| value.map(|value| Entry::plain(point.metric.show(value)));
    let difference = point.difference.map(|of| Entry::estimate(of, |end| point.show_difference(end)));
    vec![value(point.before), value(point.after), difference, point.threshold.clone().map(Entry::plain)]
}

/// The clusters that a number moved by, in words: `book.txt 93.10 -> 224.0`.
fn clusters(point: &Point) -> String {
    let show = |value| point.metric.show(value);
    let clusters = point.clusters_worse.iter();
    let named = clusters.map(|of| format!("{} {} -> {}", of.name, show(of.before), show(of.after)));
    let what = if point.verdict == Verdict::Regressed { "got worse" } else { "changed" };
    format!("clusters that {what}: {}", named.collect::<Vec<_>>().join(", "))
}

fn movement(point: &Point, moved: &Moved) -> Line {
    let name =
        [&*point.key.model, &point.place(), &point.key.task, &moved.sample, &point.metric.id].join(" \u{B7} ");
    // Ten digits: more than the default tolerance sees.
    let digits = |value: f64| match value.abs() {
        size if size >= 1e7 || (size < 1e-3 && size > 0.0) => format!("{value:.9e}"),
        size => format!("{value:.*}", if size >= 1000.0 { 6 } else { 9 }),
    };
    let cells = [moved.before.map(digits), moved.after.map(digits), Some(moved.what())];
    Line::new(name, cells.map(|shown| shown.map(Entry::plain)).into())
}
