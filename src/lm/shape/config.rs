//! The network that a checkpoint describes: its shape, and what its family does differently from Llama.
//!
//! `family` reads it from `config.json`. candle-transformers' own models support neither bounded caches nor all of these
//! settings.

use std::path::Path;

use anyhow::{Result, ensure};
use candle_core::DType;
use serde_json::Value;

use super::parts::{
    Activation, AltUpShape, AttentionTemperature, DeltaShape, Experts, HeadNorms, LatentShape, LayerAttention,
    LayerNorms, PerLayerInput,
};
use super::rope_shape::{RopeScaling, RopeShape};
use crate::bounded_read;
use crate::eviction::{CacheOptions, Heads, Positions, Score};

/// Shape and constants of a decoder. Each difference between families is a field here, so that code asks for the difference and
/// never for the family's name.
#[derive(Clone, Debug, Default)]
pub struct ModelShape {
    /// `model_type` of the checkpoint's config.json.
    pub family: String,
    pub hidden: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub heads: Heads,
    pub head_dim: usize,
    pub vocab: usize,
    pub norm_eps: f32,
    /// Rotations in use; layers name them by their index in this list.
    pub ropes: Vec<RopeShape>,
    /// Number of layers after the last one that predict further tokens. Checkpoints may have them; they are not read.
    pub prediction_layers: usize,
    /// Attention settings of each layer: (layers)
    pub attention: Vec<LayerAttention>,
    /// Whether embedding and output share one matrix.
    pub tied: bool,
    /// Length of the texts the model was trained on, in tokens.
    pub max_positions: usize,
    pub bos: Option<u32>,
    /// Tokens that end a text, unless generation_config.json names others.
    pub eos: Vec<u32>,
    pub activation: Activation,
    pub norms: LayerNorms,
    /// Whether norms multiply by 1 + w instead of w (Gemma).
    pub norm_adds_one: bool,
    /// Last part of the names of the matrices that have a bias in every layer. A GGUF file does not name them and may have others.
    pub biased: Vec<&'static str>,
    /// Whether q, k and v are rows of one matrix, and gate and up of another (Phi-3).
    pub fused: bool,
    /// Mixture of experts that some layers have in place of the MLP or beside it.
    pub experts: Option<Experts>,
    /// Whether every head has an attention sink: one more logit in each softmax, whose weight goes to no entry.
    pub sinks: bool,
    /// Extra input that each token has for every layer (Gemma 3n and 4).
    pub per_layer_input: Option<PerLayerInput>,
    /// Latent attention: keys and values are made from one vector for all heads (DeepSeek).
    pub latent: Option<LatentShape>,
    /// Gated delta net that some layers have in place of attention (Qwen3-Next, Qwen3.5).
    pub delta: Option<DeltaShape>,
    /// Whether each head's output is multiplied by the sigmoid of a gate, which the query matrix makes as well.
    pub gated_attention: bool,
    /// Whether the two dimensions of a rotated pair are neighbours in the rows of q and k (Llama 4).
    pub interleaved_rotation: bool,
    /// Alternating updates: each token has several states (Gemma 3n).
    pub altup: Option<AltUpShape>,
    /// Whether values are made by the key matrix in layers without a window (Gemma 4).
    pub keys_as_values: bool,
    /// Whether values are divided by their root mean square (Gemma 3n and 4).
    pub value_norm: bool,
    /// Whether a layer's output is multiplied by a number of its own (Gemma 4).
    pub layer_scalar: bool,
    /// Whether the MLP is twice as wide in layers that share another's cache (Gemma 4).
    pub double_wide_mlp: bool,
    /// Factor that embeddings are multiplied by.
    pub embedding_scale: Option<f64>,
    /// Factor that products of queries and keys are multiplied by.
    pub query_scale: f64,
    /// Largest absolute value of queries, keys and values after their norms (OLMoE).
    pub qkv_limit: Option<f64>,
    /// Limit `cap` of attention logits: x becomes cap * tanh(x / cap).
    pub attention_softcap: Option<f32>,
    /// Limit `cap` of the logits over the vocabulary: x becomes cap * tanh(x / cap).
    pub logit_softcap: Option<f32>,
    pub attention_temperature: Option<AttentionTemperature>,
}

