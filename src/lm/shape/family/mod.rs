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

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use self::config::Config;
use super::config::{MOST_BYTES, ModelShape};
use crate::bounded_read;

type Family = fn(&Config<'_>) -> Result<ModelShape>;

/// Families and their readers, by `model_type` of config.json.
const FAMILIES: &[(&str, Family)] = &[
    ("deepseek_v2", deepseek::v2),
    ("deepseek_v3", deepseek::v3),
    ("gemma2", gemma::gemma2),
    ("gemma3_text", gemma::gemma3),
    ("gemma3n_text", gemma3n::shape),
    ("gemma4_text", gemma4::shape),
    ("glm4_moe_lite", deepseek::glm4_moe_lite),
    ("gpt_oss", gpt_oss::shape),
    ("kimi_k2", deepseek::v3),
    ("llama", llama::llama),
    ("llama4_text", llama4::shape),
    ("ministral", llama::ministral),
    ("ministral3", llama::ministral3),
    ("mistral", llama::mistral),
    ("mixtral", llama::mixtral),
    ("olmo2", olmo::olmo2),
    ("olmo3", olmo::olmo3),
    ("olmoe", olmo::olmoe),
    ("phi3", llama::phi3),
    ("qwen2", qwen::qwen2),
    ("qwen2_moe", qwen::qwen2_moe),
    ("qwen3", qwen::qwen3),
    ("qwen3_moe", qwen::qwen3_moe),
    ("qwen3_5_moe_text", qwen3_next::qwen3_5_moe),
    ("qwen3_5_text", qwen3_next::qwen3_5),
    ("qwen3_next", qwen3_next::shape),
    ("smollm3", llama::smollm3),
];

/// Names the families that can be read, by `model_type` of config.json.
pub fn families() -> Vec<&'static str> {
    FAMILIES.iter().map(|(known, _)| *known).collect()
}

impl ModelShape {
    /// Reads and checks a config.json.
    ///
    /// # Errors
    /// A file that cannot be read, or a network this program cannot compute exactly.
    pub fn read(path: &Path) -> Result<ModelShape> {
        let json = bounded_read::json(path, MOST_BYTES)?;
        ModelShape::parse(&json)
            .with_context(|| format!("{} describes a model that cannot be run", path.display()))
    }

    pub(in crate::lm) fn parse(json: &Value) -> Result<ModelShape> {
        let shape = shape(json)?;
        shape.check()?;
        Ok(shape)
    }
}

/// Reads the network that a config.json describes.
///
/// # Errors
///
/// A network this program cannot compute exactly.
pub(in crate::lm) fn shape(json: &Value) -> Result<ModelShape> {
    let text = text_part(json);
    let json = text.as_ref().unwrap_or(json);
    let model_type = json["model_type"].as_str().unwrap_or("none given");
    let quantised = &json["quantization_config"];
    ensure!(
        quantised.is_null() || model_type == "gpt_oss" && quantised["quant_method"] == "mxfp4",
        "the weights are quantised (quantization_config); use the f32, f16 or bf16 checkpoint they were made from"
    );
    let Some((_, shape)) = FAMILIES.iter().find(|(known, _)| *known == model_type) else {
        let known = families();
        bail!(
            "model_type is {model_type:?}; those that are computed exactly here are {} (Yi and SmolLM2 are llama)",
            known.join(", ")
        );
    };
    shape(&Config { json })
}

/// Finds the text model inside a model that also reads images or sound: its `text_config`, completed by the settings of the whole
/// file and by transformers' defaults.
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
    let mut take = |from: &Map<String, Value>, wanted: &dyn Fn(&str) -> bool| {
        let own = from.iter().filter(|(name, value)| !value.is_null() && wanted(name));
        fields.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    };
    let all = json.as_object()?;
    take(all, &|name| ["tie_word_embeddings", "quantization_config"].contains(&name));
    take(text, &|_| true);
    // Texts begin and end as the whole model's do.
    take(all, &|name| ["bos_token_id", "eos_token_id"].contains(&name));
    Some(whole)
}

#[cfg(test)]
mod tests;
