//! The network that a checkpoint describes: its shape, and what its family does differently from Llama.
//!
//! `family` reads it from `config.json`. candle-transformers' own models support neither bounded caches nor all of these
//! settings.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::family;
use super::rope_shape::{RopeScaling, RopeShape};
use crate::bounded_read;
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
    /// Attention logits x become cap * tanh(x / cap).
    pub attention_softcap: Option<f32>,
    /// The same for the logits over the vocabulary.
    pub logit_softcap: Option<f32>,
    pub attention_temperature: Option<AttentionTemperature>,
}

/// Multi-head latent attention. To the cache it is one key-value head with keys of `rope + rank` numbers, of which the last `rank` are the
/// value too.
#[derive(Clone, Copy, Debug)]
pub struct LatentShape {
    /// Numbers of the vector that queries are made from, if it is not the state itself.
    pub query_rank: Option<usize>,
    /// Numbers of the latent vector.
    pub rank: usize,
    /// Dimensions of a head's queries and keys that are not rotated, and of those that are.
    pub nope: usize,
    pub rope: usize,
    /// Dimensions of a head's value.
    pub value: usize,
    /// Whether pairs of rotated dimensions are neighbours.
    pub interleaved: bool,
}

/// A gated delta net.
#[derive(Clone, Copy, Debug)]
pub struct DeltaShape {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Tokens that the convolution sees.
    pub kernel: usize,
    /// Whether there is one matrix for queries, keys, values and gates, and another for the rest (Qwen3-Next).
    pub fused: bool,
    pub norm_eps: f32,
}

impl DeltaShape {
    pub fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }

    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Numbers that pass the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Names and sides of the matrices that rows are multiplied with, in a GGUF file or in a checkpoint.
    pub fn inputs(&self, is_gguf: bool) -> Vec<(&'static str, usize)> {
        let (values, heads) = (self.values(), self.value_heads);
        let mut inputs = match self.fused && !is_gguf {
            true => vec![("in_proj_qkvz", self.channels() + values)],
            false => vec![("in_proj_qkv", self.channels()), ("in_proj_z", values)],
        };
        match self.fused {
            true => inputs.push(("in_proj_ba", 2 * heads)),
            false => inputs.extend([("in_proj_b", heads), ("in_proj_a", heads)]),
        }
        inputs
    }
}

/// A token's input of its own to each layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerLayerInput {
    /// Numbers of one.
    pub dims: usize,
    /// Tokens that have one. Others have that of token 0.
    pub vocab: usize,
}

/// Alternating updates: a token has several states, of which a layer computes one.
#[derive(Clone, Debug)]
pub struct AltUpShape {
    pub states: usize,
    /// Which of them a layer computes.
    pub active: usize,
    /// Whether the active state is multiplied by a weight before the layer's input of its own.
    pub scales_output: bool,
    /// Numbers between the products of the residual path.
    pub laurel_rank: usize,
    /// The share of an MLP's gates that is cut off, as if they were normally distributed: (layers)
    pub sparsity: Vec<f64>,
}

/// What differs between the layers of a model. By default they are alike, without a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerAttention {
    /// Tokens that a query sees, itself included, if that is limited.
    pub window: Option<usize>,
    /// Whether the window does not slide: a query sees what is in its own piece of that many tokens (Llama 4).
    pub is_chunked: bool,
    /// Index among the model's rotations.
    pub rope: usize,
    /// Key-value heads and the dimensions of a head, where they are not the model's.
    pub sizes: Option<(usize, usize)>,
    /// The layer whose keys and values it attends to, if it has no cache of its own.
    pub shares: Option<usize>,
    /// Whether it has a state of fixed size in place of attention ([`ModelShape::delta`]).
    pub is_recurrent: bool,
}

impl LayerAttention {
    /// The first of so many tokens that the last one sees.
    pub fn first_seen(&self, tokens: usize) -> usize {
        match self.window {
            None => 0,
            Some(window) if self.is_chunked => tokens.saturating_sub(1) / window * window,
            Some(window) => tokens.saturating_sub(window),
        }
    }

    /// Whether it has a cache of its own.
    pub fn has_cache(&self) -> bool {
        self.shares.is_none() && !self.is_recurrent
    }
}

