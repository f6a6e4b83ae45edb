//! `config.json`: the network a checkpoint describes.
//!
//! Whatever would silently give other numbers (another architecture, quantised weights, an unknown rotation) is an
//! error. candle-transformers' own `LlamaConfig` supports neither an explicit `head_dim`, linear scaling nor
//! sliding windows, so the file is parsed here.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use candle_transformers::models::llama::{Llama3RopeConfig, Llama3RopeType};
use serde::Deserialize;
use serde_json::Value;

use crate::bounded_read;
use crate::eviction::Heads;

/// Shape and constants of a Llama-layout decoder.
#[derive(Clone, Debug)]
pub struct ModelShape {
    /// `llama`, `mistral` or `qwen2`.
    pub family: String,
    pub hidden: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub heads: Heads,
    pub head_dim: usize,
    pub vocab: usize,
    pub norm_eps: f32,
    pub rope: RopeShape,
    /// Whether embedding and output share one matrix.
    pub tied: bool,
    /// Length of the texts the model was trained on, in tokens.
    pub max_positions: usize,
    /// Tokens a query may attend to, itself included, if the architecture limits that.
    pub sliding_window: Option<usize>,
    pub bos: Option<u32>,
    /// Tokens that end a text, unless generation_config.json names others.
    pub eos: Vec<u32>,
}

/// Settings of rotary positions.
#[derive(Clone, Debug)]
pub struct RopeShape {
    pub theta: f64,
    pub scaling: RopeScaling,
}

/// `rope_scaling` of config.json.
#[derive(Clone, Debug)]
pub enum RopeScaling {
    None,
    /// Positions are divided by the factor.
    Linear(f64),
    /// Low frequencies are divided by a factor, high ones kept, those between blended (Llama 3.1).
    Llama3(Llama3RopeConfig),
    /// Each frequency is divided by a factor of its own.
    Factors(Vec<f64>),
}

/// A field of a JSON object; `None` if it is missing or null.
fn field<'j, T: Deserialize<'j>>(json: &'j Value, name: &str) -> Result<Option<T>> {
    Option::deserialize(&json[name]).with_context(|| format!("{name} has the wrong type"))
}

/// A size from 1 to `most`.
fn size(json: &Value, name: &str, most: usize) -> Result<Option<usize>> {
    let size = field(json, name)?;
    if let Some(size) = size {
        ensure!((1..=most).contains(&size), "{name} is {size}; it must be between 1 and {most}");
    }
    Ok(size)
}

