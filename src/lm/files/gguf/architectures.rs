//! Architectures of GGUF files: the family of each, the names that llama.cpp's converter gives to its tensors, and which of its
//! settings are in the file's metadata or only in llama.cpp.
//!
//! Settings that need no arithmetic are in architectures.json.

use std::collections::HashMap;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use candle_core::cpu::erf::erf_f64;
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Gguf;

/// Architecture of a GGUF file.
#[derive(Deserialize)]
pub(in crate::lm) struct Architecture {
    /// Name of the architecture in GGUF.
    pub name: String,
    /// Whether the converter changes the order of the rows of q and k.
    #[serde(default)]
    pub permutes: bool,
    /// Groups of names of tensors inside a layer that take precedence over the usual ones.
    #[serde(default)]
    names: Vec<String>,
    /// Keys of a config.json beside the usual ones, with values that llama.cpp knows and the file does not have.
    #[serde(default)]
    constants: Map<String, Value>,
    /// Keys of a config.json beside the usual ones, with the keys of the file's metadata, which may be missing if they end in `?`.
    #[serde(default)]
    settings: IndexMap<String, String>,
}

/// Names of tensors in GGUF and in checkpoints, both with their endings or both without.
type Names = IndexMap<String, String>;

#[derive(Deserialize)]
struct Known {
    /// Names by groups: `whole` are those outside the layers, `usual` those inside a layer of most architectures.
    names: HashMap<String, Names>,
    architectures: Vec<Architecture>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    serde_json::from_str(include_str!("architectures.json")).expect("the file is part of the program")
});

impl Architecture {
    pub fn named(name: &str) -> Result<&'static Architecture> {
        let all = &KNOWN.architectures;
        all.iter().find(|known| known.name == name).with_context(|| {
            let known: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
            format!("its architecture is {name}; only {} are computed exactly here", known.join(", "))
        })
    }

    /// Name of a tensor in checkpoints: `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`. Unknown names stay as
    /// they are; such tensors are not used.
    pub fn name_in_checkpoint(&self, name: &str) -> String {
        let in_layer = || {
            let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
            let groups = self.names.iter().map(String::as_str).chain(["usual"]);
            let mut names = groups.flat_map(|group| &KNOWN.names[group]);
            let part = names.find_map(|(known, part)| replaced(rest, known, part))?;
            Some(format!("model.layers.{layer}.{part}"))
        };
        KNOWN.names["whole"].get(name).cloned().or_else(in_layer).unwrap_or_else(|| name.to_owned())
    }

    /// Whether factors of positions for long texts and for others are read.
    pub fn has_long_factors(&self) -> bool {
        self.name == "phi3"
    }

    /// Keys of a config.json beside the usual ones, `model_type` among them.
    pub fn config(&self, gguf: &Gguf) -> Result<Map<String, Value>> {
        let mut config = self.constants.clone();
        for (key, name) in &self.settings {
            match name.strip_suffix('?') {
                None => config.insert(key.clone(), gguf.number(name)?.into()),
                Some(name) => {
                    gguf.fields.get(&gguf.key(name)).and_then(|value| config.insert(key.clone(), value.clone()))
                }
            };
        }
        let own = match self.name.as_str() {
            "deepseek2" => deepseek2(gguf)?,
            "gemma2" => gemma2(gguf)?,
            "gemma3" => json!({
                "query_pre_attn_scalar": query_scalar(gguf, 62)?,
                "layer_types": layer_types(gguf, 6)?,
            }),
            "gemma3n" => gemma3n(gguf)?,
            "gemma4" => gemma4(gguf)?,
            "gpt-oss" => gpt_oss(gguf)?,
            "llama" => llama(gguf)?,
            "llama4" => llama4(gguf)?,
            "mistral3" => mistral3(gguf)?,
            "olmo2" => olmo2(gguf)?,
            "phi3" => phi3(gguf)?,
            "qwen35" | "qwen35moe" | "qwen3next" => with_states(gguf)?,
            _ => json!({}),
        };
        config.extend(own.as_object().cloned().unwrap_or_default());
        Ok(config)
    }
}

/// Replaces the words `from` at the beginning of a name by `to`; `None` if the name does not begin with them.
fn replaced(name: &str, from: &str, to: &str) -> Option<String> {
    let end = name.strip_prefix(from)?;
    (end.is_empty() || end.starts_with('.')).then(|| format!("{to}{end}"))
}

