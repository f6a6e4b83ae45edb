//! Qwen2 and Qwen2.5: biases on q, k and v, which the checkpoint has, and a window in later layers, which is off by default.
//! transformers `models/qwen2`.

use anyhow::Result;

use super::super::config::{LayerAttention, ModelShape};
use super::config::{Config, Defaults, windows};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = config.decoder(&Defaults::LLAMA)?;
    Ok(ModelShape { attention: attention(config, shape.layers)?, ..shape })
}

/// Layers from `max_window_layers` on have the window.
pub(super) fn attention(config: &Config<'_>, layers: usize) -> Result<Vec<LayerAttention>> {
    let used = config.field("use_sliding_window")? == Some(true);
    let window = config.window(Some(4096))?.filter(|_| used);
    let first = config.field("max_window_layers")?.unwrap_or(28);
    Ok(windows(&config.sliding(layers, |layer| used && layer >= first)?, window))
}
