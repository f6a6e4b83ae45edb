//! Model families: what a config.json of each says, and how its network differs from Llama's.
//!
//! Each family is a function from a config.json to a [`ModelShape`], in a file with its kin, and a line in [`FAMILIES`]. Whatever would
//! silently give other numbers (another architecture, quantised weights, an unknown rotation) is an error. Where a key is
//! missing, transformers' default for the family holds.

mod config;
mod deepseek;
mod gemma;
mod gemma3n;
mod gemma4;
mod gpt_oss;
mod llama;
mod llama4;
mod olmo;
mod qwen;
mod qwen3_next;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use self::config::Config;
use super::config::ModelShape;

/// A family, by `model_type` of its config.json.
struct Family {
    model_type: &'static str,
    shape: fn(&Config<'_>) -> Result<ModelShape>,
}

const FAMILIES: &[Family] = &[
    Family { model_type: "deepseek_v2", shape: deepseek::v2 },
    Family { model_type: "deepseek_v3", shape: deepseek::v3 },
    Family { model_type: "gemma2", shape: gemma::gemma2 },
    Family { model_type: "gemma3_text", shape: gemma::gemma3 },
    Family { model_type: "gemma3n_text", shape: gemma3n::shape },
    Family { model_type: "gemma4_text", shape: gemma4::shape },
    Family { model_type: "glm4_moe_lite", shape: deepseek::glm4_moe_lite },
    Family { model_type: "gpt_oss", shape: gpt_oss::shape },
    Family { model_type: "kimi_k2", shape: deepseek::v3 },
    Family { model_type: "llama", shape: llama::llama },
    Family { model_type: "llama4_text", shape: llama4::shape },
    Family { model_type: "ministral", shape: llama::ministral },
    Family { model_type: "ministral3", shape: llama::ministral3 },
    Family { model_type: "mistral", shape: llama::mistral },
    Family { model_type: "mixtral", shape: llama::mixtral },
    Family { model_type: "olmo2", shape: olmo::olmo2 },
    Family { model_type: "olmo3", shape: olmo::olmo3 },
    Family { model_type: "olmoe", shape: olmo::olmoe },
    Family { model_type: "phi3", shape: llama::phi3 },
    Family { model_type: "qwen2", shape: qwen::qwen2 },
    Family { model_type: "qwen2_moe", shape: qwen::qwen2_moe },
    Family { model_type: "qwen3", shape: qwen::qwen3 },
    Family { model_type: "qwen3_moe", shape: qwen::qwen3_moe },
    Family { model_type: "qwen3_5_moe_text", shape: qwen3_next::qwen3_5_moe },
    Family { model_type: "qwen3_5_text", shape: qwen3_next::qwen3_5 },
    Family { model_type: "qwen3_next", shape: qwen3_next::shape },
    Family { model_type: "smollm3", shape: llama::smollm3 },
];

/// The network that a config.json describes.
///
/// # Errors
/// A network this program cannot compute exactly.
pub(super) fn shape(json: &Value) -> Result<ModelShape> {
    let text = text_part(json);
    let json = text.as_ref().unwrap_or(json);
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

/// The text model inside one that reads images or sound too: its `text_config`, with what the file says of the whole and, of what it leaves
/// out, transformers' defaults.
fn text_part(json: &Value) -> Option<Value> {
    let text = json["text_config"].as_object()?;
    let mut whole = match text.get("model_type").and_then(Value::as_str) {
        Some("gemma3_text") => json!({
            "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6,
        }),
        _ => json!({}),
    };
    let fields = whole.as_object_mut()?;
    for name in ["tie_word_embeddings", "bos_token_id", "eos_token_id", "quantization_config"] {
        fields.extend(json.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    fields.extend(
        text.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone())),
    );
    Some(whole)
}

/// Why a family is refused, and what to do.
fn reason(json: &Value) -> String {
    let has = |names: &[&str]| names.iter().any(|name| json[*name].as_f64().is_some_and(|number| number > 0.0));
    let layers = json["layer_types"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_linear = |kind: &str| kind.contains("linear") || kind.contains("mamba") || kind.contains("conv");
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
