//! Mistral: every layer may have a window. transformers `models/mistral`.

use anyhow::Result;

use super::super::config::ModelShape;
use super::config::{Config, Defaults, windows};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = config.decoder(&Defaults::LLAMA)?;
    let attention = windows(&vec![true; shape.layers], config.window(Some(4096))?);
    Ok(ModelShape { attention, ..shape })
}
