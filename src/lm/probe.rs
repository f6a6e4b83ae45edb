//! Times short pieces of work on this machine, with random weights in the shape of a model.
//!
//! Run times are estimated from them. Neither the checkpoint nor a text is needed: how long products and evictions take
//! hardly depends on their numbers. The times of a large model are those of a smaller one, scaled by what was left out.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::config::{LayerAttention, ModelShape};
use super::device::Device;
use super::generate::{GenerationSettings, PrefilledPrompt};
use super::memory::{Memory, MemoryPlan};
use super::text_threads::TextThreads;
use super::transformer::{LanguageModel, WeightType};

/// Most weights of a layer and of the output matrix; wider models are made narrower. Products are as fast as they get well
/// below this.
const LAYER: usize = 4 << 20;
const OUTPUT: usize = 8 << 20;
/// Most weights of a model that generates: each token reads all of them, so there must be too many for a small cache.
const ALL: usize = 32 << 20;

/// A piece of work is repeated so often and so long at least, and its shortest time counts: nothing else ran meanwhile.
const REPEATS: usize = 3;
const ENOUGH: Duration = Duration::from_millis(12);
/// After this long, it is not repeated any more.
const MOST: Duration = Duration::from_millis(120);

/// Steps of a text that is generated.
const STEPS: usize = 12;

/// Times pieces of work, on all workers at once: they share memory, and perhaps cores.
pub struct Probe {
    shape: ModelShape,
    device: Device,
    dtype: WeightType,
    /// Of one layer: layers take the same time.
    reader: LanguageModel,
    /// Of as many layers as the model has, if that is not too many.
    writer: OnceLock<LanguageModel>,
    workers: Vec<TextThreads>,
    /// What was timed already.
    known: Mutex<BTreeMap<String, [f64; 2]>>,
}

/// Seconds of a read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadSeconds {
    /// Products with weights, norms and activations.
    pub dense: f64,
    pub attention: f64,
}

impl Probe {
    /// For a model of `shape` whose weights take `bytes` each in memory, with some workers of some threads each.
    ///
    /// # Errors
    /// Threads that cannot be started, errors of the device.
    pub fn new(
        shape: &ModelShape,
        bytes: u64,
        device: &Device,
        (workers, threads): (usize, usize),
    ) -> Result<Probe> {
        let dtype = if bytes < 4 { WeightType::Bf16 } else { WeightType::F32 };
        let pool = |_| TextThreads::new(threads);
        let workers = (0..workers).map(pool).collect::<Result<_, _>>()?;
        let reader = random(&with_layers(narrowed(shape), 1), dtype, device)?;
        let (shape, device) = (shape.clone(), device.clone());
        Ok(Probe { shape, device, dtype, reader, writer: OnceLock::new(), workers, known: Mutex::default() })
    }

    /// Tokens that go through the layers together.
    pub fn segment(&self) -> usize {
        self.reader.segment() * self.workers.first().map_or(1, TextThreads::current_num_threads)
    }

