//! The network, top to bottom: a Llama-layout decoder that reads any number of tokens into a [`Memory`].
//!
//! Shapes: (rows, hidden) throughout; a text is one sequence, never a batch. candle's own Llama gives the last
//! position's logits only and keeps its layers private, so it cannot measure perplexity or bound a cache; it serves
//! as a reference in the tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Storage, Tensor};

use super::attention::{AttentionShape, Projections, attend};
use super::config::ModelShape;
use super::layers::{Linear, add, compute_type, floats, rms_norm, silu_mul};
use super::memory::{Memory, MemoryPlan};
use super::rope::{Angles, Frequencies};
use super::weights::Weights;
use crate::eviction::SizedPolicy;

/// Rows that go through the layers together: enough to keep the products busy, few enough to stay in cache.
const SEGMENT: usize = 256;
/// The same where every matrix is widened from f16 or bf16 for each product.
const SEGMENT_WIDENED: usize = 2048;
/// Weights below this many bytes are widened to f32 once, when they are loaded.
const WIDEN_BELOW: u64 = 2 << 30;
/// Logits over the vocabulary in memory at once, in floats (16 MiB).
const LOGITS_AT_ONCE: usize = 4 << 20;

/// A causal language model as a recurrent network.
pub struct LanguageModel {
    shape: ModelShape,
    frequencies: Frequencies,
    /// (vocab, hidden)
    embedding: Tensor,
    layers: Vec<Layer>,
    /// (hidden)
    norm: Tensor,
    head: Linear,
    device: Device,
    dtype: DType,
    segment: usize,
    weight_bytes: u64,
    stop: Arc<AtomicBool>,
}

/// One decoder layer.
struct Layer {
    attention_norm: Tensor,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    mlp_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// The program was asked to stop; nothing is wrong.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Type the weights are rounded to.
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
    /// The name YAML, the command line and cell ids use.
    pub fn name(self) -> &'static str {
        match self {
            WeightType::Auto => "auto",
            WeightType::F32 => "f32",
            WeightType::F16 => "f16",
            WeightType::Bf16 => "bf16",
        }
    }
}

impl LanguageModel {
    /// Loads a checkpoint.
    ///
    /// # Errors
    /// A checkpoint that is incomplete, damaged, or of an architecture this network is not.
    pub fn load(
        shape: ModelShape,
        files: &[PathBuf],
        dtype: WeightType,
        device: &Device,
    ) -> Result<LanguageModel> {
        LanguageModel::from_weights(shape, Weights::open(files)?, dtype, device)
    }

