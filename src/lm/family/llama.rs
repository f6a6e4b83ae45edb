//! Llama, and models of its layout: Yi, SmolLM2, TinyLlama. transformers `models/llama`.

use anyhow::Result;

use super::super::config::ModelShape;
use super::config::{Config, Defaults};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    config.decoder(&Defaults::LLAMA)
}