    /// Seconds to read so many tokens: with a bounded cache that is full, or from the beginning of a text with an unbounded
    /// cache or one that measures its loss.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn read(&self, plan: &MemoryPlan<'_>, tokens: usize) -> Result<ReadSeconds> {
        let text = self.text(tokens);
        // Where the loss is measured, all keys are kept, and more with every read.
        let full = plan.policy.filter(|_| !plan.measure_loss);
        let seconds = self.time(&format!("read {plan:?} {tokens}"), || {
            let mut memory = self.reader.new_memory(plan);
            if let Some(policy) = full {
                self.reader.read(&self.text(policy.size), &mut memory)?;
            }
            shortest(|| {
                if full.is_none() {
                    memory = self.reader.new_memory(plan);
                }
                let before = memory.stats();
                self.reader.read(&text, &mut memory)?;
                let after = memory.stats();
                let dense = (after.dense - before.dense).as_secs_f64();
                Ok([dense, (after.total - before.total).as_secs_f64() - dense])
            })
        })?;
        let layers = self.shape.layers as f64;
        let [dense, attention] = seconds;
        let weights = self.shape.layer_weights() as f64 / self.reader.shape().layer_weights() as f64;
        Ok(ReadSeconds { dense: dense * layers * weights, attention: attention * layers })
    }

    /// Seconds to score so many tokens, or to compare them with the full cache as well.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn score(&self, tokens: usize, compare: bool) -> Result<f64> {
        let ModelShape { hidden, vocab, .. } = *self.reader.shape();
        let text = self.text(tokens);
        let states = self.reader.read(&text, &mut self.reader.new_memory(&MemoryPlan::unbounded()))?;
        let [seconds, _] = self.time(&format!("score {tokens} {compare}"), || {
            shortest(|| {
                let started = Instant::now();
                self.reader.score(&states, &text, &[], compare.then_some(&states))?;
                Ok([started.elapsed().as_secs_f64(), 0.0])
            })
        })?;
        Ok(seconds * (self.shape.vocab * self.shape.hidden) as f64 / (vocab * hidden) as f64)
    }

    /// Seconds to generate a token of each of `texts` texts that have read `tokens` tokens, side by side.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn generate(
        &self,
        plan: &MemoryPlan<'_>,
        (texts, tokens): (usize, usize),
        settings: &GenerationSettings,
    ) -> Result<f64> {
        let model = self.writer()?;
        let prompt = self.text(tokens);
        let endless = GenerationSettings { stop_tokens: Vec::new(), stop_strings: Vec::new(), ..settings.clone() };
        let name = format!("generate {plan:?} {texts} {tokens} {:?}", settings.sampling);
        let [seconds, _] = self.time(&name, || {
            let mut memory = model.new_memory(plan);
            let states = model.read(&prompt, &mut memory)?;
            let state = states.narrow(0, tokens - 1, 1)?;
            let start = |text: usize, max_new_tokens: usize| PrefilledPrompt {
                memory: Memory::clone(&memory),
                state: state.clone(),
                prompt: prompt.clone(),
                seed: text as u64,
                max_new_tokens,
            };
            let write = |most: usize| -> Result<f64> {
                let prompts = (0..texts).map(|text| start(text, most)).collect();
                let started = Instant::now();
                model.generate(prompts, &endless, &|_| Ok(String::new()))?;
                Ok(started.elapsed().as_secs_f64())
            };
            // The first token comes from the state of the prompt.
            let [first, all] = shortest(|| Ok([write(1)?, write(STEPS + 1)?]))?;
            Ok([(all - first).max(0.0) / STEPS as f64, 0.0])
        })?;
        Ok(seconds)
    }

    /// What the seconds of generation are to be multiplied with: products with weights, and attention.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn generation_scale(&self) -> Result<(f64, f64)> {
        let weights =
            |shape: &ModelShape| (shape.layers * shape.layer_weights() + shape.vocab * shape.hidden) as f64;
        let shape = self.writer()?.shape();
        Ok((weights(&self.shape) / weights(shape), self.shape.layers as f64 / shape.layers as f64))
    }

    fn writer(&self) -> Result<&LanguageModel> {
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        let shape = narrowed(&self.shape);
        let layers = (ALL / shape.layer_weights()).clamp(1, shape.layers);
        let writer = random(&with_layers(shape, layers), self.dtype, &self.device)?;
        Ok(self.writer.get_or_init(|| writer))
    }

    fn text(&self, tokens: usize) -> Vec<u32> {
        let mut rng = fastrand::Rng::with_seed(1);
        (0..tokens).map(|_| rng.u32(0..self.reader.shape().vocab as u32)).collect()
    }

    /// The mean times of a piece of work that all workers do at the same time.
    fn time(&self, name: &str, work: impl Fn() -> Result<[f64; 2]> + Sync) -> Result<[f64; 2]> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = known().get(name) {
            return Ok(*times);
        }
        let times: Vec<Result<[f64; 2]>> = scope(|scope| {
            let work = &work;
            let workers = self.workers.iter();
            let running: Vec<_> = workers.map(|worker| scope.spawn(move || worker.install(work))).collect();
            let join =
                |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            running.into_iter().map(join).collect()
        });
        let times = times.into_iter().collect::<Result<Vec<_>>>()?;
        let mean = |at: usize| times.iter().map(|time| time[at]).sum::<f64>() / times.len() as f64;
        let mean = [mean(0), mean(1)];
        known().insert(name.to_string(), mean);
        Ok(mean)
    }
}

/// The least times of several repeats.
fn shortest(mut work: impl FnMut() -> Result<[f64; 2]>) -> Result<[f64; 2]> {
    let started = Instant::now();
    let mut best = [f64::INFINITY; 2];
    let mut repeats = 0;
    while (repeats < REPEATS && (repeats == 0 || started.elapsed() < MOST)) || started.elapsed() < ENOUGH {
        for (best, time) in best.iter_mut().zip(work()?) {
            *best = best.min(time);
        }
        repeats += 1;
    }
    Ok(best)
}

/// The shape with sides small enough for a short measurement. Heads stay as they are, so attention takes as long.
fn narrowed(shape: &ModelShape) -> ModelShape {
    let attention = vec![LayerAttention { window: None, rope: 0 }; shape.layers];
    let mut shape = ModelShape { attention, ..shape.clone() };
    while shape.layer_weights() > LAYER && shape.hidden > 64 {
        shape.hidden = shape.hidden.div_ceil(2);
        shape.intermediate = shape.intermediate.div_ceil(2);
    }
    shape.vocab = shape.vocab.min(OUTPUT / shape.hidden);
    shape
}

/// The first layers only.
fn with_layers(mut shape: ModelShape, layers: usize) -> ModelShape {
    shape.attention.truncate(layers);
    ModelShape { layers, ..shape }
}

fn random(shape: &ModelShape, dtype: WeightType, device: &Device) -> Result<LanguageModel> {
    LanguageModel::random(shape.clone(), 1.0, 1, dtype, device)
}
