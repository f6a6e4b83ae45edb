//! Architectures of GGUF files: which family each is, what llama.cpp's converter calls its tensors, and which of its settings
//! the file has in its metadata or leaves to llama.cpp.

use anyhow::{Context, Result, bail};
use candle_core::cpu::erf::erf_f64;
use candle_core::quantized::gguf_file::Value as Field;
use serde_json::{Value, json};

use super::Gguf;

/// An architecture, by its name in GGUF.
pub(in crate::lm) struct Architecture {
    pub name: &'static str,
    /// Whether the converter changes the order of the rows of q and k.
    pub permutes: bool,
    /// Names of tensors inside a layer, in GGUF and in checkpoints, where they are not the usual ones. Both with their endings, or both without.
    in_layer: &'static [&'static [(&'static str, &'static str)]],
    /// Keys of a config.json beside the usual ones, among them `model_type`.
    pub config: fn(&Gguf) -> Result<Value>,
}

const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "deepseek2", permutes: false, in_layer: &[DEEPSEEK, EXPERTS], config: deepseek2 },
    Architecture { name: "gemma2", permutes: false, in_layer: &[GEMMA], config: gemma2 },
    Architecture { name: "gemma3", permutes: false, in_layer: &[GEMMA], config: gemma3 },
    Architecture { name: "gemma3n", permutes: false, in_layer: &[GEMMA, LAYER_INPUTS, GEMMA3N], config: gemma3n },
    Architecture { name: "gemma4", permutes: false, in_layer: &[GEMMA, LAYER_INPUTS, GEMMA4], config: gemma4 },
    Architecture { name: "gpt-oss", permutes: false, in_layer: &[GPT_OSS, EXPERTS], config: gpt_oss },
    Architecture { name: "llama", permutes: true, in_layer: &[MIXTRAL], config: llama },
    Architecture { name: "llama4", permutes: false, in_layer: &[LLAMA4, EXPERTS], config: llama4 },
    Architecture { name: "mistral3", permutes: true, in_layer: &[], config: mistral3 },
    Architecture {
        name: "olmoe",
        permutes: false,
        in_layer: &[EXPERTS],
        config: |gguf| with_experts(gguf, "olmoe", false),
    },
    Architecture { name: "olmo2", permutes: false, in_layer: &[OLMO], config: olmo2 },
    Architecture { name: "phi3", permutes: false, in_layer: &[FUSED], config: phi3 },
    Architecture { name: "qwen2", permutes: false, in_layer: &[], config: |_| Ok(json!({"model_type": "qwen2"})) },
    Architecture {
        name: "qwen2moe",
        permutes: false,
        in_layer: &[EXPERTS],
        config: |gguf| with_experts(gguf, "qwen2_moe", false),
    },
    Architecture { name: "qwen3", permutes: false, in_layer: &[], config: |_| Ok(json!({"model_type": "qwen3"})) },
    Architecture {
        name: "qwen35",
        permutes: false,
        in_layer: &[DELTA],
        config: |gguf| with_states(gguf, json!({"model_type": "qwen3_5_text"})),
    },
    Architecture {
        name: "qwen35moe",
        permutes: false,
        in_layer: &[DELTA, EXPERTS],
        config: |gguf| with_states(gguf, with_experts(gguf, "qwen3_5_moe_text", true)?),
    },
    Architecture {
        name: "qwen3moe",
        permutes: false,
        in_layer: &[EXPERTS],
        config: |gguf| with_experts(gguf, "qwen3_moe", true),
    },
    Architecture {
        name: "qwen3next",
        permutes: false,
        in_layer: &[DELTA, EXPERTS],
        config: |gguf| with_states(gguf, with_experts(gguf, "qwen3_next", true)?),
    },
    Architecture {
        name: "smollm3",
        permutes: true,
        in_layer: &[],
        config: |_| Ok(json!({"model_type": "smollm3"})),
    },
];

