//! Qwen3-MoE: Qwen3 with experts. transformers `models/qwen3_moe`.

use anyhow::Result;

use super::super::config::ModelShape;
use super::config::{Config, windows};
use super::qwen3;

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = qwen3::shape(config)?;
    let window = config.window(Some(4096))?.filter(|_| config.json["use_sliding_window"] == true);
    Ok(ModelShape {
        attention: windows(&vec![true; shape.layers], window),
        experts: Some(config.experts(shape.layers, [128, 8, 768])?),
        ..shape
    })
}
