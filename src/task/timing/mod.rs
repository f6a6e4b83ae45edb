//! Speed and memory of decoding (table 1 of the paper).
//!
//! Sequences of random tokens are decoded side by side, as many as fit the granted memory beside the weights.

mod decoding;

use std::ops::{ControlFlow, Range};

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use super::cache::CacheConfig;
use super::data::{self, RANDOM_TOKENS, Texts};
use super::memory::SampleLengths;
use super::prepared::{Batch, PreparedTask, Report, Samples, TokenCost};
use super::spec::{PrepareContext, Task, TaskSpec};
use crate::format::Bytes;
use crate::yaml::{self, ConfigError, Spanned};

/// Bytes of a cache, largest batch and tokens/s of prefill and decoding, on random tokens. Not for `truncate`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimingYaml {
    /// The memory that weights and the caches of the largest batch may take together: a number and a unit (B, kB, MB, GB,
    /// TB, KiB, MiB, GiB, TiB), such as `8 GiB`.
    memory: Spanned<String>,
    /// Tokens of a sequence, its prompt included.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// Tokens of the prompt; fewer than `length`.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = Timing::DEFAULT_PROMPT))]
    prompt: Option<Spanned<u64>>,
    /// How often everything is timed; the report shows medians.
    #[schemars(range(min = 1, max = yaml::MOST_MADE), extend("default" = Timing::DEFAULT_REPEATS))]
    repeats: Option<Spanned<u64>>,
    /// Steps decoded before each clock starts.
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = Timing::DEFAULT_WARM_UP))]
    warm_up: Option<Spanned<u64>>,
}

impl TimingYaml {
    /// Checks every value.
    pub fn check(self) -> Result<TaskSpec, ConfigError> {
        let Ok(memory) = self.memory.value.parse::<Bytes>() else {
            let message = format!("`{}` is not an amount of memory", self.memory.value);
            let hint =
                "write a number and a unit, such as 8 GiB or 32 GB: the limit for weights and caches together";
            return yaml::refuse(self.memory.referenced, message, hint);
        };
        let length = data::length(&self.length)?;
        let prompt = yaml::limit("`prompt`", &self.prompt)?;
        if let Some(number) = self.prompt.as_ref().filter(|_| prompt.is_some_and(|prompt| prompt >= length)) {
            let message = format!("a prompt of {} leaves nothing to decode in a length of {length}", number.value);
            return yaml::refuse(number.referenced, message, "write a smaller number, or a larger `length`");
        }
        let warm_up = self.warm_up.as_ref().map(|steps| yaml::count("`warm_up`", steps, 0)).transpose()?;
        let task = Timing {
            length,
            prompt: prompt.unwrap_or(Timing::DEFAULT_PROMPT.min(length / 2)),
            memory,
            repeats: yaml::made("`repeats`", &self.repeats)?.unwrap_or(Timing::DEFAULT_REPEATS),
            warm_up: warm_up.unwrap_or(Timing::DEFAULT_WARM_UP),
        };
        let settings = vec![
            ("length", length.to_string()),
            ("prompt", task.prompt.to_string()),
            ("memory", memory.0.to_string()),
            ("repeats", task.repeats.to_string()),
            ("warm_up", task.warm_up.to_string()),
        ];
        let granted_memory = Some(memory);
        Ok(TaskSpec { granted_memory, ..TaskSpec::new("timing", RANDOM_TOKENS, length, settings, task) })
    }
}

/// Sequences of random tokens, decoded greedily from their prompts to a length.
#[derive(Clone, Debug)]
struct Timing {
    length: usize,
    prompt: usize,
    memory: Bytes,
    /// Each repeat is a sample.
    repeats: usize,
    warm_up: usize,
}

impl Timing {
    const DEFAULT_PROMPT: usize = 64;
    const DEFAULT_REPEATS: usize = 3;
    const DEFAULT_WARM_UP: usize = 16;

    /// Tokens decoded one after the other.
    fn decoded(&self) -> usize {
        self.length - self.prompt
    }

    /// Tokens that a sequence's cache depends on: those after the prompt are decoded.
    fn lengths(&self) -> SampleLengths {
        SampleLengths { predicted: self.prompt..self.length, ..SampleLengths::of_text(self.length) }
    }

    /// Sequences that fit beside the weights, each with a cache of so many bytes.
    fn batch(&self, weights: u64, cache: u64) -> Result<usize> {
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

impl Task for Timing {
    // Random tokens need no text, and so no tokenizer.
    fn prepare(&self, _: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let names = (0..self.repeats).map(|repeat| format!("repeat#{repeat}")).collect();
        Ok(PreparedTask {
            samples: Box::new(Repeats { timing: self.clone(), names }),
            digest: format!("{RANDOM_TOKENS} machine:{}", context.machine),
            bos: false,
        })
    }
}

/// Repeats of one measurement.
struct Repeats {
    timing: Timing,
    names: Vec<String>,
}

impl Samples for Repeats {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn name(&self, sample: usize) -> (&str, &str) {
        (&self.names[sample], "repeats")
    }

    /// A time is measured anew.
    fn content(&self, _: usize) -> Option<String> {
        None
    }

    fn tokens(&self, _: usize) -> usize {
        self.timing.length
    }

    fn measure(&self, batch: &Batch<'_>, report: Report<'_>) -> ControlFlow<()> {
        batch.each(report, |_| decoding::measure(batch.model, &self.timing, &batch.config))
    }

    fn cost(&self, _: Range<usize>, _: &CacheConfig) -> TokenCost {
        let prompt = 0..self.timing.prompt;
        TokenCost { parts: vec![prompt], written: self.timing.decoded(), ..TokenCost::default() }
    }
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
