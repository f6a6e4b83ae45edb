//! Decodes sequences side by side under one cache configuration, and measures time and memory.
//!
//! Every sequence has its own prompt and its own cache. A step is the same as for generated texts: one product per matrix
//! for the whole batch, the logits, and the most likely token. Repeats do the same work, so only the machine makes them
//! differ.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::Timing;
use crate::eviction::CacheRule;
use crate::lm::{LanguageModel, Memory, MemoryPlan, Tensor, resident_bytes};
use crate::metric::MetricSum;
use crate::task::cache::CacheConfig;
use crate::task::prepared::SampleResult;
use crate::vector;

/// Measures one repeat.
///
/// # Errors
/// What the model reports, or memory too small for one sequence.
pub fn measure(model: &LanguageModel, task: &Timing, config: &CacheConfig) -> Result<SampleResult> {
    let started = Instant::now();
    let lengths = task.lengths();
    let config = &config.of_sample(model.shape(), &lengths)?;
    let plan = plan(task, config)?;
    let cache = {
        let mut memory = model.new_memory(&plan);
        memory.shrink_to_fit(task.length);
        memory.bytes()
    };
    let batch = task.batch(model.weight_bytes(), cache)?;
    let tokens = task.decoded() as f64;

    Sequences::read(model, task, &plan, 0..1)?.decode(model, task.warm_up.min(task.decoded()))?;
    let mut alone = Sequences::read(model, task, &plan, 0..1)?;
    let mut sums = vec![
        MetricSum::new("prefill", alone.prefill, task.prompt as f64),
        MetricSum::new("first_token", alone.first, 1.0),
        MetricSum::new("decode", alone.decode(model, task.decoded())?, tokens),
    ];
    drop(alone);

    let before = resident_bytes(model.device());
    let mut together = Sequences::read(model, task, &plan, 0..batch)?;
    let seconds = together.decode(model, task.decoded())?;
    let after = resident_bytes(model.device());
    let grown = together.memories.iter().find(|memory| memory.bytes() != cache);
    if let Some(grown) = grown {
        bail!("a cache of {cache} bytes grew to {}", grown.bytes());
    }
    sums.push(MetricSum::new("decode_batch", seconds, tokens * batch as f64));
    sums.push(MetricSum::new("batch", batch as f64, 1.0));
    sums.push(MetricSum::new("cache_bytes", cache as f64, 1.0));
    if let (Some(before), Some(after)) = (before, after) {
        sums.push(MetricSum::new("resident_bytes", after.saturating_sub(before) as f64, batch as f64));
    }
    Ok(SampleResult {
        sums,
        seconds: started.elapsed().as_secs_f64(),
        memory: config.memory(model.shape(), &lengths, None),
        allocated_bytes: cache * batch as u64,
        prompt_tokens: task.prompt,
        new_tokens: task.decoded(),
        own_size: config.own_size(),
        ..SampleResult::default()
    })
}

/// A sequence's cache: bounded, or with room for the whole sequence.
fn plan(task: &Timing, config: &CacheConfig) -> Result<MemoryPlan<'static>> {
    Ok(match (config.cache.rule, config.sized()) {
        (CacheRule::Unbounded, _) => {
            MemoryPlan { expect: task.length, text: task.length, ..MemoryPlan::of_cache(&config.cache) }
        }
        (_, Some(policy)) => config.plan(policy, task.length),
        _ => bail!("`truncate` cuts texts, and there are none to cut while tokens are decoded"),
    })
}

/// Sequences that are being decoded.
struct Sequences {
    memories: Vec<Memory>,
    /// The tokens chosen last, one for each.
    next: Vec<u32>,
    /// Seconds until the last prompt was in its cache, and until its first token was chosen.
    prefill: f64,
    first: f64,
}

impl Sequences {
    /// Reads the prompts of some sequences, one after the other.
    fn read(
        model: &LanguageModel,
        task: &Timing,
        plan: &MemoryPlan<'_>,
        sequences: Range<usize>,
    ) -> Result<Sequences> {
        let mut read = Sequences { memories: Vec::new(), next: Vec::new(), prefill: 0.0, first: 0.0 };
        for sequence in sequences {
            let prompt = prompt(sequence, task.prompt, model.shape().vocab);
            let clock = Instant::now();
            let mut memory = model.new_memory(plan);
            let states = model.read(&prompt, &mut memory)?; // (tokens, hidden)
            memory.shrink_to_fit(task.decoded());
            read.prefill = clock.elapsed().as_secs_f64();
            read.next.extend(most_likely(model, &states.narrow(0, prompt.len() - 1, 1)?)?);
            read.first = clock.elapsed().as_secs_f64();
            read.memories.push(memory);
        }
        Ok(read)
    }

    /// Decodes so many tokens of each sequence. Returns the seconds it took.
    fn decode(&mut self, model: &LanguageModel, steps: usize) -> Result<f64> {
        let clock = Instant::now();
        for _ in 0..steps {
            let mut memories: Vec<&mut Memory> = self.memories.iter_mut().collect();
            let states = model.decode(&self.next, &mut memories)?; // (sequences, hidden)
            self.next = most_likely(model, &states)?;
        }
        Ok(clock.elapsed().as_secs_f64())
    }
}

/// The most likely token after each state.
fn most_likely(model: &LanguageModel, states: &Tensor) -> Result<Vec<u32>> {
    let logits = model.logits(states)?;
    let best = |logits: &Vec<f32>| vector::argmax(logits).map(|token| token as u32);
    logits.iter().map(best).collect::<Option<_>>().context("the model's logits are not numbers")
}

/// A sequence's prompt: random tokens that depend on the sequence alone.
fn prompt(sequence: usize, tokens: usize, vocab: usize) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(sequence as u64);
    (0..tokens).map(|_| rng.u32(0..vocab as u32)).collect()
}
