//! Names of random models by their shape, such as `random-h512-l8-a8-k8-f1408-v8000`.
//!
//! Time and memory depend on a model's shape and not on what it learned, so they can be measured without a
//! download. This module parses the names and refuses impossible shapes; `lm::random` draws the weights.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, ensure};

use crate::lm::random::shape_of;
use crate::lm::tokenizer::Tokenizer;

/// How the names begin.
pub const RANDOM: &str = "random-";

/// The form of a name, for hints.
pub const RANDOM_FORM: &str = "random-h512-l8-a8-k8-f1408-v8000 (hidden size, layers, attention heads, key-value heads \
    if they are fewer, MLP size, vocabulary; -s32 makes attention as many times as sharp)";

/// Sizes of a Llama-layout decoder with weights drawn from a seed. [`fmt::Display`] gives the canonical name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RandomShape {
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub intermediate: usize,
    pub vocab: usize,
    /// Factor on the attention logits. Plain random weights attend nearly evenly, trained models sharply; at 32
    /// most attention weights are exactly 0, so ties are common.
    pub sharpness: usize,
}

/// Letter, name and maximum of each size.
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

impl RandomShape {
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    fn check(&self) -> Result<()> {
        let RandomShape { hidden, heads, kv_heads, vocab, .. } = *self;
        ensure!(hidden.is_multiple_of(heads), "its hidden size {hidden} is no multiple of its {heads} heads");
        ensure!(
            self.head_dim().is_multiple_of(2),
            "heads of {} are odd; rotary positions need pairs",
            hidden / heads
        );
        ensure!(heads.is_multiple_of(kv_heads), "{heads} heads are no multiple of {kv_heads} key-value heads");
        let bytes = Tokenizer::BYTES_VOCAB;
        ensure!(
            vocab >= bytes,
            "a vocabulary of {vocab} is smaller than that of its tokenizer, {bytes} (bytes and BOS)"
        );
        let weights = shape_of(*self).parameters();
        ensure!(weights <= MOST_WEIGHTS, "{weights} weights are more than the {MOST_WEIGHTS} that are allowed");
        Ok(())
    }
}

impl FromStr for RandomShape {
    type Err = Error;

    fn from_str(text: &str) -> Result<RandomShape> {
        let parts = text.strip_prefix(RANDOM).with_context(|| format!("it does not begin with {RANDOM}"))?;
        let mut found: [Option<usize>; SIZES.len()] = [None; SIZES.len()];
        for part in parts.split('-') {
            let size = SIZES.iter().position(|(letter, ..)| part.starts_with(*letter));
            let size = size.with_context(|| format!("{part:?} is none of its sizes"))?;
            let (_, name, most) = SIZES[size];
            let number = Some(&part[1..]).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
            let number = number.and_then(|digits| digits.parse().ok()).filter(|n| (1..=most).contains(n));
            let number = number.with_context(|| format!("{part:?} is no {name} from 1 to {most}"))?;
            ensure!(found[size].replace(number).is_none(), "its {name} is given twice");
        }
        let given = |at: usize| found[at].with_context(|| format!("its {} is missing", SIZES[at].1));
        let [hidden, layers, heads, intermediate, vocab] = [given(0)?, given(1)?, given(2)?, given(4)?, given(5)?];
        let kv_heads = found[3].unwrap_or(heads);
        let sharpness = found[6].unwrap_or(1);
        let shape = RandomShape { hidden, layers, heads, kv_heads, intermediate, vocab, sharpness };
        shape.check()?;
        Ok(shape)
    }
}

impl fmt::Display for RandomShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RandomShape { hidden, layers, heads, kv_heads, intermediate, vocab, sharpness } = self;
        write!(f, "{RANDOM}h{hidden}-l{layers}-a{heads}-k{kv_heads}-f{intermediate}-v{vocab}")?;
        if *sharpness == 1 { Ok(()) } else { write!(f, "-s{sharpness}") }
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
            ("random-h8-l8-a8-f1408-v8000", "heads of 1 are odd"),
            ("random-h512-l8-a8-k3-f1408-v8000", "no multiple of 3 key-value heads"),
            ("random-h512-l8-a8-f1408-v256", "vocabulary of 256 is smaller"),
            ("random-h65536-l1024-a8-f262144-v1048576", "weights are more than"),
        ] {
            let error = format!("{:#}", text.parse::<RandomShape>().unwrap_err());
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
