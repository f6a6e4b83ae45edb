//! The three commonest made-up words of a text whose words follow Zipf's law with exponent 2 (RULER's
//! `freq_words_extraction.py`). The very commonest is `...` and does not count.

use std::collections::BTreeSet;
use std::f64::consts::PI;

use anyhow::Result;
use fastrand::Rng;

use super::example::{Count, Example, Generator};

/// Makes the prompts of `fwe`.
pub struct CodedWordGenerator {
    /// Tokens of the prompt.
    pub room: usize,
}

/// Letters of a word.
const LETTERS: usize = 6;
/// The sum of 1/n².
const ZETA_2: f64 = PI * PI / 6.0;

impl Generator for CodedWordGenerator {
    fn step(&self) -> usize {
        (self.room / 32).max(1)
    }

    fn make(&self, size: usize, _sample: usize, rng: &mut Rng) -> Example {
        let mut vocabulary = BTreeSet::new();
        while vocabulary.len() < (self.room / 50).max(4) {
            vocabulary.insert((0..LETTERS).map(|_| char::from(rng.u8(b'a'..=b'z'))).collect::<String>());
        }
        let mut vocabulary: Vec<String> = vocabulary.into_iter().collect();
        rng.shuffle(&mut vocabulary);
        vocabulary[0] = "...".to_owned();
        let times = |rank: usize| (size as f64 / (rank as f64).powi(2) / ZETA_2) as usize;
        let mut text: Vec<&str> =
            (1..).zip(&vocabulary).flat_map(|(rank, word)| vec![word.as_str(); times(rank)]).collect();
        rng.shuffle(&mut text);
        Example {
            before: "Read the following coded text and track the frequency of each coded word. Find the three most \
                     frequently appeared coded words. "
                .to_owned(),
            document: text.join(" "),
            question: "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three most \
                    frequently appeared words in the above coded text?"
                .to_owned(),
            prefix: " Answer: According to the coded text above, the three most frequently appeared words are:".to_owned(),
            references: vocabulary[1..4].to_vec(),
        }
    }

    /// Adds words in steps, as RULER does here.
    fn largest(&self, room: usize, count: Count<'_>, rng: &mut Rng) -> Result<usize> {
        let mut size = room / LETTERS;
        while count(&self.make(size, 0, rng))? < room {
            size += self.step();
        }
        Ok(size.saturating_sub(self.step()).max(1))
    }
}
