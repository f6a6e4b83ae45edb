//! Qwen3: norms of every head's queries and keys, and no biases. transformers `models/qwen3`.

use anyhow::Result;

use super::super::config::{HeadNorms, LayerNorms, ModelShape};
use super::config::{Config, Defaults};
use super::qwen2;

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let defaults = Defaults { kv_heads_are_heads: false, head_dim: Some(128), ..Defaults::LLAMA };
    let shape = config.decoder(&defaults)?;
    Ok(ModelShape {
        attention: qwen2::attention(config, shape.layers)?,
        norms: LayerNorms { of_heads: HeadNorms::PerHead, ..LayerNorms::LLAMA },
        ..shape
    })
}