/// Names of tensors outside the layers.
const WHOLE: [(&str, &str); 8] = [
    ("token_embd.weight", super::EMBEDDING),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", super::OUTPUT),
    ("altup_proj.weight", "model.altup_projections.weight"),
    ("altup_unembd_proj.weight", "model.altup_unembed_projections.weight"),
    ("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"),
    ("per_layer_model_proj.weight", "model.per_layer_model_projection.weight"),
    ("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"),
];

/// The usual names inside a layer, without their endings.
const IN_LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

const DEEPSEEK: &[(&str, &str)] = &[
    ("attn_q_a", "self_attn.q_a_proj"),
    ("attn_q_a_norm", "self_attn.q_a_layernorm"),
    ("attn_q_b", "self_attn.q_b_proj"),
    ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
    ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
    ("attn_kv_b", "self_attn.kv_b_proj"),
    ("attn_k_b", "self_attn.k_b_proj"),
    ("attn_v_b", "self_attn.v_b_proj"),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
];

/// Of layers with a state, and of the others beside them.
const DELTA: &[(&str, &str)] = &[
    ("attn_qkv", "linear_attn.in_proj_qkv"),
    ("attn_gate", "linear_attn.in_proj_z"),
    ("ssm_ba", "linear_attn.in_proj_ba"),
    ("ssm_beta", "linear_attn.in_proj_b"),
    ("ssm_alpha", "linear_attn.in_proj_a"),
    ("ssm_a", "linear_attn.A_log"),
    ("ssm_dt.bias", "linear_attn.dt_bias"),
    ("ssm_conv1d", "linear_attn.conv1d"),
    ("ssm_norm", "linear_attn.norm"),
    ("ssm_out", "linear_attn.out_proj"),
    ("post_attention_norm", "post_attention_layernorm"),
];

const GEMMA: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// What makes and uses an input of its own to each layer.
const LAYER_INPUTS: &[(&str, &str)] = &[
    ("inp_gate", "per_layer_input_gate"),
    ("proj", "per_layer_projection"),
    ("post_norm", "post_per_layer_input_norm"),
];

const LLAMA4: &[(&str, &str)] = &[("ffn_gate_inp", "mlp.router")];

const GEMMA3N: &[(&str, &str)] = &[
    ("altup_correct_coef", "altup.correction_coefs"),
    ("altup_correct_scale.weight", "altup.correct_output_scale"),
    ("altup_predict_coef", "altup.prediction_coefs"),
    ("altup_router", "altup.modality_router"),
    ("altup_router_norm", "altup.router_norm"),
    ("laurel_l", "laurel.linear_left"),
    ("laurel_r", "laurel.linear_right"),
    ("laurel_post_norm", "laurel.post_laurel_norm"),
];

