//! OLMo 2 and 3, and OLMoE: one norm over all queries of a token and one over all its keys. transformers `models/olmo2`,
//! `models/olmo3`, `models/olmoe`.

use anyhow::Result;

use super::super::config::ModelShape;
use super::super::parts::{HeadNorms, LayerNorms};
use super::config::{Config, Defaults, windows_and_ropes};

const NORMS: LayerNorms = LayerNorms { of_heads: HeadNorms::AllHeads, ..LayerNorms::OLMO };

/// Reads OLMo 2: norms after attention and MLP.
pub(super) fn olmo2(config: &Config<'_>) -> Result<ModelShape> {
    Ok(ModelShape { norms: NORMS, ..config.decoder(&Defaults::LLAMA)? })
}

/// Reads OLMo 3: OLMo 2 with three layers with a window for one without, and stretched positions in the latter only.
pub(super) fn olmo3(config: &Config<'_>) -> Result<ModelShape> {
    let theta = config.positive("rope_theta")?.unwrap_or(500_000.0);
    let shape = config.decoder(&Defaults { theta, ..Defaults::LLAMA })?;
    let sliding = config.sliding(shape.layers, |layer| (layer + 1) % 4 != 0)?;
    Ok(ModelShape {
        ropes: config.ropes_by_type(theta, theta, shape.head_dim)?,
        attention: windows_and_ropes(&sliding, config.window(Some(4096))?),
        norms: NORMS,
        ..shape
    })
}

/// Reads OLMoE: experts, and norms before attention and MLP.
pub(super) fn olmoe(config: &Config<'_>) -> Result<ModelShape> {
    let shape = config.decoder(&Defaults::LLAMA)?;
    let experts = Some(config.experts(shape.layers, [64, 8, shape.intermediate])?);
    let norms = LayerNorms { of_heads: HeadNorms::AllHeads, ..LayerNorms::LLAMA };
    Ok(ModelShape { norms, experts, qkv_limit: config.positive("clip_qkv")?, ..shape })
}
