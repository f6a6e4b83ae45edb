//! How fast this machine is, measured with a small model of random weights in the shape of the real one.
//!
//! Neither the checkpoint nor a text is needed: how long products and evictions take hardly depends on their numbers.

use std::panic::resume_unwind;
use std::thread::{ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::cost::{Seconds, Speed};
use super::machine::Workers;
use super::prepare::ModelTask;
use crate::eviction::presets;
use crate::lm::{
    Device, GenerationSettings, LanguageModel, LayerAttention, Memory, MemoryPlan, ModelShape, PrefilledPrompt,
    Sampling, TextThreads, WeightType,
};

/// Most weights of a layer, of the output matrix, and of all layers. Products are as fast as they get well below this, and all
/// layers together do not fit into a processor's cache, which a model that generates reads once a token.
const LAYER: usize = 4 << 20;
const OUTPUT: usize = 8 << 20;
const LAYERS: usize = 32 << 20;

/// Tokens of the text, entries of the cache that reads it, and texts and tokens that are generated.
const TOKENS: usize = 256;
const SIZE: usize = 128;
const TEXTS: usize = 4;
const STEPS: usize = 12;

/// A piece of work is repeated so often and at most so long, and its shortest time counts: nothing else ran meanwhile.
const REPEATS: usize = 3;
const MOST: Duration = Duration::from_millis(200);

impl Speed {
    /// The speed of all workers at once, because they share memory and perhaps cores.
    ///
    /// # Errors
    /// Threads that cannot be started, errors of the device.
    pub(super) fn measured(model_task: &ModelTask, device: &Device, workers: Workers) -> Result<Speed> {
        let files = &model_task.files;
        let bytes = files.held_bytes(model_task.model.dtype, device) / files.shape.parameters().max(1);
        let dtype = if bytes < 4 { WeightType::Bf16 } else { WeightType::F32 };
        let arithmetic = model_task.model.arithmetic;
        let device = &device.with_arithmetic(arithmetic);
        let model = LanguageModel::random(small(&files.shape), 1.0, 1, dtype, device)?;
        let pools = (0..workers.workers).map(|_| TextThreads::new(workers.threads));
        let pools = pools.collect::<Result<Vec<_>, _>>()?;
        let times: Vec<Result<[f64; 2]>> = scope(|scope| {
            let work = |pool: &TextThreads| pool.install(|| Ok([read(&model)?, generate(&model)?]));
            let running: Vec<_> = pools.iter().map(|pool| scope.spawn(move || work(pool))).collect();
            let join =
                |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            running.into_iter().map(join).collect()
        });
        let times = times.into_iter().collect::<Result<Vec<_>>>()?;
        let mean = |at: usize| times.iter().map(|time| time[at]).sum::<f64>() / times.len() as f64;
        let nominal = Seconds::nominal(model.shape());
        let reading = nominal.read(1, TOKENS, SIZE as f64) + nominal.logits * TOKENS as f64;
        let generating = STEPS as f64 * nominal.step(TEXTS, SIZE as f64);
        Ok(Speed { reading: mean(0) / reading, generating: mean(1) / generating })
    }
}

/// Reads and scores a text with a cache that is full.
fn read(model: &LanguageModel) -> Result<f64> {
    let mut memory = full_cache(model)?;
    let text = text(model, TOKENS);
    shortest(|| {
        let states = model.read(&text, &mut memory)?;
        model.score(&states, &text, &[], None).map(drop)
    })
}

/// Generates some texts side by side.
fn generate(model: &LanguageModel) -> Result<f64> {
    let memory = full_cache(model)?;
    let state = model.read(&text(model, 1), &mut Memory::clone(&memory))?;
    let settings = GenerationSettings {
        sampling: Sampling::Greedy,
        repetition_penalty: 1.0,
        stop_tokens: Vec::new(),
        stop_strings: Vec::new(),
    };
    shortest(|| {
        let prompt = |text: usize| PrefilledPrompt {
            memory: Memory::clone(&memory),
            state: state.clone(),
            prompt: vec![0],
            seed: text as u64,
            max_new_tokens: STEPS,
        };
        model.generate((0..TEXTS).map(prompt).collect(), &settings, &|_| Ok(String::new())).map(drop)
    })
}

fn full_cache(model: &LanguageModel) -> Result<Memory> {
    let policy = presets::by_name("tova").context("the policy is built in")?.at(SIZE)?;
    let mut memory = model.new_memory(&MemoryPlan::bounded(policy));
    model.read(&text(model, SIZE), &mut memory)?;
    Ok(memory)
}

fn text(model: &LanguageModel, tokens: usize) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(1);
    (0..tokens).map(|_| rng.u32(0..model.shape().vocab as u32)).collect()
}

/// The least seconds of several repeats.
fn shortest(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let (began, mut best) = (Instant::now(), f64::INFINITY);
    for repeat in 0..REPEATS {
        if repeat > 0 && began.elapsed() > MOST {
            break;
        }
        let started = Instant::now();
        work()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// The shape with fewer layers and sides small enough for a short measurement. Heads stay as they are.
fn small(shape: &ModelShape) -> ModelShape {
    let mut shape = shape.plain();
    while shape.layer_weights() > LAYER && shape.hidden > 64 {
        shape.hidden = shape.hidden.div_ceil(2);
        shape.intermediate = shape.intermediate.div_ceil(2);
    }
    shape.vocab = shape.vocab.min(OUTPUT / shape.hidden);
    shape.layers = (LAYERS / shape.layer_weights()).clamp(1, shape.layers);
    shape.attention = vec![LayerAttention::default(); shape.layers];
    shape
}
