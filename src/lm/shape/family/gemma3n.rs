//! Gemma 3n: Gemma 3 with several states of a token (alternating updates), a residual path of low rank, and sparse activations in
//! some layers. Like Gemma 4 it has shared caches, norms of values, and an extra input to each layer. transformers
//! `models/gemma3n`.

use anyhow::{Result, ensure};

use super::super::config::ModelShape;
use super::super::parts::{AltUpShape, PerLayerInput};
use super::config::{Config, windows_and_ropes};
use super::{gemma, gemma4};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    // Sizes of the MLP may be a list, of equal ones in every published model.
    let mut json = config.json.clone();
    if let Some(sizes) = json["intermediate_size"].as_array() {
        ensure!(
            sizes.iter().all(|size| *size == sizes[0]),
            "intermediate_size differs between layers, which is not computed here"
        );
        json["intermediate_size"] = sizes.first().cloned().unwrap_or_default();
    }
    let config = &Config { json: &json };
    let shape = gemma::later(config)?;
    let sliding = config.sliding(shape.layers, |layer| (layer + 1) % 5 != 0)?;
    let pattern = || (0..shape.layers).map(|layer| if layer < 10 { 0.95 } else { 0.0 }).collect();
    let sparsity: Vec<f64> = config.by_layer("activation_sparsity_pattern", shape.layers)?.unwrap_or_else(pattern);
    ensure!(
        sparsity.iter().all(|share| (0.0..1.0).contains(share)),
        "activation_sparsity_pattern has to hold shares of 1"
    );
    let size = |name: &str, default: usize| anyhow::Ok(config.size(name, 1 << 24)?.unwrap_or(default));
    let (states, active) = (size("altup_num_inputs", 4)?, config.field("altup_active_idx")?.unwrap_or(0));
    ensure!(
        (2..=64).contains(&states) && active < states,
        "altup_active_idx is {active}, and altup_num_inputs {states}"
    );
    let local_theta = config.positive("rope_local_base_freq")?.unwrap_or(10_000.0);
    let attention = windows_and_ropes(&sliding, config.window(Some(512))?);
    Ok(ModelShape {
        ropes: config.ropes_by_type(local_theta, 1_000_000.0, shape.head_dim)?,
        attention: gemma4::with_shared(config, attention, 15)?,
        norm_adds_one: false,
        query_scale: 1.0,
        per_layer_input: Some(PerLayerInput {
            dims: size("hidden_size_per_layer_input", 256)?,
            vocab: size("vocab_size_per_layer_input", 262_144)?,
        }),
        value_norm: true,
        altup: Some(AltUpShape {
            states,
            active,
            scales_output: config.field("altup_correct_scale")?.unwrap_or(true),
            laurel_rank: size("laurel_rank", 64)?,
            sparsity,
        }),
        ..shape
    })
}