    /// The same from a safetensors file in memory.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_bytes(
        shape: ModelShape,
        bytes: Vec<u8>,
        dtype: WeightType,
        device: &Device,
    ) -> Result<LanguageModel> {
        LanguageModel::from_weights(shape, Weights::from_bytes(bytes)?, dtype, device)
    }

    fn from_weights(
        shape: ModelShape,
        mut weights: Weights,
        dtype: WeightType,
        device: &Device,
    ) -> Result<LanguageModel> {
        let stored = weights.dtype()?;
        let dtype = match dtype {
            WeightType::Auto => stored,
            WeightType::F32 => DType::F32,
            WeightType::F16 => DType::F16,
            WeightType::Bf16 => DType::BF16,
        };
        let weight_bytes = weights.bytes();
        // Rounding to the asked type first and widening afterwards gives the numbers of that type.
        let rounded = |tensor: Tensor| -> Result<Tensor> { Ok(tensor.to_dtype(dtype)?) };
        let keep = if device.is_cpu() && weight_bytes < WIDEN_BELOW { DType::F32 } else { dtype };
        let hold = |tensor: Tensor| -> Result<Tensor> { Ok(rounded(tensor)?.to_dtype(keep)?) };
        let ModelShape { hidden, intermediate, head_dim, vocab, heads, .. } = shape;
        let (query_width, kv_width) = (heads.heads * head_dim, heads.kv_heads * head_dim);

        // A tied checkpoint stores one of the two matrices, under either name.
        let (input, output) = ("model.embed_tokens.weight", "lm_head.weight");
        let (input_stored, output_stored) = (weights.has(input), weights.has(output));
        let mut matrix = |name: &str| hold(weights.take(name, &[vocab, hidden], dtype, device)?);
        let (embedding, head) = if shape.tied {
            let shared = matrix(if input_stored { input } else { output })?;
            if input_stored && output_stored {
                // transformers ties them and ignores the second, whatever it holds.
                matrix(output)?;
            }
            (shared.clone(), shared)
        } else {
            (matrix(input)?, matrix(output)?)
        };

        let mut layers = Vec::with_capacity(shape.layers);
        for index in 0..shape.layers {
            let mut vector = |name: &str| -> Result<Tensor> {
                let name = format!("model.layers.{index}.{name}.weight");
                let norm = rounded(weights.take(&name, &[hidden], DType::F32, device)?)?;
                Ok(norm.to_dtype(compute_type(device, dtype, false))?)
            };
            let (attention_norm, mlp_norm) = (vector("input_layernorm")?, vector("post_attention_layernorm")?);
            let mut linear = |name: &str, shape: (usize, usize)| -> Result<Linear> {
                let name = format!("model.layers.{index}.{name}");
                Linear::take(&mut weights, &name, shape, dtype, device)?.map(hold)
            };
            layers.push(Layer {
                attention_norm,
                query: linear("self_attn.q_proj", (query_width, hidden))?,
                key: linear("self_attn.k_proj", (kv_width, hidden))?,
                value: linear("self_attn.v_proj", (kv_width, hidden))?,
                output: linear("self_attn.o_proj", (hidden, query_width))?,
                mlp_norm,
                gate: linear("mlp.gate_proj", (intermediate, hidden))?,
                up: linear("mlp.up_proj", (intermediate, hidden))?,
                down: linear("mlp.down_proj", (hidden, intermediate))?,
            });
        }
        let norm = rounded(weights.take("model.norm.weight", &[hidden], DType::F32, device)?)?;
        weights.finish()?;
        Ok(LanguageModel {
            frequencies: Frequencies::new(&shape.rope, head_dim),
            embedding,
            layers,
            norm: norm.to_dtype(compute_type(device, dtype, false))?,
            head: Linear::new(head, None),
            device: device.clone(),
            dtype,
            segment: if keep == compute_type(device, keep, false) { SEGMENT } else { SEGMENT_WIDENED },
            weight_bytes,
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

    /// `f32`, `f16` or `bf16`: the type the weights are rounded to.
    pub fn dtype(&self) -> &'static str {
        self.dtype.as_str()
    }

    /// Bytes of the checkpoint's tensors as stored.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// A memory that has read nothing.
    pub fn new_memory(&self, plan: &MemoryPlan<'_>) -> Memory {
        Memory::new(self.shape.layers, self.shape.heads, self.shape.head_dim, plan)
    }

    /// A bounded memory that goes on after the first `len` tokens of an unbounded one, as if it had read them
    /// itself. `None` if more than the policy's size was read, or its sums were not kept.
    pub fn fork(&self, memory: &Memory, len: usize, policy: SizedPolicy, measure_loss: bool) -> Option<Memory> {
        memory.fork(len, policy, self.shape.heads, self.shape.head_dim, measure_loss)
    }

    /// Reads tokens into the memory. Returns one state per token, after the last norm: (rows, hidden). Any number of
    /// tokens at a time gives the same survivors and the same states.
    ///
    /// # Errors
    /// A token outside the vocabulary, a text longer than the model's window, or [`Interrupted`].
    pub fn read(&self, tokens: &[u32], memory: &mut Memory) -> Result<Tensor> {
        ensure!(!tokens.is_empty(), "there is nothing to read");
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.shape.vocab) {
            bail!(
                "token {token} is outside the model's vocabulary of {}; text and model need the same tokenizer",
                self.shape.vocab
            );
        }
        self.shape.check_length(memory.seen + tokens.len())?;
        let started = Instant::now();
        let mut states = Vec::new();
        for segment in tokens.chunks(self.segment) {
            states.push(self.read_segment(segment, memory)?);
        }
        memory.scratch.work.total += started.elapsed();
        Ok(if states.len() == 1 { states.remove(0) } else { Tensor::cat(&states, 0)? })
    }

    fn read_segment(&self, tokens: &[u32], memory: &mut Memory) -> Result<Tensor> {
        let rows = tokens.len();
        let ids = Tensor::new(tokens, &self.device)?;
        let compute = compute_type(&self.device, self.dtype, memory.careful);
        let mut x = self.embedding.index_select(&ids, 0)?.to_dtype(compute)?; // (rows, hidden)
        let positions = memory.seen..memory.seen + rows;
        let angles = self.frequencies.angles(positions.map(|position| position as f64));
        let mut lost = memory.lost.is_some().then(|| vec![0.0; rows]);
        for (index, layer) in self.layers.iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Interrupted.into());
            }
            x = self
                .read_layer(layer, index, &x, &angles, lost.as_deref_mut(), memory)
                .with_context(|| format!("layer {index}"))?;
        }
        memory.seen += rows;
        if let (Some(all), Some(lost)) = (&mut memory.lost, lost) {
            let share = 1.0 / (self.shape.layers * self.shape.heads.heads) as f32;
            all.extend(lost.iter().map(|lost| lost * share));
        }
        let states = rms_norm(&x, &self.norm, self.shape.norm_eps)?;
        Ok(states.to_dtype(compute_type(&self.device, self.dtype, false))?)
    }

    fn read_layer(
        &self,
        layer: &Layer,
        index: usize,
        x: &Tensor,
        angles: &Angles,
        lost: Option<&mut [f32]>,
        memory: &mut Memory,
    ) -> Result<Tensor> {
        let (eps, heads) = (self.shape.norm_eps, self.shape.heads);
        let (rows, hidden) = x.dims2()?;
        let normed = rms_norm(x, &layer.attention_norm, eps)?; // (rows, hidden)
        let clock = Instant::now();
        let queries = layer.query.forward(&normed)?; // (rows, heads * head_dim)
        let keys = layer.key.forward(&normed)?; // (rows, kv_heads * head_dim)
        let values = layer.value.forward(&normed)?; // (rows, kv_heads * head_dim)
        memory.scratch.work.weight_products += clock.elapsed();
        let mut mixed = vec![0.0; rows * heads.heads * self.shape.head_dim];
        on_host([&queries, &keys, &values], |[queries, keys, values]| {
            attend(
                &AttentionShape { heads, head_dim: self.shape.head_dim, frequencies: &self.frequencies },
                &mut memory.layers[index],
                Projections { queries, keys, values, rows },
                angles,
                &mut mixed,
                lost,
                &mut memory.scratch,
            );
        })?;
        let width = heads.heads * self.shape.head_dim;
        let mixed =
            Tensor::from_vec(mixed, (rows, width), &Device::Cpu)?.to_device(&self.device)?.to_dtype(x.dtype())?; // (rows, heads * head_dim)
        let clock = Instant::now();
        let attended = layer.output.forward(&mixed)?; // (rows, hidden)
        memory.scratch.work.weight_products += clock.elapsed();
        let x = add(attended, x)?;
        let normed = rms_norm(&x, &layer.mlp_norm, eps)?;
        let clock = Instant::now();
        let (gate, up) = (layer.gate.forward(&normed)?, layer.up.forward(&normed)?); // (rows, intermediate)
        memory.scratch.work.weight_products += clock.elapsed();
        let gated = silu_mul(gate, &up)?;
        let clock = Instant::now();
        let down = layer.down.forward(&gated)?; // (rows, hidden)
        memory.scratch.work.weight_products += clock.elapsed();
        let kv_width = heads.kv_heads * self.shape.head_dim;
        let weights = hidden * (2 * width + 2 * kv_width + 3 * self.shape.intermediate);
        memory.scratch.work.weight_flops += 2 * (rows * weights) as u64;
        add(x, &down)
    }

    /// Calls `visit` with the logits over the vocabulary, some rows at a time: (first row, rows, their logits in f32,
    /// row after row). A long text times a large vocabulary never stands in memory at once.
    ///
    /// # Errors
    /// Only what the device reports.
    pub fn visit_logits(
        &self,
        states: &Tensor,
        mut visit: impl FnMut(usize, usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let (rows, _) = states.dims2()?;
        let head = self.head.widened(states.dtype())?;
        let at_once = (LOGITS_AT_ONCE / self.shape.vocab).clamp(1, SEGMENT);
        for start in (0..rows).step_by(at_once) {
            let rows = at_once.min(rows - start);
            let logits = head.forward(&states.narrow(0, start, rows)?)?; // (rows, vocab)
            on_host([&logits], |[logits]| visit(start, rows, logits))??;
        }
        Ok(())
    }

    /// Floating-point operations of the vocabulary's logits for `rows` states.
    pub fn logit_flops(&self, rows: usize) -> u64 {
        2 * (rows * self.shape.vocab * self.shape.hidden) as u64
    }
}

impl Linear {
    fn map(self, f: impl Fn(Tensor) -> Result<Tensor>) -> Result<Linear> {
        let (weight, bias) = self.into_parts();
        Ok(Linear::new(f(weight)?, bias.map(f).transpose()?))
    }
}

/// The floats of some tensors, on the host and in f32; no copy if they are there already.
fn on_host<const N: usize, R>(tensors: [&Tensor; N], use_them: impl FnOnce([&[f32]; N]) -> R) -> Result<R> {
    let mut host = Vec::with_capacity(N);
    for tensor in tensors {
        host.push(tensor.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.contiguous()?);
    }
    let guards: Vec<_> = host.iter().map(Tensor::storage_and_layout).collect();
    let mut slices: [&[f32]; N] = [&[]; N];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&guards) {
        let Storage::Cpu(storage) = &**storage else { bail!("a tensor moved to the host is not there") };
        *slice = floats(storage, layout)?;
    }
    Ok(use_them(slices))
}
