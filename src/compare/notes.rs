//! Notes on rows that pair: other engines, definitions and texts under one name.

use std::collections::{BTreeMap, BTreeSet};

use super::exact::has_comparable_ids;
use super::side::{Side, head};
use crate::format::first_of;
use crate::ledger::{Row, Text};
use crate::metric::Metric;
use crate::report::series::definition;
use crate::report::{CellSums, SeriesKey, place};

/// The most samples that a note names.
const NAMED: usize = 5;

/// Says what differs under one name between the cells of two sides.
pub(super) fn of(before: &Side<'_>, after: &Side<'_>) -> Vec<String> {
    let mut engines = BTreeSet::new();
    // By policy: what differs at the first size.
    let mut definitions: BTreeMap<&str, String> = BTreeMap::new();
    let mut texts: BTreeMap<SeriesKey, Texts<'_>> = BTreeMap::new();
    for (subject, cell) in before {
        let Some(other) = after.get(subject) else { continue };
        let (a, b) = (head(cell), head(other));
        if a.engine != b.engine {
            engines.insert((a.engine, b.engine));
        }
        let differing = differing(a, b);
        let (policy, size) = &subject.policy;
        if !differing.is_empty() {
            let note = format!("{} is defined differently: {}", place(policy, *size), differing.join(", "));
            definitions.entry(policy).or_insert(note);
        }
        // The digest of a timing is that of the machine.
        if !Metric::of(subject.metric).is_timed() {
            texts.entry(subject.key.without_cache()).or_default().add(cell, other, differing.is_empty());
        }
    }
    let engine = |(a, b)| format!("engine {a} in the baseline, {b} in the results: numbers may differ on purpose");
    let mut notes: Vec<String> = engines.into_iter().map(engine).collect();
    notes.extend(definitions.into_values());
    let keys: Vec<SeriesKey> = texts.keys().cloned().collect();
    notes.extend(texts.iter().filter_map(|(key, texts)| Some(format!("{}: {}", key.title(&keys), texts.note()?))));
    notes
}

/// The settings of a policy that two rows of its name differ in: `keep_recent 8 (baseline) and 2 (results)`. A seed is one where it
/// decides what leaves.
fn differing(before: &Row, after: &Row) -> Vec<String> {
    let has_seed = [before, after].iter().all(|row| row.score.as_deref() == Some("random"));
    let pairs = definition(before).into_iter().zip(definition(after));
    pairs
        .filter(|((name, a), (_, b))| a != b && (*name != "seed" || has_seed))
        .map(|((name, a), (_, b))| format!("{name} {a} (baseline) and {b} (results)"))
        .collect()
}

/// The texts that the samples of one setting were measured on.
#[derive(Default)]
struct Texts<'a> {
    /// Digests of all texts, on either side, where they differ.
    digests: Option<[&'a Text; 2]>,
    /// Samples that both sides have, and whether a policy that is the same on both sides has other ids of them.
    samples: BTreeMap<&'a str, bool>,
}

impl<'a> Texts<'a> {
    fn add(&mut self, before: &CellSums<'a>, after: &CellSums<'a>, is_same_policy: bool) {
        let digests = [before, after].map(|cell| &head(cell).data);
        if digests[0] != digests[1] && digests.iter().all(|digest| !digest.is_empty()) {
            self.digests = Some(digests);
        }
        for (sample, a) in &before.samples {
            let Some(b) = after.samples.get(sample) else { continue };
            let is_told = is_same_policy && has_comparable_ids(a.row, b.row);
            *self.samples.entry(sample).or_default() |= is_told && a.row.sample_id != b.row.sample_id;
        }
    }

