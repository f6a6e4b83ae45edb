//! Checkpoints that hold more than the language model: what reads images or sound, layers that predict further tokens, and tensors that
//! contradict the description.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use candle_core::{DType, Device, Tensor, safetensors};
use serde_json::{Value, json};
use tova_bench::lm::{LanguageModel, MemoryPlan, ModelShape, WeightType};

use crate::support::checkpoint::{device, golden, load};

/// Names of tensors, as transformers 4 and 5 write them.
const NAMES: [(&str, &str); 2] = [
    ("language_model.model.", "vision_tower.encoder.weight"),
    ("model.language_model.", "model.vision_tower.weight"),
];

fn wrap(from: &Path, to: &Path, (prefix, other): (&str, &str)) {
    fs::create_dir(to).unwrap();
    let text: Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    let config = json!({"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 8}});
    fs::write(to.join("config.json"), config.to_string()).unwrap();
    let tensors = safetensors::load(from.join("model.safetensors"), &Device::Cpu).unwrap();
    let mut renamed: HashMap<String, Tensor> =
        tensors.into_iter().map(|(name, tensor)| (name.replacen("model.", prefix, 1), tensor)).collect();
    renamed.insert(other.to_owned(), Tensor::zeros((8, 8), DType::F32, &Device::Cpu).unwrap());
    safetensors::save(&renamed, to.join("model.safetensors")).unwrap();
}

fn states(model: &LanguageModel) -> Vec<Vec<f32>> {
    let tokens: Vec<u32> = (0..100).map(|i| (i * i + 5 * i + 1) % 64).collect();
    let mut memory = model.new_memory(&MemoryPlan::unbounded());
    model.read(&tokens, &mut memory).unwrap().to_vec2().unwrap()
}

/// As DeepSeek V3's and GLM-4.7-Flash's checkpoints have one.
#[test]
fn a_layer_that_predicts_further_tokens_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (alone, path) = (golden("families/deepseek-v3"), folder.path());
    let mut config: Value = serde_json::from_slice(&fs::read(alone.join("config.json")).unwrap()).unwrap();
    let mut tensors = safetensors::load(alone.join("model.safetensors"), &Device::Cpu).unwrap();
    let layers = config["num_hidden_layers"].as_u64().unwrap();
    let extra = Tensor::zeros((32, 64), DType::F32, &Device::Cpu).unwrap();
    tensors.insert(format!("model.layers.{layers}.eh_proj.weight"), extra);
    safetensors::save(&tensors, path.join("model.safetensors")).unwrap();
    for (count, is_read) in [(1, true), (0, false)] {
        config["num_nextn_predict_layers"] = count.into();
        fs::write(path.join("config.json"), config.to_string()).unwrap();
        let shape = ModelShape::read(&path.join("config.json")).unwrap();
        let model = LanguageModel::load(shape, &[path.join("model.safetensors")], WeightType::Auto, &device());
        assert_eq!(model.is_ok(), is_read, "{count}");
        assert!(model.ok().is_none_or(|model| states(&model) == states(&load(&alone))));
    }
}

/// transformers 5: "will NOT tie the weights" of matrices that are both there and differ.
#[test]
fn a_head_that_differs_from_the_embedding_is_used_whatever_the_description_says() {
    let folder = tempfile::tempdir().unwrap();
    let alone = golden("llama-mha");
    let mut config: Value = serde_json::from_slice(&fs::read(alone.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["tie_word_embeddings"], false);
    let mut tensors = safetensors::load(alone.join("model.safetensors"), &Device::Cpu).unwrap();
    let nll = |folder: &Path| {
        let model = load(folder);
        let tokens: Vec<u32> = (0..50).map(|i| (i * i + 5 * i + 1) % 64).collect();
        let states = model.read(&tokens[..49], &mut model.new_memory(&MemoryPlan::unbounded())).unwrap();
        model.nll(&states, &tokens[1..]).unwrap()
    };
    let expected = nll(&alone);
    config["tie_word_embeddings"] = true.into();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let file = folder.path().join("model.safetensors");
    safetensors::save(&tensors, &file).unwrap();
    assert_eq!(nll(folder.path()), expected);
    // Equal ones are one.
    tensors.insert("lm_head.weight".to_owned(), tensors["model.embed_tokens.weight"].clone());
    safetensors::save(&tensors, &file).unwrap();
    let equal = nll(folder.path());
    tensors.remove("lm_head.weight");
    safetensors::save(&tensors, &file).unwrap();
    assert_eq!(nll(folder.path()), equal);
    assert_ne!(equal, expected);
}

/// transformers computes the biases that config.json names, and no others.
#[test]
fn biases_are_those_that_the_description_names() {
    let folder = tempfile::tempdir().unwrap();
    let alone = golden("variants/llama-bias-tied");
    let mut config: Value = serde_json::from_slice(&fs::read(alone.join("config.json")).unwrap()).unwrap();
    let mut tensors = safetensors::load(alone.join("model.safetensors"), &Device::Cpu).unwrap();
    let file = folder.path().join("model.safetensors");
    let mut load_with = |is_biased: bool, tensors: &HashMap<String, Tensor>| {
        config["attention_bias"] = is_biased.into();
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        safetensors::save(tensors, &file).unwrap();
        let shape = ModelShape::read(&folder.path().join("config.json")).unwrap();
        let model = LanguageModel::load(shape, std::slice::from_ref(&file), WeightType::Auto, &device());
        model.map_err(|error| format!("{error:#}"))
    };
    let biased = states(&load_with(true, &tensors).unwrap());
    let error = load_with(false, &tensors).err().unwrap();
    assert!(error.contains("model.layers.0.self_attn.q_proj.bias"), "{error}");
    tensors.retain(|name, _| !name.ends_with(".bias"));
    assert_ne!(states(&load_with(false, &tensors).unwrap()), biased);
    let error = load_with(true, &tensors).err().unwrap();
    assert!(error.contains("model.layers.0.self_attn.q_proj.bias"), "{error}");
}

#[test]
fn no_tensor_stands_for_a_part_that_another_is() {
    let folder = tempfile::tempdir().unwrap();
    let alone = golden("families/gemma3");
    wrap(&alone, &folder.path().join("whole"), NAMES[0]);
    let file = folder.path().join("whole/model.safetensors");
    let tensors = safetensors::load(&file, &Device::Cpu).unwrap();
    let norm = Tensor::ones(24, DType::F32, &Device::Cpu).unwrap();
    for (name, words) in [
        ("model.language_model.norm.weight", "stand for the same part"),
        ("model.norm.weight", "stands beside a language model of its own"),
        ("language_model.model.layers.0.other.weight", "no place to"),
    ] {
        let mut more = tensors.clone();
        more.insert(name.to_owned(), norm.clone());
        safetensors::save(&more, &file).unwrap();
        let shape = ModelShape::read(&folder.path().join("whole/config.json")).unwrap();
        let error =
            LanguageModel::load(shape, std::slice::from_ref(&file), WeightType::Auto, &device()).err().unwrap();
        assert!(format!("{error:#}").contains(words), "{name}: {error:#}");
    }
}

#[test]
fn the_text_model_is_read_as_if_it_stood_alone() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gemma3", "gemma4"] {
        let alone = golden("families").join(name);
        let expected = states(&load(&alone));
        for (index, names) in NAMES.into_iter().enumerate() {
            let whole = folder.path().join(format!("{name}-{index}"));
            wrap(&alone, &whole, names);
            assert_eq!(states(&load(&whole)), expected, "{}", names.0);
        }
    }
}
