//! Small worlds: made-up people and places, told in English, that ask what was told before.
//!
//! Everything is made from a seed, and every recall of a fact knows where the fact was told last and among how many
//! values it had to be picked. Knows words and chance; nothing of tokens, models or files.

use std::ops::Range;

/// A text and what it asks a reader to remember.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Names the kind, the split, the seed and the number: `book-test-7-0`.
    pub name: String,
    pub text: String,
    /// In the order of the text.
    pub recalls: Vec<Recall>,
}

/// A place in a text that can only be told from what stands before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recall {
    /// What kind of fact: `home`, `trade`, ...
    pub kind: &'static str,
    /// Byte at which the last telling of the fact ends; before `answer`.
    pub told: usize,
    /// Bytes of the text that answer.
    pub answer: Range<usize>,
    /// Values of this kind that the text names before: who guesses among them is right once in so many times.
    pub choices: u32,
}

/// Texts for perplexity and recall, each of 4096 tokens of the pocket model's tokenizer and more.
pub fn books(seed: u64, count: usize) -> Vec<Text> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..count)
        .map(|number| {
            let mut text = String::new();
            let mut recalls = Vec::new();
            let towns = ["Oakford", "Elmsby", "Tarn", "Wicken"];
            let mut told: Option<(usize, &str)> = None;
            while text.len() < 20_000 {
                let town = told.map_or(towns[rng.usize(..4)], |(_, town)| town);
                text.push_str("Mara lives in ");
                let start = text.len();
                text.push_str(town);
                if let Some((told, _)) = told {
                    recalls.push(Recall { kind: "home", told, answer: start..text.len(), choices: 4 });
                }
                told = Some((text.len(), town));
                text.push_str(". ");
                for _ in 0..rng.usize(1..300) {
                    text.push_str("It rained. ");
                }
            }
            Text { name: format!("book-{seed}-{number}"), text, recalls }
        })
        .collect()
}