/// One token id, or a list of them.
pub(super) fn tokens(json: &Value) -> Vec<u32> {
    let ids = json.as_array().map_or(std::slice::from_ref(json), Vec::as_slice);
    ids.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

/// Bytes of a config.json or generation_config.json; real ones have some hundred.
pub(super) const MOST_BYTES: u64 = 4 << 20;

/// More parameters than any model has. The limits of single sizes are such that no product overflows.
const MOST_PARAMETERS: u64 = 1 << 44;

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

    pub(super) fn parse(json: &Value) -> Result<ModelShape> {
        let family: String = field(json, "model_type")?.unwrap_or_else(|| "none given".to_owned());
        ensure!(
            matches!(family.as_str(), "llama" | "mistral" | "qwen2"),
            "model_type is {family:?}; only llama (Llama, Yi, SmolLM, ...), mistral and qwen2 are computed exactly here"
        );
        ensure!(
            json["quantization_config"].is_null(),
            "the weights are quantised (quantization_config); use the f32, f16 or bf16 checkpoint they were made from"
        );
        let act = field(json, "hidden_act")?.unwrap_or("silu");
        ensure!(act == "silu" || act == "swish", "hidden_act is {act:?}; only silu is known");
        let partial = field(json, "partial_rotary_factor")?.unwrap_or(1.0);
        ensure!(
            partial == 1.0,
            "partial_rotary_factor {partial} rotates only part of every head, which is not supported"
        );
        let required = |name: &str, most: usize| {
            size(json, name, most)?.with_context(|| format!("the number {name} is missing"))
        };
        let hidden = required("hidden_size", 1 << 18)?;
        let heads = required("num_attention_heads", 1 << 14)?;
        let head_dim = size(json, "head_dim", 1 << 14)?;
        ensure!(
            head_dim.is_some() || hidden.is_multiple_of(heads),
            "hidden_size {hidden} is no multiple of num_attention_heads {heads}, and there is no head_dim"
        );
        let eps: f64 = field(json, "rms_norm_eps")?.context("the number rms_norm_eps is missing")?;
        ensure!((0.0..1.0).contains(&eps), "rms_norm_eps is {eps}; it must be a small positive number");
        // Qwen2's window is unused by default.
        let window_used = family != "qwen2" || field(json, "use_sliding_window")? == Some(true);
        let shape = ModelShape {
            family,
            hidden,
            intermediate: required("intermediate_size", 1 << 20)?,
            layers: required("num_hidden_layers", 1 << 12)?,
            heads: Heads { heads, kv_heads: size(json, "num_key_value_heads", 1 << 14)?.unwrap_or(heads) },
            head_dim: head_dim.unwrap_or(hidden / heads),
            vocab: required("vocab_size", 1 << 24)?,
            norm_eps: eps as f32,
            rope: rope(json)?,
            tied: field(json, "tie_word_embeddings")?.unwrap_or(false),
            max_positions: field(json, "max_position_embeddings")?.unwrap_or(2048),
            sliding_window: field(json, "sliding_window")?.filter(|_| window_used),
            bos: tokens(&json["bos_token_id"]).first().copied(),
            eos: tokens(&json["eos_token_id"]),
        };
        shape.check()?;
        Ok(shape)
    }

    /// Checks the relations between sizes.
    pub(super) fn check(&self) -> Result<()> {
        let (Heads { heads, kv_heads }, head_dim) = (self.heads, self.head_dim);
        ensure!(
            heads.is_multiple_of(kv_heads),
            "num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}"
        );
        ensure!(head_dim.is_multiple_of(2), "head_dim {head_dim} is odd; rotary positions need pairs");
        let parameters = self.parameters();
        ensure!(
            parameters <= MOST_PARAMETERS,
            "it has {parameters} parameters; no model has more than {MOST_PARAMETERS}"
        );
        Ok(())
    }

    /// Parameters of the network; embedding and output count once if tied.
    pub fn parameters(&self) -> u64 {
        let hidden = self.hidden as u64;
        let layer = self.layer_weights() as u64 + 2 * hidden;
        let embeddings = if self.tied { 1 } else { 2 } * self.vocab as u64 * hidden;
        self.layers as u64 * layer + embeddings + hidden
    }

    /// Names and sides (out, in) of the matrices of a layer.
    pub(super) fn layer_matrices(&self) -> [(&'static str, usize, usize); 7] {
        let &ModelShape { hidden, intermediate, heads, head_dim, .. } = self;
        let (query, kv) = (heads.heads * head_dim, heads.kv_heads * head_dim);
        [
            ("self_attn.q_proj", query, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, query),
            ("mlp.gate_proj", intermediate, hidden),
            ("mlp.up_proj", intermediate, hidden),
            ("mlp.down_proj", hidden, intermediate),
        ]
    }

    /// Weights in the matrices of a layer.
    pub fn layer_weights(&self) -> usize {
        self.layer_matrices().iter().map(|(_, out, input)| out * input).sum()
    }

    /// Bytes of the keys and values of `entries` cache entries per layer, in f32.
    pub fn cache_bytes(&self, entries: usize) -> u64 {
        let entry = 2 * self.layers * self.heads.kv_heads * self.head_dim * size_of::<f32>();
        (entry as u64).saturating_mul(entries as u64)
    }

    /// Checks that a text of `tokens` fits the model.
    ///
    /// # Errors
    /// A sliding window shorter than the text.
    pub fn check_length(&self, tokens: usize) -> Result<()> {
        match self.sliding_window {
            Some(window) if tokens > window => bail!(
                "the model looks back {window} tokens only (sliding_window), and the text has {tokens}; \
                 use a length of at most {window}, or a checkpoint without a window"
            ),
            _ => Ok(()),
        }
    }
}

fn rope(json: &Value) -> Result<RopeShape> {
    // In transformers 5 rope_parameters contains theta and scaling.
    let (old, new) = (&json["rope_scaling"], &json["rope_parameters"]);
    let record = if new.is_null() { old } else { new };
    let theta = record["rope_theta"].as_f64().or(field(json, "rope_theta")?).unwrap_or(10_000.0);
    ensure!(theta.is_finite() && theta > 0.0, "rope_theta is {theta}; it must be a positive number");
    let kind = record.get("rope_type").or_else(|| record.get("type"));
    let kind = kind.and_then(Value::as_str).unwrap_or("default");
    let required = |name: &str| {
        let value = record[name]
            .as_f64()
            .with_context(|| format!("rope_scaling of type {kind:?} has no number {name:?}"))?;
        // It is used in single precision, which must not overflow or become 0.
        let used = value as f32;
        ensure!(used.is_finite() && used > 0.0, "rope_scaling's {name} is {value}; it must be positive");
        Ok(value)
    };
    let scaling = match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear(required("factor")?),
        "llama3" => RopeScaling::Llama3(Llama3RopeConfig {
            factor: required("factor")? as f32,
            low_freq_factor: required("low_freq_factor")? as f32,
            high_freq_factor: required("high_freq_factor")? as f32,
            original_max_position_embeddings: required("original_max_position_embeddings")? as usize,
            rope_type: Llama3RopeType::Llama3,
        }),
        other => bail!("rope_scaling of type {other:?} is not supported; only none, linear and llama3 are"),
    };
    Ok(RopeShape { theta, scaling })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A small Llama with some changed fields.
    fn config(changes: Value) -> Result<ModelShape> {
        let mut json = json!({
            "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 100, "rms_norm_eps": 1e-5
        });
        json.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        ModelShape::parse(&json)
    }

    #[test]
    fn defaults() {
        let shape = config(json!({})).unwrap();
        assert_eq!((shape.head_dim, shape.heads.kv_heads, shape.rope.theta), (16, 4, 10_000.0));
        // 2 layers of (4 * 64 * 64 + 3 * 64 * 160 + 2 * 64), two matrices of 100 x 64, the last norm
        assert_eq!(shape.parameters(), 2 * (16_384 + 30_720 + 128) + 2 * 6_400 + 64);
        assert_eq!(shape.cache_bytes(usize::MAX), u64::MAX);
    }

    #[test]
    fn networks_that_cannot_be_computed_exactly_are_refused() {
        // Each of these sizes is allowed alone, and their products do not overflow; together they are no model.
        let largest = json!({
            "hidden_size": 1 << 18, "intermediate_size": 1 << 20, "num_hidden_layers": 1 << 12,
            "num_attention_heads": 1 << 14, "vocab_size": 1 << 24, "head_dim": 1 << 14
        });
        for (changes, reason) in [
            (json!({"model_type": "gpt_neox"}), "gpt_neox"),
            (json!({"hidden_act": "gelu"}), "gelu"),
            (json!({"rope_scaling": {"type": "yarn"}}), "yarn"),
            (json!({"rope_scaling": {"type": "linear"}}), "factor"),
            (json!({"quantization_config": {"bits": 4}}), "quantised"),
            (json!({"num_key_value_heads": 3}), "multiple"),
            (json!({"num_key_value_heads": 0}), "num_key_value_heads"),
            (json!({"head_dim": 7}), "odd"),
            (json!({"hidden_size": "wide"}), "hidden_size has the wrong type"),
            (json!({"hidden_size": null}), "hidden_size is missing"),
            (json!({"rms_norm_eps": 1e300}), "rms_norm_eps"),
            (json!({"hidden_size": 1u64 << 40}), "between 1 and 262144"),
            (largest, "no model has more than"),
        ] {
            let error = format!("{:#}", config(changes).unwrap_err());
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn windows_limit_the_text() {
        let mistral = config(json!({"model_type": "mistral", "sliding_window": 4096})).unwrap();
        assert!(mistral.check_length(4096).is_ok());
        assert!(mistral.check_length(4097).unwrap_err().to_string().contains("4096"));
        let qwen = config(json!({"model_type": "qwen2", "sliding_window": 8})).unwrap();
        assert!(qwen.check_length(100).is_ok());
    }

    #[test]
    fn old_and_new_fields_of_scaling_are_read() {
        let old = config(json!({"rope_scaling": {"type": "linear", "factor": 4.0}})).unwrap();
        assert!(matches!(old.rope.scaling, RopeScaling::Linear(4.0)));
        let new = config(json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})).unwrap();
        assert!(matches!(new.rope.scaling, RopeScaling::None));
        assert_eq!(new.rope.theta, 5e5);
    }
}
