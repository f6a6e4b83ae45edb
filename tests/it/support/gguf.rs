//! GGUF files, written from checkpoints as llama.cpp's convert_hf_to_gguf.py writes them.

use std::collections::HashMap;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor, safetensors};
use serde_json::{Value as Json, json};

pub type Fields = Vec<(String, Value)>;

pub fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn config_of(checkpoint: &Path) -> Json {
    serde_json::from_str(&fs::read_to_string(checkpoint.join("config.json")).unwrap()).unwrap()
}

/// The metadata of a checkpoint.
pub fn fields(checkpoint: &Path) -> Fields {
    let config = config_of(checkpoint);
    let rope = rope(&config);
    let number = |name: &str| Value::U32(config[name].as_u64().unwrap().try_into().unwrap());
    let real = |value: &Json| Value::F32(value.as_f64().unwrap() as f32);
    let width = match config["intermediate_size"].as_array() {
        Some(widths) => {
            Value::Array(widths.iter().map(|width| Value::U32(width.as_u64().unwrap() as u32)).collect())
        }
        None => number("intermediate_size"),
    };
    let mut own = vec![
        ("embedding_length", number("hidden_size")),
        ("feed_forward_length", width),
        ("block_count", number("num_hidden_layers")),
        ("attention.head_count", number("num_attention_heads")),
        ("attention.head_count_kv", number("num_key_value_heads")),
        ("context_length", number("max_position_embeddings")),
        ("attention.layer_norm_rms_epsilon", real(&config["rms_norm_eps"])),
        ("rope.freq_base", real(&rope["rope_theta"])),
    ];
    if !config["head_dim"].is_null() {
        own.extend(["attention.key_length", "attention.value_length"].map(|name| (name, number("head_dim"))));
    }
    let scaling = if config["rope_scaling"].is_null() { rope } else { &config["rope_scaling"] };
    let kind = scaling["rope_type"].as_str().or(scaling["type"].as_str()).unwrap_or("default");
    if ["linear", "yarn"].contains(&kind) {
        own.push(("rope.scaling.type", text(kind)));
        own.push(("rope.scaling.factor", real(&scaling["factor"])));
    }
    let optional = [
        (&scaling["attention_factor"], "rope.scaling.yarn_attn_factor"),
        (&scaling["beta_fast"], "rope.scaling.yarn_beta_fast"),
        (&scaling["beta_slow"], "rope.scaling.yarn_beta_slow"),
        (&scaling["mscale_all_dim"], "rope.scaling.yarn_log_multiplier"),
        (&scaling["llama_4_scaling_beta"], "attention.temperature_scale"),
        (&config["attn_logit_softcapping"], "attn_logit_softcapping"),
        (&config["final_logit_softcapping"], "final_logit_softcapping"),
        (&config["rope_parameters"]["sliding_attention"]["rope_theta"], "rope.freq_base_swa"),
    ];
    own.extend(optional.into_iter().filter(|(value, _)| value.is_f64()).map(|(value, name)| (name, real(value))));
    if let Some(original) = scaling["original_max_position_embeddings"].as_u64() {
        own.push(("rope.scaling.original_context_length", Value::U32(original as u32)));
    }
    if let Some(partial) = rope["partial_rotary_factor"].as_f64() {
        let head_dim = config["hidden_size"].as_f64().unwrap() / config["num_attention_heads"].as_f64().unwrap();
        own.push(("rope.dimension_count", Value::U32((head_dim * partial) as u32)));
    }
    for (name, key) in [
        ("expert_count", "num_experts"),
        ("expert_count", "num_local_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("expert_feed_forward_length", "intermediate_size"),
        ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ] {
        let is_known = own.iter().any(|(known, _)| *known == name);
        own.extend((config[key].is_u64() && !is_known).then(|| (name, number(key))));
    }
    if config["sliding_window"].is_u64() {
        own.push(("attention.sliding_window", number("sliding_window")));
    }
    if let Some(types) = config["layer_types"].as_array() {
        let sliding = types.iter().map(|name| Value::Bool(name == "sliding_attention")).collect();
        own.push(("attention.sliding_window_pattern", Value::Array(sliding)));
    }
    let architecture = architecture(&config);
    if architecture == "gemma4" {
        let of_gemma4 = gemma4_fields(&config);
        own.retain(|(name, _)| !of_gemma4.iter().any(|(other, _)| name == other));
        own.extend(of_gemma4);
    }
    if architecture == "gemma3n" {
        let size = |name: &str| Value::U32(config[name].as_u64().unwrap() as u32);
        // Standard deviations that leave these shares below: of a normal distribution, by hand.
        let deviations = |share: &Json| match share.as_f64().unwrap() {
            0.0 => f32::NEG_INFINITY,
            0.6 => 0.253_347_1,
            0.8 => 0.841_621_2,
            other => panic!("{other}"),
        };
        let scales = config["activation_sparsity_pattern"].as_array().unwrap();
        own.extend([
            ("altup.num_inputs", size("altup_num_inputs")),
            ("altup.active_idx", size("altup_active_idx")),
            ("attention.shared_kv_layers", size("num_kv_shared_layers")),
            ("embedding_length_per_layer_input", size("hidden_size_per_layer_input")),
            (
                "activation_sparsity_scale",
                Value::Array(scales.iter().map(|share| Value::F32(deviations(share))).collect()),
            ),
        ]);
    }
    if architecture == "deepseek2" {
        let of_deepseek = deepseek_fields(&config);
        own.retain(|(name, _)| !of_deepseek.iter().any(|(other, _)| name == other));
        own.extend(of_deepseek);
    }
    if architecture == "llama4" {
        own.retain(|(name, _)| *name != "feed_forward_length");
        own.push(("feed_forward_length", number("intermediate_size_mlp")));
        own.push(("interleave_moe_layer_step", number("interleave_moe_layer_step")));
    }
    if is_hybrid(architecture) {
        let size = |name: &str| config[name].as_u64().unwrap() as u32;
        let rotated = f64::from(size("head_dim")) * rope["partial_rotary_factor"].as_f64().unwrap();
        own.retain(|(name, _)| *name != "rope.dimension_count" && *name != "attention.sliding_window_pattern");
        own.extend([
            ("rope.dimension_count", Value::U32(rotated as u32)),
            ("ssm.conv_kernel", Value::U32(size("linear_conv_kernel_dim"))),
            ("ssm.state_size", Value::U32(size("linear_key_head_dim"))),
            ("ssm.group_count", Value::U32(size("linear_num_key_heads"))),
            ("ssm.time_step_rank", Value::U32(size("linear_num_value_heads"))),
            ("ssm.inner_size", Value::U32(size("linear_num_value_heads") * size("linear_value_head_dim"))),
            ("full_attention_interval", Value::U32(2)),
        ]);
    }
    let named = own.into_iter().map(|(name, value)| (format!("{architecture}.{name}"), value));
    [("general.architecture".to_owned(), text(architecture))]
        .into_iter()
        .chain(named)
        .chain(tokenizer("smollm"))
        .collect()
}

/// What differs between layers with a window and others.
fn gemma4_fields(config: &Json) -> Vec<(&'static str, Value)> {
    let layers = config["layer_types"].as_array().unwrap().len();
    let number = |value: &Json| Value::U32(value.as_u64().unwrap_or(0).try_into().unwrap());
    let list = |of: &dyn Fn(usize) -> Value| Value::Array((0..layers).map(of).collect());
    let of_layer = |layer: usize, name: &str| match &config["per_layer_config"][layer.to_string()][name] {
        Json::Null => number(&config[name]),
        own => number(own),
    };
    let shared = config["num_kv_shared_layers"].as_u64().unwrap() as usize;
    let width = |layer: usize| {
        let times = if config["use_double_wide_mlp"] == true && layer >= layers - shared { 2 } else { 1 };
        Value::U32(config["intermediate_size"].as_u64().unwrap() as u32 * times)
    };
    vec![
        ("feed_forward_length", list(&width)),
        ("attention.head_count_kv", list(&|layer| of_layer(layer, "num_key_value_heads"))),
        // The last layer has no window.
        ("attention.key_length", of_layer(layers - 1, "head_dim")),
        ("attention.value_length", of_layer(layers - 1, "head_dim")),
        ("attention.key_length_swa", number(&config["head_dim"])),
        ("attention.value_length_swa", number(&config["head_dim"])),
        ("attention.shared_kv_layers", number(&config["num_kv_shared_layers"])),
        ("embedding_length_per_layer_input", number(&config["hidden_size_per_layer_input"])),
        ("expert_count", number(&config["num_experts"])),
        ("expert_used_count", number(&config["top_k_experts"])),
        ("expert_feed_forward_length", number(&config["moe_intermediate_size"])),
    ]
}

/// The sizes of latent attention, and how experts are chosen.
fn deepseek_fields(config: &Json) -> Vec<(&'static str, Value)> {
    let size = |name: &str| config[name].as_u64().unwrap_or(0) as u32;
    let real = |value: &Json| Value::F32(value.as_f64().unwrap() as f32);
    let (rank, rotated) = (size("kv_lora_rank"), size("qk_rope_head_dim"));
    let is_v2 = config["model_type"] == "deepseek_v2";
    let dense =
        config["mlp_layer_types"].as_array().map(|kinds| kinds.iter().filter(|kind| *kind == "dense").count());
    let mut fields = vec![
        ("attention.head_count_kv", Value::U32(1)),
        ("attention.kv_lora_rank", Value::U32(rank)),
        ("attention.key_length", Value::U32(rank + rotated)),
        ("attention.value_length", Value::U32(rank)),
        ("attention.key_length_mla", Value::U32(size("qk_nope_head_dim") + rotated)),
        ("attention.value_length_mla", Value::U32(size("v_head_dim"))),
        ("rope.dimension_count", Value::U32(rotated)),
        (
            "leading_dense_block_count",
            Value::U32(dense.map_or(size("first_k_dense_replace"), |dense| dense as u32)),
        ),
        ("expert_count", Value::U32(size("n_routed_experts"))),
        ("expert_shared_count", Value::U32(size("n_shared_experts"))),
        ("expert_group_count", Value::U32(size("n_group"))),
        ("expert_group_used_count", Value::U32(size("topk_group"))),
        ("expert_gating_func", Value::U32(if is_v2 { 1 } else { 2 })),
        ("expert_weights_norm", Value::Bool(config["norm_topk_prob"] == true)),
        ("expert_weights_scale", real(&config["routed_scaling_factor"])),
    ];
    if config["q_lora_rank"].is_u64() {
        fields.push(("attention.q_lora_rank", Value::U32(size("q_lora_rank"))));
    }
    let mscale = &rope(config)["mscale_all_dim"];
    if let Some(mscale) = mscale.as_f64() {
        fields.push(("rope.scaling.yarn_log_multiplier", Value::F32(0.1 * mscale as f32)));
    }
    fields
}

/// Of transformers 5's settings those of layers without a window.
fn rope(config: &Json) -> &Json {
    let new = &config["rope_parameters"];
    match (new.is_null(), new["full_attention"].is_null()) {
        (true, _) => config,
        (false, true) => new,
        (false, false) => &new["full_attention"],
    }
}

fn architecture(config: &Json) -> &str {
    match config["model_type"].as_str().unwrap() {
        "deepseek_v2" | "deepseek_v3" | "glm4_moe_lite" => "deepseek2",
        "gemma3_text" => "gemma3",
        "gemma3n_text" => "gemma3n",
        "gemma4_text" => "gemma4",
        "gpt_oss" => "gpt-oss",
        "olmo3" => "olmo2",
        "ministral3" => "mistral3",
        "mixtral" => "llama",
        "qwen2_moe" => "qwen2moe",
        "qwen3_moe" => "qwen3moe",
        "qwen3_next" => "qwen3next",
        "qwen3_5_text" => "qwen35",
        "qwen3_5_moe_text" => "qwen35moe",
        "llama4_text" => "llama4",
        other => other,
    }
}

/// A tokenizer of a few tokens, which splits texts in a way of this name.
pub fn tokenizer(pre: &str) -> Fields {
    let tokens = ["<|end|>", "1", "2", "a", "\u{120}", "12", "\u{120}a"];
    let kinds = [3, 1, 1, 1, 1, 1, 1].map(Value::I32).to_vec();
    let fields = [
        ("model", text("gpt2")),
        ("pre", text(pre)),
        ("tokens", Value::Array(tokens.map(text).to_vec())),
        ("token_type", Value::Array(kinds)),
        ("merges", Value::Array(["1 2", "\u{120} a"].map(text).to_vec())),
    ];
    fields.map(|(name, value)| (format!("tokenizer.ggml.{name}"), value)).to_vec()
}

/// The name that the converter gives a tensor.
fn name(architecture: &str, tensor: &str) -> String {
    let own: &[_] = match architecture {
        "gemma2" | "gemma3" => &[
            ("post_attention_layernorm", "post_attention_norm"),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
        ],
        "deepseek2" => &[
            ("self_attn.q_a_proj", "attn_q_a"),
            ("self_attn.q_a_layernorm", "attn_q_a_norm"),
            ("self_attn.q_b_proj", "attn_q_b"),
            ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
            ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
            ("self_attn.k_b_proj", "attn_k_b"),
            ("self_attn.v_b_proj", "attn_v_b"),
            ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
            ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
            ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
            ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
        ],
        "gemma3n" => &[
            ("model.altup_projections", "altup_proj"),
            ("model.altup_unembed_projections", "altup_unembd_proj"),
            ("post_attention_layernorm", "post_attention_norm"),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
            ("model.embed_tokens_per_layer", "per_layer_token_embd"),
            ("model.per_layer_model_projection", "per_layer_model_proj"),
            ("model.per_layer_projection_norm", "per_layer_proj_norm"),
            ("post_per_layer_input_norm", "post_norm"),
            ("per_layer_input_gate", "inp_gate"),
            ("per_layer_projection", "proj"),
            ("altup.correction_coefs", "altup_correct_coef"),
            ("altup.correct_output_scale", "altup_correct_scale.weight"),
            ("altup.prediction_coefs", "altup_predict_coef"),
            ("altup.modality_router", "altup_router"),
            ("altup.router_norm", "altup_router_norm"),
            ("laurel.linear_left", "laurel_l"),
            ("laurel.linear_right", "laurel_r"),
            ("laurel.post_laurel_norm", "laurel_post_norm"),
        ],
        "gemma4" => &[
            ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
            ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
            ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
            ("post_attention_layernorm", "post_attention_norm"),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
            ("model.embed_tokens_per_layer", "per_layer_token_embd"),
            ("model.per_layer_model_projection", "per_layer_model_proj"),
            ("model.per_layer_projection_norm", "per_layer_proj_norm"),
            ("post_per_layer_input_norm", "post_norm"),
            ("per_layer_input_gate", "inp_gate"),
            ("per_layer_projection", "proj"),
            ("layer_scalar", "layer_output_scale.weight"),
            ("router.scale", "ffn_gate_inp.scale"),
            ("router.proj", "ffn_gate_inp"),
            ("router.per_expert_scale", "ffn_down_exps.scale"),
            ("experts.gate_up_proj", "ffn_gate_up_exps.weight"),
            ("experts.down_proj", "ffn_down_exps.weight"),
        ],
        "qwen3next" | "qwen35" | "qwen35moe" => &[
            ("post_attention_layernorm", "post_attention_norm"),
            ("linear_attn.in_proj_qkv", "attn_qkv"),
            ("linear_attn.in_proj_z", "attn_gate"),
            ("linear_attn.in_proj_ba", "ssm_ba"),
            ("linear_attn.in_proj_b", "ssm_beta"),
            ("linear_attn.in_proj_a", "ssm_alpha"),
            ("linear_attn.A_log", "ssm_a"),
            ("linear_attn.dt_bias", "ssm_dt.bias"),
            ("linear_attn.conv1d", "ssm_conv1d"),
            ("linear_attn.norm", "ssm_norm"),
            ("linear_attn.out_proj", "ssm_out"),
        ],
        "llama4" => &[("feed_forward.", "mlp.")],
        "gpt-oss" => {
            &[("post_attention_layernorm", "post_attention_norm"), ("self_attn.sinks", "attn_sinks.weight")]
        }
        "olmo2" => {
            &[("post_attention_layernorm", "post_attention_norm"), ("post_feedforward_layernorm", "post_ffw_norm")]
        }
        _ => &[],
    };
    let whole = [
        ("model.embed_tokens.", "token_embd."),
        ("model.norm.", "output_norm."),
        ("lm_head.", "output."),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.qkv_proj", "attn_qkv"),
        ("block_sparse_moe.gate", "ffn_gate_inp"),
        ("block_sparse_moe.experts.w1", "ffn_gate_exps"),
        ("block_sparse_moe.experts.w2", "ffn_down_exps"),
        ("block_sparse_moe.experts.w3", "ffn_up_exps"),
        ("mlp.gate.", "ffn_gate_inp."),
        ("mlp.router.", "ffn_gate_inp."),
        ("mlp.experts.gate_proj", "ffn_gate_exps"),
        ("mlp.experts.up_proj", "ffn_up_exps"),
        ("mlp.experts.down_proj", "ffn_down_exps"),
        ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
        ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
        ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
        ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    own.iter().chain(&whole).fold(tensor.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// Of each head the rows of a pair beside each other: row 0, row half, row 1, ... (the converter's `LlamaModel.permute`).
fn permuted(tensor: &Tensor, heads: usize) -> Tensor {
    let rows = tensor.dim(0).unwrap();
    let head = rows / heads;
    let place = |row: usize| {
        let (of_head, within) = (row / head, row % head);
        (of_head * head + within / 2 + within % 2 * (head / 2)) as u32
    };
    let order: Vec<u32> = (0..rows).map(place).collect();
    tensor.index_select(&Tensor::new(order, &Device::Cpu).unwrap(), 0).unwrap()
}

/// What the converter divides frequencies by for `rope_scaling: {rope_type: llama3, ...}`, in single precision as it does.
fn rope_factors(config: &Json) -> Option<Tensor> {
    if architecture(config) == "gemma4" {
        let last = config["layer_types"].as_array().unwrap().len() - 1;
        let own = &config["per_layer_config"][last.to_string()]["head_dim"];
        let pairs = own.as_u64().or(config["head_dim"].as_u64()).unwrap() / 2;
        let turning = pairs as f64 * rope(config)["partial_rotary_factor"].as_f64().unwrap();
        let factors: Vec<f32> =
            (0..pairs).map(|pair| if (pair as f64) < turning.floor() { 1.0 } else { 1e30 }).collect();
        return Some(Tensor::new(factors, &Device::Cpu).unwrap());
    }
    let scaling = &config["rope_scaling"];
    if scaling["rope_type"] != "llama3" {
        return None;
    }
    let number = |name: &str| scaling[name].as_f64().unwrap() as f32;
    let (factor, low, high) = (number("factor"), number("low_freq_factor"), number("high_freq_factor"));
    let trained = number("original_max_position_embeddings");
    let (base, dim) = (config["rope_theta"].as_f64().unwrap() as f32, config["head_dim"].as_u64().unwrap());
    let factors: Vec<f32> = (0..dim)
        .step_by(2)
        .map(|i| {
            let frequency = 1.0 / base.powf(i as f32 / dim as f32);
            let wavelength = 2.0 * std::f32::consts::PI / frequency;
            if wavelength < trained / high {
                1.0
            } else if wavelength > trained / low {
                factor
            } else {
                let smooth = (trained / wavelength - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        })
        .collect();
    Some(Tensor::new(factors, &Device::Cpu).unwrap())
}

/// The tensors of a checkpoint under the names and in the order of a GGUF file, its matrices as `stored`.
pub fn tensors(checkpoint: &Path, stored: GgmlDType) -> Vec<(String, QTensor)> {
    let config = config_of(checkpoint);
    let heads = |name: &str| {
        let count = |name: &str| config[name].as_u64().unwrap() as usize;
        match name {
            _ if !["llama", "mistral3", "smollm3"].contains(&architecture(&config)) => None,
            name if name.contains(".q_proj") => Some(count("num_attention_heads")),
            name if name.contains(".k_proj") => Some(count("num_key_value_heads")),
            _ => None,
        }
    };
    let is_tied = config["tie_word_embeddings"] == true;
    let mut tensors: Vec<_> = stacked(weights(checkpoint))
        .into_iter()
        .map(|(own, tensor)| {
            let is_matrix = tensor.rank() == 2 || own.ends_with("bias");
            let heads = heads(&own).filter(|_| is_matrix);
            let ordered = heads.map_or_else(|| tensor.clone(), |heads| permuted(&tensor, heads));
            let own = if is_tied { own.replace("lm_head.", "model.embed_tokens.") } else { own };
            let is_shifted = (["gemma2", "gemma3"].contains(&architecture(&config))
                || is_hybrid(architecture(&config)))
                && own.ends_with("norm.weight")
                && !own.ends_with("linear_attn.norm.weight");
            let ordered = if is_shifted { (ordered + 1.0).unwrap() } else { ordered };
            (name(architecture(&config), &own), QTensor::quantize(&ordered, type_of(&tensor, stored)).unwrap())
        })
        .collect();
    for (key, name) in [("long_factor", "rope_factors_long.weight"), ("short_factor", "rope_factors_short.weight")]
    {
        if let Some(factors) = config["rope_parameters"][key].as_array() {
            let factors: Vec<f32> = factors.iter().map(|factor| factor.as_f64().unwrap() as f32).collect();
            let factors = Tensor::new(factors, &Device::Cpu).unwrap();
            tensors.push((name.to_owned(), QTensor::quantize(&factors, GgmlDType::F32).unwrap()));
        }
    }
    if let Some(factors) = rope_factors(&config) {
        tensors.push(("rope_freqs.weight".to_owned(), QTensor::quantize(&factors, GgmlDType::F32).unwrap()));
    }
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    tensors
}

/// The matrices of all experts of a layer make one tensor.
fn stacked(mut weights: HashMap<String, Tensor>) -> HashMap<String, Tensor> {
    let first: Vec<String> = weights.keys().filter(|name| name.contains(".experts.0.")).cloned().collect();
    for name in first {
        let of = |expert: usize| name.replace(".experts.0.", &format!(".experts.{expert}."));
        let experts: Vec<Tensor> = (0..).map_while(|expert| weights.remove(&of(expert))).collect();
        weights.insert(name.replace(".experts.0.", ".experts."), Tensor::stack(&experts, 0).unwrap());
    }
    for part in ["model.altup_projections", "model.altup_unembed_projections"] {
        let of = |state: usize| format!("{part}.{state}.weight");
        let states: Vec<Tensor> = (0..).map_while(|state| weights.remove(&of(state))).collect();
        if !states.is_empty() {
            weights.insert(format!("{part}.weight"), Tensor::stack(&states, 0).unwrap());
        }
    }
    weights
}

fn weights(checkpoint: &Path) -> HashMap<String, Tensor> {
    let weights = safetensors::load(checkpoint.join("model.safetensors"), &Device::Cpu).unwrap();
    let config = config_of(checkpoint);
    let wide = weights.into_iter().map(|(name, tensor)| (name, tensor.to_dtype(DType::F32).unwrap()));
    let wide = wide.flat_map(|(name, tensor)| latent_parts(&name, tensor, &config));
    let wide = wide.flat_map(|(name, tensor)| state_parts(&name, tensor, &config));
    wide.flat_map(|(name, tensor)| with_rows_of_outputs(&name, tensor)).collect()
}

/// What makes keys of a latent, transposed, and what makes values of it, as the converter writes them by head.
fn latent_parts(name: &str, tensor: Tensor, config: &Json) -> Vec<(String, Tensor)> {
    if !name.ends_with("kv_b_proj.weight") {
        return vec![(name.to_owned(), tensor)];
    }
    let size = |name: &str| config[name].as_u64().unwrap() as usize;
    let (nope, value) = (size("qk_nope_head_dim"), size("v_head_dim"));
    let heads = tensor.reshape((size("num_attention_heads"), nope + value, ())).unwrap();
    let keys = heads.narrow(1, 0, nope).unwrap().transpose(1, 2).unwrap().contiguous().unwrap();
    let values = heads.narrow(1, nope, value).unwrap().contiguous().unwrap();
    vec![(name.replace("kv_b_proj", "k_b_proj"), keys), (name.replace("kv_b_proj", "v_b_proj"), values)]
}

/// Whether some layers have a gated delta net.
fn is_hybrid(architecture: &str) -> bool {
    ["qwen3next", "qwen35", "qwen35moe"].contains(&architecture)
}

/// What the converter makes of a tensor of a gated delta net. Of Qwen3.5, value heads of all key heads take turns.
fn state_parts(name: &str, tensor: Tensor, config: &Json) -> Vec<(String, Tensor)> {
    let Some((_, part)) = name.split_once(".linear_attn.") else { return vec![(name.to_owned(), tensor)] };
    let size = |name: &str| config[name].as_u64().unwrap() as usize;
    let (key_heads, value_heads) = (size("linear_num_key_heads"), size("linear_num_value_heads"));
    let (key, value) = (size("linear_key_head_dim"), size("linear_value_head_dim"));
    let per_key = value_heads / key_heads;
    let chosen = |tensor: &Tensor, side: usize, places: Vec<usize>| {
        let places: Vec<u32> = places.into_iter().map(|place| place as u32).collect();
        tensor.index_select(&Tensor::new(places, &Device::Cpu).unwrap(), side).unwrap()
    };
    if part == "in_proj_qkvz.weight" {
        // Of each key head queries, keys, values and gates.
        let of_head = 2 * (key + per_key * value);
        let rows = |from: usize, to: usize| -> Vec<usize> {
            (0..key_heads).flat_map(|head| (from..to).map(move |row| head * of_head + row)).collect()
        };
        let gates = 2 * key + per_key * value;
        let mixed = [rows(0, key), rows(key, 2 * key), rows(2 * key, gates)].concat();
        return vec![
            (name.replace("qkvz", "qkv"), chosen(&tensor, 0, mixed)),
            (name.replace("qkvz", "z"), chosen(&tensor, 0, rows(gates, of_head))),
        ];
    }
    let tensor = match part {
        "A_log" => tensor.exp().unwrap().neg().unwrap(),
        "conv1d.weight" => tensor.squeeze(1).unwrap(),
        _ => tensor,
    };
    if config["model_type"] == "qwen3_next" {
        return vec![(name.to_owned(), tensor)];
    }
    // Where a value head's numbers begin among `before` others, and how many there are.
    let turned = |before: usize, dim: usize| -> Vec<usize> {
        let heads = (0..per_key).flat_map(|turn| (0..key_heads).map(move |head| head * per_key + turn));
        (0..before).chain(heads.flat_map(|head| (0..dim).map(move |row| before + head * dim + row))).collect()
    };
    let turned = match part {
        "in_proj_qkv.weight" | "conv1d.weight" => chosen(&tensor, 0, turned(2 * key_heads * key, value)),
        "in_proj_z.weight" => chosen(&tensor, 0, turned(0, value)),
        "in_proj_a.weight" | "in_proj_b.weight" | "A_log" | "dt_bias" => chosen(&tensor, 0, turned(0, 1)),
        "out_proj.weight" => chosen(&tensor, 1, turned(0, value)),
        _ => tensor,
    };
    vec![(name.to_owned(), turned)]
}

/// The experts of gpt-oss, transposed and with columns of gate and up by turns, as the converter makes matrices of them. Llama 4 has the
/// columns of gate first.
fn with_rows_of_outputs(name: &str, tensor: Tensor) -> Vec<(String, Tensor)> {
    let is_bias = name.ends_with("_proj_bias");
    let is_transposed = name.contains("mlp.experts.") || name.contains("feed_forward.experts.");
    if !is_transposed || !is_bias && !name.ends_with("_proj") {
        return vec![(name.to_owned(), tensor)];
    }
    let (name, end) = if is_bias { (&name[..name.len() - 5], "bias") } else { (name, "weight") };
    let rows = if is_bias { tensor } else { tensor.transpose(1, 2).unwrap() };
    if !name.ends_with("gate_up_proj") {
        return vec![(format!("{name}.{end}"), rows.contiguous().unwrap())];
    }
    let all = rows.dim(1).unwrap() as u32;
    let part = |part: &str, first: u32| {
        let turns: Vec<u32> = match name.contains(".feed_forward.") {
            true => (first * all / 2..(first + 1) * all / 2).collect(),
            false => (first..all).step_by(2).collect(),
        };
        let own = rows.contiguous().unwrap().index_select(&Tensor::new(turns, &Device::Cpu).unwrap(), 1).unwrap();
        (format!("{}.{end}", name.replace("gate_up", part)), own)
    };
    vec![part("gate", 0), part("up", 1)]
}

/// Vectors and rows that are no whole blocks stay F32.
fn type_of(tensor: &Tensor, stored: GgmlDType) -> GgmlDType {
    let is_stored = tensor.rank() == 2 && tensor.dim(1).unwrap().is_multiple_of(stored.block_size());
    if is_stored { stored } else { GgmlDType::F32 }
}

/// Writes a GGUF file.
pub fn write(file: &Path, fields: &Fields, tensors: &[(String, QTensor)]) {
    let mut bytes = Cursor::new(Vec::new());
    let fields: Vec<(&str, &Value)> = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut bytes, &fields, &tensors).unwrap();
    fs::write(file, bytes.into_inner()).unwrap();
}

/// Writes the checkpoint that a GGUF file of it holds: its matrices after storing as `stored`.
pub fn write_rounded(checkpoint: &Path, stored: GgmlDType, folder: &Path) {
    let rounded: HashMap<String, Tensor> = weights(checkpoint)
        .into_iter()
        .map(|(name, tensor)| {
            let stored = QTensor::quantize(&tensor, type_of(&tensor, stored)).unwrap();
            (name, stored.dequantize(&Device::Cpu).unwrap())
        })
        .collect();
    fs::create_dir_all(folder).unwrap();
    fs::copy(checkpoint.join("config.json"), folder.join("config.json")).unwrap();
    safetensors::save(&rounded, folder.join("model.safetensors")).unwrap();
}

/// A checkpoint whose rows are 256 wide, as the types of 256 numbers to a block need, with weights of no meaning.
pub fn wide_checkpoint(folder: &Path) -> PathBuf {
    let config = json!({
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 200, "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0, "max_position_embeddings": 2048, "tie_word_embeddings": false
    });
    let mut state = 1_u64;
    let mut tensor = |rows: usize, columns: usize| {
        let numbers = (0..rows * columns).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * 0.2
        });
        Tensor::from_iter(numbers, &Device::Cpu).unwrap().reshape((rows, columns)).unwrap()
    };
    let mut tensors = HashMap::new();
    for name in ["model.embed_tokens", "lm_head"] {
        tensors.insert(format!("{name}.weight"), tensor(200, 256));
    }
    for layer in 0..2 {
        for (part, rows, columns) in [
            ("self_attn.q_proj", 256, 256),
            ("self_attn.k_proj", 64, 256),
            ("self_attn.v_proj", 64, 256),
            ("self_attn.o_proj", 256, 256),
            ("mlp.gate_proj", 512, 256),
            ("mlp.up_proj", 512, 256),
            ("mlp.down_proj", 256, 512),
        ] {
            tensors.insert(format!("model.layers.{layer}.{part}.weight"), tensor(rows, columns));
        }
    }
    let ones = || Tensor::ones(256, DType::F32, &Device::Cpu).unwrap();
    let norms = (0..2).flat_map(|layer| {
        ["input_layernorm", "post_attention_layernorm"].map(|norm| format!("model.layers.{layer}.{norm}.weight"))
    });
    tensors.extend(norms.chain(["model.norm.weight".to_owned()]).map(|name| (name, ones())));
    let path = folder.join("wide");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("config.json"), config.to_string()).unwrap();
    safetensors::save(&tensors, path.join("model.safetensors")).unwrap();
    path
}
