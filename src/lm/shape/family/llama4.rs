//! Llama 4: layers whose queries see only their own piece of the text, and layers without positions, where queries grow with the length of
//! the text; experts whose input is scaled. transformers `models/llama4`.

use anyhow::Result;

use super::super::config::ModelShape;
use super::super::parts::{AttentionTemperature, Experts, HeadNorms, LayerAttention, LayerNorms, RouterScores};
use super::super::rope_shape::RopeShape;
use super::config::{Config, Defaults};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = config.decoder(&Defaults { theta: 500_000.0, ..Defaults::LLAMA })?;
    let layers = shape.layers;
    let rotated = config.rotated(layers)?;
    let chunked: Vec<bool> = match config.by_layer::<&str>("layer_types", layers)? {
        Some(types) => types.iter().map(|kind| *kind == "chunked_attention").collect(),
        None => rotated.clone(),
    };
    let chunk = config.size("attention_chunk_size", usize::MAX)?;
    let attention = rotated.iter().zip(chunked).map(|(rotated, chunked)| LayerAttention {
        window: chunk.filter(|_| chunked),
        is_chunked: true,
        rope: usize::from(!rotated),
        ..LayerAttention::default()
    });
    // Some files have a number.
    let tuned = !matches!(config.json["attn_temperature_tuning"].as_f64(), Some(0.0))
        && config.json["attn_temperature_tuning"] != false;
    let temperature = AttentionTemperature {
        beta: config.positive("attn_scale")?.unwrap_or(0.1),
        every: config.positive("floor_scale")?.unwrap_or(8192.0),
        first: 1,
        only_without_rotation: true,
    };
    let step = config.size("interleave_moe_layer_step", usize::MAX)?.unwrap_or(1);
    let with_experts: Vec<usize> =
        config.field("moe_layers")?.unwrap_or_else(|| (step - 1..layers).step_by(step).collect());
    let own = config.experts(layers, [16, 1, shape.intermediate])?;
    Ok(ModelShape {
        ropes: vec![shape.ropes[0].clone(), RopeShape::NONE],
        attention: attention.collect(),
        norms: LayerNorms {
            of_heads: match config.field("use_qk_norm")?.unwrap_or(true) {
                true => HeadNorms::OfRotated,
                false => HeadNorms::None,
            },
            ..LayerNorms::LLAMA
        },
        interleaved_rotation: true,
        experts: Some(Experts {
            intermediate: shape.intermediate,
            normalised: false,
            shared: Some(shape.intermediate),
            has_shared_gate: false,
            scores: RouterScores::InputSigmoid,
            transposed: true,
            layers: (0..layers).map(|layer| with_experts.contains(&layer)).collect(),
            ..own
        }),
        // The MLP of layers without experts.
        intermediate: config.size("intermediate_size_mlp", 1 << 20)?.unwrap_or(16_384),
        attention_temperature: Some(temperature).filter(|_| tuned),
        ..shape
    })
}