    /// Says what differs; `None` where everything is the same as far as rows tell.
    fn note(&self) -> Option<String> {
        let changed = self.samples.iter().filter(|(_, changed)| **changed);
        let changed: Vec<&str> = changed.map(|(name, _)| *name).collect();
        let mut said = Vec::new();
        if let Some(digests) = self.digests {
            // As much of a digest as tells two apart by eye.
            let [before, after] =
                digests.map(|digest| digest.trim_start_matches("sha256:").chars().take(8).collect::<String>());
            said.push(format!("the texts differ: digest {before} in the baseline, {after} in the results"));
        }
        if !changed.is_empty() {
            let (count, all, named) = (changed.len(), self.samples.len(), first_of(&changed, NAMED));
            said.push(format!(
                "{count} of {all} samples of one name were measured on other texts or settings: {named}"
            ));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Given, cell, compared};
    use super::super::{Options, Verdict};
    use super::*;
    use crate::report::fixture::changed;

    /// Seven books in one folder, and the texts of some of them.
    fn books(data: &str, changed_books: &str) -> Vec<Row> {
        let books = ["a", "b", "c", "d", "e", "f", "g"];
        let rows = cell("nll", &books.map(|book| -> Given { (book, book, 2.0, 1.0) }));
        changed(rows, |row| {
            let text = if changed_books.contains(row.sample.as_str()) { "other" } else { "same" };
            row.sample_id = format!("{}{text}", row.sample).into();
            row.data = format!("sha256:{data}").into();
        })
    }

    fn notes(before: &[Row], after: &[Row]) -> Vec<String> {
        compared(before, after, &Options::default()).notes
    }

    #[test]
    fn other_texts_under_one_name_are_named() {
        let before = books("0123456789abcdef", "");
        assert_eq!(notes(&before, &before), [""; 0]);
        let found = notes(&before, &books("fedcba9876543210", "bdf"));
        let [note] = &found[..] else { panic!("{found:?}") };
        let words = ["the texts differ", "01234567 ", "fedcba98 ", "3 of 7 samples", ": b, d, f"];
        assert!(words.iter().all(|word| note.contains(word)), "{note}");
        let found = notes(&before, &books("fedcba9876543210", "abcdefg"));
        assert!(
            found[0].contains("7 of 7 samples") && found[0].ends_with(": a, b, c, d, e and 2 more"),
            "{found:?}"
        );
        // A sweep that grew has another digest, and the samples of the baseline; rows of an older schema, and of another engine, do
        // not tell.
        let grown = books("fedcba9876543210", "");
        let older = changed(books("fedcba9876543210", "b"), |row| row.sample_id = Text::new());
        let newer = changed(books("fedcba9876543210", "b"), |row| row.engine = 9);
        for (before, after) in [(&before[..3], grown), (&before[..], older), (&before[..], newer)] {
            let found = notes(before, &after);
            assert!(found.iter().any(|note| note.ends_with("fedcba98 in the results")), "{found:?}");
        }
        // Settings that no column has.
        let found = notes(&before, &books("0123456789abcdef", "c"));
        assert!(found[0].contains("1 of 7 samples of one name") && !found[0].contains("digest"), "{found:?}");
    }

    #[test]
    fn another_definition_under_one_name_is_named_with_what_differs() {
        let of = |keep_recent: u32, sizes: &[u32]| -> Vec<Row> {
            let rows = |size: &u32| {
                changed(books("01", if keep_recent == 8 { "" } else { "abcdefg" }), |row| {
                    (row.keep_recent, row.cache_size, row.cell) =
                        (keep_recent, Some(*size), size.to_string().into());
                })
            };
            sizes.iter().flat_map(rows).collect()
        };
        let found = notes(&of(8, &[64]), &of(2, &[64]));
        assert_eq!(found, ["tova at 64 is defined differently: keep_recent 8 (baseline) and 2 (results)"]);
        assert_eq!(
            notes(&of(8, &[64, 128, 256]), &of(2, &[64, 128, 256])),
            found,
            "the first size stands for all"
        );
        // Only `random` depends on the seed.
        let seeded = |score: &str, seed: u64| {
            changed(books("01", ""), |row| (row.score, row.seed) = (Some(score.into()), seed))
        };
        assert_eq!(notes(&seeded("last_attention", 1), &seeded("last_attention", 2)), [""; 0]);
        let found = notes(&seeded("random", 1), &seeded("random", 2));
        assert!(found[0].ends_with("seed 1 (baseline) and 2 (results)"), "{found:?}");
        assert_eq!(
            compared(&seeded("random", 1), &seeded("random", 2), &Options::default()).count(Verdict::Equal),
            1
        );
    }
}