/// Reads one token id or a list of them.
pub(in crate::lm) fn tokens(json: &Value) -> Vec<u32> {
    let ids = json.as_array().map_or(std::slice::from_ref(json), Vec::as_slice);
    ids.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

/// Reads from a config.json the type that weights are stored in; f32 where it names none, as transformers has it.
pub(in crate::lm) fn stored_type(config: &Path) -> DType {
    let json: Value = bounded_read::json(config, MOST_BYTES).unwrap_or_default();
    let named = [&json, &json["text_config"]].into_iter().flat_map(|of| [&of["dtype"], &of["torch_dtype"]]);
    match named.filter_map(Value::as_str).next() {
        Some("bfloat16") => DType::BF16,
        Some("float16") => DType::F16,
        _ => DType::F32,
    }
}

/// Largest accepted size of a config.json or generation_config.json in bytes; real ones have some hundred.
pub(in crate::lm) const MOST_BYTES: u64 = 4 << 20;

/// Largest accepted number of parameters, more than any model has. The limits of single sizes are such that no product overflows.
const MOST_PARAMETERS: u64 = 1 << 44;

/// Largest accepted number of layers, far more than any model has.
pub(in crate::lm) const MOST_LAYERS: usize = 1 << 12;

impl ModelShape {
    /// Builds a network of Llama's layout from `sizes`, with all layers alike.
    pub(in crate::lm) fn llama(sizes: ModelShape, rope: RopeShape) -> ModelShape {
        ModelShape {
            family: "llama".to_owned(),
            norm_eps: 1e-5,
            ropes: vec![rope],
            attention: vec![LayerAttention::default(); sizes.layers],
            max_positions: 4096,
            norms: LayerNorms::LLAMA,
            query_scale: 1.0 / (sizes.head_dim as f64).sqrt(),
            ..sizes
        }
    }

    /// Builds the shape of a model with random weights.
    pub fn random(sizes: ModelShape) -> ModelShape {
        let rope = RopeShape { theta: 10_000.0, scaling: RopeScaling::None, dims: sizes.head_dim };
        ModelShape { bos: Some(0), eos: vec![0], ..ModelShape::llama(sizes, rope) }
    }

    /// Checks that sizes fit together, such as heads that divide the hidden size.
    pub(in crate::lm) fn check(&self) -> Result<()> {
        for layer in 0..self.layers {
            let (Heads { heads, kv_heads }, head_dim) = (self.heads_of(layer), self.head_dim_of(layer));
            ensure!(
                heads.is_multiple_of(kv_heads),
                "num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
            );
            ensure!(head_dim.is_multiple_of(2), "head_dim {head_dim} is odd; rotary positions need pairs");
        }
        let parameters = self.parameters();
        ensure!(
            parameters <= MOST_PARAMETERS,
            "it has {parameters} parameters; no model has more than {MOST_PARAMETERS}"
        );
        Ok(())
    }

    /// Query and key-value heads of a layer.
    pub fn heads_of(&self, layer: usize) -> Heads {
        let kv_heads = self.attention[layer].sizes.map_or(self.heads.kv_heads, |(kv_heads, _)| kv_heads);
        Heads { kv_heads, ..self.heads }
    }

    /// Dimensions of a head of a layer.
    pub fn head_dim_of(&self, layer: usize) -> usize {
        self.attention[layer].sizes.map_or(self.head_dim, |(_, head_dim)| head_dim)
    }

    /// Checks that the model's caches can have these options.
    ///
    /// # Errors
    ///
    /// Positions that depend on evictions, if layers share a cache or keys are rounded; a format that heads of the model cannot have.
    pub fn check_options(&self, options: CacheOptions) -> Result<()> {
        let CacheOptions { positions, format, .. } = options;
        self.cached_layers().try_for_each(|layer| format.check(self.head_dim_of(layer)))?;
        ensure!(
            self.latent.is_none() || format.keys == format.values && format.kivi_bits().is_none(),
            "this model's cache has latent vectors, which are keys and values and have one format, not {format}"
        );
        ensure!(
            positions == Positions::Absolute || !format.is_rounded(),
            "with positions {} keys are rotated again after others were evicted, and keys stored as {format} stay as they are\n\
             hint: leave one of `positions` and `format` out",
            positions.name()
        );
        let shares = self.attention.iter().any(|layer| layer.shares.is_some());
        ensure!(
            positions == Positions::Absolute || !shares && self.latent.is_none(),
            "layers of this model share a cache, or its keys are its values too, and so keys keep their positions in the text\n\
             hint: leave `positions` out"
        );
        Ok(())
    }

    /// Checks that the model has what a score reads.
    ///
    /// # Errors
    ///
    /// Values of heads, if the cache holds latent vectors that values are made from.
    pub fn check_score(&self, score: Score) -> Result<()> {
        score.check_vectors(self.cached_layers().len(), self.heads, self.head_dim)?;
        ensure!(
            self.norms.of_heads != HeadNorms::OfRotated || !score.compares_norms(),
            "the score compares norms of keys, and in most layers of this model all keys have the same"
        );
        ensure!(
            self.latent.is_none() || !score.reads_values(),
            "the score reads values of heads, and this model's cache has latent vectors that all heads make theirs from"
        );
        Ok(())
    }

    /// The experts of a layer, if it has any.
    pub fn experts_of(&self, layer: usize) -> Option<&Experts> {
        self.experts.as_ref().filter(|experts| experts.layers[layer])
    }

    /// Text length in tokens beyond which the model has other positions (LongRoPE), if it has two kinds.
    pub fn length_of_usual_positions(&self) -> Option<usize> {
        self.ropes.iter().find_map(|rope| match &rope.scaling {
            RopeScaling::LongRope { original, .. } => Some(*original),
            _ => None,
        })
    }

    /// Whether some layers have a window.
    pub fn has_windows(&self) -> bool {
        self.attention.iter().any(|layer| layer.window.is_some())
    }

    /// Whether a text of `tokens` is longer than some layer's window.
    pub fn windows_pass(&self, tokens: usize) -> bool {
        self.attention.iter().filter_map(|layer| layer.window).any(|window| window < tokens)
    }
}
