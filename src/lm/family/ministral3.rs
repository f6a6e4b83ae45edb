//! Ministral 3: YaRN, and an attention temperature that depends on the position. transformers `models/ministral3`.

use anyhow::{Context, Result};

use super::super::config::{AttentionTemperature, ModelShape};
use super::config::{Config, Defaults, windows};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let defaults = Defaults { kv_heads_are_heads: false, head_dim: Some(128), ..Defaults::LLAMA };
    let shape = config.decoder(&defaults)?;
    let number = |name: &str| {
        let number = config.json["rope_parameters"][name].as_f64();
        number.with_context(|| format!("rope_parameters has no number {name}"))
    };
    let (beta, every) = (number("llama_4_scaling_beta")?, number("original_max_position_embeddings")?);
    let attention = windows(&vec![true; shape.layers], config.window(None)?);
    let temperature = AttentionTemperature { beta, every, first: 0, only_without_rotation: false };
    Ok(ModelShape { attention, attention_temperature: Some(temperature), ..shape })
}
