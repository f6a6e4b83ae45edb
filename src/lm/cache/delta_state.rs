//! What a gated delta net keeps of the tokens read, in place of a cache.

use crate::lm::shape::parts::DeltaShape;

/// What a layer keeps of the tokens read.
#[derive(Clone, Debug)]
pub struct DeltaState {
    /// Inputs of the convolution for the last tokens, the oldest first: (kernel - 1, channels)
    pub recent: Vec<f32>,
    /// (value_heads, key_dim, value_dim)
    pub heads: Vec<f32>,
}

impl DeltaState {
    /// That before the first token.
    pub fn new(shape: &DeltaShape) -> DeltaState {
        let heads = shape.value_heads * shape.key_dim * shape.value_dim;
        DeltaState { recent: vec![0.0; (shape.kernel - 1) * shape.channels()], heads: vec![0.0; heads] }
    }

    pub fn bytes(&self) -> u64 {
        size_of_val(&self.recent[..]) as u64 + size_of_val(&self.heads[..]) as u64
    }
}
