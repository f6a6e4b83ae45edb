//! Checkpoint folders: the goldens, copies of them to damage, and tokenizers.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tova_bench::lm::{Device, DeviceChoice, LanguageModel, ModelShape, WeightType};

/// The checkpoints of `tests/golden`: three with random weights, and variants: rope scaling, biases, tied matrices under either
/// name, f16 and bf16 files, shards.
pub const GOLDENS: [&str; 8] = [
    "llama-mha",
    "mistral-gqa",
    "yi-gqa",
    "variants/llama3-rope",
    "variants/linear-rope-mqa-bf16",
    "variants/qwen2-f16",
    "variants/mistral-sharded",
    "variants/llama-bias-tied",
];

/// A golden checkpoint, as committed. It has no tokenizer.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The model of a checkpoint folder, from one weight file or many.
pub fn load(folder: &Path) -> LanguageModel {
    load_as(folder, "config.json")
}

/// The same with another file in the place of config.json.
pub fn load_as(folder: &Path, config: &str) -> LanguageModel {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect();
    files.sort();
    let shape = ModelShape::read(&folder.join(config)).unwrap();
    // A GPU rounds to the type of the weights, and what is expected was computed in f32.
    let device = device();
    let dtype = if device.gpu().is_some() { WeightType::F32 } else { WeightType::Auto };
    LanguageModel::load(shape, &files, dtype, &device).unwrap()
}

/// The device that `TOVA_BENCH_TEST_DEVICE` says, or the processor.
pub fn device() -> Device {
    let choice = std::env::var("TOVA_BENCH_TEST_DEVICE").unwrap_or_else(|_| "cpu".into());
    choice.parse::<DeviceChoice>().unwrap().open().unwrap()
}

/// The vocabulary of `yi-gqa`.
pub const YI_VOCABULARY: usize = 200;

/// Copies the checkpoint `yi-gqa` into `folder/name`, with a tokenizer of its vocabulary.
pub fn copy(folder: &Path, name: &str) -> PathBuf {
    let copy = folder.join(name);
    fs::create_dir_all(&copy).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden("yi-gqa").join(file), copy.join(file)).unwrap();
    }
    write_tokenizer(&copy, YI_VOCABULARY);
    copy
}

/// Writes a tokenizer of `tokens` tokens: `<unk>`, `<s>`, and words of one or two letters.
pub fn write_tokenizer(folder: &Path, tokens: usize) {
    let letters = ('a'..='z').map(String::from);
    let pairs = ('a'..='z').flat_map(|a| ('a'..='z').map(move |b| format!("{a}{b}")));
    let words = ["<unk>".to_string(), "<s>".to_string()].into_iter().chain(letters).chain(pairs);
    let vocabulary: Map<String, Value> =
        words.chain((0..).map(|i| format!("word{i}"))).take(tokens).zip(0..).map(|(w, i)| (w, json!(i))).collect();
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let config = json!({"bos_token": "<s>", "add_bos_token": true});
    fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
}

/// Changes fields of a folder's config.json.
pub fn configure(folder: &Path, fields: Value) {
    let path = folder.join("config.json");
    let mut config: Map<String, Value> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config.extend(fields.as_object().unwrap().clone());
    fs::write(path, Value::Object(config).to_string()).unwrap();
}

/// Truncates a file, like a broken download.
pub fn cut_short(file: &Path, bytes: u64) {
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(bytes).unwrap();
}
