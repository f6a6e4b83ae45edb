//! Models in one GGUF file: the same numbers as the checkpoint they were made of, and what is refused.

use std::fs;
use std::path::Path;

use crate::support::checkpoint::{configure, cut_short, device, golden};
use crate::support::gguf::{Fields, fields, tensors, text, wide_checkpoint, write, write_rounded};
use crate::support::program::{Ended, run};
use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use serde_json::{Value as Json, json};
use tova_bench::lm::source::{HubSettings, ModelSource};
use tova_bench::lm::{MemoryPlan, ModelFiles, WeightType};

fn score(folder: &Path, model: &str, more: &[&str]) -> Ended {
    let arguments = ["score", "--model", model, "--policy", "tova", "--cache-size", "8"];
    run(folder, &[&arguments[..], more].concat())
}

/// What `score` prints for the weights of a checkpoint after storing as `stored`: from a folder, and from a GGUF file.
fn both(checkpoint: &Path, stored: GgmlDType) -> [String; 2] {
    both_with(checkpoint, stored, fields(checkpoint))
}

/// The same with other metadata.
fn both_with(checkpoint: &Path, stored: GgmlDType, fields: Fields) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_rounded(checkpoint, stored, &path.join("m"));
    write(&path.join("m.gguf"), &fields, &tensors(checkpoint, stored));
    let tokens: Vec<u32> = (0..60).map(|i| (i * i * 7 + 3) % 56).collect();
    fs::write(path.join("tokens.json"), format!("{tokens:?}")).unwrap();
    let more = ["--tokens", "tokens.json", "--dtype", "f32"];
    ["./m", "./m.gguf"].map(|model| score(path, model, &more).with_code(0).stdout)
}

// --- equality ---

#[test]
fn a_gguf_file_gives_the_numbers_of_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let wide = wide_checkpoint(folder.path());
    let of_type = |stored: GgmlDType| (wide.clone(), stored);
    let types = [
        GgmlDType::F16,
        GgmlDType::BF16,
        GgmlDType::Q4_0,
        GgmlDType::Q4_1,
        GgmlDType::Q5_0,
        GgmlDType::Q5_1,
        GgmlDType::Q8_0,
        GgmlDType::Q8_1,
        GgmlDType::Q2K,
        GgmlDType::Q3K,
        GgmlDType::Q4K,
        GgmlDType::Q5K,
        GgmlDType::Q6K,
        GgmlDType::Q8K,
    ];
    // As many heads of keys as of queries; fewer; an explicit head_dim; biases, permuted and not; tied and not.
    let checkpoints =
        ["llama-mha", "yi-gqa", "variants/qwen2-f16", "variants/llama-bias-tied", "variants/linear-rope-mqa-bf16"];
    let goldens = checkpoints.map(|name| (golden(name), GgmlDType::F32));
    for (checkpoint, stored) in types.map(of_type).into_iter().chain(goldens) {
        let [one, other] = both(&checkpoint, stored);
        assert!(one.contains("nll") && one == other, "{} {stored:?}\n{one}\n{other}", checkpoint.display());
    }
}