/// Settings of DeepSeek V2 and V3 and their kin, which differ in how experts are chosen. `mscale` is not in the file; it equals
/// `mscale_all_dim`, as in every published model.
fn deepseek2(gguf: &Gguf) -> Result<Value> {
    const SIGMOID: u64 = 2;
    let has_sigmoids = gguf.optional("expert_gating_func")? == Some(SIGMOID);
    let rotated = gguf.number("rope.dimension_count")?;
    // Newer files have the sizes of the latent under the usual names.
    let of_heads = |name: &str| -> Result<u64> {
        match gguf.optional(&format!("{name}_mla"))? {
            Some(size) => Ok(size),
            None => gguf.number(name),
        }
    };
    let (key, value) = (of_heads("attention.key_length")?, of_heads("attention.value_length")?);
    let mut rope = gguf.rope_scaling()?;
    if let (true, Some(multiplier)) = (rope.is_object(), gguf.real("rope.scaling.yarn_log_multiplier")?) {
        // A tenth of it, in single precision.
        let mscale = (multiplier * 10.0 * 1e6).round() / 1e6;
        (rope["mscale"], rope["mscale_all_dim"]) = (mscale.into(), mscale.into());
    }
    let is_grouped = gguf.optional("expert_group_count")?.is_some_and(|groups| groups > 1);
    Ok(json!({
        "model_type": if has_sigmoids { "deepseek_v3" } else { "deepseek_v2" },
        "qk_nope_head_dim": key.checked_sub(rotated),
        "v_head_dim": value,
        "routed_scaling_factor": gguf.real("expert_weights_scale")?.filter(|scale| *scale != 0.0),
        "topk_method": if is_grouped { "group_limited_greedy" } else { "greedy" },
        "rope_scaling": rope,
    }))
}

/// Settings of gpt-oss. llama.cpp knows which layers have a window, and the limits of its activation.
fn gpt_oss(gguf: &Gguf) -> Result<Value> {
    let mut rope = gguf.rope_scaling()?;
    if rope.is_object() {
        rope["truncate"] = false.into();
    }
    Ok(json!({"rope_scaling": rope}))
}

/// Settings of Llama, Mixtral, and Mistral, whose window early converters write.
fn llama(gguf: &Gguf) -> Result<Value> {
    if gguf.optional("expert_count")?.is_some_and(|count| count > 0) {
        return Ok(json!({
            "model_type": "mixtral",
            "num_experts": gguf.number("expert_count")?,
            "num_experts_per_tok": gguf.number("expert_used_count")?,
            "moe_intermediate_size": gguf.optional("expert_feed_forward_length")?,
        }));
    }
    Ok(json!({"model_type": if gguf.window()?.is_some() { "mistral" } else { "llama" }}))
}

/// Settings of Llama 4. llama.cpp knows the layers without positions, and that only the models of 128 experts have no norms of
/// queries and keys.
fn llama4(gguf: &Gguf) -> Result<Value> {
    let mut own = json!({"use_qk_norm": gguf.number("expert_count")? != 128});
    if gguf.optional("attention.sliding_window")? == Some(0) {
        // No pieces, and a rotation everywhere.
        let layers = gguf.layers()? as usize;
        own["no_rope_layers"] = vec![1; layers].into();
        own["layer_types"] = vec!["full_attention"; layers].into();
    }
    Ok(own)
}

/// Settings of a hybrid, whose layers with attention are those that have a matrix of queries. The last layers may be for predicting
/// further tokens.
fn with_states(gguf: &Gguf) -> Result<Value> {
    let layers = gguf.layers()?;
    let layers = layers.saturating_sub(gguf.optional("nextn_predict_layers")?.unwrap_or(0));
    let kind = |layer: u64| match gguf.tensor(&format!("model.layers.{layer}.self_attn.q_proj.weight")) {
        Some(_) => "full_attention",
        None => "linear_attention",
    };
    let head_dim = gguf.number("attention.key_length")?;
    let rotated = gguf.optional("rope.dimension_count")?.unwrap_or(head_dim);
    Ok(json!({
        "num_hidden_layers": layers,
        "layer_types": (0..layers).map(kind).collect::<Vec<_>>(),
        "linear_conv_kernel_dim": gguf.number("ssm.conv_kernel")?,
        "linear_key_head_dim": gguf.number("ssm.state_size")?,
        "linear_num_key_heads": gguf.number("ssm.group_count")?,
        "linear_num_value_heads": gguf.number("ssm.time_step_rank")?,
        "linear_value_head_dim": gguf.number("ssm.inner_size")? / gguf.number("ssm.time_step_rank")?,
        "partial_rotary_factor": rotated as f64 / head_dim as f64,
    }))
}

/// Settings of Mistral Small 3, and of Ministral 3, which has an attention temperature.
fn mistral3(gguf: &Gguf) -> Result<Value> {
    let Some(beta) = gguf.real("attention.temperature_scale")?.filter(|beta| *beta != 0.0) else {
        return Ok(json!({}));
    };
    let mut rope = gguf.rope_scaling()?;
    rope["rope_theta"] = gguf.real("rope.freq_base")?.into();
    rope["llama_4_scaling_beta"] = beta.into();
    Ok(json!({"model_type": "ministral3", "rope_parameters": rope, "rope_scaling": null}))
}

/// Settings of Gemma 2. llama.cpp knows the window if the file has none.
fn gemma2(gguf: &Gguf) -> Result<Value> {
    let window = gguf.window()?.unwrap_or(4096);
    Ok(json!({"query_pre_attn_scalar": query_scalar(gguf, 46)?, "sliding_window": window}))
}

