//! The network: a decoder that reads any number of tokens into a [`Memory`].
//!
//! Shapes are (rows, hidden) throughout; a text is one sequence, never a batch. candle's own Llama returns only
//! the last position's logits and keeps its layers private, so it cannot measure perplexity or bound a cache. It
//! is a reference in the tests.
//!
//! It is a long file because a model is loaded, checked and read in it: what does one part of a layer is in the other files.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Tensor};

use super::altup::{AltUp, AltUpEnds};
use super::attention::AttendingLayer;
use super::awake::awake;
use super::decoder::{Layer, Projected};
use super::loader::Loader;
use super::parts::{Part, Reading, joined};
use super::second_reading::RepeatRequest;
use crate::eviction::{CacheEntries, LONGEST_KNOWN, RecordedAttention, Scope};
use crate::lm::arithmetic::layers::{Linear, Products, Weight, compute_type, in_pieces};
use crate::lm::arithmetic::rows::rms_norm;
use crate::lm::arithmetic::types::{Arithmetic, WeightType};
use crate::lm::cache::attention_shape::AttentionShape;
use crate::lm::cache::layer_cache::{LayerCache, Tables};
use crate::lm::cache::memory::{Memory, PromptScores, vectors_of};
use crate::lm::cache::plan::MemoryPlan;
use crate::lm::cache::rope::{Angles, Rope};
use crate::lm::device::Device;
use crate::lm::device::attend::{GpuAttention, LayerTokens};
use crate::lm::files::tokenizer::Tokenizer;
use crate::lm::files::weights::Weights;
use crate::lm::shape::config::ModelShape;
use crate::lm::shape::matrices::{EMBEDDING, OUTPUT};
use crate::lm::shape::parts::PerLayerInput;

/// Number of rows per thread that go through the layers together: enough for efficient products, few enough to stay in cache.
pub const SEGMENT: usize = 512;
/// Number of rows that go through the layers together on a GPU, which is waited for after each time.
pub const SEGMENT_ON_GPU: usize = 4096;

/// Causal language model as a recurrent network. Its many fields are all that is loaded once: weights by their place, and the types
/// they were loaded as.
pub struct LanguageModel {
    shape: ModelShape,
    /// Rotations; layers name them by their index.
    pub(super) ropes: Vec<Rope>,
    /// Embedding (vocab, hidden).
    embedding: Weight,
    per_layer: Option<PerLayerInputs>,
    altup: Option<AltUpEnds>,
    layers: Vec<Layer>,
    /// Last norm (hidden).
    norm: Tensor,
    pub(in crate::lm) head: Linear,
    device: Device,
    /// Type that most weights are stored as.
    stored: String,
    /// Type that weights are rounded to.
    dtype: DType,
    weight_bytes: usize,
    stop: Arc<AtomicBool>,
    tokenizer: Option<Arc<Tokenizer>>,
    pub(in crate::lm) repeat_request: Option<RepeatRequest>,
}

/// Weights that make a token's extra input to each layer (Gemma 3n and 4).
struct PerLayerInputs {
    /// Embedding (vocab, layers * per_layer_input).
    embedding: Weight,
    /// Projection of the usual embedding (layers * per_layer_input, hidden).
    projection: Linear,
    /// Norm (per_layer_input).
    norm: Tensor,
}