/// Every family: in the file Gemma's norms are 1 + w, of some families the rows of q and k are in another order, and settings of
/// positions are rounded to single precision. llama.cpp assumes some settings, which the checkpoint then has to have.
#[test]
fn a_gguf_file_of_every_family_gives_the_numbers_of_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    for (name, assumed) in [
        ("qwen3", json!({})),
        ("gemma2", json!({"query_pre_attn_scalar": "head_dim"})),
        ("gemma3", json!({"query_pre_attn_scalar": "head_dim"})),
        ("phi3", json!({})),
        ("phi3-longrope", json!({})),
        ("olmo2", json!({})),
        ("olmo3", json!({})),
        ("smollm3", json!({"no_rope_layers": null})),
        ("ministral3", json!({})),
        (
            "deepseek-v2",
            json!({"rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 0.9,
                "mscale_all_dim": 0.9,
            }}),
        ),
        ("deepseek-v3", json!({})),
        ("glm4-moe-lite", json!({})),
        ("gemma3n", json!({})),
        ("gemma4", json!({})),
        ("gemma4-dense", json!({})),
        ("gemma4-moe", json!({})),
        ("gpt-oss", json!({})),
        (
            "llama4",
            json!({
                "attention_chunk_size": 8192, "no_rope_layers": null, "layer_types": null, "floor_scale": 8192, "attn_scale": 0.1,
                "moe_layers": null, "interleave_moe_layer_step": 2,
            }),
        ),
        ("mixtral", json!({})),
        ("olmoe", json!({})),
        ("qwen2-moe", json!({})),
        ("qwen3-moe", json!({})),
        ("qwen3-next", json!({})),
        ("qwen3.5", json!({})),
        ("qwen3.5-moe", json!({})),
    ] {
        let checkpoint = folder.path().join(name);
        fs::create_dir(&checkpoint).unwrap();
        for file in ["config.json", "model.safetensors", "tokens.json"] {
            fs::copy(golden("families").join(name).join(file), checkpoint.join(file)).unwrap();
        }
        let config: Json = serde_json::from_slice(&fs::read(checkpoint.join("config.json")).unwrap()).unwrap();
        let head_dim = &config["head_dim"];
        let assumed = assumed.as_object().unwrap().iter();
        let assumed = assumed
            .map(|(key, value)| (key.clone(), if value == "head_dim" { head_dim.clone() } else { value.clone() }));
        configure(&checkpoint, assumed.collect::<serde_json::Map<_, _>>().into());
        write(&checkpoint.join("m.gguf"), &fields(&checkpoint), &tensors(&checkpoint, GgmlDType::F32));
        let [one, other] = [format!("./{name}"), format!("./{name}/m.gguf")].map(|model| {
            let tokens = format!("{name}/tokens.json");
            let printed = score(folder.path(), &model, &["--tokens", &tokens]).with_code(0).stdout;
            serde_json::from_str::<Json>(&printed).unwrap()
        });
        assert_eq!(one["survivors"], other["survivors"], "{name}");
        let nll = |json: &Json| serde_json::from_value::<Vec<f64>>(json["nll"].clone()).unwrap();
        let largest = nll(&one).iter().zip(nll(&other)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{name}: largest difference of an NLL {largest:e}");
        assert!(nll(&one).len() == 119 && largest <= 1e-5, "{name}: {largest}");
    }
}

/// llama.cpp's Python package wrote the file with its own names, from what transformers reads from the folder.
#[test]
fn experts_in_mxfp4_are_the_same_from_a_folder_and_from_a_file() {
    let folder = golden("families/gpt-oss-mxfp4");
    let [one, other] = [".", "./m.gguf"].map(|model| {
        let printed = score(&folder, model, &["--tokens", "tokens.json"]).with_code(0).stdout;
        serde_json::from_str::<Json>(&printed).unwrap()
    });
    let nll = |json: &Json| serde_json::from_value::<Vec<f64>>(json["nll"].clone()).unwrap();
    let largest = nll(&one).iter().zip(nll(&other)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!("largest difference of an NLL {largest:e}");
    // The file has the settings of rotations in single precision.
    assert!(nll(&one).len() == 119 && largest <= 1e-5, "{largest}");
    assert_eq!(one["survivors"], other["survivors"]);
}

#[test]
fn llama_3_positions_are_those_of_the_checkpoint() {
    // The file has the factors of frequencies, rounded to single precision.
    let [one, other] = both(&golden("variants/llama3-rope"), GgmlDType::F32)
        .map(|printed| serde_json::from_str::<Json>(&printed).unwrap());
    assert_eq!(one["survivors"], other["survivors"]);
    let [one, other] = [one, other].map(|json| serde_json::from_value::<Vec<f64>>(json["nll"].clone()).unwrap());
    let largest = one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!("largest difference of an NLL: {largest:e}");
    assert!(one.len() == 59 && largest <= 2e-6, "{largest}");
}

#[test]
fn old_files_name_only_the_factor_of_linear_positions() {
    let checkpoint = golden("variants/linear-rope-mqa-bf16");
    let mut old = fields(&checkpoint);
    old.retain(|(name, _)| !name.contains("rope.scaling"));
    let [scaled, unscaled] = both_with(&checkpoint, GgmlDType::F32, old.clone());
    assert_ne!(scaled, unscaled);
    old.push(("llama.rope.scale_linear".to_owned(), Value::F32(4.0)));
    let [one, other] = both_with(&checkpoint, GgmlDType::F32, old);
    assert_eq!(one, other);
}

#[test]
fn weights_can_be_rounded_further() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let source = golden("llama-mha");
    write(&path.join("m.gguf"), &fields(&source), &tensors(&source, GgmlDType::Q4_1));
    write_rounded(&source, GgmlDType::Q4_1, &path.join("m"));
    fs::write(path.join("tokens.json"), "[1, 2, 3, 4]").unwrap();
    let score = |model: &str, dtype: &str| {
        let printed = score(path, model, &["--tokens", "tokens.json", "--dtype", dtype]).with_code(0).stdout;
        serde_json::from_str::<Json>(&printed).unwrap()["nll"].clone()
    };
    assert_eq!(score("./m.gguf", "auto"), score("./m", "f32"));
    assert_eq!(score("./m.gguf", "bf16"), score("./m", "bf16"));
    assert_ne!(score("./m.gguf", "bf16"), score("./m", "f32"));
}

