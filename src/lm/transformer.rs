//! The network: a decoder that reads any number of tokens into a [`Memory`].
//!
//! Shapes are (rows, hidden) throughout; a text is one sequence, never a batch. candle's own Llama returns only
//! the last position's logits and keeps its layers private, so it cannot measure perplexity or bound a cache. It
//! is a reference in the tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

use super::attention::{AttentionShape, Projections, attend};
use super::config::ModelShape;
use super::decoder::{Layer, take_norm};
use super::layers::{Linear, Products, bytes_of, compute_type, on_host, rms_norm};
use super::memory::{BLOCK, Memory, MemoryPlan};
use super::rope::{Angles, Rope};
use super::weights::{WIDEN_BELOW, Weights};

/// Rows per thread that go through the layers together: enough for efficient products, few enough to stay in
/// cache.
const SEGMENT: usize = 512;
/// The same if every matrix is converted from f16 or bf16 for each product.
const SEGMENT_WIDENED: usize = 2048;
/// Logits over the vocabulary in memory at once, in floats (16 MiB).
const LOGITS_AT_ONCE: usize = 4 << 20;

/// A causal language model as a recurrent network.
pub struct LanguageModel {
    shape: ModelShape,
    /// Its rotations; layers name them by their index.
    ropes: Vec<Rope>,
    /// (vocab, hidden)
    embedding: Tensor,
    layers: Vec<Layer>,
    /// (hidden)
    norm: Tensor,
    head: Linear,
    device: Device,
    /// What most weights are stored as.
    stored: String,
    /// What they are rounded to.
    dtype: DType,
    segment: usize,
    stop: Arc<AtomicBool>,
}

/// The error of a read that was stopped on request.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A copy of an error: its message, and whether it was an interruption.
pub fn clone_error(error: &anyhow::Error) -> anyhow::Error {
    if error.chain().any(|cause| cause.is::<Interrupted>()) {
        Interrupted.into()
    } else {
        anyhow::anyhow!("{error:#}")
    }
}

/// The type that weights are rounded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightType {
    /// As the checkpoint stores them.
    #[default]
    Auto,
    F32,
    F16,
    Bf16,
}

impl WeightType {
    /// The name in YAML, on the command line and in cell ids.
    pub fn name(self) -> &'static str {
        self.dtype().map_or("auto", |dtype| dtype.as_str())
    }

    /// The type of that name; `Auto` for types that weights are never rounded to.
    pub(super) fn of(dtype: DType) -> WeightType {
        match dtype {
            DType::F32 => WeightType::F32,
            DType::F16 => WeightType::F16,
            DType::BF16 => WeightType::Bf16,
            _ => WeightType::Auto,
        }
    }

    fn dtype(self) -> Option<DType> {
        match self {
            WeightType::Auto => None,
            WeightType::F32 => Some(DType::F32),
            WeightType::F16 => Some(DType::F16),
            WeightType::Bf16 => Some(DType::BF16),
        }
    }
}

impl LanguageModel {
    /// Loads a checkpoint.
    ///
    /// # Errors
    /// A checkpoint that is incomplete, damaged, or of an architecture this network is not.
    pub fn load(shape: ModelShape, files: &[PathBuf], dtype: WeightType, device: &Device) -> Result<Self> {
        LanguageModel::from_weights(shape, Weights::open(files)?, dtype, device)
    }

    pub(super) fn from_weights(
        shape: ModelShape,
        weights: Weights,
        dtype: WeightType,
        device: &Device,
    ) -> Result<LanguageModel> {
        let (stored, own) = weights.dtype()?;
        let dtype = dtype.dtype().unwrap_or(own);
        // Rounded to the requested type first and converted afterwards, weights have the values of that type.
        let keep = if device.is_cpu() && weights.parameters() < WIDEN_BELOW { DType::F32 } else { dtype };
        let model = LanguageModel::from_rounded(shape, weights, (dtype, keep), device)?;
        Ok(LanguageModel { stored, ..model })
    }

