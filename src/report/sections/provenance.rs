//! Where the numbers come from: sweeps, models, data, engine, commits, devices, dates and the time they took; and what the
//! words of a report mean.

use std::collections::{BTreeSet, HashSet};

use super::Report;
use crate::format;
use crate::report::Results;
use crate::report::document::{Block, Fact, Group, Item, Section};

const GLOSSARY: &str = include_str!("../../../docs/glossary.md");

pub(super) fn blocks(report: &Report<'_>) -> Vec<Block> {
    let all = Provenance::of(report.results);
    let facts = all.facts().into_iter().map(|(name, values)| Fact::new(name, values));
    let facts = facts.filter(|fact| !fact.items.is_empty()).collect();
    let numbers = Group::folded(all.counted(), vec![Block::Facts(facts)]);
    let words = Group::folded("Words of this report", vec![Block::Facts(glossary())]);
    Section::of("Where the numbers come from", vec![Block::Group(numbers), Block::Group(words)])
        .into_iter()
        .collect()
}

/// The words of docs/glossary.md with their meanings, without Markdown.
fn glossary() -> Vec<Fact> {
    let entries = GLOSSARY.split("\n* **").skip(1).filter_map(|entry| entry.split_once("**:"));
    let fact = |(word, meaning): (&str, &str)| {
        let words: Vec<&str> = meaning.split_whitespace().collect();
        let words = words.join(" ").replace('`', "");
        Fact { name: word.replace(['`', '*'], ""), items: vec![Item { words, ..Item::default() }] }
    };
    entries.map(fact).collect()
}

#[derive(Default)]
struct Provenance<'a> {
    /// Of complete cells, and of the others, whose rows no other program sees yet.
    counts: [Count<'a>; 2],
    samples: usize,
    seconds: f64,
    sweeps: BTreeSet<&'a str>,
    models: BTreeSet<(&'a str, &'a str, String)>,
    datasets: BTreeSet<&'a str>,
    engines: BTreeSet<u32>,
    commits: BTreeSet<&'a str>,
    devices: BTreeSet<&'a str>,
    dates: Option<(&'a str, &'a str)>,
}

#[derive(Default)]
struct Count<'a> {
    rows: usize,
    cells: HashSet<&'a str>,
}

impl<'a> Provenance<'a> {
    fn of(results: &'a Results<'_>) -> Self {
        let mut all = Self::default();
        // Each row of a sample repeats its seconds.
        let mut timed: HashSet<(&str, &str)> = HashSet::new();
        for of_cell in results.rows.chunk_by(|a, b| a.cell == b.cell) {
            let row = &of_cell[0];
            let count = &mut all.counts[usize::from(results.unfinished.contains(&row.cell))];
            count.rows += of_cell.len();
            count.cells.insert(&row.cell);
            all.sweeps.insert(&row.sweep);
            all.models.insert((&row.model, &row.model_revision, row.precision()));
            all.datasets.insert(&row.dataset);
            all.engines.insert(row.engine);
            all.commits.extend(row.commit.as_deref());
            all.devices.insert(&row.device);
            for of_sample in of_cell.chunk_by(|a, b| a.sample == b.sample) {
                let row = &of_sample[0];
                if timed.insert((&row.cell, &row.sample)) {
                    all.seconds += row.seconds;
                    all.samples += 1;
                    let (first, last) = all.dates.unwrap_or((&row.date, &row.date));
                    all.dates = Some((first.min(&row.date), last.max(&row.date)));
                }
            }
        }
        all
    }

    /// `120 rows of 3 cells`; or `80 rows of 2 complete cells, and 40 rows of 1 incomplete cell`.
    fn counted(&self) -> String {
        let counted = |count: &Count<'_>, cell: &str| {
            format!("{} of {}", format::counted(count.rows, "row"), format::counted(count.cells.len(), cell))
        };
        let [complete, incomplete] = &self.counts;
        if incomplete.rows == 0 {
            return counted(complete, "cell");
        }
        format!("{}, and {}", counted(complete, "complete cell"), counted(incomplete, "incomplete cell"))
    }

    /// Everything else by name, as plain values that are not escaped.
    fn facts(&self) -> Vec<(&'static str, Vec<String>)> {
        let texts = |texts: &BTreeSet<&str>| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let model = |(model, revision, dtype): &(&str, &str, String)| match revision.is_empty() {
            true => format!("{model}, {dtype}"),
            false => format!("{model}, {dtype}, {revision}"),
        };
        let date = |(first, end): (&str, &str)| {
            if first == end { first.to_owned() } else { format!("{first} to {end}") }
        };
        vec![
            ("sweep", texts(&self.sweeps)),
            ("model", self.models.iter().map(model).collect()),
            ("data", texts(&self.datasets)),
            ("engine", self.engines.iter().map(u32::to_string).collect()),
            ("commit", texts(&self.commits)),
            ("device", texts(&self.devices)),
            ("measured", self.dates.map(date).into_iter().collect()),
            (
                "compute time",
                vec![format!(
                    "{} for {}",
                    format::duration(self.seconds),
                    format::counted(self.samples, "sample")
                )],
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::report::fixture::{cell, changed};

    #[test]
    fn seconds_of_a_sample_count_once() {
        let tova = |metric| cell(metric, "tova", Some(8), &[("a", 1.0, 1.0), ("b", 1.0, 1.0)]);
        let full =
            changed(cell("nll", "full", None, &[("a", 1.0, 1.0)]), |row| row.date = "2025-05-05T00:00:00Z".into());
        let rows = [tova("nll"), tova("nll_word"), full].concat();
        let results = Results::of(&rows).unwrap();
        let found = Provenance::of(&results);
        assert_eq!((found.seconds, found.samples, &*found.counted()), (3.0, 3, "5 rows of 2 cells"));
        assert_eq!(found.dates, Some(("2025-05-05T00:00:00Z", "2026-01-01T00:00:00Z")));
        // `rows.parquet` has those of `full` alone.
        let results = Results::of_unfinished(&rows, &BTreeMap::from([(rows[0].cell.clone(), 3)])).unwrap();
        let counted = Provenance::of(&results).counted();
        assert_eq!(counted, "1 row of 1 complete cell, and 4 rows of 1 incomplete cell");
    }
}
