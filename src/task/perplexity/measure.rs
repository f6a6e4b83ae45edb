//! Measures the perplexity and the recall of one sample under one cache configuration.
//!
//! The bounded cache continues from the shared [`FullCachePrefix`]. It scores the tokens it has read before it reads on,
//! so a long text takes no more memory than a short one.

use std::time::Instant;

use anyhow::Result;

use super::tally::Tally;
use crate::eviction::{CacheRule, SizedPolicy};
use crate::lm::{LanguageModel, Memory, MemoryPlan};
use crate::metric::MetricSum;
use crate::task::cache::{CacheConfig, FullCachePrefix};
use crate::task::data::TextSample;
use crate::task::prepared::{CHUNK, SampleResult};

/// Measures one sample.
///
/// # Errors
/// What the model reports, or a prefix that is too short for the configuration.
pub fn measure(
    model: &LanguageModel,
    sample: &TextSample,
    config: &CacheConfig,
    prefix: Option<&FullCachePrefix>,
) -> Result<SampleResult> {
    let started = Instant::now();
    let tokens = sample.tokens.len();
    let shared = || FullCachePrefix::of(prefix, config.needs(tokens));
    let mut seconds = 0.0;
    let mut lost = None;
    let mut tally = Tally::new(model, sample, if config.compare { Some(shared()?) } else { None });
    let peak_cache_bytes = match (config.rule, config.sized()) {
        (CacheRule::Truncate { size }, _) if size < tokens => pieces(model, sample, size, &mut tally)?,
        (CacheRule::Evict { .. }, Some(policy)) if policy.size() < tokens => {
            let memory = bounded(model, sample, config, policy, prefix, &mut tally)?;
            lost = memory.lost().map(|lost| lost.iter().map(|lost| f64::from(*lost)).sum::<f64>());
            memory.bytes()
        }
        _ => {
            let prefix = shared()?;
            seconds += prefix.seconds;
            tally.add(&prefix.states, 1)?;
            prefix.memory.bytes()
        }
    };
    let mut sums = tally.sums(config);
    if let Some(lost) = lost {
        sums.push(MetricSum::new("evicted_mass", lost, tokens as f64));
    }
    seconds += started.elapsed().as_secs_f64();
    let side_files = Vec::new();
    Ok(SampleResult { sums, seconds, peak_cache_bytes, prompt_tokens: tokens, new_tokens: 0, side_files })
}

/// The sample with a cache that evicts.
fn bounded(
    model: &LanguageModel,
    sample: &TextSample,
    config: &CacheConfig,
    policy: SizedPolicy,
    prefix: Option<&FullCachePrefix>,
    tally: &mut Tally<'_>,
) -> Result<Memory> {
    let (mut memory, start) = config.bounded_memory(model, policy, prefix, sample.tokens.len(), 0)?;
    if start > 0 {
        tally.add(&FullCachePrefix::of(prefix, start)?.states.narrow(0, 0, start)?, 1)?;
    }
    for tokens in sample.tokens[start..].chunks(CHUNK) {
        let first = memory.seen() + 1;
        let states = model.read(tokens, &mut memory)?;
        tally.add(&states, first)?;
    }
    Ok(memory)
}

/// The paper's baseline: the sample in pieces of `size` tokens, each read with an empty cache. Returns the bytes of the
/// largest cache.
fn pieces(model: &LanguageModel, sample: &TextSample, size: usize, tally: &mut Tally<'_>) -> Result<u64> {
    let lead = usize::from(sample.bos.is_some());
    let text = &sample.tokens[lead..];
    let mut bytes = 0;
    for (index, piece) in text.chunks(size - lead).enumerate() {
        let tokens: Vec<u32> = sample.bos.into_iter().chain(piece.iter().copied()).collect();
        let mut memory = model.new_memory(&MemoryPlan { expect: tokens.len(), ..MemoryPlan::unbounded() });
        let states = model.read(&tokens, &mut memory)?;
        // The token after the piece is scored in the next one.
        let states = states.narrow(0, 0, tokens.len() - 1)?;
        tally.add(&states, index * (size - lead) + 1)?;
        bytes = bytes.max(memory.bytes());
    }
    Ok(bytes)
}
