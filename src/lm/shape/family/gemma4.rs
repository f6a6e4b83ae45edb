//! Gemma 4: layers with a window and layers without have other heads and rotations, the last layers attend to another's cache, keys may be
//! values, values have a norm, and each layer has an input of its own. transformers `models/gemma4`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::config::ModelShape;
use super::super::parts::{Experts, LayerAttention, PerLayerInput};
use super::super::rope_shape::{self, RopeScaling, RopeShape};
use super::config::{Config, FULL, SLIDING, windows_and_ropes};
use super::gemma;

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = gemma::later(config)?;
    ensure!(
        config.field::<&str>("use_bidirectional_attention")? != Some("all"),
        "its attention looks ahead (use_bidirectional_attention): it is not a language model"
    );
    let mut sliding = config.sliding(shape.layers, |layer| (layer + 1) % 6 != 0)?;
    sliding[shape.layers - 1] = false;
    let sizes = sizes(config, &shape, &sliding)?;
    let head_dim = |is_sliding: bool| {
        let layer = sliding.iter().position(|own| *own == is_sliding);
        layer.and_then(|layer| sizes[layer]).map_or(shape.head_dim, |(_, head_dim)| head_dim)
    };
    let attention = windows_and_ropes(&sliding, config.window(Some(512))?);
    let attention = attention.into_iter().zip(&sizes).map(|(own, sizes)| LayerAttention { sizes: *sizes, ..own });
    Ok(ModelShape {
        ropes: vec![rope(config, SLIDING, head_dim(true))?, rope(config, FULL, head_dim(false))?],
        attention: with_shared(config, attention.collect(), 0)?,
        norm_adds_one: false,
        query_scale: 1.0,
        per_layer_input: match config.field::<usize>("hidden_size_per_layer_input")? {
            Some(0) => None,
            _ => Some(PerLayerInput {
                dims: config.size("hidden_size_per_layer_input", 1 << 18)?.unwrap_or(256),
                vocab: config.size("vocab_size_per_layer_input", 1 << 24)?.unwrap_or(shape.vocab),
            }),
        },
        keys_as_values: config.field("attention_k_eq_v")?.unwrap_or(false),
        experts: match config.field("enable_moe_block")?.unwrap_or(false) {
            true => Some(experts(config, shape.layers)?),
            false => None,
        },
        double_wide_mlp: config.field("use_double_wide_mlp")?.unwrap_or(false),
        value_norm: true,
        layer_scalar: true,
        ..shape
    })
}

fn experts(config: &Config<'_>, layers: usize) -> Result<Experts> {
    let per_token = config.required("top_k_experts", 1 << 11)?;
    let inner = config.required("moe_intermediate_size", 1 << 20)?;
    let own = config.experts(layers, [per_token, per_token, inner])?;
    Ok(Experts { per_token, normalised: true, beside_mlp: true, ..own })
}

/// Makes the last `num_kv_shared_layers` layers attend to the cache of the last layer of their kind before them.
pub(super) fn with_shared(
    config: &Config<'_>,
    mut attention: Vec<LayerAttention>,
    default: usize,
) -> Result<Vec<LayerAttention>> {
    let (shared, layers) = (config.field("num_kv_shared_layers")?.unwrap_or(default), attention.len());
    ensure!(
        shared < layers,
        "num_kv_shared_layers is {shared}; at least one of its {layers} layers has a cache of its own"
    );
    let first = layers - shared;
    for layer in first..layers {
        let is_windowed = attention[layer].window.is_some();
        let source = attention[..first].iter().rposition(|own| own.window.is_some() == is_windowed);
        attention[layer].shares = Some(source.with_context(|| {
            format!("layer {layer} shares the cache of a layer before {first} of its kind, and there is none")
        })?);
    }
    Ok(attention)
}

/// Key-value heads and head dimensions of layers in which they differ from those of layers with a window. Published files give them
/// for all layers without a window, transformers 5 by layer.
fn sizes(config: &Config<'_>, shape: &ModelShape, sliding: &[bool]) -> Result<Vec<Option<(usize, usize)>>> {
    let most = 1 << 14;
    let own = |config: &Config<'_>, kv_heads: &str, head_dim: &str| {
        anyhow::Ok((
            config.size(kv_heads, most)?.unwrap_or(shape.heads.kv_heads),
            config.size(head_dim, most)?.unwrap_or(shape.head_dim),
        ))
    };
    if let Value::Object(layers) = &config.json["per_layer_config"] {
        let of_layer = |layer: usize| {
            let json = layers.get(&layer.to_string());
            json.map(|json| own(&Config { json }, "num_key_value_heads", "head_dim")).transpose()
        };
        return (0..sliding.len()).map(of_layer).collect();
    }
    let (kv_heads, mut head_dim) = own(config, "num_global_key_value_heads", "global_head_dim")?;
    if config.json["global_head_dim"].is_null() {
        head_dim = 512;
    }
    let keys_as_values = config.field("attention_k_eq_v")?.unwrap_or(false);
    let kv_heads = if keys_as_values { kv_heads } else { shape.heads.kv_heads };
    Ok(sliding.iter().map(|sliding| (!sliding).then_some((kv_heads, head_dim))).collect())
}

/// Reads the rotation of one kind of layers. In a `proportional` rotation only the first pairs of dimensions turn, as fast as if
/// all did.
fn rope(config: &Config<'_>, kind: &str, head_dim: usize) -> Result<RopeShape> {
    let default = serde_json::json!({
        FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    });
    ensure!(
        config.json["rope_scaling"].is_null(),
        "rope_scaling is set, which this family does not have; leave it out"
    );
    let all = &config.json["rope_parameters"];
    let record = if all.is_null() { &default[kind] } else { &all[kind] };
    ensure!(!record.is_null(), "rope_parameters has no {kind}");
    if record["rope_type"] != "proportional" {
        return RopeShape::parse(record, &Value::Null, 1e4, head_dim);
    }
    let number = |name: &str, default: f64| anyhow::Ok(rope_shape::number(record, name)?.unwrap_or(default));
    let (theta, factor, share) =
        (number("rope_theta", 1e4)?, number("factor", 1.0)?, number("partial_rotary_factor", 1.0)?);
    ensure!(theta > 0.0 && factor > 0.0 && (0.0..=1.0).contains(&share), "rope_parameters has {record}");
    let (turning, pairs) = ((share * head_dim as f64 / 2.0) as usize, head_dim / 2);
    let factors = (0..pairs).map(|pair| if pair < turning { factor } else { f64::INFINITY });
    Ok(RopeShape { theta, scaling: RopeScaling::Factors(factors.collect()), dims: head_dim })
}
