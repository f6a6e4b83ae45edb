//! Names of random models by their shape, such as `random-h512-l8-a8-k8-f1408-v8000`.
//!
//! Time and memory depend on a model's shape and not on what it learned, so they can be measured without a
//! download. This module parses the names and refuses impossible shapes; `lm::random` draws the weights.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail, ensure};

use crate::eviction::Heads;
use crate::lm::config::{ModelShape, Sizes};
use crate::lm::random::random_shape;
use crate::lm::tokenizer::Tokenizer;

/// How the names begin.
pub const RANDOM: &str = "random-";

/// The form of a name, for hints.
pub const RANDOM_FORM: &str = "random-h512-l8-a8-k8-f1408-v8000 (hidden size, layers, attention heads, key-value heads \
    if they are fewer, MLP size, vocabulary; -s32 makes attention as many times as sharp)";

/// Letter, name and maximum of each size, in the order of the canonical name. The number of key-value heads is that of
/// attention heads if it is left out. The sharpness is a factor on the attention logits, 1 if left out: plain random weights
/// attend nearly evenly, trained models sharply; at 32 most attention weights are exactly 0, so ties are common.
const SIZES: [(char, &str, usize); 7] = [
    ('h', "hidden size", 1 << 16),
    ('l', "number of layers", 1 << 10),
    ('a', "number of attention heads", 1 << 12),
    ('k', "number of key-value heads", 1 << 12),
    ('f', "MLP size", 1 << 18),
    ('v', "vocabulary", 1 << 20),
    ('s', "sharpness", 1 << 10),
];

/// More weights than this are a mistake: in f32 they take 32 GiB.
const MOST_WEIGHTS: u64 = 1 << 33;

/// The sizes of a Llama-layout decoder with weights drawn from a seed. [`fmt::Display`] gives the canonical name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RandomShape([usize; SIZES.len()]);

impl RandomShape {
    pub(in crate::lm) fn shape(&self) -> ModelShape {
        let [hidden, layers, heads, kv_heads, intermediate, vocab, _] = self.0;
        let head_dim = hidden / heads;
        let heads = Heads { heads, kv_heads };
        let sizes = Sizes { hidden, intermediate, layers, heads, head_dim, vocab };
        ModelShape { max_positions: 1 << 17, ..random_shape(sizes) }
    }

    /// The factor on the attention logits.
    pub(in crate::lm) fn sharpness(&self) -> usize {
        self.0[6]
    }
}

impl FromStr for RandomShape {
    type Err = Error;

    fn from_str(text: &str) -> Result<RandomShape> {
        let parts = text.strip_prefix(RANDOM).with_context(|| format!("it does not begin with {RANDOM}"))?;
        let mut sizes = [0; SIZES.len()];
        for part in parts.split('-') {
            let at = SIZES.iter().position(|(letter, ..)| part.starts_with(*letter));
            let at = at.with_context(|| format!("{part:?} is none of its sizes"))?;
            let (_, name, most) = SIZES[at];
            let digits = Some(&part[1..]).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
            let number = digits.and_then(|digits| digits.parse().ok()).filter(|n| (1..=most).contains(n));
            let number = number.with_context(|| format!("{part:?} is no {name} from 1 to {most}"))?;
            ensure!(sizes[at] == 0, "its {name} is given twice");
            sizes[at] = number;
        }
        // The two that may be left out.
        sizes[3] = if sizes[3] == 0 { sizes[2] } else { sizes[3] };
        sizes[6] = sizes[6].max(1);
        if let Some(missing) = sizes.iter().position(|size| *size == 0) {
            bail!("its {} is missing", SIZES[missing].1);
        }
        let [hidden, _, heads, _, _, vocab, _] = sizes;
        ensure!(hidden.is_multiple_of(heads), "its hidden size {hidden} is no multiple of its {heads} heads");
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

impl fmt::Display for RandomShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = SIZES.iter().zip(self.0).filter(|((letter, ..), size)| (*letter, *size) != ('s', 1));
        let sizes: Vec<String> = sizes.map(|((letter, ..), size)| format!("{letter}{size}")).collect();
        write!(f, "{RANDOM}{}", sizes.join("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_shapes_are_refused_with_the_reason() {
        for (text, reason) in [
            ("random-", "none of its sizes"),
            ("random-h512", "number of layers is missing"),
            ("random-h512-l8-a8-f1408", "vocabulary is missing"),
            ("random-h512-l8-a8-f1408-v8000-", "none of its sizes"),
            ("random-h512-l8-a8-f1408-v8000-x3", "\"x3\" is none"),
            ("random-h512-h512-l8-a8-f1408-v8000", "twice"),
            ("random-h512-l8-a8-f1408-v8000-s0", "\"s0\" is no sharpness from 1"),
            ("random-h0-l8-a8-f1408-v8000", "\"h0\" is no hidden size from 1"),
            ("random-h+5-l8-a8-f1408-v8000", "\"h+5\" is no hidden size"),
            ("random-h512-l99999999999999999999-a8-f1408-v8000", "is no number of layers from 1 to 1024"),
            ("random-h512-l8-a7-f1408-v8000", "no multiple of its 7 heads"),
            ("random-h8-l8-a8-f1408-v8000", "head_dim 1 is odd"),
            ("random-h512-l8-a8-k3-f1408-v8000", "no multiple of num_key_value_heads 3"),
            ("random-h512-l8-a8-f1408-v256", "vocabulary of 256 is smaller"),
            ("random-h65536-l1024-a8-f262144-v1048576", "weights are more than"),
        ] {
            let error = format!("{:#}", text.parse::<RandomShape>().unwrap_err());
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
