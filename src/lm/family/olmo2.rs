//! OLMo 2: norms after attention and MLP, and of all queries and all keys of a token. transformers `models/olmo2`.

use anyhow::Result;

use super::super::config::{LayerNorms, ModelShape};
use super::config::{Config, Defaults};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    Ok(ModelShape { norms: LayerNorms::OLMO, ..config.decoder(&Defaults::LLAMA)? })
}