#[test]
fn a_large_file_is_rounded_to_bf16_and_counted_as_that() {
    let folder = tempfile::tempdir().unwrap();
    let source = wide_checkpoint(folder.path());
    let file = folder.path().join("m.gguf");
    write(&file, &fields(&source), &tensors(&source, GgmlDType::Q2K));
    // The last tensor gets 2^22 rows of 256 numbers, which are a hole in the file: 84 bytes each.
    let mut bytes = fs::read(&file).unwrap();
    let name = b"token_embd.weight";
    let place = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    assert_eq!(
        bytes[place..place + 20],
        [&2_u32.to_le_bytes()[..], &256_u64.to_le_bytes(), &200_u64.to_le_bytes()].concat()
    );
    bytes[place + 12..place + 20].copy_from_slice(&(1_u64 << 22).to_le_bytes());
    fs::write(&file, &bytes).unwrap();
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(bytes.len() as u64 + 84 * ((1 << 22) - 200))
        .unwrap();
    let model = ModelSource::File(file.display().to_string());
    let files = ModelFiles::find(&model, None, &HubSettings::with_cache_dir(folder.path()), &()).unwrap();
    assert_eq!(files.weight_type(WeightType::Auto), WeightType::Bf16);
    assert_eq!(files.weight_type(WeightType::F32), WeightType::F32);
    // The output matrix still has its 200 rows.
    let numbers = files.shape.parameters() - ((1 << 22) - 200) * 256;
    assert_eq!(files.held_bytes(WeightType::Auto, &tova_bench::lm::Device::CPU), 2 * numbers);
}

// --- refusals ---

/// A file in a folder of its own, which every case writes anew.
struct Refusals {
    folder: tempfile::TempDir,
    /// What the program said of each file that it refused.
    said: String,
}

impl Refusals {
    fn new() -> Refusals {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokens.json"), "[1, 2, 3]").unwrap();
        fs::write(folder.path().join("t.txt"), "12 a").unwrap();
        Refusals { folder, said: String::new() }
    }

    /// The model is refused, and the message names the file.
    fn refused(&mut self) {
        let ended = score(self.folder.path(), "./m.gguf", &["--tokens", "tokens.json"]).with_code(1);
        self.said += &ended.says(&["m.gguf"]).stderr;
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("m.gguf")
    }

    /// Writes a golden model with changed metadata and tensors.
    fn write(&self, change: impl Fn(&mut Fields), change_tensors: impl Fn(&mut Vec<(String, QTensor)>)) {
        let source = golden("llama-mha");
        let (mut fields, mut tensors) = (fields(&source), tensors(&source, GgmlDType::F32));
        change(&mut fields);
        change_tensors(&mut tensors);
        write(&self.file(), &fields, &tensors);
    }
}

fn set(name: &'static str, value: Value) -> impl Fn(&mut Fields) {
    move |fields| {
        fields.retain(|(known, _)| known != name);
        fields.push((name.to_owned(), value.clone()));
    }
}

