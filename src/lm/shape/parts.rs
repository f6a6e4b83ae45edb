//! The parts in which families differ from Llama, as fields of [`ModelShape`](super::config::ModelShape).

/// Attention settings of one layer. By default layers are alike, without a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerAttention {
    /// Number of tokens that a query sees, itself included, if it is limited.
    pub window: Option<usize>,
    /// Whether the window does not slide: a query sees what is in its own piece of `window` tokens (Llama 4).
    pub is_chunked: bool,
    /// Index of the layer's rotation among the model's rotations.
    pub rope: usize,
    /// Key-value heads and head dimensions, where they differ from the model's.
    pub sizes: Option<(usize, usize)>,
    /// Layer whose keys and values this one attends to, if it has no cache of its own.
    pub shares: Option<usize>,
    /// Whether the layer has a state of fixed size in place of attention ([`ModelShape::delta`]).
    pub is_recurrent: bool,
}

impl LayerAttention {
    /// Index of the first token of a text of `tokens` that the last token sees.
    pub fn first_seen(&self, tokens: usize) -> usize {
        match self.window {
            None => 0,
            Some(window) if self.is_chunked => tokens.saturating_sub(1) / window * window,
            Some(window) => tokens.saturating_sub(window),
        }
    }

    /// Index of the last token that sees a token; `None` where all later ones do.
    pub fn last_seeing(&self, token: usize) -> Option<usize> {
        let window = self.window?;
        Some(if self.is_chunked { (token / window + 1) * window - 1 } else { token + window - 1 })
    }

    /// Whether the layer owns a cache.
    pub fn has_cache(&self) -> bool {
        self.shares.is_none() && !self.is_recurrent
    }
}

/// Activation of an MLP's gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    #[default]
    Silu,
    /// GELU, approximated by tanh.
    GeluTanh,
    /// Activation of gpt-oss: min(gate, 7) * sigmoid(1.702 * gate) * (clamp(up, -7, 7) + 1).
    LimitedSwiglu,
}

/// Norms of a layer, by their names in the checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayerNorms {
    pub before_attention: Option<&'static str>,
    /// Norm of attention's output, before it is added.
    pub after_attention: Option<&'static str>,
    pub before_mlp: Option<&'static str>,
    pub after_mlp: Option<&'static str>,
    /// Norms of queries and keys, before they are rotated.
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
    /// Norms before attention and before the MLP.
    pub const LLAMA: LayerNorms = LayerNorms {
        before_attention: Some("input_layernorm"),
        before_mlp: Some("post_attention_layernorm"),
        ..LayerNorms::NONE
    };
    /// Norms before and after attention, and before and after the MLP.
    pub const GEMMA: LayerNorms = LayerNorms {
        before_attention: Some("input_layernorm"),
        before_mlp: Some("pre_feedforward_layernorm"),
        ..LayerNorms::OLMO
    };
    /// Norms after attention and after the MLP.
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
    /// One norm for every head.
    PerHead,
    /// One norm over all heads together.
    AllHeads,
    /// One norm for every head, without a weight, in layers with a rotation (Llama 4).
    OfRotated,
}

/// Temperature that grows with a query's position, of Llama 4 and Ministral 3: a query is multiplied by 1 + beta * ln(1 +
/// floor((first + position) / every)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionTemperature {
    pub beta: f64,
    pub every: f64,
    /// Position that the first token of a text counts as.
    pub first: usize,
    /// Whether only layers without a rotation have this temperature.
    pub only_without_rotation: bool,
}

impl AttentionTemperature {
    pub fn at(self, position: usize) -> f64 {
        1.0 + self.beta * ((self.first + position) as f64 / self.every).floor().ln_1p()
    }
}

/// Mixture of experts: the MLP of a token is the weighted sum of the experts that the router chooses for it. Most fields are
/// differences between families.
#[derive(Clone, Debug, Default)]
pub struct Experts {
    pub count: usize,
    /// Number of experts that a token goes to.
    pub per_token: usize,
    /// Numbers between the two products of one expert.
    pub intermediate: usize,
    /// Whether the weights of a token's experts are scaled to sum to 1.
    pub normalised: bool,
    /// Numbers between the two products of the expert that every token goes to, if there is one; `has_shared_gate` says whether it is
    /// weighted by the sigmoid of a product.
    pub shared: Option<usize>,
    pub has_shared_gate: bool,
    /// Function from the router's logits to weights.
    pub scores: RouterScores,
    /// Number of groups of experts, and in how many of them a token's experts are, if that is limited.
    pub groups: Option<(usize, usize)>,
    /// Factor that the weights of a token's experts are multiplied by.
    pub scale: f64,
    /// Whether gate and up are one tensor `gate_up_proj` and all tensors are transposed; `by_turns` says whether columns of gate and up
    /// alternate.
    pub transposed: bool,
    pub by_turns: bool,
    /// Whether experts stand beside the MLP and not in its place, each with a norm before and after it, and with a scale (Gemma 4).
    pub beside_mlp: bool,
    /// Whether a layer has experts: (layers)
    pub layers: Vec<bool>,
}

/// Function from a router's logits to the weights of experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouterScores {
    /// Softmax. A group is as good as its best expert.
    #[default]
    Softmax,
    /// Sigmoid: experts are chosen by the sigmoid plus a bias, and weighted by the sigmoid. A group is as good as its two best
    /// experts (DeepSeek V3).
    Sigmoid,
    /// Sigmoid that the token's state is multiplied by before it goes to an expert (Llama 4).
    InputSigmoid,
}

/// Multi-head latent attention. For the cache it is one key-value head with keys of `rope + rank` numbers, of which the last `rank`
/// are the value too.
#[derive(Clone, Copy, Debug)]
pub struct LatentShape {
    /// Length of the vector that queries are made from, if they are not made from the state itself.
    pub query_rank: Option<usize>,
    /// Length of the latent vector.
    pub rank: usize,
    /// Dimensions of a head's queries and keys that are not rotated; `rope` counts those that are.
    pub nope: usize,
    pub rope: usize,
    /// Dimensions of a head's value.
    pub value: usize,
    /// Whether the two dimensions of a rotated pair are neighbours.
    pub interleaved: bool,
}

/// Shape of a gated delta net, which has a state of fixed size.
#[derive(Clone, Copy, Debug)]
pub struct DeltaShape {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Number of tokens that the convolution sees.
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

    /// Numbers of a token that pass the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Names and output sides of the matrices that rows are multiplied with, as a GGUF file or a checkpoint has them.
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

/// Extra input that a token has for each layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerLayerInput {
    /// Length of the extra input of one layer.
    pub dims: usize,
    /// Number of tokens with an extra input; all others have that of token 0.
    pub vocab: usize,
}

/// Alternating updates: a token has several states, of which a layer computes one and predicts the others.
#[derive(Clone, Debug)]
pub struct AltUpShape {
    pub states: usize,
    /// Index of the state that layers compute.
    pub active: usize,
    /// Whether the active state is multiplied by a weight before the layer's extra input is added.
    pub scales_output: bool,
    /// Rank of the residual path: numbers between its two products.
    pub laurel_rank: usize,
    /// Share of an MLP's gates that is cut off, as if gates were normally distributed: (layers)
    pub sparsity: Vec<f64>,
}
