//! Recall of facts that a text states before it needs them: where the answers are in tokens, and how many were
//! predicted.
//!
//! A recall is found if every token of its answer was the most likely one, given the true text before it.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use crate::lm::Tokens;
use crate::metric::{MetricSum, Slice};
use crate::task::embedded::Recall;

/// A recall, located in tokens. Its JSON is part of ids of samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LocatedRecall {
    pub kind: &'static str,
    /// The last token of the latest statement of the fact.
    pub told: usize,
    /// The tokens that overlap the answer: a space before it may be part of the first.
    pub answer: Range<usize>,
    pub choices: u32,
}

impl LocatedRecall {
    /// Tokens from the fact to the answer.
    fn distance(&self) -> usize {
        self.answer.start - self.told
    }
}

/// The recalls of a text in its tokens. Those whose answer has no token of its own are left out.
pub fn locate(recalls: &[Recall], text: &Tokens) -> Vec<LocatedRecall> {
    let places = &text.places;
    let located = recalls.iter().filter_map(|recall| {
        let Recall { kind, told, answer: [start, end], choices } = *recall;
        let first = places.partition_point(|place| place.end <= start);
        let end = places.partition_point(|place| place.start < end);
        let told = places.partition_point(|place| place.start < told).checked_sub(1)?;
        (told < first && first < end).then_some(LocatedRecall { kind, told, answer: first..end, choices })
    });
    located.collect()
}

/// The metrics of the recalls whose answer was predicted: over all of them, by kind and by the tokens
/// between fact and answer. `hits` says of each
/// token whether it was the most likely one, and is `None` for tokens that were not predicted.
pub fn recall_sums(recalls: &[LocatedRecall], hits: &[Option<bool>]) -> Vec<MetricSum> {
    let mut sums: BTreeMap<Option<Slice>, [f64; 3]> = BTreeMap::new();
    for recall in recalls {
        let hits: Option<Vec<bool>> = hits[recall.answer.clone()].iter().copied().collect();
        let Some(hits) = hits else { continue };
        let found = f64::from(u8::from(hits.iter().all(|hit| *hit)));
        let distance = octave("distance", recall.distance());
        for slice in [None, Some(distance), Some(Slice::named("kind", recall.kind))] {
            let sum = sums.entry(slice).or_default();
            let more = [found, 1.0 / f64::from(recall.choices), 1.0];
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }
    let sums = sums.into_iter().flat_map(|(slice, [found, chance, measured])| {
        [("recall", found), ("recall_chance", chance)]
            .map(|(metric, value)| MetricSum::new(metric, value, measured).of_slice(slice.clone()))
    });
    sums.collect()
}

/// The range between powers of two that holds a number, such as 512 to 1023.
pub fn octave(kind: &str, number: usize) -> Slice {
    let first = 1 << number.max(1).ilog2();
    Slice::range(kind, first, 2 * first - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lm::Tokenizer;

    #[test]
    fn answers_are_the_tokens_that_overlap_them() {
        // Tokens of " the", " fox" and so on: the answer's first token begins with the space before it.
        let text = Tokens { ids: vec![7; 5], places: vec![0..3, 3..7, 7..11, 11..14, 14..17] };
        let recall = |told, answer| Recall { kind: "home", told, answer, choices: 4 };
        let located = |recall: Recall| {
            locate(&[recall], &text).first().map(|found| (found.told, found.answer.clone(), found.distance()))
        };
        assert_eq!(located(recall(3, [8, 11])), Some((0, 2..3, 2)));
        assert_eq!(located(recall(4, [8, 12])), Some((1, 2..4, 1)));
        assert_eq!(located(recall(7, [14, 17])), Some((1, 4..5, 3)));
        // Fact and answer in one token.
        assert_eq!(located(recall(5, [6, 7])), None);
        assert_eq!(located(recall(0, [8, 11])), None);
        // Where every byte is a token, places are those of bytes.
        let text = Tokenizer::bytes().unwrap().encode("Tarn. In Tarn").unwrap();
        assert_eq!(
            locate(&[recall(4, [9, 13])], &text)[0],
            LocatedRecall { kind: "home", told: 3, answer: 9..13, choices: 4 }
        );
    }

    #[test]
    fn sums_by_hand() {
        let located = |kind, told, answer, choices| LocatedRecall { kind, told, answer, choices };
        let recalls = [
            located("home", 1, 4..6, 2),   // 3 tokens, found
            located("trade", 2, 4..7, 4),  // 2 tokens, its last token missed
            located("home", 3, 20..21, 4), // 17 tokens, found
            located("home", 3, 22..24, 8), // predicted in part only
        ];
        let mut hits = vec![None; 30];
        for (token, hit) in [(4, true), (5, true), (6, false), (20, true), (22, true)] {
            hits[token] = Some(hit);
        }
        let mut found: Vec<(&str, String, f64, f64)> = recall_sums(&recalls, &hits)
            .into_iter()
            .map(|sum| {
                (sum.metric, sum.slice.map_or_else(String::new, |slice| slice.to_string()), sum.value, sum.weight)
            })
            .collect();
        found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let expected = [
            ("recall", "", 2.0, 3.0),
            ("recall", "distance:16-31", 1.0, 1.0),
            ("recall", "distance:2-3", 1.0, 2.0),
            ("recall", "kind:home", 2.0, 2.0),
            ("recall", "kind:trade", 0.0, 1.0),
            ("recall_chance", "", 1.0, 3.0),
            ("recall_chance", "distance:16-31", 0.25, 1.0),
            ("recall_chance", "distance:2-3", 0.75, 2.0),
            ("recall_chance", "kind:home", 0.75, 2.0),
            ("recall_chance", "kind:trade", 0.25, 1.0),
        ];
        assert_eq!(
            found,
            expected.map(|(metric, group, value, weight)| (metric, group.to_string(), value, weight))
        );
        assert!(recall_sums(&[], &hits).is_empty());
    }

    #[test]
    fn octaves_meet() {
        for (number, name) in [(1, "1"), (2, "2-3"), (3, "2-3"), (511, "256-511"), (512, "512-1023")] {
            assert_eq!(octave("distance", number).value(), name);
        }
    }
}