#[test]
fn networks_that_would_give_other_numbers_are_refused_by_name() {
    let mut refusals = Refusals::new();
    let numbers = |number: u32| Value::Array(vec![Value::U32(number); 3]);
    for (name, value) in [
        ("general.architecture", text("starcoder2")),
        ("general.type", text("adapter")),
        ("general.type", text("mmproj")),
        ("split.count", Value::U16(3)),
        ("llama.rope.scaling.type", text("yarn")),
        ("llama.rope.scaling.type", text("longrope")),
        ("llama.rope.dimension_count", Value::U32(8)),
        ("llama.attention.value_length", Value::U32(8)),
        ("llama.attention.head_count_kv", numbers(4)),
        ("llama.attention.head_count", numbers(4)),
        ("llama.attention.head_count", Value::U32(0)),
        ("llama.attention.head_count_kv", Value::U32(0)),
        ("llama.attention.head_count_kv", Value::U32(3)),
        ("llama.attention.head_count", Value::F32(4.0)),
        ("llama.attention.head_count", Value::U64(u64::MAX)),
        ("llama.embedding_length", Value::U32(u32::MAX)),
        ("llama.block_count", Value::I32(-1)),
        ("llama.attention.layer_norm_rms_epsilon", text("small")),
        ("llama.attention.causal", Value::Bool(false)),
        ("llama.attention.scale", Value::F32(0.5)),
        ("llama.expert_count", Value::U32(8)),
        ("general.alignment", Value::U32(0)),
    ] {
        refusals.write(set(name, value), |_| {});
        refusals.refused();
    }
    refusals.write(|fields| fields.retain(|(name, _)| name != "llama.block_count"), |_| {});
    refusals.refused();
    // Lists of as many entries are made of the number of layers.
    for (family, architecture) in [("gemma3", "gemma3"), ("llama4", "llama4"), ("qwen3.5", "qwen35")] {
        let source = golden("families").join(family);
        let mut fields = fields(&source);
        let layers = format!("{architecture}.block_count");
        fields.retain(|(name, _)| *name != layers && !name.ends_with("sliding_window_pattern"));
        fields.push((layers, Value::U32(u32::MAX)));
        if family == "llama4" {
            fields.push((format!("{architecture}.attention.sliding_window"), Value::U32(0)));
        }
        write(&refusals.file(), &fields, &tensors(&source, GgmlDType::F32));
        refusals.refused();
    }
    // What these refuse has a neutral value as well.
    for (name, value) in [
        ("general.type", text("model")),
        ("split.count", Value::U16(1)),
        ("llama.rope.scaling.type", text("none")),
        ("llama.rope.scale_linear", Value::F32(1.0)),
        ("llama.rope.dimension_count", Value::U32(16)),
        ("llama.attention.sliding_window", Value::U32(0)),
        ("llama.expert_count", Value::U32(0)),
    ] {
        refusals.write(set(name, value), |_| {});
        score(refusals.folder.path(), "./m.gguf", &["--tokens", "tokens.json"]).with_code(0);
    }
    // Of a model with as many heads of keys as of queries the converter need not say so.
    refusals.write(|fields| fields.retain(|(name, _)| name != "llama.attention.head_count_kv"), |_| {});
    score(refusals.folder.path(), "./m.gguf", &["--tokens", "tokens.json"]).with_code(0);
    // As of a config.json, a window bounds what a query sees.
    refusals.write(set("llama.attention.sliding_window", Value::U32(2)), |_| {});
    let ended = score(refusals.folder.path(), "./m.gguf", &["--tokens", "tokens.json"]).with_code(0);
    let printed: Json = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(printed["survivors"][0], json!([[1, 2]]));
    insta::assert_snapshot!(refusals.said);
}

#[test]
fn tokenizers_that_are_not_known_are_refused_by_name() {
    let refusals = Refusals::new();
    for (name, value, words) in [
        ("tokenizer.ggml.pre", text("unheard-of"), &["\"unheard-of\"", "smollm"][..]),
        ("tokenizer.ggml.model", text("t5"), &["tokenizer.ggml.model", "\"t5\""]),
    ] {
        refusals.write(set(name, value), |_| {});
        let ended = score(refusals.folder.path(), "./m.gguf", &["--text", "t.txt"]).with_code(1);
        ended.says(&[words, &["m.gguf"]].concat());
    }
}