const GEMMA4: &[(&str, &str)] = &[
    ("layer_output_scale.weight", "layer_scalar"),
    ("ffn_gate_inp.scale", "router.scale"),
    ("ffn_gate_inp", "router.proj"),
    ("ffn_gate_up_exps", "experts.gate_up_proj"),
    ("ffn_down_exps.scale", "router.per_expert_scale"),
    ("ffn_down_exps", "experts.down_proj"),
    ("post_ffw_norm_1", "post_feedforward_layernorm_1"),
    ("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
    ("post_ffw_norm_2", "post_feedforward_layernorm_2"),
];

const OLMO: &[(&str, &str)] =
    &[("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")];

const FUSED: &[(&str, &str)] = &[("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")];

/// Of Mixtral, which has Llama's architecture.
const MIXTRAL: &[(&str, &str)] = &[
    ("ffn_gate_inp", "block_sparse_moe.gate"),
    ("ffn_gate_exps", "block_sparse_moe.experts.w1"),
    ("ffn_up_exps", "block_sparse_moe.experts.w3"),
    ("ffn_down_exps", "block_sparse_moe.experts.w2"),
];

const EXPERTS: &[(&str, &str)] = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

const GPT_OSS: &[(&str, &str)] = &[
    ("attn_sinks.weight", "self_attn.sinks"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_gate_inp", "mlp.router"),
];

impl Architecture {
    pub fn named(name: &str) -> Result<&'static Architecture> {
        let known: Vec<&str> = ARCHITECTURES.iter().map(|known| known.name).collect();
        let found = ARCHITECTURES.iter().find(|known| known.name == name);
        found.with_context(|| {
            format!("its architecture is {name}; only {} are computed exactly here", known.join(", "))
        })
    }

    /// Names inside a layer, the architecture's own first.
    fn in_layer(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        self.in_layer.iter().copied().flatten().chain(IN_LAYER)
    }

    /// `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`. Unknown names stay as they are, and nobody takes
    /// them.
    pub fn name_in_checkpoint(&self, name: &str) -> String {
        if let Some((_, whole)) = WHOLE.iter().find(|(whole, _)| *whole == name) {
            return (*whole).to_owned();
        }
        let rest = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let renamed = rest.and_then(|(layer, rest)| {
            let rest = self.in_layer().find_map(|(known, part)| replaced(rest, known, part))?;
            Some(format!("model.layers.{layer}.{rest}"))
        });
        renamed.unwrap_or_else(|| name.to_owned())
    }

    /// What [`name_in_checkpoint`](Self::name_in_checkpoint) was given.
    pub fn name_in_file(&self, name: &str) -> String {
        if let Some((whole, _)) = WHOLE.iter().find(|(_, whole)| *whole == name) {
            return (*whole).to_owned();
        }
        let rest = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
        let renamed = rest.and_then(|(layer, rest)| {
            let rest = self.in_layer().find_map(|(part, known)| replaced(rest, known, part))?;
            Some(format!("blk.{layer}.{rest}"))
        });
        renamed.unwrap_or_else(|| name.to_owned())
    }
}

/// A name that begins with whole words `from`, with `to` in their place.
fn replaced(name: &str, from: &str, to: &str) -> Option<String> {
    let end = name.strip_prefix(from)?;
    (end.is_empty() || end.starts_with('.')).then(|| format!("{to}{end}"))
}

/// A mixture of experts. llama.cpp knows which architectures make the weights of a token's experts sum to 1.
fn with_experts(gguf: &Gguf, model_type: &str, normalised: bool) -> Result<Value> {
    Ok(json!({
        "model_type": model_type,
        "num_experts": gguf.number("expert_count")?,
        "num_experts_per_tok": gguf.number("expert_used_count")?,
        "moe_intermediate_size": gguf.optional("expert_feed_forward_length")?,
        "shared_expert_intermediate_size": gguf.optional("expert_shared_feed_forward_length")?,
        "norm_topk_prob": normalised,
    }))
}

/// DeepSeek V2 and V3 and their kin, which differ in how experts are chosen. `mscale` is not in the file: it is as `mscale_all_dim`, as
/// in every published model.
fn deepseek2(gguf: &Gguf) -> Result<Value> {
    const SIGMOID: u64 = 2;
    let has_sigmoids = gguf.optional("expert_gating_func")? == Some(SIGMOID);
    let groups = gguf.optional("expert_group_count")?;
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
    let normalised = matches!(gguf.fields.get(&gguf.key("expert_weights_norm")), Some(Field::Bool(true)));
    Ok(json!({
        "model_type": if has_sigmoids { "deepseek_v3" } else { "deepseek_v2" },
        "q_lora_rank": gguf.optional("attention.q_lora_rank")?,
        "kv_lora_rank": gguf.number("attention.kv_lora_rank")?,
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": key.checked_sub(rotated),
        "v_head_dim": value,
        "n_routed_experts": gguf.number("expert_count")?,
        "num_experts_per_tok": gguf.number("expert_used_count")?,
        "moe_intermediate_size": gguf.number("expert_feed_forward_length")?,
        "n_shared_experts": gguf.optional("expert_shared_count")?,
        "first_k_dense_replace": gguf.optional("leading_dense_block_count")?.unwrap_or(0),
        "routed_scaling_factor": gguf.real("expert_weights_scale")?.filter(|scale| *scale != 0.0),
        "norm_topk_prob": normalised,
        "topk_method": if groups.is_some_and(|groups| groups > 1) { "group_limited_greedy" } else { "greedy" },
        "n_group": groups,
        "topk_group": gguf.optional("expert_group_used_count")?,
        "rope_scaling": rope,
    }))
}

/// gpt-oss. llama.cpp knows which layers have a window, and the limits of its activation.
fn gpt_oss(gguf: &Gguf) -> Result<Value> {
    let mut rope = gguf.rope_scaling()?;
    if rope.is_object() {
        rope["truncate"] = false.into();
    }
    Ok(json!({
        "model_type": "gpt_oss",
        "num_local_experts": gguf.number("expert_count")?,
        "num_experts_per_tok": gguf.number("expert_used_count")?,
        "intermediate_size": gguf.number("expert_feed_forward_length")?,
        "sliding_window": gguf.window()?,
        "rope_scaling": rope,
    }))
}

/// Llama, Mixtral, and Mistral, whose window early converters write.
fn llama(gguf: &Gguf) -> Result<Value> {
    let window = gguf.window()?;
    if gguf.optional("expert_count")?.is_some_and(|count| count > 0) {
        let mut mixtral = with_experts(gguf, "mixtral", true)?;
        mixtral["sliding_window"] = window.into();
        return Ok(mixtral);
    }
    Ok(json!({"model_type": if window.is_some() { "mistral" } else { "llama" }, "sliding_window": window}))
}

/// Llama 4. llama.cpp knows the pieces, the layers without positions, and that only the models of 128 experts have no norms of queries and keys.
fn llama4(gguf: &Gguf) -> Result<Value> {
    let layers = gguf.number("block_count")?;
    let experts = gguf.number("expert_count")?;
    let has_pieces = gguf.optional("attention.sliding_window")? != Some(0);
    let mut config = json!({
        "model_type": "llama4_text",
        "intermediate_size": gguf.number("expert_feed_forward_length")?,
        "intermediate_size_mlp": gguf.number("feed_forward_length")?,
        "interleave_moe_layer_step": gguf.number("interleave_moe_layer_step")?,
        "num_local_experts": experts,
        "num_experts_per_tok": gguf.number("expert_used_count")?,
        "attention_chunk_size": 8192,
        "use_qk_norm": experts != 128,
    });
    if !has_pieces {
        config["no_rope_layers"] = vec![1; layers as usize].into();
        config["layer_types"] = vec!["full_attention"; layers as usize].into();
    }
    Ok(config)
}

/// A hybrid: layers with a gated delta net beside layers with attention, which are those that have a matrix of queries. The last layers may be
/// there for predicting more than one token.
fn with_states(gguf: &Gguf, mut config: Value) -> Result<Value> {
    let layers = gguf.number("block_count")?;
    let layers = layers.saturating_sub(gguf.optional("nextn_predict_layers")?.unwrap_or(0));
    let has_queries = |layer: u64| {
        let name = format!("model.layers.{layer}.self_attn.q_proj.weight");
        gguf.tensors.iter().any(|tensor| tensor.name == name)
    };
    let kind = |layer| if has_queries(layer) { "full_attention" } else { "linear_attention" };
    let (key_dim, value_heads) = (gguf.number("ssm.state_size")?, gguf.number("ssm.time_step_rank")?);
    let head_dim = gguf.number("attention.key_length")?;
    let rotated = gguf.optional("rope.dimension_count")?.unwrap_or(head_dim);
    config["num_hidden_layers"] = layers.into();
    config["layer_types"] = (0..layers).map(kind).collect();
    config["linear_conv_kernel_dim"] = gguf.number("ssm.conv_kernel")?.into();
    config["linear_key_head_dim"] = key_dim.into();
    config["linear_num_key_heads"] = gguf.number("ssm.group_count")?.into();
    config["linear_num_value_heads"] = value_heads.into();
    config["linear_value_head_dim"] = (gguf.number("ssm.inner_size")? / value_heads).into();
    config["partial_rotary_factor"] = (rotated as f64 / head_dim as f64).into();
    Ok(config)
}

/// Mistral Small 3, and Ministral 3, which has an attention temperature.
fn mistral3(gguf: &Gguf) -> Result<Value> {
    let Some(beta) = gguf.real("attention.temperature_scale")?.filter(|beta| *beta != 0.0) else {
        return Ok(json!({"model_type": "mistral", "sliding_window": null}));
    };
    let mut rope = gguf.rope_scaling()?;
    rope["rope_theta"] = gguf.real("rope.freq_base")?.into();
    rope["llama_4_scaling_beta"] = beta.into();
    Ok(json!({"model_type": "ministral3", "rope_parameters": rope, "rope_scaling": null}))
}

fn gemma2(gguf: &Gguf) -> Result<Value> {
    let mut config = json!({"model_type": "gemma2", "query_pre_attn_scalar": query_scalar(gguf, 46)?});
    for name in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if let Some(cap) = gguf.real(name)? {
            config[name] = cap.into();
        }
    }
    if let Some(window) = gguf.window()? {
        config["sliding_window"] = window.into();
    }
    Ok(config)
}