    /// The weights are rounded to the first type and stored as the second.
    pub(super) fn from_rounded(
        shape: ModelShape,
        mut weights: Weights,
        (dtype, keep): (DType, DType),
        device: &Device,
    ) -> Result<LanguageModel> {
        let ModelShape { hidden, vocab, .. } = shape;

        // A tied checkpoint stores one matrix, under either name.
        let (input, output) = ("model.embed_tokens.weight", "lm_head.weight");
        let (input_stored, output_stored) = (weights.has(input), weights.has(output));
        let mut matrix = |name: &str| -> Result<Tensor> {
            Ok(weights.take(name, &[vocab, hidden], dtype, device)?.to_dtype(keep)?)
        };
        let (embedding, head) = if shape.tied {
            let shared = matrix(if input_stored { input } else { output })?;
            if input_stored && output_stored {
                // transformers ties them and ignores the second.
                matrix(output)?;
            }
            (shared.clone(), shared)
        } else {
            (matrix(input)?, matrix(output)?)
        };

        let layers = (0..shape.layers)
            .map(|index| Layer::take(&mut weights, index, &shape, (dtype, keep), device))
            .collect::<Result<Vec<_>>>()?;
        let norm = take_norm(&mut weights, "model.norm.weight", hidden, &shape, dtype, device)?;
        weights.finish()?;
        Ok(LanguageModel {
            ropes: shape.ropes.iter().map(Rope::new).collect(),
            embedding,
            layers,
            norm,
            head: Linear::new(head, None),
            device: device.clone(),
            stored: dtype.as_str().to_owned(),
            dtype,
            segment: if keep == compute_type(device, keep, false) { SEGMENT } else { SEGMENT_WIDENED },
            stop: Arc::default(),
            shape,
        })
    }

    /// Makes reads end early with [`Interrupted`] once the flag is set.
    pub fn stop_on(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The type that weights are rounded to, `f32`, `f16` or `bf16`; of quantised weights also the type of most of them:
    /// `q4_1 as f32`.
    pub fn dtype(&self) -> String {
        let dtype = self.dtype.as_str();
        if self.stored.starts_with('q') { format!("{} as {dtype}", self.stored) } else { dtype.to_owned() }
    }

    /// Bytes of the weights in memory.
    pub fn weight_bytes(&self) -> u64 {
        let head = if self.shape.tied { 0 } else { self.head.bytes() };
        let layers: usize = self.layers.iter().map(Layer::bytes).sum();
        (bytes_of(&self.embedding) + head + bytes_of(&self.norm) + layers) as u64
    }

    /// Tokens per thread that go through the layers together.
    pub(super) fn segment(&self) -> usize {
        self.segment
    }

    /// The device that products with weights run on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// An empty memory.
    pub fn new_memory(&self, plan: &MemoryPlan<'_>) -> Memory {
        Memory::new(&self.shape, plan)
    }

    /// Reads tokens into the memory. Returns one state per token, after the last norm: (rows, hidden). Survivors
    /// and states are the same however a text is split into reads.
    ///
    /// # Errors
    /// A token outside the vocabulary, a text longer than was announced ([`MemoryPlan::text`]), or [`Interrupted`].
    pub fn read(&self, tokens: &[u32], memory: &mut Memory) -> Result<Tensor> {
        self.check_tokens(tokens)?;
        self.check_length(memory, tokens.len())?;
        let started = Instant::now();
        let segments = tokens.chunks(self.segment * rayon::current_num_threads());
        let states = segments.map(|tokens| self.read_segment(tokens, memory)).collect::<Result<Vec<_>>>()?;
        memory.scratch.stats.total += started.elapsed();
        joined(states)
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        ensure!(!tokens.is_empty(), "there is nothing to read");
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.shape.vocab) {
            bail!(
                "token {token} is outside the model's vocabulary of {}; text and model need the same tokenizer",
                self.shape.vocab
            );
        }
        Ok(())
    }

    /// Checks that `more` tokens have the rotation that the memory was made for.
    fn check_length(&self, memory: &Memory, more: usize) -> Result<()> {
        match self.shape.length_of_usual_positions() {
            Some(usual) if !memory.is_long && memory.seen + more > usual => bail!(
                "the model has other positions for texts of more than {usual} tokens, and the text was not announced as one"
            ),
            _ => Ok(()),
        }
    }

    /// The tokens' embeddings: (rows, hidden)
    fn embed(&self, tokens: &[u32], compute: DType) -> Result<Tensor> {
        let tokens = Tensor::new(tokens, &self.device)?;
        let rows = self.embedding.index_select(&tokens, 0)?.to_dtype(compute)?;
        Ok(match self.shape.embedding_scale {
            Some(scale) => (rows * scale)?,
            None => rows,
        })
    }

