//! The network that a checkpoint describes: its shape, and what its family does differently from Llama.
//!
//! `family` reads it from `config.json`. candle-transformers' own models support neither bounded caches nor all of these
//! settings.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::parts::{
    Activation, AltUpShape, AttentionTemperature, DeltaShape, Experts, HeadNorms, LatentShape, LayerAttention,
    LayerNorms, PerLayerInput,
};
use super::rope_shape::{RopeScaling, RopeShape};
use crate::eviction::{Heads, Positions, Score};

/// Shape and constants of a decoder. It has a field for whatever differs between families, so that code asks for the difference and
/// never for the family.
#[derive(Clone, Debug, Default)]
pub struct ModelShape {
    /// `model_type` of its config.json.
    pub family: String,
    pub hidden: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub heads: Heads,
    pub head_dim: usize,
    pub vocab: usize,
    pub norm_eps: f32,
    /// The rotations in use; layers name them by their index.
    pub ropes: Vec<RopeShape>,
    /// Layers after the last that predict further tokens, which a checkpoint may have and nobody reads here.
    pub prediction_layers: usize,
    /// What differs between layers: (layers)
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
    /// Norms multiply by 1 + w, not by w (Gemma).
    pub norm_adds_one: bool,
    /// Matrices with a bias in every layer, by the last part of their names. A GGUF file, which does not name them, may have others.
    pub biased: Vec<&'static str>,
    /// Whether q, k and v are rows of one matrix, and gate and up of another (Phi-3).
    pub fused: bool,
    /// What some layers have in place of the MLP, or beside it.
    pub experts: Option<Experts>,
    /// Whether every head has an attention sink: a logit beside those of the entries in each softmax, whose share goes nowhere.
    pub sinks: bool,
    /// A token's input of its own to each layer, if it has one (Gemma 3n and 4).
    pub per_layer_input: Option<PerLayerInput>,
    /// What keys and values are made from, if it is one vector for all heads (DeepSeek).
    pub latent: Option<LatentShape>,
    /// What some layers have in place of attention (Qwen3-Next, Qwen3.5).
    pub delta: Option<DeltaShape>,
    /// Whether each head's output is multiplied by the sigmoid of a gate, which the query's matrix makes too.
    pub gated_attention: bool,
    /// Whether pairs of rotated dimensions are neighbours in the rows of q and k (Llama 4).
    pub interleaved_rotation: bool,
    /// Several states of each token (Gemma 3n).
    pub altup: Option<AltUpShape>,
    /// Whether values are made as keys are, by the same matrix, in layers without a window (Gemma 4).
    pub keys_as_values: bool,
    /// Whether values are divided by their root mean square (Gemma 3n and 4).
    pub value_norm: bool,
    /// Whether a layer's output is multiplied by a number of its own (Gemma 4).
    pub layer_scalar: bool,
    /// Whether the MLP is twice as wide in layers that share another's cache (Gemma 4).
    pub double_wide_mlp: bool,
    /// Embeddings are multiplied by this number.
    pub embedding_scale: Option<f64>,
    /// Products of queries and keys are multiplied by this number.
    pub query_scale: f64,
    /// Queries, keys and values are limited to this size, after their norms (OLMoE).
    pub qkv_limit: Option<f64>,
    /// Attention logits x become cap * tanh(x / cap).
    pub attention_softcap: Option<f32>,
    /// The same for the logits over the vocabulary.
    pub logit_softcap: Option<f32>,
    pub attention_temperature: Option<AttentionTemperature>,
}

/// One token id, or a list of them.
pub(in crate::lm) fn tokens(json: &Value) -> Vec<u32> {
    let ids = json.as_array().map_or(std::slice::from_ref(json), Vec::as_slice);
    ids.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

/// Bytes of a config.json or generation_config.json; real ones have some hundred.
pub(in crate::lm) const MOST_BYTES: u64 = 4 << 20;

/// More parameters than any model has. The limits of single sizes are such that no product overflows.
const MOST_PARAMETERS: u64 = 1 << 44;

/// Far more than any model has.
pub(in crate::lm) const MOST_LAYERS: usize = 1 << 12;

impl ModelShape {
    /// A network of Llama's layout with such sizes, with all layers alike.
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

    /// A network of Llama's layout with the same sizes, all layers alike, for measuring how fast a machine is.
    #[must_use]
    pub fn plain(&self) -> ModelShape {
        let &ModelShape { hidden, layers, heads, head_dim, vocab, .. } = self;
        let intermediate = self.mlp_width();
        let sizes = ModelShape { hidden, intermediate, layers, heads, head_dim, vocab, ..ModelShape::default() };
        ModelShape::llama(sizes, self.ropes[0].clone())
    }

    /// The shape of a model with random weights.
    pub(in crate::lm) fn random(sizes: ModelShape) -> ModelShape {
        let rope = RopeShape { theta: 10_000.0, scaling: RopeScaling::None, dims: sizes.head_dim };
        ModelShape { bos: Some(0), eos: vec![0], ..ModelShape::llama(sizes, rope) }
    }

    /// Checks the relations between sizes.
    pub(in crate::lm) fn check(&self) -> Result<()> {
        for layer in 0..self.layers {
            let (Heads { heads, kv_heads }, head_dim) = (self.heads_of(layer), self.head_dim_of(layer));
            ensure!(
                heads.is_multiple_of(kv_heads),
                "num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}"
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

    /// The heads of a layer.
    pub fn heads_of(&self, layer: usize) -> Heads {
        let kv_heads = self.attention[layer].sizes.map_or(self.heads.kv_heads, |(kv_heads, _)| kv_heads);
        Heads { kv_heads, ..self.heads }
    }

    /// Dimensions of a head of a layer.
    pub fn head_dim_of(&self, layer: usize) -> usize {
        self.attention[layer].sizes.map_or(self.head_dim, |(_, head_dim)| head_dim)
    }

    /// Checks that the model's caches can have such positions.
    ///
    /// # Errors
    /// Positions that depend on evictions, where layers share a cache.
    pub fn check_positions(&self, positions: Positions) -> Result<()> {
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
    /// Values of heads, where a cache has latent vectors that these are made from.
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

    /// The length of texts beyond which the model has other positions (LongRoPE), if it has any.
    pub fn length_of_usual_positions(&self) -> Option<usize> {
        self.ropes.iter().find_map(|rope| match &rope.scaling {
            RopeScaling::LongRope { original, .. } => Some(*original),
            _ => None,
        })
    }

    /// Whether some layers have a window of their own.
    pub fn has_windows(&self) -> bool {
        self.attention.iter().any(|layer| layer.window.is_some())
    }

    /// Whether a window passes any token of a text of so many.
    pub fn windows_pass(&self, tokens: usize) -> bool {
        self.attention.iter().filter_map(|layer| layer.window).any(|window| window < tokens)
    }
}
