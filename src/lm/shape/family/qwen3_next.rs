//! Qwen3-Next and Qwen3.5: gated delta nets in three of four layers, and attention with gates and a rotation of a part of each head in the
//! others; mixtures of experts, or dense. transformers `models/qwen3_next`, `models/qwen3_5`, `models/qwen3_5_moe`.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::super::config::ModelShape;
use super::super::parts::{DeltaShape, Experts, HeadNorms, LayerAttention, LayerNorms};
use super::super::rope_shape::RopeShape;
use super::config::{Config, Defaults, FULL};

/// Reads Qwen3-Next.
pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let normalised = config.field("norm_topk_prob")?.unwrap_or(true);
    with_experts(config, hybrid(config, true)?, normalised, [512, 10])
}

/// Reads dense Qwen3.5 models.
pub(super) fn qwen3_5(config: &Config<'_>) -> Result<ModelShape> {
    hybrid(config, false)
}

/// Reads Qwen3.5 with experts, whose weights sum to 1, and without another MLP.
pub(super) fn qwen3_5_moe(config: &Config<'_>) -> Result<ModelShape> {
    let mut json = config.json.clone();
    if json["intermediate_size"].is_null() {
        json["intermediate_size"] = 1.into();
    }
    let config = &Config { json: &json };
    with_experts(config, hybrid(config, false)?, true, [256, 8])
}

fn with_experts(
    config: &Config<'_>,
    shape: ModelShape,
    normalised: bool,
    [count, per_token]: [usize; 2],
) -> Result<ModelShape> {
    let own = config.experts(shape.layers, [count, per_token, 512])?;
    let shared = config.size("shared_expert_intermediate_size", 1 << 20)?.or(Some(512));
    Ok(ModelShape { experts: Some(Experts { normalised, shared, ..own }), ..shape })
}

fn hybrid(config: &Config<'_>, fused: bool) -> Result<ModelShape> {
    let defaults = Defaults { head_dim: Some(256), rotates_part: true, ..Defaults::LLAMA };
    let shape = config.decoder(&defaults)?;
    let every = config.size("full_attention_interval", usize::MAX)?.unwrap_or(4);
    let kinds = ["linear_attention", FULL];
    let is_recurrent = config.layer_types(shape.layers, kinds, |layer| (layer + 1) % every != 0)?;
    ensure!(is_recurrent.contains(&false), "none of its layers has attention, so there is no cache to bound");
    let size = |name: &str, default: usize| anyhow::Ok(config.size(name, 1 << 14)?.unwrap_or(default));
    let delta = DeltaShape {
        key_heads: size("linear_num_key_heads", 16)?,
        value_heads: size("linear_num_value_heads", 32)?,
        key_dim: size("linear_key_head_dim", 128)?,
        value_dim: size("linear_value_head_dim", 128)?,
        kernel: size("linear_conv_kernel_dim", 4)?,
        fused,
        norm_eps: shape.norm_eps,
    };
    ensure!(
        delta.value_heads.is_multiple_of(delta.key_heads),
        "linear_num_value_heads {} is not a multiple of linear_num_key_heads {}",
        delta.value_heads,
        delta.key_heads
    );
    let attention =
        is_recurrent.into_iter().map(|is_recurrent| LayerAttention { is_recurrent, ..LayerAttention::default() });
    let rope = RopeShape::parse(&partly(config), config.json, defaults.theta, shape.head_dim)?;
    Ok(ModelShape {
        ropes: vec![rope],
        attention: attention.collect(),
        norms: LayerNorms { of_heads: HeadNorms::PerHead, ..LayerNorms::LLAMA },
        norm_adds_one: true,
        gated_attention: true,
        delta: Some(delta),
        ..shape
    })
}

/// Settings of the rotation, which covers a quarter of each head unless they say otherwise.
fn partly(config: &Config<'_>) -> Value {
    let mut settings = config.rope_record().as_object().cloned().unwrap_or_default();
    let own = settings.entry("partial_rotary_factor").or_insert(Value::Null);
    if own.is_null() && config.json["partial_rotary_factor"].is_null() {
        *own = 0.25.into();
    }
    settings.into()
}
