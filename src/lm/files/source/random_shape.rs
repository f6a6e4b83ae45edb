//! Names of random models by their shape, such as `random-h512-l8-a8-k8-f1408-v8000`.
//!
//! Time and memory depend on a model's shape and not on what it learned, so they can be measured without a
//! download. This module parses the names and refuses impossible shapes; `lm::network::random` draws the weights.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, ensure};

use crate::eviction::Heads;
use crate::lm::shape::config::ModelShape;

use super::super::tokenizer::Tokenizer;

/// Beginning of the names of random models.
pub const RANDOM: &str = "random-";

/// Form of a name, for hints.
pub const RANDOM_FORM: &str = "random-h512-l8-a8-k8-f1408-v8000 (hidden size, layers, attention heads, key-value heads \
    if they are fewer, MLP size, vocabulary; -s32 makes attention as many times as sharp)";

/// Letter and maximum of each size in [`RANDOM_FORM`], in the order of the canonical name. The number of key-value heads is that of
/// attention heads if it is left out. The sharpness is a factor on the attention logits, 1 if left out: plain random weights
/// attend nearly evenly, trained models sharply; at 32 most attention weights are exactly 0, so ties are common.
const SIZES: [(char, usize); 7] = [
    ('h', 1 << 16),
    ('l', 1 << 10),
    ('a', 1 << 12),
    ('k', 1 << 12),
    ('f', 1 << 18),
    ('v', 1 << 20),
    ('s', 1 << 10),
];

/// Largest number of weights, in f32 32 GiB; a larger one is a mistake.
const MOST_WEIGHTS: u64 = 1 << 33;

/// The sizes of a Llama-layout decoder with weights drawn from a seed. [`fmt::Display`] gives the canonical name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RandomShape([usize; SIZES.len()]);

impl RandomShape {
    pub(in crate::lm) fn shape(&self) -> ModelShape {
        let [hidden, layers, heads, kv_heads, intermediate, vocab, _] = self.0;
        let head_dim = hidden / heads;
        let heads = Heads { heads, kv_heads };
        let sizes = ModelShape { hidden, intermediate, layers, heads, head_dim, vocab, ..ModelShape::default() };
        ModelShape { max_positions: 1 << 17, ..ModelShape::random(sizes) }
    }

    /// Factor on the attention logits.
    pub(in crate::lm) fn sharpness(&self) -> usize {
        self.0[6]
    }
}

impl FromStr for RandomShape {
    type Err = Error;

    fn from_str(text: &str) -> Result<RandomShape> {
        let sizes =
            sizes(text).context("each size must stand in it once, as a letter and a number within its limit")?;
        let [hidden, _, heads, _, _, vocab, _] = sizes;
        ensure!(hidden.is_multiple_of(heads), "its hidden size {hidden} is not a multiple of its {heads} heads");
        let least = Tokenizer::BYTES_VOCAB;
        ensure!(
            vocab >= least,
            "a vocabulary of {vocab} is smaller than that of its tokenizer, {least} (bytes and BOS)"
        );
        let random = RandomShape(sizes);
        let shape = random.shape();
        let weights = shape.parameters();
        ensure!(weights <= MOST_WEIGHTS, "{weights} weights are more than the {MOST_WEIGHTS} that are allowed");
        shape.check()?;
        Ok(random)
    }
}

/// Reads the sizes of a name, each once; sizes that are left out get their defaults.
fn sizes(text: &str) -> Option<[usize; SIZES.len()]> {
    let mut sizes = [0; SIZES.len()];
    for part in text.strip_prefix(RANDOM)?.split('-') {
        let at = SIZES.iter().position(|(letter, _)| part.starts_with(*letter))?;
        let digits = Some(&part[1..]).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
        let number = digits.parse().ok().filter(|number| (1..=SIZES[at].1).contains(number))?;
        if std::mem::replace(&mut sizes[at], number) != 0 {
            return None;
        }
    }
    sizes[3] = if sizes[3] == 0 { sizes[2] } else { sizes[3] };
    sizes[6] = sizes[6].max(1);
    (!sizes.contains(&0)).then_some(sizes)
}

impl fmt::Display for RandomShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = SIZES.iter().zip(self.0).filter(|((letter, _), size)| (*letter, *size) != ('s', 1));
        let sizes: Vec<String> = sizes.map(|((letter, _), size)| format!("{letter}{size}")).collect();
        write!(f, "{RANDOM}{}", sizes.join("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_shapes_are_refused_with_the_reason() {
        for (text, reason) in [
            ("random-", "each size must stand in it once"),
            ("random-h512", "each size must stand in it once"),
            ("random-h512-l8-a8-f1408", "each size must stand in it once"),
            ("random-h512-l8-a8-f1408-v8000-", "each size must stand in it once"),
            ("random-h512-l8-a8-f1408-v8000-x3", "each size must stand in it once"),
            ("random-h512-h512-l8-a8-f1408-v8000", "each size must stand in it once"),
            ("random-h512-l8-a8-f1408-v8000-s0", "each size must stand in it once"),
            ("random-h0-l8-a8-f1408-v8000", "each size must stand in it once"),
            ("random-h+5-l8-a8-f1408-v8000", "each size must stand in it once"),
            ("random-h512-l99999999999999999999-a8-f1408-v8000", "each size must stand in it once"),
            ("random-h512-l8-a7-f1408-v8000", "not a multiple of its 7 heads"),
            ("random-h8-l8-a8-f1408-v8000", "head_dim 1 is odd"),
            ("random-h512-l8-a8-k3-f1408-v8000", "not a multiple of num_key_value_heads 3"),
            ("random-h512-l8-a8-f1408-v256", "vocabulary of 256 is smaller"),
            ("random-h65536-l1024-a8-f262144-v1048576", "weights are more than"),
        ] {
            let error = format!("{:#}", text.parse::<RandomShape>().unwrap_err());
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