/// llama.cpp knows the pattern of layers and the rotation of those with a window.
fn gemma3(gguf: &Gguf) -> Result<Value> {
    Ok(json!({
        "model_type": "gemma3_text",
        "query_pre_attn_scalar": query_scalar(gguf, 62)?,
        "final_logit_softcapping": gguf.real("final_logit_softcapping")?,
        "sliding_window": gguf.window()?,
        "layer_types": layer_types(gguf, 6)?,
        "rope_theta": gguf.real("rope.freq_base")?.unwrap_or(1_000_000.0),
        "rope_local_base_freq": gguf.real("rope.freq_base_swa")?.unwrap_or(10_000.0),
    }))
}

/// The file has the number of standard deviations where a checkpoint has the share of gates that are cut off, and llama.cpp knows the rotation
/// of layers with a window.
fn gemma3n(gguf: &Gguf) -> Result<Value> {
    let layers = gguf.number("block_count")?;
    let key = gguf.key("activation_sparsity_scale");
    let sparsity: Vec<f64> = match gguf.fields.get(&key) {
        Some(Field::Array(scales)) => {
            let share = |scale: &Field| Ok(0.5 * (1.0 + erf_f64(f64::from(scale.to_f32()?) / 2_f64.sqrt())));
            let shares: candle_core::Result<Vec<f64>> = scales.iter().map(share).collect();
            shares.with_context(|| format!("{key} in its metadata is no list of numbers"))?
        }
        _ => bail!("the list {key} is missing from its metadata"),
    };
    let rows = |name: &str| {
        gguf.tensors.iter().find(|tensor| tensor.name == name).and_then(|tensor| tensor.shape.first())
    };
    Ok(json!({
        "model_type": "gemma3n_text",
        "final_logit_softcapping": gguf.real("final_logit_softcapping")?,
        "sliding_window": gguf.window()?,
        "layer_types": layer_types(gguf, 5)?,
        "rope_theta": gguf.real("rope.freq_base")?.unwrap_or(1_000_000.0),
        "rope_local_base_freq": gguf.real("rope.freq_base_swa")?.unwrap_or(10_000.0),
        "num_kv_shared_layers": gguf.optional("attention.shared_kv_layers")?.unwrap_or(0),
        "hidden_size_per_layer_input": gguf.number("embedding_length_per_layer_input")?,
        "vocab_size_per_layer_input": rows("model.embed_tokens_per_layer.weight"),
        "altup_num_inputs": gguf.number("altup.num_inputs")?,
        "altup_active_idx": gguf.optional("altup.active_idx")?.unwrap_or(0),
        "laurel_rank": rows("model.layers.0.laurel.linear_left.weight"),
        "activation_sparsity_pattern": sparsity.into_iter().take(layers as usize).collect::<Vec<_>>(),
    }))
}

