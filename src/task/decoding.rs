//! The clock: sequences decoded side by side under one cache rule, and what they take in time and memory.
//!
//! Every sequence has its own prompt and its own cache, and goes the way of all written texts: one `step` with one
//! product per matrix for the whole batch, logits, and the likeliest token. A repeat does the same work again, so that
//! repeats differ by the machine alone.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::perplexity::Measured;
use super::reading::Reading;
use super::timing::Timing;
use crate::eviction::CacheRule;
use crate::lm::{LanguageModel, Memory, MemoryPlan, Tensor, resident_bytes};
use crate::metric::{BATCH, CACHE_BYTES, DECODE, DECODE_BATCH, FIRST_TOKEN, MetricSum, PREFILL, RESIDENT_BYTES};
use crate::vector;

/// Measures one rule once.
///
/// # Errors
/// What the model reports, and memory that does not hold one sequence.
pub(super) fn measure(model: &LanguageModel, task: &Timing, reading: &Reading) -> Result<Measured> {
    let started = Instant::now();
    let plan = plan(task, reading)?;
    let cache = {
        let mut memory = model.new_memory(&plan);
        model.shrink_to_fit(&mut memory, task.length);
        memory.bytes()
    };
    let batch = task.batch(model.weight_bytes(), cache)?;
    let tokens = task.decoded() as f64;

    Sequences::read(model, task, &plan, 0..1)?.decode(model, task.warm_up.min(task.decoded()))?;
    let mut alone = Sequences::read(model, task, &plan, 0..1)?;
    let mut sums = vec![
        MetricSum::new(PREFILL, alone.prefill, task.prompt as f64),
        MetricSum::new(FIRST_TOKEN, alone.first, 1.0),
        MetricSum::new(DECODE, alone.decode(model, task.decoded())?, tokens),
    ];
    drop(alone);

    let before = resident_bytes(model.device());
    let mut together = Sequences::read(model, task, &plan, 0..batch)?;
    let seconds = together.decode(model, task.decoded())?;
    let after = resident_bytes(model.device());
    let grown = together.memories.iter().find(|memory| memory.bytes() != cache);
    if let Some(grown) = grown {
        bail!("a cache of {cache} bytes has become one of {}", grown.bytes());
    }
    sums.push(MetricSum::new(DECODE_BATCH, seconds, tokens * batch as f64));
    sums.push(MetricSum::new(BATCH, batch as f64, 1.0));
    sums.push(MetricSum::new(CACHE_BYTES, cache as f64, 1.0));
    if let (Some(before), Some(after)) = (before, after) {
        sums.push(MetricSum::new(RESIDENT_BYTES, after.saturating_sub(before) as f64, batch as f64));
    }
    Ok(Measured {
        sums,
        seconds: started.elapsed().as_secs_f64(),
        peak_cache_bytes: cache * batch as u64,
        side_files: Vec::new(),
        prompt_tokens: task.prompt,
        new_tokens: task.decoded(),
    })
}

/// A sequence's cache: at its bound from the start, or with room for the whole sequence.
fn plan(task: &Timing, reading: &Reading) -> Result<MemoryPlan<'static>> {
    Ok(match (reading.rule, reading.sized()) {
        (CacheRule::Unbounded, _) => MemoryPlan { expect: task.length, ..MemoryPlan::unbounded() },
        (_, Some(policy)) => {
            MemoryPlan { positions: reading.positions, seed: reading.seed, ..MemoryPlan::bounded(policy) }
        }
        _ => bail!("`truncate` cuts texts that are there, and nothing is there to cut while tokens are decoded"),
    })
}

/// Sequences in the making.
struct Sequences {
    memories: Vec<Memory>,
    /// The tokens chosen last, one for each.
    next: Vec<u32>,
    /// Seconds until the last prompt was in its cache, and until its first token was chosen.
    prefill: f64,
    first: f64,
}

impl Sequences {
    /// Reads the prompts of some sequences, each by itself.
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
            let states = model.read(&prompt, &mut memory)?; // (rows, hidden)
            model.shrink_to_fit(&mut memory, task.decoded());
            read.prefill = clock.elapsed().as_secs_f64();
            read.next.extend(likeliest(model, &states.narrow(0, prompt.len() - 1, 1)?)?);
            read.first = clock.elapsed().as_secs_f64();
            read.memories.push(memory);
        }
        Ok(read)
    }

    /// Decodes so many tokens of each sequence; the seconds it took.
    fn decode(&mut self, model: &LanguageModel, steps: usize) -> Result<f64> {
        let clock = Instant::now();
        for _ in 0..steps {
            let mut memories: Vec<&mut Memory> = self.memories.iter_mut().collect();
            let states = model.step(&self.next, &mut memories)?; // (sequences, hidden)
            self.next = likeliest(model, &states)?;
        }
        Ok(clock.elapsed().as_secs_f64())
    }
}

/// The likeliest token after each state.
fn likeliest(model: &LanguageModel, states: &Tensor) -> Result<Vec<u32>> {
    let logits = model.logits(states)?;
    let likeliest = |logits: &Vec<f32>| vector::argmax(logits).map(|token| token as u32);
    logits.iter().map(likeliest).collect::<Option<_>>().context("the model's logits are not numbers")
}

/// A sequence's prompt: the same tokens for every rule and repeat, others for every sequence.
fn prompt(sequence: usize, tokens: usize, vocab: usize) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(sequence as u64);
    (0..tokens).map(|_| rng.u32(0..vocab as u32)).collect()
}
