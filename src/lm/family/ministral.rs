//! Ministral: some layers have a window. transformers `models/ministral`.

use anyhow::Result;

use super::super::config::ModelShape;
use super::config::{Config, Defaults, windows};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = config.decoder(&Defaults { kv_heads_are_heads: false, ..Defaults::LLAMA })?;
    let attention = windows(&config.sliding(shape.layers, |_| true)?, config.window(Some(4096))?);
    Ok(ModelShape { attention, ..shape })
}
