//! The parts in which families differ from Llama, as fields of [`ModelShape`](super::config::ModelShape).

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
