//! gpt-oss: experts with limited SwiGLU and biases, an attention sink in every head, a window in every other layer, and yarn.
//! transformers `models/gpt_oss`.

use anyhow::Result;

use super::super::config::ModelShape;
use super::super::parts::{Activation, Experts};
use super::config::{ATTENTION_MATRICES, Config, Defaults, MLP_MATRICES, windows};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let defaults = Defaults { theta: 150_000.0, head_dim: Some(64), ..Defaults::LLAMA };
    let shape = config.decoder(&defaults)?;
    let sliding = config.sliding(shape.layers, |layer| layer % 2 == 0)?;
    let experts = config.experts(shape.layers, [128, 4, shape.intermediate])?;
    let biased = config.biased(&[("attention_bias", ATTENTION_MATRICES)], true)?;
    Ok(ModelShape {
        // The experts and their router always have biases.
        biased: [&biased, MLP_MATRICES, &["gate_up_proj", "gate"]].concat(),
        attention: windows(&sliding, config.window(Some(128))?),
        // It says silu.
        activation: Activation::LimitedSwiglu,
        experts: Some(Experts { normalised: true, transposed: true, by_turns: true, ..experts }),
        sinks: true,
        ..shape
    })
}
