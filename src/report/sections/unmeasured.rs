//! What to know of samples beside their numbers, in sentences: those that could not be measured or in which a formula gave no number,
//! those whose share of the prompt is less than a policy protects, those that repeat their prompt, and books that are too short.

use indexmap::IndexMap;

use super::{Report, Setting};
use crate::format::{counted, first_of};
use crate::ledger::Row;
use crate::metric::{NO_NUMBER, NOT_MEASURED, REPEATS_PROMPT, SHARE_RAISED, TOO_SHORT};
use crate::report::document::Block;
use crate::report::series::{SeriesKey, Size, place};

/// Most samples and cells that a sentence names.
const SHOWN: usize = 3;

pub(super) fn blocks(setting: &Setting<'_>) -> Vec<Block> {
    let is_own = |row: &&Row| match (SeriesKey::of(row), setting.key.of_rows()) {
        (own, key) if row.never_evicts() => own.without_cache() == key.without_cache(),
        (own, key) => own == key,
    };
    let rows = setting.report.results.rows.iter().filter(|row| is_noted(row)).filter(is_own);
    let notes = unmeasured(&rows.collect::<Vec<_>>());
    if notes.is_empty() { Vec::new() } else { vec![Block::List(notes)] }
}

/// The cells that failed, which have no place in any table.
pub(super) fn failed(report: &Report<'_>) -> Vec<Block> {
    let notes: Vec<String> = report.results.failed.iter().map(|cell| format!("failed: {cell}")).collect();
    if notes.is_empty() { Vec::new() } else { vec![Block::List(notes)] }
}

fn is_noted(row: &Row) -> bool {
    [NOT_MEASURED, SHARE_RAISED, NO_NUMBER, REPEATS_PROMPT, TOO_SHORT].contains(&row.metric.as_str())
}

/// Whether a row is about a text, whatever the cache.
fn is_of_text(row: &Row) -> bool {
    [REPEATS_PROMPT, TOO_SHORT].contains(&row.metric.as_str())
}

/// A metric, and the samples that have it.
type Noted<'a> = (&'a str, Vec<&'a str>);

/// A sentence for each reason: the cells, the first samples, and why; last what is so of texts under every cache. Other rows are passed over.
pub fn unmeasured(rows: &[&Row]) -> Vec<String> {
    let mut cells: IndexMap<(&str, String), Vec<&Row>> = IndexMap::new();
    for row in rows.iter().filter(|row| is_noted(row) && !is_of_text(row)) {
        let cell = (row.metric.as_str(), place(&row.variant(), Size::of(row)));
        cells.entry(cell).or_default().push(row);
    }
    // Cells that lack the same samples share a sentence.
    let mut alike: IndexMap<Noted<'_>, (Vec<String>, &Row)> = IndexMap::new();
    for ((metric, cell), rows) in cells {
        let samples = rows.iter().map(|row| row.sample.as_str()).collect();
        alike.entry((metric, samples)).or_insert_with(|| (Vec::new(), rows[0])).0.push(cell);
    }
    let sentence = |((metric, samples), (cells, first)): (Noted<'_>, (Vec<String>, &Row))| {
        let (count, which) = (counted(samples.len(), "sample"), first_of(&samples, SHOWN));
        let cells = first_of(&cells.iter().map(String::as_str).collect::<Vec<_>>(), SHOWN);
        match (metric, first.output.as_deref()) {
            (NOT_MEASURED, Some(why)) => {
                format!("not measured: {count} under {cells} ({which}), the first because {why}")
            }
            (NO_NUMBER, _) => format!(
                "{cells}: in {count} ({which}) scores are not numbers, in the first {} of {}; such entries stay while others have numbers",
                first.value, first.weight
            ),
            _ => format!("{cells}: in {count} ({which}) the policy protects more than the share, and keeps it"),
        }
    };
    alike.into_iter().map(sentence).chain(of_texts(rows)).collect()
}

/// The sentences about texts, whatever the cache.
fn of_texts(rows: &[&Row]) -> Vec<String> {
    let mut repeats: IndexMap<&str, &Row> = IndexMap::new();
    let mut short: IndexMap<&str, &Row> = IndexMap::new();
    for row in rows {
        match row.metric.as_str() {
            REPEATS_PROMPT => drop(repeats.insert(&row.sample, row)),
            TOO_SHORT => drop(short.insert(row.output.as_deref().unwrap_or_default(), row)),
            _ => {}
        }
    }
    let mut sentences = Vec::new();
    if let Some(most) = repeats.values().max_by(|a, b| a.value.total_cmp(&b.value)) {
        let names: Vec<&str> = repeats.keys().copied().collect();
        sentences.push(format!(
            "repeated prompts: in {} ({}) 32 or more scored tokens in a row are in the prompt too, most in {} with {} of {}",
            counted(names.len(), "sample"),
            first_of(&names, SHOWN),
            most.sample,
            most.value,
            counted(most.weight as usize, "token")
        ));
    }
    sentences.extend(short.into_iter().map(|(names, row)| {
        let names: Vec<&str> = names.split(", ").collect();
        format!(
            "too short for the samples asked for: {} of {} ({})",
            row.value,
            counted(row.weight as usize, "book"),
            first_of(&names, SHOWN)
        )
    }));
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{at_share, cell, changed};

    #[test]
    fn cells_that_lack_the_same_samples_share_a_sentence() {
        let missing = |policy: &str, size, samples: &[&str]| {
            let samples: Vec<(&str, f64, f64)> = samples.iter().map(|sample| (*sample, 1.0, 1.0)).collect();
            changed(cell(NOT_MEASURED, policy, size, &samples), |row| row.output = Some("it does not fit".into()))
        };
        let rows = [
            cell("f1", "full", None, &[("a", 1.0, 1.0)]),
            missing("full", None, &["b"]),
            missing("tova", Some(64), &["b"]),
            missing("truncate", Some(64), &["a", "b", "c", "d"]),
            at_share(0.25, cell(SHARE_RAISED, "snapkv", None, &[("a", 1.0, 1.0)])),
            cell(NO_NUMBER, "mine", Some(64), &[("a", 3.0, 80.0), ("c", 1.0, 80.0)]),
            // Whatever the cells, and where a cell lacks samples.
            cell(REPEATS_PROMPT, "full", None, &[("a", 40.0, 512.0), ("b", 66.0, 512.0)]),
            cell(REPEATS_PROMPT, "tova", Some(64), &[("a", 40.0, 512.0)]),
            changed(cell(TOO_SHORT, "full", None, &[("a", 2.0, 25.0)]), |row| row.output = Some("x, y".into())),
            changed(cell(TOO_SHORT, "tova", Some(64), &[("a", 2.0, 25.0)]), |row| {
                row.output = Some("x, y".into())
            }),
        ]
        .concat();
        let expected = [
            "not measured: 1 sample under full, tova at 64 (b), the first because it does not fit",
            "not measured: 4 samples under truncate at 64 (a, b, c and 1 more), the first because it does not fit",
            "snapkv at 25%: in 1 sample (a) the policy protects more than the share, and keeps it",
            "mine at 64: in 2 samples (a, c) scores are not numbers, in the first 3 of 80; such entries stay while others have numbers",
            "repeated prompts: in 2 samples (a, b) 32 or more scored tokens in a row are in the prompt too, most in b with 66 of 512 tokens",
            "too short for the samples asked for: 2 of 25 books (x, y)",
        ];
        assert_eq!(unmeasured(&rows.iter().collect::<Vec<_>>()), expected);
        assert!(unmeasured(&[&rows[0]]).is_empty());
    }
}