/// A mixture of experts: the MLP of a token is the weighted sum of those that the router chooses for it. Most fields are what differs
/// between families.
#[derive(Clone, Debug, Default)]
pub struct Experts {
    pub count: usize,
    /// How many a token goes to.
    pub per_token: usize,
    /// Numbers between the products of one expert.
    pub intermediate: usize,
    /// Whether the weights of a token's experts are made to sum to 1.
    pub normalised: bool,
    /// Numbers between the products of an expert that every token goes to, and whether it is weighted by the sigmoid of a product.
    pub shared: Option<usize>,
    pub has_shared_gate: bool,
    /// What the router makes of its logits.
    pub scores: RouterScores,
    /// Groups of experts, and how many of them a token's experts are in, if that is limited.
    pub groups: Option<(usize, usize)>,
    /// What the weights of a token's experts are multiplied by.
    pub scale: f64,
    /// Whether gate and up are one tensor `gate_up_proj`, and all tensors are transposed; and whether columns of gate and up take turns.
    pub transposed: bool,
    pub by_turns: bool,
    /// Whether they stand beside the MLP, not in its place: each with a norm before and after it, and with a scale (Gemma 4).
    pub beside_mlp: bool,
    /// Whether a layer has experts: (layers)
    pub layers: Vec<bool>,
}

/// What a router makes of its logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouterScores {
    /// A group is as good as its best expert.
    #[default]
    Softmax,
    /// Experts are chosen by the sigmoid and a bias, and weighted by the sigmoid. A group is as good as its two best (DeepSeek V3).
    Sigmoid,
    /// A token's state is multiplied by the sigmoid before it goes to an expert (Llama 4).
    InputSigmoid,
}

/// The function of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    #[default]
    Silu,
    /// The approximation of GELU by tanh.
    GeluTanh,
    /// min(gate, 7) * sigmoid(1.702 * gate) * (clamp(up, -7, 7) + 1), of gpt-oss.
    LimitedSwiglu,
}

/// Which norms a layer has, by their names in the checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayerNorms {
    pub before_attention: Option<&'static str>,
    /// Of the output of attention, before it is added.
    pub after_attention: Option<&'static str>,
    pub before_mlp: Option<&'static str>,
    pub after_mlp: Option<&'static str>,
    /// Of queries and keys, before they are rotated.
    pub of_heads: HeadNorms,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadNorms {
    #[default]
    None,
    /// Of every head by itself.
    PerHead,
    /// Of all heads together.
    AllHeads,
    /// Of every head by itself, without a weight, in layers with a rotation (Llama 4).
    OfRotated,
}

impl LayerNorms {
    const NONE: LayerNorms = LayerNorms {
        before_attention: None,
        after_attention: None,
        before_mlp: None,
        after_mlp: None,
        of_heads: HeadNorms::None,
    };
    /// Before attention and before the MLP.
    pub const LLAMA: LayerNorms = LayerNorms {
        before_attention: Some("input_layernorm"),
        before_mlp: Some("post_attention_layernorm"),
        ..LayerNorms::NONE
    };
    /// Before and after both.
    pub const GEMMA: LayerNorms = LayerNorms {
        before_attention: Some("input_layernorm"),
        before_mlp: Some("pre_feedforward_layernorm"),
        ..LayerNorms::OLMO
    };
    /// After both.
    pub const OLMO: LayerNorms = LayerNorms {
        after_attention: Some("post_attention_layernorm"),
        after_mlp: Some("post_feedforward_layernorm"),
        ..LayerNorms::NONE
    };
}

/// A query is multiplied by 1 + beta * ln(1 + floor((first + position) / every)), with its position in the text: the temperature tuning of
/// Llama 4, also in Ministral 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionTemperature {
    pub beta: f64,
    pub every: f64,
    /// What the first token's position counts as.
    pub first: usize,
    /// Only in layers without a rotation.
    pub only_without_rotation: bool,
}

impl AttentionTemperature {
    pub fn at(self, position: usize) -> f64 {
        1.0 + self.beta * ((self.first + position) as f64 / self.every).floor().ln_1p()
    }
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

    /// Reads and checks a config.json.
    ///
    /// # Errors
    /// A file that cannot be read, or a network this program cannot compute exactly.
    pub fn read(path: &Path) -> Result<ModelShape> {
        let json = bounded_read::json(path, MOST_BYTES)?;
        ModelShape::parse(&json)
            .with_context(|| format!("{} describes a model that cannot be run", path.display()))
    }

    pub(in crate::lm) fn parse(json: &Value) -> Result<ModelShape> {
        let shape = family::shape(json)?;
        shape.check()?;
        Ok(shape)
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