    /// Reads one token into each memory, with one product per matrix. The memories may have different lengths and
    /// policies. Returns the states, (texts, hidden). The bits of a text don't depend on the other texts.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn step(&self, tokens: &[u32], memories: &mut [&mut Memory]) -> Result<Tensor> {
        self.check_tokens(tokens)?;
        ensure!(tokens.len() == memories.len(), "{} tokens for {} texts", tokens.len(), memories.len());
        for memory in memories.iter() {
            self.check_length(memory, 1)?;
        }
        let compute_f64 = memories.iter().any(|memory| memory.compute_f64);
        let compute = compute_type(&self.device, self.dtype, compute_f64);
        let angles = self.ropes.iter().map(|rope| {
            let mut angles = Angles::default();
            for memory in memories.iter() {
                angles.push(rope.frequencies(memory.is_long), memory.seen as f64);
            }
            angles
        });
        let angles: Vec<_> = angles.collect();
        let width = self.shape.heads.heads * self.shape.head_dim;
        let x = self.embed(tokens, compute)?; // (texts, hidden)
        let attention = |layer: usize, tokens: Projections<'_>, mixed: &mut [f32]| {
            let texts = mixed.par_chunks_mut(width).zip(memories.par_iter_mut()).enumerate();
            texts.for_each(|(text, (mixed, memory))| {
                let Memory { layers, scratch, .. } = &mut **memory;
                attend(tokens.slice(text, 1), &mut layers[layer], mixed, None, scratch);
            });
        };
        let (states, _) = self.forward(vec![x], self.step_products(compute), &angles, compute_f64, attention)?;
        for memory in memories {
            memory.seen += 1;
        }
        Ok(states)
    }

    /// The kind of products for a few rows.
    fn step_products(&self, compute: DType) -> Products {
        if self.device.is_cpu() && compute == DType::F32 { Products::Gemv } else { Products::Gemm(compute) }
    }

    /// Logits over the vocabulary for a few states, one row each.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn logits(&self, states: &Tensor) -> Result<Vec<Vec<f32>>> {
        let head = self.head.ready(self.step_products(states.dtype()))?;
        let logits = self.capped(head.forward(states)?)?; // (rows, vocab)
        Ok(logits.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.to_vec2()?)
    }

    /// Logits over the vocabulary, limited as the model does.
    fn capped(&self, logits: Tensor) -> Result<Tensor> {
        Ok(match self.shape.logit_softcap {
            Some(cap) => ((logits / f64::from(cap))?.tanh()? * f64::from(cap))?,
            None => logits,
        })
    }

    fn read_segment(&self, tokens: &[u32], memory: &mut Memory) -> Result<Tensor> {
        let rows = tokens.len();
        let compute = compute_type(&self.device, self.dtype, memory.compute_f64);
        // Threads share the rows of everything but attention: rows don't depend on each other.
        let threads = if self.device.is_cpu() { rayon::current_num_threads() } else { 1 };
        let part = rows.div_ceil(threads).next_multiple_of(BLOCK);
        let embed = |ids: &[u32]| self.embed(ids, compute);
        let parts = tokens.chunks(part).map(embed).collect::<Result<Vec<_>>>()?; // (rows, hidden) each
        let positions = memory.seen..memory.seen + rows;
        let angles = self.ropes.iter().map(|rope| {
            rope.frequencies(memory.is_long).angles(positions.clone().map(|position| position as f64))
        });
        let angles: Vec<_> = angles.collect();
        let mut lost = memory.lost.is_some().then(|| vec![0.0; rows]);
        let attention = |layer: usize, tokens: Projections<'_>, mixed: &mut [f32]| {
            let lost = lost.as_deref_mut().map(|lost| &mut lost[tokens.first..][..tokens.rows]);
            attend(tokens, &mut memory.layers[layer], mixed, lost, &mut memory.scratch);
        };
        let (states, dense) =
            self.forward(parts, Products::Gemm(compute), &angles, memory.compute_f64, attention)?;
        memory.scratch.stats.dense += dense;
        memory.scratch.stats.dense_flops += 2 * (rows * self.shape.layers * self.shape.layer_weights()) as u64;
        memory.seen += rows;
        if let (Some(all), Some(lost)) = (&mut memory.lost, lost) {
            let share = 1.0 / (self.shape.layers * self.shape.heads.heads) as f32;
            all.extend(lost.iter().map(|lost| lost * share));
        }
        Ok(states)
    }

    /// Takes rows through all layers and the last norm: (rows, hidden). `parts` are their embeddings, (rows,
    /// hidden) each, and `attention(layer, part, mixed)` computes the attention of a part. Also returns the time
    /// that products with weights took.
    fn forward(
        &self,
        mut parts: Vec<Tensor>,
        products: Products,
        angles: &[Angles],
        compute_f64: bool,
        mut attention: impl FnMut(usize, Projections<'_>, &mut [f32]),
    ) -> Result<(Tensor, Duration)> {
        let head_dim = self.shape.head_dim;
        let mut dense = Duration::ZERO;
        for (index, layer) in self.layers.iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Interrupted.into());
            }
            let clock = Instant::now();
            let at = || format!("layer {index}");
            let layer = layer.ready(products).with_context(at)?;
            let own = self.shape.attention[index];
            let shape = AttentionShape::new(&self.shape, own, &self.ropes[own.rope]);
            let angles = &angles[own.rope];
            let project = |x: &Tensor| layer.project(x, &self.shape); // (rows, heads * head_dim) each
            let projections = parts.par_iter().map(project).collect::<Result<Vec<_>>>().with_context(at)?;
            dense += clock.elapsed();
            let mut mixed = Vec::with_capacity(parts.len());
            let mut first = 0;
            for [queries, keys, values] in &projections {
                let (rows, width) = queries.dims2()?;
                let mut out = vec![0.0; rows * width];
                let norms = if compute_f64 { Some(key_norms(keys, head_dim)?) } else { None };
                on_host([queries, keys, values], |[queries, keys, values]| {
                    let (shape, norms) = (&shape, norms.as_deref());
                    let part = Projections { shape, queries, keys, values, norms, angles, first, rows };
                    attention(index, part, &mut out);
                })?;
                mixed.push(Tensor::from_vec(out, (rows, width), &Device::Cpu)?);
                first += rows;
            }
            let clock = Instant::now();
            let finish = |(x, mixed): (&Tensor, &Tensor)| {
                let mixed = mixed.to_device(&self.device)?.to_dtype(x.dtype())?;
                layer.finish(x, &mixed, &self.shape)
            };
            parts = parts.par_iter().zip(&mixed).map(finish).collect::<Result<Vec<_>>>().with_context(at)?;
            dense += clock.elapsed();
        }
        let norm = |x: &Tensor| -> Result<Tensor> {
            let states = rms_norm(x, &self.norm, self.shape.norm_eps)?;
            Ok(states.to_dtype(compute_type(&self.device, self.dtype, false))?)
        };
        Ok((joined(parts.iter().map(norm).collect::<Result<Vec<_>>>()?)?, dense))
    }

    /// Applies `map` to the logits of some rows at a time: (first row, logits in f32 of each of `states`, row
    /// after row). The logits of a long text never are in memory at once. Returns the results in the order of the
    /// rows.
    ///
    /// # Errors
    /// Errors of `map` or the device.
    pub fn map_logits<const N: usize, R: Send>(
        &self,
        states: [&Tensor; N],
        map: impl Fn(usize, [&[f32]; N]) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let (rows, _) = states[0].dims2()?;
        let head = self.head.ready(Products::Gemm(states[0].dtype()))?;
        let at_once = (LOGITS_AT_ONCE / self.shape.vocab).clamp(1, 256);
        let starts: Vec<usize> = (0..rows).step_by(at_once).collect();
        let block = |start: usize| -> Result<R> {
            let logits = |states: &Tensor| {
                self.capped(head.forward(&states.narrow(0, start, at_once.min(rows - start))?)?)
            };
            let logits = states.into_iter().map(logits).collect::<Result<Vec<_>>>()?; // (rows, vocab) each
            on_host(std::array::from_fn(|i| &logits[i]), |logits| map(start, logits))?
        };
        if self.device.is_cpu() {
            starts.into_par_iter().map(block).collect()
        } else {
            starts.into_iter().map(block).collect()
        }
    }

    /// Floating-point operations of the logits of `rows` states.
    pub fn logit_flops(&self, rows: usize) -> u64 {
        2 * (rows * self.shape.vocab * self.shape.hidden) as u64
    }
}

/// L2 norms of keys (rows, kv_heads * head_dim), row after row.
fn key_norms(keys: &Tensor, head_dim: usize) -> Result<Vec<f64>> {
    let keys = keys.to_dtype(DType::F64)?.to_device(&Device::Cpu)?.flatten_all()?.to_vec1::<f64>()?;
    Ok(keys.chunks_exact(head_dim).map(|key| key.iter().map(|x| x * x).sum::<f64>().sqrt()).collect())
}

/// Parts of a text as one tensor: (rows, hidden)
fn joined(mut parts: Vec<Tensor>) -> Result<Tensor> {
    Ok(if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(&parts, 0)? })
}