/// Settings of Gemma 3n. The file has a number of standard deviations where a checkpoint has the share of gates that are cut off,
/// and llama.cpp knows the rotation of layers with a window.
fn gemma3n(gguf: &Gguf) -> Result<Value> {
    let layers = gguf.layers()?;
    let key = gguf.key("activation_sparsity_scale");
    let scales = gguf.fields.get(&key).and_then(Value::as_array);
    let scales = scales.with_context(|| format!("the list {key} is missing from its metadata"))?;
    // JSON has no infinity: null is the -inf of layers that cut nothing off.
    let share = |scale: &Value| match scale {
        Value::Null => Some(0.0),
        scale => Some(0.5 * (1.0 + erf_f64(scale.as_f64()? / 2_f64.sqrt()))),
    };
    let sparsity: Option<Vec<f64>> = scales.iter().take(layers as usize).map(share).collect();
    let rows = |name: &str| gguf.tensor(name).and_then(|tensor| tensor.shape.first());
    Ok(json!({
        "layer_types": layer_types(gguf, 5)?,
        "vocab_size_per_layer_input": rows("model.embed_tokens_per_layer.weight"),
        "laurel_rank": rows("model.layers.0.laurel.linear_left.weight"),
        "activation_sparsity_pattern": sparsity.with_context(|| format!("{key} in its metadata is not a list of numbers"))?,
    }))
}

/// Settings of Gemma 4. Sizes that differ between layers with a window and others are lists, and the tensor rope_freqs says which
/// pairs of the latter turn.
fn gemma4(gguf: &Gguf) -> Result<Value> {
    let layers = layer_types(gguf, 6)?;
    let full = layers.iter().position(|kind| *kind == "full_attention").context("all its layers have a window")?;
    let kv_heads = gguf.by_layer("attention.head_count_kv")?.unwrap_or_default();
    let widths = gguf.by_layer("feed_forward_length")?.unwrap_or_default();
    let factors = gguf.rope_factors.as_deref().unwrap_or_default();
    let turning = factors.iter().filter(|factor| **factor == 1.0).count() as f64;
    let has_values = gguf.tensor(&format!("model.layers.{full}.self_attn.v_proj.weight")).is_some();
    Ok(json!({
        "num_global_key_value_heads": kv_heads.get(full),
        "attention_k_eq_v": !has_values,
        "use_double_wide_mlp": widths.first() != widths.last(),
        "enable_moe_block": gguf.optional("expert_count")?.is_some_and(|count| count > 0),
        "layer_types": layers,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": gguf.real("rope.freq_base_swa")?.unwrap_or(10_000.0)},
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": if factors.is_empty() { 1.0 } else { turning / factors.len() as f64 },
                "rope_theta": gguf.real("rope.freq_base")?.unwrap_or(1_000_000.0),
            },
        },
    }))
}

/// Settings of OLMo 2, and of OLMo 3, some of whose layers have a window.
fn olmo2(gguf: &Gguf) -> Result<Value> {
    if gguf.window()?.is_none() {
        return Ok(json!({}));
    }
    Ok(json!({"model_type": "olmo3", "layer_types": layer_types(gguf, 4)?}))
}

fn phi3(gguf: &Gguf) -> Result<Value> {
    let head_dim = gguf.number("embedding_length")? as f64 / gguf.number("attention.head_count")? as f64;
    let dims = gguf.optional("rope.dimension_count")?.map(|dims| dims as f64 / head_dim);
    let scaling = gguf.long_rope_factors.as_ref().map(|[long, short]| {
        anyhow::Ok(json!({
            "rope_type": "longrope",
            "long_factor": long,
            "short_factor": short,
            "attention_factor": gguf.real("rope.scaling.attn_factor")?,
        }))
    });
    Ok(json!({"partial_rotary_factor": dims, "rope_scaling": scaling.transpose()?}))
}

/// Square of the number that Gemma's queries are divided by. The file does not have it; llama.cpp takes the size of a head, but for
/// the largest model, which it knows by its number of layers, the hidden size of a head.
fn query_scalar(gguf: &Gguf, layers_of_largest: u64) -> Result<u64> {
    if gguf.layers()? == layers_of_largest {
        return Ok(gguf.number("embedding_length")? / gguf.number("attention.head_count")?);
    }
    gguf.number("attention.key_length")
}

/// Kind of each layer: those with a window as the file says, or every layer but each `every`-th.
fn layer_types(gguf: &Gguf, every: u64) -> Result<Vec<&'static str>> {
    let layers = gguf.layers()?;
    let name = |sliding: bool| if sliding { "sliding_attention" } else { "full_attention" };
    let key = gguf.key("attention.sliding_window_pattern");
    if let Some(Value::Array(layers)) = gguf.fields.get(&key) {
        let sliding: Option<Vec<bool>> = layers.iter().map(Value::as_bool).collect();
        let sliding = sliding.with_context(|| format!("{key} in its metadata is not a list of true and false"))?;
        return Ok(sliding.into_iter().map(name).collect());
    }
    let every = gguf.optional("attention.sliding_window_pattern")?.unwrap_or(every);
    ensure!(every > 0, "{key} is 0 in its metadata");
    Ok((1..=layers).map(|layer| name(layer % every != 0)).collect())
}
