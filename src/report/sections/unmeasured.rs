//! Samples that could not be measured, and those whose share of the prompt is less than a policy protects: how many, and which.

use indexmap::IndexMap;

use super::Setting;
use crate::format::{counted, first_of};
use crate::ledger::Row;
use crate::metric::{NOT_MEASURED, SHARE_RAISED};
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

fn is_noted(row: &Row) -> bool {
    [NOT_MEASURED, SHARE_RAISED].contains(&row.metric.as_str())
}

/// A metric, and the samples that have it.
type Noted<'a> = (&'a str, Vec<&'a str>);

/// A sentence for each reason: the cells, the first samples, and why. Other rows are passed over.
pub fn unmeasured(rows: &[&Row]) -> Vec<String> {
    let mut cells: IndexMap<(&str, String), Vec<&Row>> = IndexMap::new();
    for row in rows.iter().filter(|row| is_noted(row)) {
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
        match first.output.as_deref().filter(|_| metric == NOT_MEASURED) {
            Some(why) => format!("not measured: {count} under {cells} ({which}), the first because {why}"),
            None => format!("{cells}: in {count} ({which}) the policy protects more than the share, and keeps it"),
        }
    };
    alike.into_iter().map(sentence).collect()
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
        ]
        .concat();
        let expected = [
            "not measured: 1 sample under full, tova at 64 (b), the first because it does not fit",
            "not measured: 4 samples under truncate at 64 (a, b, c and 1 more), the first because it does not fit",
            "snapkv at 25%: in 1 sample (a) the policy protects more than the share, and keeps it",
        ];
        assert_eq!(unmeasured(&rows.iter().collect::<Vec<_>>()), expected);
        assert!(unmeasured(&[&rows[0]]).is_empty());
    }
}
