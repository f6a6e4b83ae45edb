//! Mixtral: Mistral with experts. transformers `models/mixtral`.

use anyhow::Result;

use super::super::config::{ExpertNames, Experts, ModelShape};
use super::config::{Config, Defaults, windows};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = config.decoder(&Defaults::LLAMA)?;
    let attention = windows(&vec![true; shape.layers], config.window(None)?);
    let names = ExpertNames {
        router: "block_sparse_moe.gate",
        experts: "block_sparse_moe.experts",
        shared: "",
        parts: ["w1", "w3", "w2"],
    };
    let experts = Experts { names, normalised: true, ..config.experts(shape.layers, [8, 2, shape.intermediate])? };
    Ok(ModelShape { attention, experts: Some(experts), ..shape })
}
