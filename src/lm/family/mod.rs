//! Model families: what a config.json of each says, and how its network differs from Llama's.
//!
//! Each family is a file with one function from a config.json to a [`ModelShape`], and a line in [`FAMILIES`]. Whatever would
//! silently give other numbers (another architecture, quantised weights, an unknown rotation) is an error. Where a key is
//! missing, transformers' default for the family holds.

mod config;
mod gemma2;
mod gemma3;
mod gemma4;
mod gpt_oss;
mod llama;
mod ministral;
mod ministral3;
mod mistral;
mod mixtral;
mod olmo2;
mod olmo3;
mod olmoe;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_moe;
mod smollm3;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use self::config::Config;
use super::config::ModelShape;

/// A family, by `model_type` of its config.json.
struct Family {
    model_type: &'static str,
    shape: fn(&Config<'_>) -> Result<ModelShape>,
}

const FAMILIES: &[Family] = &[
    Family { model_type: "gemma2", shape: gemma2::shape },
    Family { model_type: "gemma3_text", shape: gemma3::shape },
    Family { model_type: "gemma4_text", shape: gemma4::shape },
    Family { model_type: "gpt_oss", shape: gpt_oss::shape },
    Family { model_type: "llama", shape: llama::shape },
    Family { model_type: "ministral", shape: ministral::shape },
    Family { model_type: "ministral3", shape: ministral3::shape },
    Family { model_type: "mistral", shape: mistral::shape },
    Family { model_type: "mixtral", shape: mixtral::shape },
    Family { model_type: "olmo2", shape: olmo2::shape },
    Family { model_type: "olmo3", shape: olmo3::shape },
    Family { model_type: "olmoe", shape: olmoe::shape },
    Family { model_type: "phi3", shape: phi3::shape },
    Family { model_type: "qwen2", shape: qwen2::shape },
    Family { model_type: "qwen2_moe", shape: qwen2_moe::shape },
    Family { model_type: "qwen3", shape: qwen3::shape },
    Family { model_type: "qwen3_moe", shape: qwen3_moe::shape },
    Family { model_type: "smollm3", shape: smollm3::shape },
];

/// The network that a config.json describes.
///
/// # Errors
/// A network this program cannot compute exactly.
pub(super) fn shape(json: &Value) -> Result<ModelShape> {
    let model_type = json["model_type"].as_str().unwrap_or("none given");
    let quantised = &json["quantization_config"];
    ensure!(
        quantised.is_null() || model_type == "gpt_oss" && quantised["quant_method"] == "mxfp4",
        "the weights are quantised (quantization_config); use the f32, f16 or bf16 checkpoint they were made from"
    );
    match FAMILIES.iter().find(|family| family.model_type == model_type) {
        Some(family) => (family.shape)(&Config { json }),
        None => bail!("model_type is {model_type:?}{}", reason(json)),
    }
}

/// Why a family is refused, and what to do.
fn reason(json: &Value) -> String {
    let has = |names: &[&str]| names.iter().any(|name| json[*name].as_f64().is_some_and(|number| number > 0.0));
    let layers = json["layer_types"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_linear = |kind: &str| kind.contains("linear") || kind.contains("mamba") || kind.contains("conv");
    if json["text_config"].is_object() {
        let text = json["text_config"]["model_type"].as_str().unwrap_or("of its own");
        return format!(", which reads images or sound too; use a checkpoint of the text model alone ({text})");
    }
    if layers.into_iter().any(is_linear)
        || has(&["linear_num_key_heads", "mamba_d_state", "ssm_state_size", "conv_L_cache"])
    {
        return ": some of its layers keep a state of fixed size instead of keys and values, so there is no cache to bound \
                in them; use a model with attention in every layer"
            .to_owned();
    }
    if has(&["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"]) {
        return ": it is a mixture of experts whose router is not computed here".to_owned();
    }
    let known: Vec<_> = FAMILIES.iter().map(|family| family.model_type).collect();
    format!("; those that are computed exactly here are {} (Yi and SmolLM2 are llama)", known.join(", "))
}

#[cfg(test)]
mod tests;
