//! Models in one GGUF file: the same numbers as the checkpoint they were made of, and what is refused.

mod support;

use std::collections::HashMap;
use std::fs;
use std::io::Cursor;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor, safetensors};
use serde_json::Value as Json;
use support::checkpoint::{cut_short, golden};
use support::program::{Ended, run};

// --- files as llama.cpp's converter writes them ---

type Fields = Vec<(String, Value)>;

/// The metadata of a golden checkpoint of the Llama layout.
fn fields(checkpoint: &Path) -> Fields {
    let config: Json = serde_json::from_str(&fs::read_to_string(checkpoint.join("config.json")).unwrap()).unwrap();
    let number = |name: &str| Value::U32(config[name].as_u64().unwrap().try_into().unwrap());
    let real = |name: &str| Value::F32(config[name].as_f64().unwrap() as f32);
    let heads = config["num_attention_heads"].as_u64().unwrap();
    let head = config["head_dim"].as_u64().unwrap_or(config["hidden_size"].as_u64().unwrap() / heads);
    let own = [
        ("embedding_length", number("hidden_size")),
        ("feed_forward_length", number("intermediate_size")),
        ("block_count", number("num_hidden_layers")),
        ("attention.head_count", number("num_attention_heads")),
        ("attention.head_count_kv", number("num_key_value_heads")),
        ("attention.key_length", Value::U32(head.try_into().unwrap())),
        ("context_length", number("max_position_embeddings")),
        ("attention.layer_norm_rms_epsilon", real("rms_norm_eps")),
        ("rope.freq_base", real("rope_theta")),
    ];
    let named = own.map(|(name, value)| (format!("llama.{name}"), value));
    [("general.architecture".to_owned(), text("llama"))]
        .into_iter()
        .chain(named)
        .chain(tokenizer("smollm"))
        .collect()
}

