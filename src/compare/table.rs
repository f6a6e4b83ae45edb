//! A comparison as sections: the verdict, failures first, then other changes.
//!
//! Plain text, which formats escape, limited to a readable length. The JSON has everything.

use std::collections::BTreeMap;

use super::point::{Comparison, Moved, Point, Verdict};
use crate::format::counted;
use crate::report::{Entry, Grid, Line, SeriesKey, Sheet};

/// One kind of finding.
pub(super) struct Section {
    pub(super) title: String,
    /// Whether it is why the comparison failed.
    pub(super) fails: bool,
    pub(super) sheet: Option<Sheet>,
    /// Findings without numbers, one line each.
    pub(super) lines: Vec<String>,
    /// How many findings are not shown.
    pub(super) left_out: usize,
}

/// The verdict with its counts, in a line.
pub(super) fn headline(comparison: &Comparison) -> String {
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
pub(super) fn sides(comparison: &Comparison) -> String {
    let side = |origin: &super::Origin| {
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

/// How many intervals would exclude zero by chance.
pub(super) fn chance(comparison: &Comparison) -> Option<String> {
    let intervals = comparison.intervals();
    let expected = intervals as f64 / 20.0;
    (intervals > 0).then(|| {
        let found = comparison.excluding_zero();
        format!(
            "intervals at 95 % of numbers that moved at all: {intervals}, of which {found} exclude zero; by chance alone \
             about {expected:.1} would"
        )
    })
}

fn lacks_samples(point: &Point) -> bool {
    point.verdict != Verdict::Missing && !point.missing_samples.is_empty()
}

/// Everything worth showing, `limit` findings of each kind.
pub(super) fn sections(comparison: &Comparison, limit: usize) -> Vec<Section> {
    let names = Names(comparison.titles());
    let missing_fails = !comparison.allow_missing;
    let section = |title: &str, fails: bool, count: usize, sheet: Option<Sheet>, mut lines: Vec<String>| {
        let left_out = if sheet.is_some() { count } else { lines.len() }.saturating_sub(limit);
        lines.truncate(limit);
        (count > 0).then(|| Section { title: format!("{title} ({count})"), fails, sheet, lines, left_out })
    };
    let numbers = |verdict: Verdict, title: &str, fails: bool| {
        let points = comparison.worst(verdict);
        let sheet = names.numbers(title, points.get(..limit).unwrap_or(&points));
        section(title, fails, points.len(), Some(sheet), Vec::new())
    };
    let places = |verdict: Verdict, title: &str, fails: bool| {
        let lines = names.places(comparison.points.iter().filter(|point| point.verdict == verdict));
        section(title, fails, comparison.count(verdict), None, lines)
    };
    let moved = comparison.moved();
    let moved_sheet = names.moved(moved.get(..limit).unwrap_or(&moved));
    let lacking: Vec<&Point> = comparison.points.iter().filter(|point| lacks_samples(point)).collect();
    let sections = [
        numbers(Verdict::Regressed, "regressed", true),
        section("samples that moved", true, moved.len(), Some(moved_sheet), Vec::new()),
        places(Verdict::AnotherEngine, "measured by another engine", true),
        places(Verdict::Missing, "missing: in the baseline, not in the results", missing_fails),
        section("samples missing", missing_fails, lacking.len(), None, names.lacking(&lacking)),
        numbers(Verdict::Improved, "improved", false),
        numbers(Verdict::Changed, "changed; which way is better is not known", false),
        places(Verdict::NotComparable, "not comparable", false),
        places(Verdict::New, "new: in the results, not in the baseline", false),
        numbers(Verdict::WithinNoise, "within noise", false),
    ];
    sections.into_iter().flatten().collect()
}

/// The titles of keys beside each other.
struct Names<'a>(BTreeMap<&'a SeriesKey, String>);

impl Names<'_> {
    fn title(&self, point: &Point) -> &str {
        self.0.get(&point.key).map_or("", String::as_str)
    }

    fn numbers(&self, title: &str, points: &[&Point]) -> Sheet {
        let columns = ["baseline", "results", "difference", "threshold"].map(str::to_owned).to_vec();
        let lines = points.iter().map(|point| Line {
            name: format!("{} \u{B7} {} \u{B7} {}", point.place(), point.metric.label, self.title(point)),
            cells: vec![
                point.before.map(|value| Entry::plain(point.metric.show(value))),
                point.after.map(|value| Entry::plain(point.metric.show(value))),
                point.difference.map(|difference| Entry {
                    spread: difference.interval.map(|interval| {
                        let [low, high] = [interval.low, interval.high].map(|end| point.show_difference(end));
                        format!("[{low}, {high}]")
                    }),
                    ..Entry::plain(point.show_difference(difference.value))
                }),
                point.threshold.clone().map(Entry::plain),
            ],
        });
        Sheet {
            title: title.to_owned(),
            about:
                "Differences are results minus baseline, over the samples both have, with 95 % intervals of the \
                    pairs."
                    .to_owned(),
            corner: "number",
            grid: Grid { columns, lines: lines.collect() },
            notes: Vec::new(),
        }
    }

    fn moved(&self, moved: &[(&Point, &Moved)]) -> Sheet {
        let columns = ["before", "after", "change"].map(str::to_owned).to_vec();
        let lines = moved.iter().map(|(point, moved)| {
            let slice = moved.slice.as_ref().map_or_else(String::new, |slice| format!(" ({slice})"));
            let key = &point.key;
            let Moved { before, after, weight_before, weight_after, .. } = **moved;
            let change = match (weight_before.to_bits() == weight_after.to_bits(), moved.text_differs) {
                (false, _) => format!("weight {weight_before} to {weight_after}"),
                (true, true) if moved.change == 0.0 => "another text".to_owned(),
                (true, true) => format!("{:+.1e}, text", after - before),
                (true, false) => format!("{:+.1e}", after - before),
            };
            Line {
                name: format!(
                    "{} \u{B7} {} \u{B7} {} \u{B7} {} \u{B7} {}{slice}",
                    key.model,
                    point.place(),
                    key.task,
                    moved.sample,
                    point.metric.id
                ),
                cells: vec![
                    Some(Entry::plain(digits(before))),
                    Some(Entry::plain(digits(after))),
                    Some(Entry::plain(change)),
                ],
            }
        });
        Sheet {
            title: "samples that moved".to_owned(),
            about: "Numbers are value / weight of a sample, as the rows have them.".to_owned(),
            corner: "sample",
            grid: Grid { columns, lines: lines.collect() },
            notes: Vec::new(),
        }
    }

    /// A line for each policy at a size, with its metrics.
    fn places<'a>(&self, points: impl Iterator<Item = &'a Point>) -> Vec<String> {
        let mut found: Vec<(String, Vec<&str>)> = Vec::new();
        for point in points {
            let why = point.why.as_ref().map_or_else(String::new, |why| format!(" \u{B7} {why}"));
            let place = format!("{} \u{B7} {}{why}", point.place(), self.title(point));
            match found.iter_mut().find(|(other, _)| *other == place) {
                Some((_, names)) => names.push(&point.metric.label),
                None => found.push((place, vec![&point.metric.label])),
            }
        }
        found.into_iter().map(|(place, names)| format!("{place}: {}", some(&names, 6))).collect()
    }

    /// A line for each point that lacks samples, with the first of them.
    fn lacking(&self, points: &[&Point]) -> Vec<String> {
        let line = |point: &&Point| {
            let names: Vec<&str> = point.missing_samples.iter().map(String::as_str).collect();
            let title = self.title(point);
            let (n, some) = (counted(names.len(), "sample"), some(&names, 4));
            format!("{} \u{B7} {} \u{B7} {title}: {n}: {some}", point.place(), point.metric.label)
        };
        points.iter().map(line).collect()
    }
}

/// The first few, and how many more.
fn some(names: &[&str], most: usize) -> String {
    let shown = names.iter().take(most).copied().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(most);
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// Ten digits: more than the default tolerance sees.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 1e7 || (size < 1e-3 && size > 0.0) => format!("{value:.9e}"),
        size => format!("{value:.*}", if size >= 1000.0 { 6 } else { 9 }),
    }
}
