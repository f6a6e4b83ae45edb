//! What config.json files of each family are read as, and which are refused.

use serde_json::json;

use super::super::config::ModelShape;
use super::super::parts::Activation;
use super::super::rope_shape::{RopeScaling, RopeShape};
use super::*;
use crate::eviction::CacheOptions;
use crate::lm::cache::rope::Rope;

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
    assert_eq!((shape.head_dim, shape.heads.kv_heads, shape.ropes[0].theta), (16, 4, 10_000.0));
    // 2 layers of (4 * 64 * 64 + 3 * 64 * 160 + 2 * 64), two matrices of 100 x 64, the last norm
    assert_eq!(shape.parameters(), 2 * (16_384 + 30_720 + 128) + 2 * 6_400 + 64);
    assert_eq!(shape.cache_bytes(usize::MAX, CacheOptions::default()), u64::MAX);
}

#[test]
fn networks_that_cannot_be_computed_exactly_are_refused() {
    // Each of these sizes is allowed alone, and their products do not overflow; together they are no model.
    let largest = json!({
        "hidden_size": 1 << 18, "intermediate_size": 1 << 20, "num_hidden_layers": 1 << 12,
        "num_attention_heads": 1 << 14, "vocab_size": 1 << 24, "head_dim": 1 << 14
    });
    let mut of_experts = largest.clone();
    of_experts.as_object_mut().unwrap().extend([
        ("model_type".to_owned(), json!("mixtral")),
        ("num_local_experts".to_owned(), json!(1 << 11)),
        ("num_experts_per_tok".to_owned(), json!(1 << 11)),
    ]);
    for (changes, reason) in [
        (of_experts, "no model has more than"),
        (json!({"model_type": "mixtral", "num_local_experts": 1 << 12}), "between 1 and 2048"),
        (json!({"model_type": "mixtral", "num_local_experts": 1}), "num_experts_per_tok is 2"),
        (json!({"model_type": "gpt_neox"}), "gpt_neox"),
        (json!({"hidden_act": "gelu"}), "gelu"),
        (json!({"rope_scaling": {"type": "yarn"}}), "yarn"),
        (json!({"rope_scaling": {"type": "linear"}}), "factor"),
        (json!({"quantization_config": {"bits": 4}}), "quantised"),
        (json!({"num_key_value_heads": 3}), "multiple"),
        (
            json!({
                "model_type": "qwen3_5_text", "num_key_value_heads": 2, "layer_types": ["linear_attention", "full_attention"],
                "rope_parameters": "fast"
            }),
            "rope_parameters is \"fast\"",
        ),
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

/// Numbers of parameters on the models' cards: Qwen3-30B-A3B, Mixtral 8x7B, OLMoE-1B-7B, Qwen1.5-MoE-A2.7B.
#[test]
fn mixtures_of_experts_have_the_published_numbers_of_parameters() {
    let sizes = |model_type: &str, [hidden, intermediate, layers, heads, kv_heads, vocab]: [usize; 6]| {
        json!({
            "model_type": model_type, "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab
        })
    };
    let with = |mut json: Value, more: Value| {
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json
    };
    for (json, billions) in [
        (
            with(
                sizes("qwen3_moe", [2048, 6144, 48, 32, 4, 151_936]),
                json!({"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}),
            ),
            [30.5, 3.3],
        ),
        (sizes("mixtral", [4096, 14_336, 32, 32, 8, 32_000]), [46.7, 12.9]),
        (sizes("olmoe", [2048, 1024, 16, 16, 16, 50_304]), [6.9, 1.3]),
        (sizes("qwen2_moe", [2048, 5632, 24, 16, 16, 151_936]), [14.3, 2.7]),
    ] {
        let shape = config(json.clone()).unwrap();
        // Cards round up or down.
        for (count, billions) in [shape.parameters(), shape.active_parameters()].into_iter().zip(billions) {
            assert!((count as f64 / 1e9 - billions).abs() < 0.06, "{count} parameters of {json}");
        }
    }
}

/// Numbers of parameters on the models' cards, in billions, all and active: DeepSeek V2-Lite 15.7 and 2.4, V3 671 and 37, Kimi K2
/// 1,000 and 32, Qwen3-Next 80 and 3, Llama 4 Scout 109 and 17 and Maverick 400 and 17, with encoders of images that are not read
/// here. Embedding and output count among the active ones. A token takes 576 numbers a layer of latent attention (DeepSeek V3's 70
/// KB in bf16).
#[test]
fn models_of_other_kinds_have_the_published_sizes() {
    let latent = |sizes: [usize; 9], query_rank: Option<usize>| {
        let [hidden, intermediate, inner, layers, heads, experts, per_token, shared, vocab] = sizes;
        json!({
            "hidden_size": hidden, "intermediate_size": intermediate, "moe_intermediate_size": inner, "num_hidden_layers": layers,
            "num_attention_heads": heads, "n_routed_experts": experts, "num_experts_per_tok": per_token, "n_shared_experts": shared,
            "vocab_size": vocab, "q_lora_rank": query_rank, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "rms_norm_eps": 1e-6
        })
    };
    let with = |mut json: Value, more: Value| {
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        super::shape(&json).unwrap()
    };
    let lite = latent([2048, 10_944, 1408, 27, 16, 64, 6, 2, 102_400], None);
    let v3 = latent([7168, 18_432, 2048, 61, 128, 256, 8, 1, 129_280], Some(1536));
    let k2 = latent([7168, 18_432, 2048, 61, 64, 384, 8, 1, 163_840], Some(1536));
    let next = json!({
        "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 2, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "vocab_size": 151_936,
        "rms_norm_eps": 1e-6
    });
    let llama4 = json!({
        "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16_384,
        "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202_048,
        "rms_norm_eps": 1e-5, "attention_chunk_size": 8192, "num_experts_per_tok": 1
    });
    let shapes = [
        (with(lite, json!({"model_type": "deepseek_v2", "first_k_dense_replace": 1})), [15.7, 2.7], 27 * 576),
        (with(v3, json!({"model_type": "deepseek_v3", "n_group": 8, "topk_group": 4})), [671.0, 37.6], 61 * 576),
        (with(k2, json!({"model_type": "kimi_k2", "first_k_dense_replace": 1})), [1026.0, 32.9], 61 * 576),
        (with(next, json!({})), [79.7, 3.9], 12 * 2 * 2 * 256),
        (with(llama4.clone(), json!({"num_local_experts": 16})), [107.8, 17.2], 48 * 2 * 8 * 128),
        (
            with(llama4, json!({"num_local_experts": 128, "interleave_moe_layer_step": 2})),
            [400.7, 17.2],
            48 * 2 * 8 * 128,
        ),
    ];
    for (shape, billions, numbers) in shapes {
        for (count, billions) in [shape.parameters(), shape.active_parameters()].into_iter().zip(billions) {
            let off = (count as f64 / 1e9 / billions - 1.0).abs();
            assert!(off < 0.02, "{}: {count} parameters, {billions}", shape.family);
        }
        assert_eq!(shape.prefix_bytes(1), 4 * numbers, "{}", shape.family);
    }
}

/// Numbers of parameters on the models' cards, in billions, of the text model without encoders of images and sound: Gemma 4 26B-A4B
/// has 25.2 and 3.8 active, 31B 30.7; E2B and E4B have 2.3 and 4.5 "effective" ones, which leaves out the table of inputs to each
/// layer.
#[test]
fn gemma_4_has_the_published_numbers_of_parameters() {
    let config = |sizes: [usize; 6], more: Value| {
        let [hidden, intermediate, layers, heads, kv_heads, global] = sizes;
        let mut text = json!({
            "model_type": "gemma4_text", "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "num_global_key_value_heads": global, "head_dim": 256,
            "global_head_dim": 512, "vocab_size": 262_144, "rms_norm_eps": 1e-6, "hidden_size_per_layer_input": 0
        });
        text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        // As the published files have it, inside that of a model that sees and hears.
        super::shape(&json!({"model_type": "gemma4", "text_config": text, "vision_config": {}})).unwrap()
    };
    let every_fifth: Vec<_> =
        (1..36).map(|layer| if layer % 5 == 0 { "full_attention" } else { "sliding_attention" }).collect();
    let e2b = json!({
        "num_kv_shared_layers": 20, "hidden_size_per_layer_input": 256, "use_double_wide_mlp": true, "layer_types": every_fifth
    });
    let e4b = json!({"num_kv_shared_layers": 18, "hidden_size_per_layer_input": 256});
    let experts = json!({
        "attention_k_eq_v": true, "enable_moe_block": true, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704
    });
    for (shape, billions) in [
        (config([1536, 6144, 35, 8, 1, 1], e2b.clone()), [4.63, 2.3]),
        (config([2560, 10_240, 42, 8, 2, 2], e4b), [7.46, 4.6]),
        (config([2816, 2112, 30, 16, 8, 2], experts), [25.2, 3.8]),
        (config([5376, 21_504, 60, 32, 16, 4], json!({"attention_k_eq_v": true})), [30.7, 30.7]),
    ] {
        for (count, billions) in [shape.parameters(), shape.active_parameters()].into_iter().zip(billions) {
            assert!((count as f64 / 1e9 - billions).abs() < 0.06, "{count} parameters, {billions}");
        }
    }
    let e2b = config([1536, 6144, 35, 8, 1, 1], e2b);
    // 15 layers have a cache, three of them without a window, with heads twice as wide.
    assert_eq!(e2b.prefix_bytes(1), (12 * 256 + 3 * 512) * 2 * 4);
    let shares = |layer: usize| e2b.attention[layer].shares;
    assert_eq!(
        [shares(14), shares(15), shares(18), shares(19), shares(34)],
        [None, Some(13), Some(13), Some(14), Some(14)]
    );
}

#[test]
fn windows_are_those_of_transformers() {
    let windows = |changes: Value| -> Vec<Option<usize>> {
        let shape = config(changes).unwrap();
        shape.attention.iter().map(|layer| layer.window).collect()
    };
    assert_eq!(windows(json!({"model_type": "mistral", "sliding_window": 8})), [Some(8); 2]);
    assert_eq!(windows(json!({"model_type": "mistral", "sliding_window": null})), [None; 2]);
    assert_eq!(windows(json!({"model_type": "mistral"})), [Some(4096); 2]);
    assert_eq!(windows(json!({"model_type": "qwen2", "sliding_window": 8})), [None; 2]);
    let used =
        json!({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": true, "max_window_layers": 1});
    assert_eq!(windows(used), [None, Some(8)]);
    let types = json!(["full_attention", "sliding_attention"]);
    let named = json!({"model_type": "olmo3", "sliding_window": 8, "layer_types": types});
    assert_eq!(windows(named), [None, Some(8)]);
    let shape = config(json!({"model_type": "mistral", "sliding_window": 8})).unwrap();
    // A window of 8 and a block of 128, in rows of 16.
    assert_eq!(
        [100, 144, 145, 9000].map(|tokens| shape.cache_bytes(tokens, CacheOptions::default())
            / shape.cache_bytes(1, CacheOptions::default())),
        [100, 144, 144, 144]
    );
}

/// transformers' `_compute_yarn_parameters` by hand, for 8 dimensions, theta 10,000 and a factor of 4.
#[test]
fn yarn_by_hand() {
    let scaling = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
    let shape = config(json!({"head_dim": 8, "rope_scaling": scaling})).unwrap();
    // 8 ln(64 / (32 * 2 pi)) / (2 ln 10,000) = -0.497, and for one rotation 1.008: rounded to -1 and 2, and limited to 0.
    // So of the pairs' frequencies 1, 1/10, 1/100 and 1/1,000 the shares 1, 1/2, 0 and 0 are kept.
    let angles = Rope::new(&shape.ropes[0]).frequencies(false).angles([1.0].into_iter());
    let factor = 0.1 * 4f64.ln() + 1.0;
    for (sin, frequency) in angles.sin.iter().zip([1.0, 0.1 * (0.5 + 0.5 / 4.0), 0.0025, 0.00025f64]) {
        assert!((f64::from(*sin) - factor * frequency.sin()).abs() < 1e-7, "{sin} {frequency}");
    }
}

#[test]
fn old_and_new_fields_of_scaling_are_read() {
    let old = config(json!({"rope_scaling": {"type": "linear", "factor": 4.0}})).unwrap();
    assert!(matches!(old.ropes[0].scaling, RopeScaling::Linear(4.0)));
    let new = config(json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})).unwrap();
    assert!(matches!(new.ropes[0].scaling, RopeScaling::None));
    assert_eq!(new.ropes[0].theta, 5e5);
}

/// Values that transformers 5.24 reads from these keys (`rope_parameters` of its configuration).
#[test]
fn of_old_and_new_fields_side_by_side_transformers_takes_the_old() {
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
    let new = json!({"rope_type": "default", "rope_theta": 5e5});
    let both = config(json!({"rope_scaling": yarn, "rope_parameters": new, "rope_theta": 7e5})).unwrap();
    assert!(matches!(both.ropes[0].scaling, RopeScaling::Yarn { factor: 4.0, original: 64, .. }));
    assert_eq!(both.ropes[0].theta, 7e5);
    // Nothing of the new record is used.
    assert_eq!(config(json!({"rope_scaling": yarn, "rope_parameters": new})).unwrap().ropes[0].theta, 1e4);
    let linear = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5});
    let empty = config(json!({"rope_scaling": {}, "rope_parameters": linear})).unwrap();
    assert!(matches!(empty.ropes[0], RopeShape { theta: 5e5, scaling: RopeScaling::Linear(2.0), .. }));
    let own = json!({"type": "linear", "factor": 3.0, "rope_theta": 9e4});
    let own = config(json!({"rope_scaling": own, "rope_parameters": linear, "rope_theta": 7e5})).unwrap();
    assert!(matches!(own.ropes[0], RopeShape { theta: 9e4, scaling: RopeScaling::Linear(3.0), .. }));

    let gemma = |more: Value| {
        let mut changes = json!({"model_type": "gemma3_text", "num_hidden_layers": 6});
        changes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config(changes).map(|shape| shape.ropes)
    };
    let old = json!({"rope_type": "linear", "factor": 8.0});
    let kinds = json!({"full_attention": new, "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}});
    for (more, thetas) in [
        (json!({"rope_scaling": old, "rope_parameters": kinds}), [2e4, 5e5]),
        (json!({"rope_scaling": old, "rope_theta": 5e5, "rope_local_base_freq": 3e4}), [3e4, 5e5]),
        (json!({"rope_parameters": {"full_attention": old}, "rope_theta": 5e5}), [1e4, 5e5]),
    ] {
        let ropes = gemma(more.clone()).unwrap();
        assert_eq!([ropes[0].theta, ropes[1].theta], thetas, "{more}");
        assert!(matches!(ropes[0].scaling, RopeScaling::None), "{more}");
        assert!(matches!(ropes[1].scaling, RopeScaling::Linear(8.0)), "{more}");
    }
    let error = gemma(json!({"rope_parameters": linear})).unwrap_err().to_string();
    assert!(error.contains("sliding_attention"), "{error}");
    assert_eq!(config(json!({"model_type": "mixtral"})).unwrap().ropes[0].theta, 1e6);
}

#[test]
fn two_spellings_of_one_setting_do_not_contradict_each_other() {
    for (changes, reason) in [
        (json!({"partial_rotary_factor": 0.5}), "partial_rotary_factor"),
        (json!({"rope_scaling": "yarn"}), "rope_scaling or rope_parameters is \"yarn\""),
        (json!({"rope_scaling": {"rope_type": 1}}), "rope_type is 1"),
        (json!({"model_type": "mixtral", "num_local_experts": 4, "num_experts": 8}), "they mean the same"),
        (
            json!({"model_type": "gemma4_text", "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
            "rope_scaling is set",
        ),
        (json!({"rope_theta": "Infinity"}), "rope_theta is \"Infinity\""),
    ] {
        let error = format!("{:#}", config(changes.clone()).unwrap_err());
        assert!(error.contains(reason), "{changes}: {error}");
    }
    let same = json!({"model_type": "mixtral", "num_local_experts": 4, "num_experts": 4});
    assert_eq!(config(same).unwrap().experts.unwrap().count, 4);
    // Only Gemma reads `hidden_activation`, and it reads nothing else.
    let activations = json!({"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "silu"});
    assert_eq!(config(activations.clone()).unwrap().activation, Activation::Silu);
    for (activation, expected) in [(json!(null), Activation::GeluTanh), (json!("silu"), Activation::Silu)] {
        let mut changes = activations.clone();
        changes["model_type"] = "gemma2".into();
        changes["hidden_activation"] = activation;
        assert_eq!(config(changes).unwrap().activation, expected);
    }
    // A model's texts end as the whole's do, which reads images too.
    let text = json!({"model_type": "gemma3_text", "eos_token_id": 1, "bos_token_id": 2});
    let whole = json!({"model_type": "gemma3", "text_config": text, "eos_token_id": [1, 106]});
    let shape = shape(&whole).unwrap();
    assert_eq!((shape.eos, shape.bos), (vec![1, 106], Some(2)));
}
