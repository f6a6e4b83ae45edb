//! The files of a checkpoint, in a folder as a user names it.

use std::path::{Component, Path, PathBuf};

use tova_bench::eviction::CacheOptions;
use tova_bench::lm::source::{HubSettings, ModelSource};
use tova_bench::lm::{Device, LanguageModel, ModelFiles, ModelShape, Tokenizer, WeightType};

use super::scratch::{self, parts};
use super::texts::check_message;

/// The config.json of a network with one layer.
const SMALL: &str = r#"{"model_type": "llama", "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 8, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": [2]}"#;

/// A folder with the configuration of the small network.
fn small(name: &str) -> PathBuf {
    let folder = scratch::folder(name);
    if !folder.join("config.json").exists() {
        scratch::write(&folder.join("config.json"), Some(SMALL.as_bytes()));
    }
    folder
}

fn find(folder: &Path) -> anyhow::Result<ModelFiles> {
    ModelFiles::find(
        &ModelSource::Folder(folder.display().to_string()),
        None,
        &HubSettings::with_cache_dir(folder),
        &(),
    )
}

pub fn weights(input: &[u8]) {
    let folder = small("weights");
    let path = folder.join("model.safetensors");
    scratch::write(&path, Some(input));
    let shape = ModelShape::read(&folder.join("config.json")).expect("the small network");
    for dtype in [WeightType::Auto, WeightType::F32] {
        if let Err(error) = LanguageModel::load(shape.clone(), std::slice::from_ref(&path), dtype, &Device::CPU) {
            check_message(&format!("{error:#}"));
        }
    }
}

pub fn gguf(input: &[u8]) {
    let folder = scratch::folder("gguf");
    let path = folder.join("model.gguf");
    scratch::write(&path, Some(input));
    let source = ModelSource::File(path.display().to_string());
    let read = || {
        let files = ModelFiles::find(&source, None, &HubSettings::with_cache_dir(&folder), &())?;
        let tokens = files.tokenizer().and_then(|tokenizer| tokenizer.encode("The fox ran 12.5 miles."));
        files.load(WeightType::Auto, &Device::CPU).and(tokens)
    };
    if let Err(error) = read() {
        check_message(&format!("{error:#}"));
    }
}

pub fn config(input: &[u8]) {
    let folder = scratch::folder("config");
    let path = folder.join("config.json");
    let parts = parts(input);
    scratch::write(&path, parts.first().copied());
    scratch::write(&folder.join("generation_config.json"), parts.get(1).copied());
    scratch::write(&folder.join("model.safetensors"), Some(b""));
    match find(&folder) {
        Ok(files) => {
            let shape = &files.shape;
            // What a run computes from a shape before it loads anything.
            let parameters = shape.parameters();
            assert!(parameters > 0 && shape.layer_weights() as u64 <= parameters);
            assert!(shape.cache_bytes(1 << 20, CacheOptions::default()) > 0);
            assert!(files.held_bytes(WeightType::F32, &Device::CPU) >= parameters);
            let _ = shape.cache_bytes(4096, CacheOptions::default());
            if let Err(error) = files.stop_tokens() {
                check_message(&format!("{error:#}"));
            }
        }
        Err(error) => check_message(&format!("{error:#}")),
    }
}

pub fn index(input: &[u8]) {
    let folder = small("index/inside");
    for name in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "../outside.safetensors"]
    {
        let path = folder.join(name);
        if !path.exists() {
            scratch::write(&path, Some(b"weights"));
        }
    }
    scratch::write(&folder.join("model.safetensors.index.json"), Some(input));
    match ModelSource::Folder(folder.display().to_string()).resolve(&HubSettings::with_cache_dir(&folder), &()) {
        Ok(files) => {
            assert!(!files.weights.is_empty(), "a checkpoint has weights");
            for path in &files.weights {
                let below = path.strip_prefix(&folder).expect("weights below their folder");
                assert!(below.components().all(|part| matches!(part, Component::Normal(_))), "{}", path.display());
                assert!(path.is_file(), "{}", path.display());
            }
        }
        Err(error) => check_message(&format!("{error:#}")),
    }
}

/// `tokenizer.json`, `tokenizer_config.json` and a text; the last two are optional.
pub fn tokenizer(input: &[u8]) {
    let folder = scratch::folder("tokenizer");
    let parts = parts(input);
    let (file, config) = (folder.join("tokenizer.json"), folder.join("tokenizer_config.json"));
    scratch::write(&file, parts.first().copied());
    scratch::write(&config, parts.get(1).copied());
    let text = parts
        .get(2)
        .map_or("  The fox – ünd the 狐 ran 12.5 miles.\n\n🦊", |text| str::from_utf8(text).unwrap_or("a"));
    let tokenizer = match Tokenizer::read(&file, parts.get(1).map(|_| config.as_path()), Some(1)) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return check_message(&format!("{error:#}")),
    };
    let _ = tokenizer.check_vocabulary(1000);
    let _ = (tokenizer.special(), tokenizer.name(0), tokenizer.bos());
    match tokenizer.encode(text) {
        Ok(tokens) => {
            assert_eq!(tokens.ids.len(), tokens.places.len());
            for place in &tokens.places {
                assert!(place.start <= place.end && place.end <= text.len(), "{place:?} of {} bytes", text.len());
            }
            let _ = tokenizer.decode(&tokens.ids);
            for token in tokens.ids.iter().take(3) {
                let _ = tokenizer.piece(*token);
            }
        }
        Err(error) => check_message(&format!("{error:#}")),
    }
    let _ = tokenizer.decode(&[0, 1, 2, 3, 255, 256, u32::MAX]);
}

/// A template and a `tokenizer_config.json`; either is optional.
pub fn chat_template(input: &[u8]) {
    let folder = small("chat");
    let parts = parts(input);
    scratch::write(&folder.join("model.safetensors"), Some(b""));
    scratch::write(
        &folder.join("chat_template.jinja"),
        parts.first().copied().filter(|template| !template.is_empty()),
    );
    scratch::write(&folder.join("tokenizer_config.json"), parts.get(1).copied());
    // A file that templates must not be able to read.
    scratch::write(&folder.join("secret"), Some(b"kept-to-ourselves"));
    let files = find(&folder).expect("the small network");
    match files.chat_template() {
        Ok(Some(template)) => match template.format() {
            Ok(format) => {
                let (before, after) = (&format.prefix, &format.suffix);
                assert!(!before.contains("kept-to-ourselves") && !after.contains("kept-to-ourselves"));
                assert!(before.len() + after.len() < 64 << 20, "a format of {} bytes", before.len() + after.len());
            }
            Err(error) => check_message(&format!("{error:#}")),
        },
        Ok(None) => {}
        Err(error) => check_message(&format!("{error:#}")),
    }
}
