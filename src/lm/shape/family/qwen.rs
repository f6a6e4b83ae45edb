//! Qwen 1.5 to 3, dense and with experts. transformers `models/qwen2`, `models/qwen2_moe`, `models/qwen3`, `models/qwen3_moe`.

use anyhow::Result;

use super::super::config::ModelShape;
use super::super::parts::{Experts, HeadNorms, LayerAttention, LayerNorms};
use super::config::{Config, Defaults, windows};

/// The matrices of queries, keys and values.
const QKV_MATRICES: &[&str] = &["q_proj", "k_proj", "v_proj"];

/// Reads Qwen2 and Qwen2.5: biases on q, k and v, and a window in later layers, which is off by default.
pub(super) fn qwen2(config: &Config<'_>) -> Result<ModelShape> {
    let shape = config.decoder(&Defaults::LLAMA)?;
    Ok(ModelShape { attention: attention(config, shape.layers)?, biased: QKV_MATRICES.to_vec(), ..shape })
}

/// Attention settings in which layers from `max_window_layers` on have the window.
fn attention(config: &Config<'_>, layers: usize) -> Result<Vec<LayerAttention>> {
    let used = config.field("use_sliding_window")? == Some(true);
    let window = config.window(Some(4096))?.filter(|_| used);
    let first = config.field("max_window_layers")?.unwrap_or(28);
    Ok(windows(&config.sliding(layers, |layer| used && layer >= first)?, window))
}

/// Reads Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts, and one expert that every token goes to.
pub(super) fn qwen2_moe(config: &Config<'_>) -> Result<ModelShape> {
    let shape = qwen2(config)?;
    let experts = config.experts(shape.layers, [60, 4, 1408])?;
    let shared = config.size("shared_expert_intermediate_size", 1 << 20)?.or(Some(5632));
    let biased = config.biased(&[("qkv_bias", QKV_MATRICES)], true)?;
    Ok(ModelShape { experts: Some(Experts { shared, ..experts }), biased, ..shape })
}

/// Reads Qwen3: norms of every head's queries and keys, and no biases.
pub(super) fn qwen3(config: &Config<'_>) -> Result<ModelShape> {
    let defaults = Defaults { head_dim: Some(128), ..Defaults::LLAMA };
    let shape = config.decoder(&defaults)?;
    Ok(ModelShape {
        attention: attention(config, shape.layers)?,
        norms: LayerNorms { of_heads: HeadNorms::PerHead, ..LayerNorms::LLAMA },
        ..shape
    })
}

/// Reads Qwen3 with experts.
pub(super) fn qwen3_moe(config: &Config<'_>) -> Result<ModelShape> {
    let shape = qwen3(config)?;
    let window = config.window(Some(4096))?.filter(|_| config.json["use_sliding_window"] == true);
    Ok(ModelShape {
        attention: windows(&vec![true; shape.layers], window),
        experts: Some(config.experts(shape.layers, [128, 8, 768])?),
        ..shape
    })
}