/// A tokenizer of a few tokens, which splits texts in a way of this name.
fn tokenizer(pre: &str) -> Fields {
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

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// The name that the converter gives a tensor.
fn name(tensor: &str) -> String {
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
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    whole.iter().fold(tensor.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// Of each head the rows of a pair beside each other: row 0, row half, row 1, ... (`LlamaModel.permute` of llama.cpp's
/// convert_hf_to_gguf.py).
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

/// Writes a checkpoint as GGUF; its matrices are stored as `stored`. With `folder`, also writes the checkpoint with the
/// weights that this leaves.
fn write(checkpoint: &Path, fields: &Fields, stored: GgmlDType, file: &Path, folder: Option<&Path>) {
    let weights = safetensors::load(checkpoint.join("model.safetensors"), &Device::Cpu).unwrap();
    let heads = |part: &str| {
        let count =
            |name: &str| fields.iter().find(|(known, _)| known.ends_with(name)).unwrap().1.to_u32().unwrap();
        match part {
            part if part.contains("q_proj") => Some(count("head_count") as usize),
            part if part.contains("k_proj") => Some(count("head_count_kv") as usize),
            _ => None,
        }
    };
    let (mut tensors, mut left) = (Vec::new(), HashMap::new());
    for (tensor_name, tensor) in weights {
        let tensor = tensor.to_dtype(candle_core::DType::F32).unwrap();
        let is_stored = tensor.rank() == 2 && tensor.dim(1).unwrap().is_multiple_of(stored.block_size());
        let kind = if is_stored { stored } else { GgmlDType::F32 };
        let ordered = heads(&tensor_name).map_or_else(|| tensor.clone(), |heads| permuted(&tensor, heads));
        tensors.push((name(&tensor_name), QTensor::quantize(&ordered, kind).unwrap()));
        let rounded = QTensor::quantize(&tensor, kind).unwrap().dequantize(&Device::Cpu).unwrap();
        left.insert(tensor_name, rounded);
    }
    let mut bytes = Cursor::new(Vec::new());
    let fields: Vec<(&str, &Value)> = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut bytes, &fields, &tensors).unwrap();
    fs::write(file, bytes.into_inner()).unwrap();
    if let Some(folder) = folder {
        fs::create_dir_all(folder).unwrap();
        fs::copy(checkpoint.join("config.json"), folder.join("config.json")).unwrap();
        safetensors::save(&left, folder.join("model.safetensors")).unwrap();
    }
}

fn score(folder: &Path, model: &str, more: &[&str]) -> Ended {
    let arguments = ["score", "--model", model, "--policy", "tova", "--cache-size", "8"];
    run(folder, &[&arguments[..], more].concat())
}

// --- equality ---

#[test]
fn a_gguf_file_gives_the_numbers_of_its_checkpoint() {
    for (checkpoint, stored) in [
        ("yi-gqa", GgmlDType::F32),
        ("llama-mha", GgmlDType::F32),
        ("llama-mha", GgmlDType::F16),
        ("llama-mha", GgmlDType::BF16),
        ("llama-mha", GgmlDType::Q4_0),
        ("llama-mha", GgmlDType::Q4_1),
        ("llama-mha", GgmlDType::Q5_1),
        ("llama-mha", GgmlDType::Q8_0),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let source = golden(checkpoint);
        write(&source, &fields(&source), stored, &path.join("m.gguf"), Some(&path.join("m")));
        let tokens: Vec<u32> = (0..60).map(|i| (i * i * 7 + 3) % 200).collect();
        fs::write(path.join("tokens.json"), format!("{tokens:?}")).unwrap();
        let [one, other] = ["./m", "./m.gguf"]
            .map(|model| score(path, model, &["--tokens", "tokens.json", "--dtype", "f32"]).with_code(0).stdout);
        assert!(one.contains("nll") && one == other, "{checkpoint} {stored:?}\n{one}\n{other}");
    }
}

// --- refusals ---

#[test]
fn what_would_give_other_numbers_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let source = golden("llama-mha");
    let file = folder.path().join("m.gguf");
    let refused = |change: &dyn Fn(&mut Fields), words: &[&str]| {
        let mut fields = fields(&source);
        change(&mut fields);
        write(&source, &fields, GgmlDType::F32, &file, None);
        fs::write(folder.path().join("t.txt"), "12 a").unwrap();
        let ended = score(folder.path(), "./m.gguf", &["--text", "t.txt"]).with_code(1);
        ended.says(&[words, &["m.gguf"]].concat());
    };
    let set = |name: &'static str, value: Value| {
        move |fields: &mut Fields| {
            fields.retain(|(known, _)| known != name);
            fields.push((name.to_owned(), value.clone()));
        }
    };
    refused(&set("general.architecture", text("gemma3")), &["gemma3", "llama and qwen2"]);
    refused(&set("tokenizer.ggml.pre", text("unheard-of")), &["\"unheard-of\"", "smollm"]);
    refused(&set("tokenizer.ggml.model", text("t5")), &["tokenizer.ggml.model", "\"t5\""]);
    refused(&set("llama.rope.scaling.type", text("yarn")), &["yarn"]);
    refused(&set("llama.expert_count", Value::U32(8)), &["mixture of experts"]);
    refused(&|fields| fields.retain(|(name, _)| name != "llama.block_count"), &["llama.block_count is missing"]);
    let mut other = fields(&source);
    set("llama.feed_forward_length", Value::U32(96))(&mut other);
    write(&source, &other, GgmlDType::F32, &file, None);
    fs::write(folder.path().join("tokens.json"), "[1, 2, 3]").unwrap();
    let ended = score(folder.path(), "./m.gguf", &["--tokens", "tokens.json"]).with_code(1);
    ended.says(&["mlp.", "[160, 64]", "the file's metadata asks for [96, 64]"]);
    write(&source, &fields(&source), GgmlDType::F32, &file, None);
    cut_short(&file, 1000);
    score(folder.path(), "./m.gguf", &["--text", "t.txt"]).with_code(1).says(&["m.gguf", "truncated"]);
    fs::write(&file, "GGUF").unwrap();
    score(folder.path(), "./m.gguf", &["--text", "t.txt"]).with_code(1).says(&["m.gguf", "truncated"]);
    score(folder.path(), "./none.gguf", &["--text", "t.txt"]).with_code(1).says(&["there is no file ./none.gguf"]);
}