/// Error of a read that was stopped on request.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Copies an error: its message, and whether it was an interruption.
pub fn clone_error(error: &anyhow::Error) -> anyhow::Error {
    if error.chain().any(|cause| cause.is::<Interrupted>()) {
        Interrupted.into()
    } else {
        anyhow::anyhow!("{error:#}")
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

    pub(in crate::lm) fn from_weights(
        mut shape: ModelShape,
        mut weights: Weights,
        dtype: WeightType,
        device: &Device,
    ) -> Result<LanguageModel> {
        let (own_device, is_fast) = (device.clone(), device.arithmetic == Arithmetic::Fast);
        let device = &device.products;
        ensure!(
            !is_fast || device.is_cpu(),
            "the arithmetic `fast` is for products on the processor; on a GPU they are computed in the type of the weights\n\
             hint: leave `arithmetic` out, or choose `--device cpu`"
        );
        let (stored, own) = weights.dtype()?;
        let dtype = dtype.dtype().unwrap_or(own);
        let ModelShape { hidden, vocab, .. } = shape;

        // A tied checkpoint stores one matrix, under either name. Where it stores another too, it is not tied, as in transformers 5.
        let (input_stored, output_stored) = (weights.has(EMBEDDING), weights.has(OUTPUT));
        if input_stored && output_stored {
            shape.tied = shape.tied && weights.are_equal(EMBEDDING, OUTPUT)?;
        }
        let mut matrix = |name: &str| weights.take_matrix(name, (vocab, hidden), dtype, device);
        let (embedding, head) = if shape.tied {
            let shared = matrix(if input_stored { EMBEDDING } else { OUTPUT })?;
            if input_stored && output_stored {
                matrix(OUTPUT)?;
            }
            (shared.clone(), shared)
        } else {
            (matrix(EMBEDDING)?, matrix(OUTPUT)?)
        };

        weights.held = embedding.bytes() + if shape.tied { 0 } else { head.bytes() };
        let mut loader = Loader::new(&mut weights, &shape, dtype, &own_device);
        let per_layer = shape.per_layer_input.map(|PerLayerInput { dims, vocab }| {
            let width = shape.layers * dims;
            anyhow::Ok(PerLayerInputs {
                norm: loader.norm("per_layer_projection_norm", dims)?,
                embedding: loader.matrix("embed_tokens_per_layer", (vocab, width))?,
                projection: loader.product("per_layer_model_projection", (width, hidden))?,
            })
        });
        let per_layer = per_layer.transpose()?;
        let altup = shape.altup.as_ref().map(|own| AltUpEnds::take(&mut loader, own)).transpose()?;
        let layers = (0..shape.layers)
            .map(|index| Layer::take(&mut loader.of(&format!("layers.{index}")), index))
            .collect::<Result<Vec<_>>>()?;
        let norm = loader.norm("norm", hidden)?;
        let mut head = Linear { weight: head, bias: None };
        let stored_head = head.bytes();
        weights.has_integers |= is_fast && head.use_integers();
        // A matrix that is the embedding too is held as it is stored besides.
        weights.held = if shape.tied { weights.held } else { weights.held - stored_head + head.bytes() };
        ensure!(
            !is_fast || weights.has_integers,
            "the arithmetic `fast` multiplies weights that are quantised, bf16 or f16, and this model's are f32\n\
             hint: leave `arithmetic` out, or round them with `dtype: bf16`"
        );
        weights.leave_out_layers(shape.layers..shape.layers.saturating_add(shape.prediction_layers));
        let weight_bytes = weights.held;
        weights.finish()?;
        Ok(LanguageModel {
            ropes: shape.ropes.iter().map(Rope::new).collect(),
            embedding,
            per_layer,
            altup,
            layers,
            norm,
            head,
            device: own_device,
            stored,
            dtype,
            weight_bytes,
            stop: Arc::default(),
            tokenizer: None,
            repeat_request: None,
            shape,
        })
    }

    /// This model with its tokenizer, which policies may need.
    #[must_use]
    pub fn with_tokenizer(self, tokenizer: Option<Arc<Tokenizer>>) -> LanguageModel {
        LanguageModel { tokenizer, ..self }
    }

    /// This model with another request to repeat prompts.
    #[must_use]
    pub fn with_repeat_request(self, request: RepeatRequest) -> LanguageModel {
        LanguageModel { repeat_request: Some(request), ..self }
    }

    /// Makes reads end early with [`Interrupted`] once the flag is set.
    pub fn stop_on(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// GPU that computes attention; `None` if the host does.
    pub(in crate::lm) fn gpu(&self) -> Option<&GpuAttention> {
        self.device.attention.as_deref()
    }

    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// Type that weights are rounded to: `f32`, `f16` or `bf16`. For quantised weights it also names the type of most of them:
    /// `q4_1 as f32`.
    pub fn dtype(&self) -> String {
        let dtype = self.dtype.as_str();
        if self.stored.starts_with('q') || self.stored == "mxfp4" {
            format!("{} as {dtype}", self.stored)
        } else {
            dtype.to_owned()
        }
    }

    /// Bytes of the weights in memory.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes as u64
    }

    /// Device that computes products with weights.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes an empty memory.
    pub fn new_memory(&self, plan: &MemoryPlan<'_>) -> Memory {
        Memory::new(&self.shape, plan, self.gpu().is_some() && self.shape.why_never_on_gpu().is_none())
    }

    /// Reads tokens into the memory. Returns one state per token, after the last norm: (rows, hidden). Survivors
    /// and states are the same however a text is split into reads. In [`TextThreads`](crate::lm::TextThreads) threads share the read.
    ///
    /// # Errors
    /// A token outside the vocabulary, a text longer than was announced ([`MemoryPlan::text`]), or [`Interrupted`].
    pub fn read(&self, tokens: &[u32], memory: &mut Memory) -> Result<Tensor> {
        self.check_tokens(tokens)?;
        self.check_length(memory, tokens.len())?;
        let started = Instant::now();
        let _reading = self.gpu().filter(|_| memory.is_on_gpu()).map(GpuAttention::reading);
        let states = self.read_and_evict(tokens, memory)?;
        memory.scratch.stats.total += started.elapsed();
        Ok(states)
    }

    /// Reads tokens for policies with which all layers evict together. A read ends whenever they evict, because what leaves the
    /// first layer depends on the scores of the last.
    fn read_and_evict(&self, tokens: &[u32], memory: &mut Memory) -> Result<Tensor> {
        let (mut states, mut rest) = (Vec::new(), tokens);
        while !rest.is_empty() {
            let (until, fork) = (memory.until_eviction(), memory.until_fork());
            let most = until.into_iter().chain(fork).min().unwrap_or(rest.len()).min(rest.len());
            let (next, later) = rest.split_at(most);
            states.push(self.read_parts(next, memory)?);
            if until.is_some() {
                memory.evict_together(&self.attention_shapes(), false);
            }
            memory.keep_states();
            rest = later;
        }
        joined(states)
    }

    /// Attention settings of every layer with a cache.
    fn attention_shapes(&self) -> Vec<AttentionShape<'_>> {
        self.shape.cached_layers().map(|layer| AttentionShape::new(&self.shape, layer, &self.ropes)).collect()
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
        ensure!(
            memory.known.is_none_or(|known| memory.seen() + more <= known),
            "the policy needs the attention of the whole text under the full cache, which was not given"
        );
        match self.shape.length_of_usual_positions() {
            Some(usual) if !memory.is_long && memory.seen() + more > usual => bail!(
                "the model has other positions for texts of more than {usual} tokens, and the text was not announced as one"
            ),
            _ => Ok(()),
        }
    }

    /// Ends a prompt: cuts every layer of a memory whose policy's schedule says so to its size, by the scores after the prompt's
    /// last token.
    ///
    /// # Errors
    ///
    /// Those of [`end_prompt`](Self::end_prompt).
    pub fn cut(&self, memory: &mut Memory) -> Result<()> {
        self.end_prompt(memory)?;
        let shapes = self.attention_shapes();
        for (LayerCache { entries, tables, is_long, .. }, shape) in memory.layers.iter_mut().zip(&shapes) {
            self.score_at_cut(tables, (shape, *is_long), std::slice::from_mut(entries))?;
        }
        memory.evict_together(&shapes, true);
        Ok(())
    }

    /// Computes the scores by which some policies cut the prompt that a layer has read, where these are of its last rows.
    fn score_at_cut(
        &self,
        tables: &Tables,
        (shape, is_long): (&AttentionShape<'_>, bool),
        policies: &mut [CacheEntries],
    ) -> Result<()> {
        if let (Some(gpu), Tables::Gpu(cache)) = (self.gpu(), tables) {
            gpu.score_at_cut(cache, (shape, is_long), policies)?;
        } else if let Some(vectors) = vectors_of(tables, shape, is_long) {
            policies.iter_mut().for_each(|own| own.score_last_rows(&vectors));
        }
        Ok(())
    }

    /// Makes a memory that has read the beginning of a prompt, `len` tokens, by which `scores` were taken from the unbounded `full` one, and
    /// that will be cut as the plan's policy says; at once if the prompt `ends` there. It equals one that was made by `plan` from the start,
    /// if that has [`Positions::Absolute`](crate::eviction::Positions::Absolute). `None` where the policy was not among those of the plan.
    ///
    /// # Errors
    ///
    /// Errors of the device.
    pub fn fork_for_cut(
        &self,
        full: &Memory,
        (scores, ends): (&PromptScores, bool),
        len: usize,
        plan: &MemoryPlan<'_>,
    ) -> Result<Option<Memory>> {
        let shapes = self.attention_shapes();
        let score = |index: usize, policies: &mut [CacheEntries]| {
            let layer = &full.layers[index];
            self.score_at_cut(&layer.tables, (&shapes[index], layer.is_long), policies)
        };
        let scores = if ends { scores.at_cut(score)? } else { scores };
        Ok(full.fork_by(Some((scores, ends)), len, plan, &shapes))
    }

    /// Records the attention of a text under the full cache, by layer, over the decision groups of a scope.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read), and a text of more than [`LONGEST_KNOWN`] tokens.
    pub fn record_attention(&self, tokens: &[u32], scope: Scope) -> Result<Vec<Arc<RecordedAttention>>> {
        let (expect, text) = (tokens.len(), tokens.len());
        ensure!(
            text <= LONGEST_KNOWN,
            "the text has {text} tokens, and attention is recorded for {LONGEST_KNOWN} at most\nhint: give a shorter text"
        );
        let plan = MemoryPlan { record: Some(scope), forks: true, expect, text, ..MemoryPlan::unbounded() };
        let mut memory = self.new_memory(&plan);
        self.read(tokens, &mut memory)?;
        Ok(memory.into_attention())
    }

    /// Number of threads that compute; on a GPU one thread asks for everything.
    pub(in crate::lm) fn threads(&self) -> usize {
        if self.device.products.is_cpu() { rayon::current_num_threads() } else { 1 }
    }

    /// Type of products with weights.
    pub(in crate::lm) fn compute_type(&self, compute_f64: bool) -> DType {
        // Norms of keys that come from products in integers are no more exact in f64.
        compute_type(&self.device.products, self.dtype, compute_f64 && self.device.arithmetic == Arithmetic::F32)
    }

    /// Looks up the tokens' embeddings: (rows, hidden)
    pub(super) fn embed(&self, tokens: &[u32], compute: DType) -> Result<Tensor> {
        let rows = self.embedding.embed(tokens, compute)?;
        Ok(match self.shape.embedding_scale {
            Some(scale) => (rows * scale)?,
            None => rows,
        })
    }

    /// Reads one token into each memory, with one product per matrix. The memories may have different lengths and policies. Returns
    /// the states, (texts, hidden). The bits of a text do not depend on the other texts.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub fn step(&self, tokens: &[u32], memories: &mut [&mut Memory]) -> Result<Tensor> {
        let states = self.decode(tokens, memories)?;
        memories.iter_mut().try_for_each(|memory| self.settle(memory))?;
        Ok(states)
    }

    /// Applies to a memory what the GPU has decided, if it computes attention.
    pub(super) fn settle(&self, memory: &mut Memory) -> Result<()> {
        self.gpu().map_or(Ok(()), |gpu| gpu.settle(memory))
    }

    /// Reads one token into each memory like [`step`](Self::step), without finding out afterwards which entries survive on a GPU,
    /// so that nothing waits for it.
    pub(crate) fn decode(&self, tokens: &[u32], memories: &mut [&mut Memory]) -> Result<Tensor> {
        self.check_tokens(tokens)?;
        ensure!(tokens.len() == memories.len(), "{} tokens for {} texts", tokens.len(), memories.len());
        for memory in memories.iter() {
            self.check_length(memory, 1)?;
        }
        let compute_f64 = memories.iter().any(|memory| memory.compute_f64);
        let compute = self.compute_type(compute_f64);
        let angles = self.ropes.iter().map(|rope| {
            let mut angles = Angles::default();
            for memory in memories.iter() {
                angles.push(rope.frequencies(memory.is_long), memory.seen() as f64);
            }
            angles
        });
        let angles: Vec<_> = angles.collect();
        let texts = memories.iter().zip(tokens).map(|(memory, token)| self.token_texts(memory, &[*token]));
        let token_texts: Vec<Vec<Arc<str>>> = texts.collect::<Result<_>>()?;
        let x = self.embed(tokens, compute)?; // (texts, hidden)
        let rows = Rows {
            per_layer: self.per_layer_inputs(tokens, &x, Products::Few)?,
            x,
            first: 0,
            angles: &angles,
            compute_f64,
            waits: false,
        };
        let texts = memories.iter_mut().zip(tokens.chunks(1)).zip(&token_texts).enumerate();
        let parts = texts.map(|(first, ((memory, tokens), token_texts))| {
            let Memory { layers, states, scratch, .. } = &mut **memory;
            let (caches, states) = (Box::new(layers.iter_mut()), Box::new(states.iter_mut()));
            let (ends_read, lost, cache, next) = (true, None, None, None);
            (Part { first, tokens, token_texts, ends_read, lost, caches, states, cache, next }, scratch)
        });
        let parts = parts.collect();
        let states = awake(|| self.through_layers(rows, Products::Few, parts))?;
        for (memory, token) in memories.iter_mut().zip(tokens) {
            memory.tokens.push(*token);
            if memory.until_eviction().is_some() {
                memory.evict_together(&self.attention_shapes(), false);
            }
        }
        Ok(states)
    }

    /// Texts of tokens that are read into a memory, if its policy asks for them.
    pub(super) fn token_texts(&self, memory: &Memory, tokens: &[u32]) -> Result<Vec<Arc<str>>> {
        if memory.layers.iter().any(|layer| layer.entries.wants().token_texts) {
            self.tokenizer()?.texts(tokens)
        } else {
            Ok(Vec::new())
        }
    }

    /// Tokenizer of the model, for policies that compare texts of tokens or ask the model to repeat a prompt.
    pub(super) fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer.as_deref().context("the policy needs the model's tokenizer, and there is none")
    }

    /// Computes logits over the vocabulary for a few states, one row each.
    ///
    /// # Errors
    ///
    /// Errors of the device.
    pub fn logits(&self, states: &Tensor) -> Result<Vec<Vec<f32>>> {
        Ok(self.f32_logits(states, Products::Few)?.to_device(&candle_core::Device::Cpu)?.to_vec2()?)
    }

    /// Computes logits on the model's device: (rows, vocab). They are not rounded to the type of the weights, in which likely
    /// tokens often have the same logit.
    pub(in crate::lm) fn f32_logits(&self, states: &Tensor, products: Products) -> Result<Tensor> {
        let logits = match (&self.head.weight, self.gpu()) {
            (Weight::Device(weights), Some(gpu)) => in_pieces(states, products, |x| gpu.multiply(x, weights))?,
            (Weight::Device(weights), None) => {
                states.to_dtype(DType::F32)?.matmul(&weights.to_dtype(DType::F32)?.t()?)?
            }
            _ => self.head.forward(states, products)?,
        };
        self.capped(logits.to_dtype(DType::F32)?)
    }

    /// Limits logits over the vocabulary as the model does.
    pub(in crate::lm) fn capped(&self, logits: Tensor) -> Result<Tensor> {
        Ok(match self.shape.logit_softcap {
            Some(cap) => ((logits / f64::from(cap))?.tanh()? * f64::from(cap))?,
            None => logits,
        })
    }

    /// Tokens' extra inputs to each layer beside their embeddings x (rows, hidden), if the model has any: (rows, layers *
    /// per_layer_input).
    pub(super) fn per_layer_inputs(
        &self,
        tokens: &[u32],
        x: &Tensor,
        products: Products,
    ) -> Result<Option<Tensor>> {
        let Some(PerLayerInputs { embedding, projection, norm }) = &self.per_layer else { return Ok(None) };
        let dim = norm.elem_count();
        let vocab = self.shape.per_layer_input.map_or(0, |own| own.vocab as u32);
        let known: Vec<u32> = tokens.iter().map(|token| if *token < vocab { *token } else { 0 }).collect();
        let projected = (projection.forward(x, products)? * (self.shape.hidden as f64).powf(-0.5))?;
        let (rows, width) = projected.dims2()?;
        let projected =
            rms_norm(&projected.reshape(((), dim))?, norm, self.shape.norm_eps)?.reshape((rows, width))?;
        let own = (embedding.embed(&known, x.dtype())? * (dim as f64).sqrt())?;
        Ok(Some(((projected + own)? * 0.5_f64.sqrt())?))
    }

    /// Takes the rows of some parts of texts through all layers and the last norm: (rows, hidden).
    pub(super) fn through_layers(
        &self,
        rows: Rows<'_>,
        products: Products,
        mut parts: Vec<Reading<'_, '_>>,
    ) -> Result<Tensor> {
        let Rows { mut x, per_layer, first, angles, compute_f64, waits } = rows;
        if let Some(altup) = &self.altup {
            x = altup.begin(&x, products)?; // (rows, states, hidden)
        }
        for (index, layer) in self.layers.iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Interrupted.into());
            }
            let at = || format!("layer {index}");
            let own = self.shape.attention[index];
            let predict = |altup: &AltUp| altup.predict(&x, self.shape.norm_eps, products);
            let predicted = layer.altup.as_ref().map(predict).transpose().with_context(at)?;
            if let (Some(altup), Some(states)) = (&layer.altup, &predicted) {
                x = altup.active(states)?;
            }
            let shape = AttentionShape::new(&self.shape, index, &self.ropes);
            let projected = layer.project(&x, &self.shape, products).with_context(at)?;
            if index + 1 == self.layers.len() {
                // Norms of keys do not depend on what follows.
                x = x.to_dtype(self.compute_type(false))?;
            }
            let mixed = match projected {
                Projected::Delta(rows) => {
                    let out = parts.iter_mut().map(|(part, _)| part.read(&rows)).collect::<Result<Vec<_>>>()?;
                    Tensor::from_vec(out.concat(), (x.dim(0)?, ()), &candle_core::Device::Cpu)?
                }
                Projected::Attention { queries, keys_and_values, gates } => {
                    let keys = keys_and_values.as_ref().filter(|_| compute_f64).map(|(keys, _)| keys);
                    let norms = keys.map(|keys| key_norms(keys, shape.head_dim)).transpose()?;
                    let tokens = LayerTokens {
                        shape: &shape,
                        queries: &queries,
                        keys_and_values: keys_and_values.as_ref().map(|(keys, values)| (keys, values)),
                        norms: norms.as_deref(),
                        angles: &angles[own.rope],
                        first,
                        waits,
                    };
                    let rows = AttendingLayer { tokens, layer, x: &x };
                    let mixed = self.attend(&rows, &mut parts)?;
                    match gates {
                        Some(gates) => {
                            let gates = gates.to_device(mixed.device())?.to_dtype(mixed.dtype())?;
                            (mixed * candle_nn::ops::sigmoid(&gates)?)?
                        }
                        None => mixed,
                    }
                }
            };
            let mixed = mixed.to_device(&self.device.products)?.to_dtype(x.dtype())?;
            let per_layer = match (&per_layer, self.shape.per_layer_input) {
                (Some(inputs), Some(PerLayerInput { dims, .. })) => {
                    Some(inputs.narrow(1, index * dims, dims)?.contiguous()?.to_dtype(x.dtype())?)
                }
                _ => None,
            };
            let predicted = predicted.map(|states| states.to_dtype(x.dtype())).transpose()?;
            let beside = (per_layer.as_ref(), predicted.as_ref());
            x = layer.finish(&x, &mixed, beside, &self.shape, products).with_context(at)?;
        }
        if let Some(altup) = &self.altup {
            x = altup.end(&x, products)?;
        }
        rms_norm(&x, &self.norm, self.shape.norm_eps)
    }

    /// Computes attention of the rows of parts of texts in one layer: (rows, heads * head_dim)
    fn attend(&self, rows: &AttendingLayer<'_>, parts: &mut [Reading<'_, '_>]) -> Result<Tensor> {
        // A layer that shares another's cache leaves it alone.
        if rows.tokens.keys_and_values.is_some() {
            parts.iter_mut().try_for_each(|(part, _)| part.take_cache())?;
        }
        let mixed = rows.attend(self.gpu(), parts)?;
        parts.iter_mut().for_each(|(part, _)| part.pass_cache());
        Ok(mixed)
    }
}

/// Rows on their way through the layers.
pub(super) struct Rows<'a> {
    /// Embeddings: (rows, hidden)
    pub x: Tensor,
    /// Extra inputs to each layer, if the model has any: (rows, layers * per_layer_input)
    pub per_layer: Option<Tensor>,
    /// Place of the first row in `angles`.
    pub first: usize,
    pub angles: &'a [Angles],
    pub compute_f64: bool,
    /// Whether attention on a GPU waits for other texts that are read, to be launched with theirs. Texts that are written do not: a
    /// prompt takes longer in each layer than they.
    pub waits: bool,
}

/// L2 norms of keys (rows, kv_heads * head_dim), row after row.
fn key_norms(keys: &Tensor, head_dim: usize) -> Result<Vec<f64>> {
    let keys = keys.to_dtype(DType::F64)?.to_device(&candle_core::Device::Cpu)?.flatten_all()?.to_vec1::<f64>()?;
    Ok(keys.chunks_exact(head_dim).map(|key| key.iter().map(|x| x * x).sum::<f64>().sqrt()).collect())
}
