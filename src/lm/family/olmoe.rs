//! OLMoE: experts, and norms of all queries and all keys of a token. transformers `models/olmoe`.

use anyhow::{Result, ensure};

use super::super::config::{HeadNorms, LayerNorms, ModelShape};
use super::config::{Config, Defaults};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    ensure!(
        config.json["clip_qkv"].is_null(),
        "it limits queries, keys and values (clip_qkv), which is not computed here"
    );
    let shape = config.decoder(&Defaults::LLAMA)?;
    let experts = Some(config.experts(shape.layers, [64, 8, shape.intermediate])?);
    let norms = LayerNorms { of_heads: HeadNorms::AllHeads, ..LayerNorms::LLAMA };
    Ok(ModelShape { norms, experts, ..shape })
}