/// Sizes that differ between layers with a window and others are lists, and the tensor rope_freqs says which pairs of the latter turn.
fn gemma4(gguf: &Gguf) -> Result<Value> {
    let layers = layer_types(gguf, 6)?;
    let full = layers.iter().position(|kind| *kind == "full_attention").context("all its layers have a window")?;
    let kv_heads = gguf.by_layer("attention.head_count_kv")?.unwrap_or_default();
    let widths = gguf.by_layer("feed_forward_length")?.unwrap_or_default();
    let head_dim = gguf.number("attention.key_length")?;
    let factors = gguf.rope_factors.as_deref().unwrap_or_default();
    let turning = factors.iter().filter(|factor| **factor == 1.0).count() as f64;
    let has_values =
        gguf.tensors.iter().any(|tensor| tensor.name == format!("model.layers.{full}.self_attn.v_proj.weight"));
    Ok(json!({
        "model_type": "gemma4_text",
        "head_dim": gguf.optional("attention.key_length_swa")?.unwrap_or(head_dim),
        "global_head_dim": head_dim,
        "num_global_key_value_heads": kv_heads.get(full),
        "attention_k_eq_v": !has_values,
        "num_kv_shared_layers": gguf.optional("attention.shared_kv_layers")?.filter(|shared| *shared > 0),
        "use_double_wide_mlp": widths.first() != widths.last(),
        "hidden_size_per_layer_input": gguf.optional("embedding_length_per_layer_input")?.unwrap_or(0),
        "final_logit_softcapping": gguf.real("final_logit_softcapping")?,
        "enable_moe_block": gguf.optional("expert_count")?.is_some_and(|count| count > 0),
        "num_experts": gguf.optional("expert_count")?,
        "top_k_experts": gguf.optional("expert_used_count")?,
        "moe_intermediate_size": gguf.optional("expert_feed_forward_length")?,
        "sliding_window": gguf.window()?,
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

/// OLMo 2, and OLMo 3, some of whose layers have a window.
fn olmo2(gguf: &Gguf) -> Result<Value> {
    let Some(window) = gguf.window()? else { return Ok(json!({"model_type": "olmo2"})) };
    Ok(json!({"model_type": "olmo3", "sliding_window": window, "layer_types": layer_types(gguf, 4)?}))
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
    Ok(json!({
        "model_type": "phi3",
        "sliding_window": gguf.window()?,
        "partial_rotary_factor": dims,
        "original_max_position_embeddings": gguf.optional("rope.scaling.original_context_length")?,
        "rope_scaling": scaling.transpose()?,
    }))
}

/// The square of what Gemma's queries are divided by. The file does not say; llama.cpp takes the size of a head, but for the
/// largest model, which it knows by its number of layers, the hidden size of a head.
fn query_scalar(gguf: &Gguf, layers_of_largest: u64) -> Result<u64> {
    if gguf.number("block_count")? == layers_of_largest {
        return Ok(gguf.number("embedding_length")? / gguf.number("attention.head_count")?);
    }
    gguf.number("attention.key_length")
}

/// Which layers have a window: as the file says, or every layer but each `every`-th.
fn layer_types(gguf: &Gguf, every: u64) -> Result<Vec<&'static str>> {
    let layers = gguf.number("block_count")?;
    let name = |sliding: bool| if sliding { "sliding_attention" } else { "full_attention" };
    let key = gguf.key("attention.sliding_window_pattern");
    let every = match gguf.fields.get(&key) {
        None => every,
        Some(Field::Array(layers)) => {
            let sliding = layers.iter().map(|layer| layer.to_bool()).collect::<Result<Vec<_>, _>>();
            let sliding = sliding.with_context(|| format!("{key} in its metadata is no list of yes and no"))?;
            return Ok(sliding.into_iter().map(name).collect());
        }
        Some(field) => match super::integer(field).filter(|every| *every > 0) {
            Some(every) => every,
            None => bail!("{key} in its metadata is no number of layers"),
        },
    };
    Ok((1..=layers).map(|layer| name(layer % every != 0)).collect())
}
