//! What a network is before it has weights: sizes, families and rotations, as `config.json` describes them.

pub(super) mod caches;
pub(super) mod config;
pub(super) mod family;
pub(super) mod matrices;
pub(super) mod parts;
pub(super) mod rope_override;
pub(super) mod rope_shape;
