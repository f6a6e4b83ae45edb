//! Where the numbers come from: sweeps, models, data, engine, commits, devices, dates and the time they took; and what the
//! words of a report mean.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::Report;
use crate::format;
use crate::ledger::Row;
use crate::report::document::{Block, Fact, Group, Item, Section};
use crate::report::series::Results;

const GLOSSARY: &str = include_str!("../../../docs/glossary.md");

pub(super) fn blocks(report: &Report<'_>) -> Vec<Block> {
    let facts = facts(report.results).into_iter().map(|(name, values)| Fact::new(name, values));
    let facts = facts.filter(|fact| !fact.items.is_empty()).collect();
    let numbers = Group::folded(counted(report.results), vec![Block::Facts(facts)]);
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

/// `120 rows of 3 cells`; or `80 rows of 2 complete cells, and 40 rows of 1 incomplete cell`, whose rows no other program sees yet.
fn counted(results: &Results<'_>) -> String {
    let counted = |is_unfinished: bool, cell: &str| {
        let rows = results.rows.iter().filter(|row| results.unfinished.contains(&row.cell) == is_unfinished);
        let cells: HashSet<&str> = rows.clone().map(|row| row.cell.as_str()).collect();
        let (rows, cells) = (rows.count(), cells.len());
        (rows, format!("{} of {}", format::counted(rows, "row"), format::counted(cells, cell)))
    };
    match counted(true, "incomplete cell") {
        (0, _) => counted(false, "cell").1,
        (_, incomplete) => format!("{}, and {incomplete}", counted(false, "complete cell").1),
    }
}

/// Everything else by name, as plain values that are not escaped.
fn facts(results: &Results<'_>) -> Vec<(&'static str, Vec<String>)> {
    // Each row of a sample repeats its seconds.
    let heads = results.rows.chunk_by(|a, b| (&a.cell, &a.sample) == (&b.cell, &b.sample));
    let samples: BTreeMap<(&str, &str), &Row> =
        heads.map(|rows| ((rows[0].cell.as_str(), rows[0].sample.as_str()), &rows[0])).collect();
    let distinct = |of: fn(&Row) -> String| {
        let values: BTreeSet<String> = samples.values().map(|row| of(row)).collect();
        Vec::from_iter(values)
    };
    let model = |row: &Row| match row.model_revision.is_empty() {
        true => format!("{}, {}", row.model, row.precision()),
        false => format!("{}, {}, {}", row.model, row.precision(), row.model_revision),
    };
    let dates = distinct(|row| row.date.to_string());
    let measured = match &dates[..] {
        [first, .., last] => format!("{first} to {last}"),
        one => one.concat(),
    };
    let seconds = format::duration(samples.values().map(|row| row.seconds).sum());
    vec![
        ("sweep", distinct(|row| row.sweep.to_string())),
        ("model", distinct(model)),
        ("data", distinct(|row| row.dataset.to_string())),
        ("engine", distinct(|row| row.engine.to_string())),
        ("commit", distinct(|row| row.commit.as_deref().unwrap_or_default().to_owned())),
        ("device", distinct(|row| row.device.to_string())),
        ("measured", vec![measured]),
        ("compute time", vec![format!("{seconds} for {}", format::counted(samples.len(), "sample"))]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, changed};

    #[test]
    fn seconds_of_a_sample_count_once() {
        let tova = |metric| cell(metric, "tova", Some(8), &[("a", 1.0, 1.0), ("b", 1.0, 1.0)]);
        let full =
            changed(cell("nll", "full", None, &[("a", 1.0, 1.0)]), |row| row.date = "2025-05-05T00:00:00Z".into());
        let rows = [tova("nll"), tova("nll_word"), full].concat();
        let results = Results::of(&rows).unwrap();
        assert_eq!(counted(&results), "5 rows of 2 cells");
        let found = BTreeMap::from_iter(facts(&results));
        assert_eq!(found["compute time"], [format!("{} for 3 samples", format::duration(3.0))]);
        assert_eq!(found["measured"], ["2025-05-05T00:00:00Z to 2026-01-01T00:00:00Z"]);
        // `rows.parquet` has those of `full` alone.
        let results = Results::of_sweep(&rows, &BTreeMap::from([(rows[0].cell.clone(), 3)]), &[]).unwrap();
        assert_eq!(counted(&results), "1 row of 1 complete cell, and 4 rows of 1 incomplete cell");
    }
}
