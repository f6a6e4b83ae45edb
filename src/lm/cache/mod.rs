//! What the network keeps of a text: keys and values that survive, on the host or on a GPU, and states in their place.

pub(super) mod attention_shape;
pub(super) mod block_vectors;
pub(super) mod delta_state;
pub(super) mod kivi;
pub(super) mod layer_cache;
pub(super) mod memory;
mod placement;
pub(super) mod plan;
pub(super) mod rerotation;
pub(super) mod rope;
pub(super) mod scratch;
pub(super) mod store;
pub(super) mod table;
