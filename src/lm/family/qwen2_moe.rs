//! Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts, and one that every token goes to. transformers `models/qwen2_moe`.

use anyhow::Result;

use super::super::config::{Experts, ModelShape};
use super::config::Config;
use super::qwen2;

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = qwen2::shape(config)?;
    let experts = config.experts(shape.layers, [60, 4, 1408])?;
    let shared = config.size("shared_expert_intermediate_size", 1 << 20)?.or(Some(5632));
    Ok(ModelShape { experts: Some(Experts { shared, ..experts }), ..shape })
}
