//! Llama, and families with its layers: Mistral, Ministral and Mixtral, Phi-3, SmolLM3. transformers `models/llama`, `models/mistral`,
//! `models/ministral`, `models/ministral3`, `models/mixtral`, `models/phi3`, `models/smollm3`.

use anyhow::{Context, Result, ensure};

use super::super::config::ModelShape;
use super::super::parts::{AttentionTemperature, Experts};
use super::super::rope_shape::{self, RopeScaling, RopeShape};
use super::config::{Config, Defaults, windows};

/// Reads Llama: all layers alike, without a window.
pub(super) fn llama(config: &Config<'_>) -> Result<ModelShape> {
    config.decoder(&Defaults::LLAMA)
}

/// Reads Mistral: every layer may have a window.
pub(super) fn mistral(config: &Config<'_>) -> Result<ModelShape> {
    with_window(config, Some(4096), config.decoder(&Defaults::LLAMA)?)
}

/// Adds a window to every layer, and removes biases, whatever config.json says of them.
fn with_window(config: &Config<'_>, default: Option<usize>, shape: ModelShape) -> Result<ModelShape> {
    let attention = windows(&vec![true; shape.layers], config.window(default)?);
    Ok(ModelShape { attention, biased: Vec::new(), ..shape })
}

/// Reads Ministral: some layers have a window.
pub(super) fn ministral(config: &Config<'_>) -> Result<ModelShape> {
    let shape = config.decoder(&Defaults::LLAMA)?;
    let attention = windows(&config.sliding(shape.layers, |_| true)?, config.window(Some(4096))?);
    Ok(ModelShape { attention, biased: Vec::new(), ..shape })
}

/// Reads Ministral 3: YaRN, and an attention temperature that depends on the position.
pub(super) fn ministral3(config: &Config<'_>) -> Result<ModelShape> {
    let defaults = Defaults { head_dim: Some(128), ..Defaults::LLAMA };
    let shape = with_window(config, None, config.decoder(&defaults)?)?;
    let number = |name: &str| {
        rope_shape::number(config.rope_record(), name)?
            .with_context(|| format!("rope_parameters has no number {name}"))
    };
    let (beta, every) = (number("llama_4_scaling_beta")?, number("original_max_position_embeddings")?);
    let temperature = AttentionTemperature { beta, every, first: 0, only_without_rotation: false };
    Ok(ModelShape { attention_temperature: Some(temperature), ..shape })
}

/// Reads Mixtral: Mistral with experts.
pub(super) fn mixtral(config: &Config<'_>) -> Result<ModelShape> {
    let shape = with_window(config, None, config.decoder(&Defaults { theta: 1_000_000.0, ..Defaults::LLAMA })?)?;
    let experts = Experts { normalised: true, ..config.experts(shape.layers, [8, 2, shape.intermediate])? };
    Ok(ModelShape { experts: Some(experts), ..shape })
}

/// Reads Phi-3 and Phi-4-mini: fused matrices, and rotation of a part of every head.
pub(super) fn phi3(config: &Config<'_>) -> Result<ModelShape> {
    let defaults = Defaults { rotates_part: true, ..Defaults::LLAMA };
    let shape = with_window(config, None, config.decoder(&defaults)?)?;
    let is_known = matches!(shape.ropes[0].scaling, RopeScaling::None | RopeScaling::LongRope { .. });
    ensure!(is_known, "its rope_scaling is of a type that this family does not have; only longrope is known");
    Ok(ModelShape { fused: true, ..shape })
}

/// Reads SmolLM3: every fourth layer has no positions.
pub(super) fn smollm3(config: &Config<'_>) -> Result<ModelShape> {
    let defaults = Defaults { theta: 2_000_000.0, tied: true, ..Defaults::LLAMA };
    let shape = config.decoder(&defaults)?;
    let rotated = config.rotated(shape.layers)?;
    let used = config.field("use_sliding_window")? == Some(true);
    let window = config.window(None)?.filter(|_| used);
    let mut attention = windows(&config.sliding(shape.layers, |layer| !rotated[layer])?, window);
    for (layer, rotated) in attention.iter_mut().zip(rotated) {
        layer.rope = usize::from(!rotated);
    }
    Ok(ModelShape { ropes: vec![shape.ropes[0].clone(), RopeShape::NONE], attention, ..shape })
}
