//! Phi-3 and Phi-4-mini: fused matrices, and rotation of a part of every head. transformers `models/phi3`.

use anyhow::{Result, ensure};

use super::super::config::ModelShape;
use super::super::rope_shape::RopeScaling;
use super::config::{Config, Defaults, windows};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = config.decoder(&Defaults::LLAMA)?;
    let is_known = matches!(shape.ropes[0].scaling, RopeScaling::None | RopeScaling::LongRope(_));
    ensure!(is_known, "its rope_scaling is of a type that this family does not have; only longrope is known");
    let attention = windows(&vec![true; shape.layers], config.window(None)?);
    Ok(ModelShape { attention, fused: true, ..shape })
}