#[test]
fn tensors_that_cannot_be_used_are_named() {
    let mut refusals = Refusals::new();
    let tensor = |shape: &[usize]| {
        let ones = Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap();
        QTensor::quantize(&ones, GgmlDType::F32).unwrap()
    };
    refusals.write(set("llama.feed_forward_length", Value::U32(96)), |_| {});
    refusals.refused();
    refusals.write(|_| {}, |tensors| tensors.retain(|(name, _)| name != "blk.1.attn_k.weight"));
    refusals.refused();
    refusals.write(|_| {}, |tensors| tensors.retain(|(name, _)| name != "token_embd.weight"));
    refusals.refused();
    refusals.write(|_| {}, |tensors| tensors.push(("model.norm.weight".into(), tensor(&[64]))));
    refusals.refused();
    refusals.write(|_| {}, |tensors| tensors.push(("blk.0.attn_q_norm.weight".into(), tensor(&[16]))));
    refusals.refused();
    refusals.write(|_| {}, |tensors| tensors.push(("rope_freqs.weight".into(), tensor(&[16]))));
    refusals.refused();
    // The number of a type follows the name, the number of dimensions and the dimensions.
    refusals.write(|_| {}, |_| {});
    let bytes = fs::read(refusals.file()).unwrap();
    let name = b"blk.1.ffn_up.weight";
    let place = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len() + 4 + 16;
    for number in [20, 17, 34, 40, 999] {
        let mut changed = bytes.clone();
        changed[place..place + 4].copy_from_slice(&u32::to_le_bytes(number));
        fs::write(refusals.file(), changed).unwrap();
        refusals.refused();
    }
    insta::assert_snapshot!(refusals.said);
}

/// Of the list of tensors: names, shapes, types and offsets.
#[test]
fn no_changed_bit_of_the_list_gives_other_numbers() {
    let refusals = Refusals::new();
    refusals.write(|_| {}, |_| {});
    let path = refusals.file();
    let bytes = fs::read(&path).unwrap();
    let place = |name: &[u8]| bytes.windows(name.len()).position(|window| window == name).unwrap();
    let names: Vec<String> =
        tensors(&golden("llama-mha"), GgmlDType::F32).into_iter().map(|(name, _)| name).collect();
    let places: Vec<usize> = names.iter().map(|name| place(name.as_bytes())).collect();
    let (start, end) = (places.iter().min().unwrap() - 8, places.iter().max().unwrap() + 60);
    let source: ModelSource = path.to_str().unwrap().parse().unwrap();
    let states = || -> anyhow::Result<Vec<Vec<f32>>> {
        let files = ModelFiles::find(&source, None, &HubSettings::with_cache_dir("nowhere"), &())?;
        let model = files.load(WeightType::F32, &device())?;
        Ok(model.read(&[1, 2, 3, 4, 5], &mut model.new_memory(&MemoryPlan::unbounded()))?.to_vec2()?)
    };
    let expected = states().unwrap();
    let mut refused = 0;
    // A prime step reaches every bit of a byte.
    for bit in (start * 8..end * 8).step_by(13) {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, changed).unwrap();
        match states() {
            Ok(states) => assert_eq!(states, expected, "bit {} of byte {}", bit % 8, bit / 8),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn factors_of_positions_that_nobody_reads_are_refused() {
    let mut refusals = Refusals::new();
    let factors =
        |count: usize| QTensor::quantize(&Tensor::ones(count, DType::F32, &Device::Cpu).unwrap(), GgmlDType::F32);
    let both = ["rope_factors_long.weight", "rope_factors_short.weight"];
    refusals.write(set("llama.rope.scaling.type", text("longrope")), |tensors| {
        tensors.extend(both.map(|name| (name.into(), factors(8).unwrap())))
    });
    refusals.refused();
    refusals.write(|_| {}, |tensors| tensors.push((both[0].into(), factors(8).unwrap())));
    refusals.refused();
    insta::assert_snapshot!(refusals.said);
}

#[test]
fn files_that_are_cut_short_say_where() {
    let mut refusals = Refusals::new();
    refusals.write(|_| {}, |_| {});
    let bytes = fs::read(refusals.file()).unwrap();
    let place =
        |name: &str| bytes.windows(name.len()).position(|window| window == name.as_bytes()).unwrap() as u64;
    for length in [
        0,
        2,
        100,
        place("tokenizer.ggml.merges") + 30,
        place("blk.1.attn_k.weight") + 30,
        bytes.len() as u64 - 40,
    ] {
        fs::write(refusals.file(), &bytes).unwrap();
        cut_short(&refusals.file(), length);
        refusals.refused();
    }
    for version in [3_u32.swap_bytes(), 1, 9] {
        fs::write(refusals.file(), [&bytes[..4], &version.to_le_bytes(), &bytes[8..]].concat()).unwrap();
        refusals.refused();
    }
    fs::write(refusals.file(), [&bytes[..], &[0; 40]].concat()).unwrap();
    refusals.refused();
    fs::write(refusals.file(), "{\"a\": \"text that is long enough for a start\"}").unwrap();
    refusals.refused();
    fs::remove_file(refusals.file()).unwrap();
    refusals.refused();
    insta::assert_snapshot!(refusals.said);
}
