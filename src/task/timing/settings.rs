//! The settings of timed decoding, and how many sequences fit the memory that they grant.

use anyhow::{Context, Result};

use crate::format::Bytes;

/// Sequences of random tokens, decoded greedily from their prompts to a length.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Tokens of a sequence, the prompt's included.
    pub length: usize,
    pub prompt: usize,
    /// The memory that the weights and the caches of all sequences may take together.
    pub memory: Bytes,
    /// How often everything is measured; each repeat is a sample.
    pub repeats: usize,
    /// Steps decoded before the clock starts, in every repeat.
    pub warm_up: usize,
}

impl Timing {
    pub const DEFAULT_PROMPT: usize = 64;
    pub const DEFAULT_REPEATS: usize = 3;
    pub const DEFAULT_WARM_UP: usize = 16;

    /// Tokens decoded one after the other.
    pub fn decoded(&self) -> usize {
        self.length - self.prompt
    }

    /// Sequences that fit beside the weights, each with a cache of so many bytes.
    pub fn batch(&self, weights: u64, cache: u64) -> Result<usize> {
        sequences_that_fit(self.memory, weights, cache).with_context(|| {
            format!(
                "the task's `memory` of {} does not hold the weights ({}) and the cache of one sequence ({})",
                self.memory,
                Bytes(weights),
                Bytes(cache)
            )
        })
    }
}

/// Sequences that fit into memory beside the weights, each with a cache of so many bytes; `None` where not even one fits.
pub fn sequences_that_fit(memory: Bytes, weights: u64, cache: u64) -> Option<usize> {
    let batch = memory.0.saturating_sub(weights).checked_div(cache)?;
    usize::try_from(batch).ok().filter(|batch| *batch > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_by_hand() {
        let timing = |memory| Timing { length: 4096, prompt: 64, memory: Bytes(memory), repeats: 3, warm_up: 16 };
        // LLaMA-2-7B in 32 GB, with the paper's weights and memory of a sequence.
        let paper = [150, 280, 560, 1110, 2180]
            .map(|mb| timing(32_000_000_000).batch(13_480_000_000, mb * 1_000_000).unwrap());
        assert_eq!(paper, [123, 66, 33, 16, 8]);
        assert_eq!(timing(100).batch(40, 60).unwrap(), 1);
        assert_eq!(timing(160).batch(40, 60).unwrap(), 2);
        for (memory, weights) in [(99, 40), (30, 40), (40, 40)] {
            let error = timing(memory).batch(weights, 60).unwrap_err().to_string();
            assert!(error.contains(&format!("{memory} B")) && error.contains("60 B"), "{error}");
        }
    }
}
