//! What a reader must know of the rows: other engines, definitions and texts under one name, keys that pair with nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::exact::has_comparable_ids;
use super::point::{Point, Verdict};
use super::side::{Numbers, Side};
use crate::format::first_of;
use crate::ledger::{Row, Text};
use crate::metric::Metric;
use crate::report::series::definition;
use crate::report::{SeriesKey, place};

/// Most samples that a note names.
const NAMED: usize = 5;

/// Of the pairs of two sides, and of the keys without a partner.
pub(super) fn of(before: &Side<'_>, after: &Side<'_>, points: &[Point]) -> Vec<String> {
    let mut engines = BTreeSet::new();
    let mut weighed = 0;
    // By policy: what differs at the first size.
    let mut definitions: BTreeMap<&str, String> = BTreeMap::new();
    let mut texts: BTreeMap<SeriesKey, Texts<'_>> = BTreeMap::new();
    for (subject, numbers) in before {
        let Some(other) = after.get(subject) else { continue };
        let (a, b) = (numbers.row, other.row);
        if a.engine != b.engine {
            engines.insert((a.engine, b.engine));
        }
        let definition = differing(&definition_of(a), &definition_of(b));
        let (policy, size) = &subject.policy;
        if !definition.is_empty() {
            let note = format!("{} is defined differently: {}", place(policy, *size), definition.join(", "));
            definitions.entry(policy).or_insert(note);
        }
        weighed += usize::from(numbers.both(other).iter().any(|(_, a, b)| a.sums.weight != b.sums.weight));
        // The digest of a timing is that of the machine.
        if !Metric::of(subject.metric).is_timed() {
            let is_same_policy = definition.is_empty();
            texts.entry(subject.key.without_cache()).or_default().add(numbers, other, is_same_policy);
        }
    }
    let engine = |(a, b)| format!("engine {a} in the baseline, {b} in the results: numbers may differ on purpose");
    let mut notes: Vec<String> = engines.into_iter().map(engine).collect();
    notes.extend(definitions.into_values());
    let keys: Vec<SeriesKey> = texts.keys().cloned().collect();
    notes.extend(texts.iter().filter_map(|(key, texts)| Some(format!("{}: {}", key.title(&keys), texts.note()?))));
    if weighed > 0 {
        notes.push(format!("{weighed} numbers weigh their samples differently from the baseline"));
    }
    notes.extend(nearly_paired(points));
    notes
}

/// What a policy's name stands for. A seed is part of it where it decides what leaves.
fn definition_of(row: &Row) -> Vec<(&'static str, String)> {
    let is_drawn = row.score.as_deref() == Some("random");
    definition(row).into_iter().filter(|(name, _)| *name != "seed" || is_drawn).collect()
}

/// The fields that differ: `revision 0123 (baseline) and 4567 (results)`.
fn differing<N: Display>(before: &[(N, String)], after: &[(N, String)]) -> Vec<String> {
    let pairs = before.iter().zip(after).filter(|((_, a), (_, b))| a != b);
    pairs.map(|((name, a), (_, b))| format!("{name} {a} (baseline) and {b} (results)")).collect()
}

/// What the samples of one setting were measured on.
#[derive(Default)]
struct Texts<'a> {
    /// Digests of all texts, on either side, where they differ.
    digests: Option<[&'a Text; 2]>,
    /// Samples that both sides have.
    common: BTreeSet<&'a str>,
    /// Those of them whose ids can be compared under a policy that is the same, and those whose ids differ.
    told: BTreeSet<&'a str>,
    changed: BTreeSet<&'a str>,
}

impl<'a> Texts<'a> {
    fn add(&mut self, before: &Numbers<'a>, after: &Numbers<'a>, is_same_policy: bool) {
        let digests = [before, after].map(|numbers| &numbers.row.data);
        if digests[0] != digests[1] && digests.iter().all(|digest| !digest.is_empty()) {
            self.digests = Some(digests);
        }
        for ((_, sample), a, b) in before.both(after) {
            self.common.insert(sample);
            if is_same_policy && has_comparable_ids(a.row, b.row) {
                self.told.insert(sample);
                if a.row.sample_id != b.row.sample_id {
                    self.changed.insert(sample);
                }
            }
        }
    }

    /// `None` where everything is the same as far as rows tell.
    fn note(&self) -> Option<String> {
        let all = self.common.len();
        let changed = match self.changed.len() {
            0 if self.told.len() == all => format!("the samples that both have ({all}) are the same"),
            0 => "the rows do not tell whether samples of one name are the same".to_owned(),
            changed => {
                let named = first_of(&Vec::from_iter(self.changed.iter().copied()), NAMED);
                format!("{changed} of {all} samples of one name were measured on other texts or settings: {named}")
            }
        };
        match self.digests {
            Some(digests) => {
                let [before, after] = digests.map(|digest| shortened(digest));
                Some(format!(
                    "the texts differ: digest {before} in the baseline, {after} in the results; {changed}"
                ))
            }
            None => (!self.changed.is_empty()).then_some(changed),
        }
    }
}

/// As much of a digest as tells two apart by eye.
fn shortened(digest: &str) -> &str {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    digits.get(..8).unwrap_or(digits)
}

/// Keys without a partner although one differs in little: a model trained again, a data set moved.
fn nearly_paired(points: &[Point]) -> Vec<String> {
    let only = |verdict: Verdict| -> Vec<SeriesKey> {
        let (having, paired): (Vec<&Point>, Vec<&Point>) =
            points.iter().partition(|point| point.verdict == verdict);
        let [having, paired] =
            [having, paired].map(|points| points.iter().map(|point| &point.key).collect::<BTreeSet<_>>());
        having.difference(&paired).map(|key| (*key).clone()).collect()
    };
    let (missing, new) = (only(Verdict::Missing), only(Verdict::New));
    let mut notes = Vec::new();
    for key in &missing {
        let others = new.iter().filter(|other| other.task == key.task);
        let others = others.map(|other| differing(&key.fields(), &other.fields()));
        let Some(nearest) = others.min_by_key(Vec::len).filter(|nearest| nearest.len() <= 3) else { continue };
        let title = key.title(&missing);
        notes.push(format!("{title} pairs with nothing; the nearest results differ in {}", nearest.join(", ")));
    }
    notes
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
        // A sweep that grew has another digest, and the samples of the baseline.
        let found = notes(&before[..3], &books("fedcba9876543210", ""));
        assert!(found[0].ends_with("the samples that both have (3) are the same"), "{found:?}");
        // Rows of an older schema, and of another engine, do not tell.
        for change in [|row: &mut Row| row.sample_id = Text::new(), |row: &mut Row| row.engine = 9] {
            let found = notes(&before, &changed(books("fedcba9876543210", "b"), change));
            assert!(found.iter().any(|note| note.contains("the rows do not tell")), "{found:?}");
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
