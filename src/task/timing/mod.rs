//! Speed and memory of decoding (table 1 of the paper).
//!
//! Sequences of random tokens are decoded side by side, as many as fit the granted memory beside the weights.

mod decoding;
mod settings;
mod yaml;

use anyhow::Result;

pub use settings::sequences_that_fit;
pub use yaml::TimingYaml;

use self::settings::Timing;
use super::cache::FullCachePrefix;
use super::cost::TokenCost;
use super::data::RANDOM_TOKENS;
use super::prepared::{Batch, Measured, PreparedTask, Samples};
use super::spec::{PrepareContext, Setting, Task};
use crate::eviction::CacheRule;
use crate::format::Bytes;
use crate::lm::LanguageModel;

impl Task for Timing {
    fn name(&self) -> &'static str {
        "timing"
    }

    fn dataset(&self) -> String {
        RANDOM_TOKENS.to_string()
    }

    fn length(&self) -> usize {
        self.length
    }

    fn canonical(&self) -> String {
        let lines = self.row_settings(Vec::new()).into_iter().map(|(key, value)| format!("{key}={value}\n"));
        format!("length={}\n{}", self.length, lines.collect::<String>())
    }

    fn row_settings(&self, _: Vec<Setting>) -> Vec<Setting> {
        vec![
            ("prompt", self.prompt.to_string()),
            ("memory", self.memory.0.to_string()),
            ("repeats", self.repeats.to_string()),
            ("warm_up", self.warm_up.to_string()),
        ]
    }

    fn granted_memory(&self) -> Option<Bytes> {
        Some(self.memory)
    }

    fn cache_entries(&self, rule: CacheRule) -> usize {
        match rule {
            CacheRule::Unbounded => self.length,
            // While its newest entry attends, a bounded cache holds one more.
            CacheRule::Truncate { size } | CacheRule::Evict { size, .. } => {
                size.saturating_add(1).min(self.length)
            }
        }
    }

    // Random tokens need no text, and so no tokenizer.
    fn prepare(&self, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let names = (0..self.repeats).map(|repeat| format!("repeat#{repeat}")).collect();
        Ok(PreparedTask {
            samples: Box::new(Repeats { timing: self.clone(), names }),
            digest: format!("{RANDOM_TOKENS} machine:{}", context.machine),
            bos: false,
        })
    }
}

/// The same measurement again and again.
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

    fn tokens(&self, _: usize) -> usize {
        self.timing.length
    }

    fn measure(&self, model: &LanguageModel, batch: &Batch<'_>, _: Option<&FullCachePrefix>) -> Measured {
        let samples = batch.samples.iter();
        samples.map(|sample| (*sample, decoding::measure(model, &self.timing, &batch.config))).collect()
    }

    fn cost(&self, _: &Batch<'_>) -> TokenCost {
        let steps = self.timing.decoded();
        TokenCost { read: self.timing.prompt, steps, side_by_side: 1, ..TokenCost::default() }
    }
}
