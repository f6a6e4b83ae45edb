//! A model in one GGUF file, read as the checkpoint it was converted from: its config.json, its tokenizer and its tensors.
//!
//! llama.cpp's converter renames everything and, of Llama layouts, changes the order of the rows of q and k. Both are undone
//! here, so that the rest of the program sees a checkpoint of transformers. What would give other numbers is refused by name.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value as Field};
use serde_json::{Value, json};

/// The extension of such files.
pub(super) const ENDING: &str = "gguf";

/// Architectures that are computed exactly here, by their names in GGUF.
const ARCHITECTURES: [&str; 2] = ["llama", "qwen2"];

/// Names of tensors inside a layer, without their endings, in GGUF and in transformers' checkpoints.
const IN_LAYER: [(&str, &str); 9] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The header of a file.
pub(super) struct Gguf {
    pub fields: HashMap<String, Field>,
    architecture: String,
    pub tensors: Vec<StoredTensor>,
}

/// Where a tensor is in the file, and how it is stored.
pub(super) struct StoredTensor {
    /// As a checkpoint of transformers calls it.
    pub name: String,
    pub shape: Vec<usize>,
    pub stored: GgmlDType,
    pub start: u64,
    pub length: usize,
    /// Heads whose rows the converter put into another order.
    pub permuted_heads: Option<usize>,
}

impl Gguf {
    /// Reads the header of a file.
    pub fn read(path: &Path) -> Result<Gguf> {
        let read = || {
            let file = File::open(path).context("cannot open the file")?;
            let total = file.metadata()?.len();
            let content = Content::read(&mut BufReader::new(file));
            Gguf::of(content.context("it is truncated, damaged or no GGUF file; fetch it again")?, total)
        };
        read().with_context(|| format!("cannot use the model {}", path.display()))
    }

    fn of(content: Content, total: u64) -> Result<Gguf> {
        let Content { metadata: fields, tensor_infos, tensor_data_offset, .. } = content;
        let mut gguf = Gguf { fields, architecture: String::new(), tensors: Vec::new() };
        gguf.architecture = gguf.text("general.architecture")?.to_owned();
        let known = ARCHITECTURES.contains(&gguf.architecture.as_str());
        ensure!(
            known,
            "its architecture is {}; only {} are computed exactly here",
            gguf.architecture,
            ARCHITECTURES.join(" and ")
        );
        let [heads, kv_heads] = [gguf.number("attention.head_count")?, gguf.number("attention.head_count_kv")?];
        for (name, info) in tensor_infos {
            ensure!(
                name != "rope_freqs.weight",
                "it scales positions as Llama 3.1 does (tensor rope_freqs.weight), which is not read from GGUF; use the \
                 safetensors checkpoint"
            );
            let permuted_heads = match name.split('.').nth(2) {
                _ if gguf.architecture != "llama" => None,
                Some("attn_q") => Some(heads),
                Some("attn_k") => Some(kv_heads),
                _ => None,
            };
            let elements = info.shape.elem_count();
            let block = info.ggml_dtype.block_size();
            ensure!(
                elements.is_multiple_of(block),
                "tensor {name} has {elements} elements, no multiple of {block}"
            );
            let (start, length) =
                (tensor_data_offset.saturating_add(info.offset), elements / block * info.ggml_dtype.type_size());
            ensure!(
                start.saturating_add(length as u64) <= total,
                "tensor {name} ends beyond the file, which is truncated: fetch it again"
            );
            gguf.tensors.push(StoredTensor {
                shape: info.shape.dims().to_vec(),
                stored: info.ggml_dtype,
                start,
                length,
                permuted_heads: permuted_heads.map(|heads| heads as usize),
                name: name_in_checkpoint(&name),
            });
        }
        Ok(gguf)
    }

    /// The model as a config.json describes it.
    pub fn config(&self) -> Result<Value> {
        let scaling = self.optional("rope.scaling.type").and_then(|field| field.to_string().ok());
        if let Some(scaling) = scaling.filter(|scaling| *scaling != "none") {
            bail!("it scales positions ({scaling}), which is not read from GGUF; use the safetensors checkpoint");
        }
        if self.optional("expert_count").and_then(integer).is_some_and(|experts| experts > 0) {
            bail!("it is a mixture of experts, which is not computed here");
        }
        let embedding = self.tensors.iter().find(|tensor| tensor.name == EMBEDDING);
        let embedding = embedding.context("tensor token_embd.weight is missing: it is no whole language model")?;
        let number = |name: &str| self.optional(name).and_then(integer);
        let real = |name: &str| self.optional(name).and_then(|field| field.to_f32().ok());
        let token = |name: &str| self.fields.get(&format!("tokenizer.ggml.{name}_token_id")).and_then(integer);
        Ok(json!({
            "model_type": self.architecture,
            "hidden_size": self.number("embedding_length")?,
            "intermediate_size": self.number("feed_forward_length")?,
            "num_hidden_layers": self.number("block_count")?,
            "num_attention_heads": self.number("attention.head_count")?,
            "num_key_value_heads": self.number("attention.head_count_kv")?,
            "head_dim": number("attention.key_length"),
            "vocab_size": embedding.shape.first(),
            "max_position_embeddings": self.number("context_length")?,
            "rms_norm_eps": real("attention.layer_norm_rms_epsilon"),
            "rope_theta": real("rope.freq_base").unwrap_or(10_000.0),
            "sliding_window": number("attention.sliding_window"),
            "tie_word_embeddings": !self.tensors.iter().any(|tensor| tensor.name == OUTPUT),
            "bos_token_id": token("bos"),
            "eos_token_id": self.stop_tokens(),
        }))
    }

    fn optional(&self, name: &str) -> Option<&Field> {
        self.fields.get(&format!("{}.{name}", self.architecture))
    }

    /// A number of the architecture.
    fn number(&self, name: &str) -> Result<u64> {
        self.optional(name)
            .and_then(integer)
            .with_context(|| format!("the number {}.{name} is missing from its metadata", self.architecture))
    }

    pub fn text(&self, name: &str) -> Result<&str> {
        let field = self.fields.get(name).and_then(|field| field.to_string().ok());
        field.map(String::as_str).with_context(|| format!("the text {name} is missing from its metadata"))
    }
}

pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
const OUTPUT: &str = "lm_head.weight";

/// Integers are stored in many widths.
pub(super) fn integer(field: &Field) -> Option<u64> {
    let signed = || Some(u64::from(u32::try_from(field.to_i32().ok()?).ok()?));
    field.to_u64().ok().or_else(signed)
}

/// `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`. Unknown names stay as they are, and nobody takes them.
fn name_in_checkpoint(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    match parts[..] {
        ["token_embd", "weight"] => EMBEDDING.to_owned(),
        ["output_norm", "weight"] => "model.norm.weight".to_owned(),
        ["output", "weight"] => OUTPUT.to_owned(),
        ["blk", layer, part, end] => match IN_LAYER.iter().find(|(known, _)| *known == part) {
            Some((_, part)) => format!("model.layers.{layer}.{part}.{end}"),
            None => name.to_owned(),
        },
        _ => name.to_owned(),
    }
}
