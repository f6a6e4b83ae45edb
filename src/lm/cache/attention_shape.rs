//! A layer of the network as attention and its cache need it.

use std::ops::Range;

use super::rope::Rope;
use crate::eviction::Heads;
use crate::lm::shape::config::ModelShape;
use crate::lm::shape::parts::{AttentionTemperature, LayerAttention};

/// A layer of the network as attention needs it.
pub(in crate::lm) struct AttentionShape<'a> {
    pub model: &'a ModelShape,
    pub heads: Heads,
    pub head_dim: usize,
    pub rope: &'a Rope,
    /// The layer whose cache it attends to.
    pub cache: usize,
    /// Whether other layers attend to its cache too.
    pub is_shared: bool,
    /// What differs from other layers.
    pub own: LayerAttention,
    temperature: Option<AttentionTemperature>,
}

impl<'a> AttentionShape<'a> {
    pub fn new(shape: &'a ModelShape, layer: usize, ropes: &'a [Rope]) -> AttentionShape<'a> {
        let own = shape.attention[layer];
        AttentionShape {
            model: shape,
            heads: shape.heads_of(layer),
            head_dim: shape.head_dim_of(layer),
            rope: &ropes[own.rope],
            cache: own.shares.unwrap_or(layer),
            is_shared: shape.attention.iter().any(|other| other.shares == Some(layer)),
            own,
            temperature: shape
                .attention_temperature
                .filter(|temperature| !temperature.only_without_rotation || shape.ropes[own.rope].dims == 0),
        }
    }

    /// What the query at a position of the text is multiplied by.
    pub fn query_scale(&self, position: usize) -> f32 {
        let scale = self.model.query_scale;
        self.temperature.map_or(scale, |temperature| scale * temperature.at(position)) as f32
    }

    /// What the queries at some positions are multiplied by.
    pub fn query_scales(&self, positions: Range<usize>) -> Vec<f32> {
        positions.map(|position| self.query_scale(position)).collect()
    }

    /// Limits logits, if the model does.
    pub fn cap(&self, logits: &mut [f32]) {
        if let Some(cap) = self.model.attention_softcap {
            logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
        }
    }
}
