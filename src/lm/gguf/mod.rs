//! A model in one GGUF file, read as the checkpoint it was converted from.
//!
//! llama.cpp's converter renames everything and, of Llama layouts, changes the order of the rows of q and k. Both are undone
//! here, so that the rest of the program sees a checkpoint of transformers. What would give other numbers is refused by name.

mod header;
mod shape;
mod splits;
mod tokenizer;
mod types;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value as Field;

use header::{Header, ListedTensor, integer};
pub(super) use types::name as type_name;

/// The extension of such files.
pub(super) const ENDING: &str = "gguf";

/// Architectures that are computed exactly here, by their names in GGUF.
const ARCHITECTURES: [&str; 2] = ["llama", "qwen2"];

/// Names of tensors outside the layers, in GGUF and in transformers' checkpoints.
const WHOLE: [(&str, &str); 3] =
    [("token_embd.weight", EMBEDDING), ("output_norm.weight", "model.norm.weight"), ("output.weight", OUTPUT)];
const EMBEDDING: &str = "model.embed_tokens.weight";
const OUTPUT: &str = "lm_head.weight";

/// The same inside a layer, without their endings.
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

/// Llama 3.1's factors of positions, a tensor that checkpoints of transformers do not have.
const FACTORS: &str = "rope_freqs.weight";
/// Far more than a head has pairs.
const MOST_FACTORS: usize = 1 << 14;

/// The header of a file.
pub(super) struct Gguf {
    pub fields: HashMap<String, Field>,
    pub architecture: String,
    pub tensors: Vec<StoredTensor>,
    /// What the frequencies of positions are divided by, if the file says.
    pub rope_factors: Option<Vec<f32>>,
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
            let mut file = File::open(path).context("cannot open the file")?;
            let total = file.metadata()?.len();
            Gguf::of(Header::read(BufReader::new(&file), total)?, &mut file)
        };
        read().with_context(|| format!("cannot use the model {}", path.display()))
    }

    fn of(Header { fields, tensors }: Header, file: &mut File) -> Result<Gguf> {
        let factors = tensors.iter().find(|tensor| tensor.name == FACTORS);
        let factors = factors.map(|tensor| rope_factors(tensor, file)).transpose();
        let mut gguf = Gguf {
            fields,
            architecture: String::new(),
            tensors: Vec::new(),
            rope_factors: factors.with_context(|| format!("tensor {FACTORS} cannot be used"))?,
        };
        gguf.check_kind()?;
        gguf.architecture = gguf.text("general.architecture")?.to_owned();
        let known = ARCHITECTURES.contains(&gguf.architecture.as_str());
        ensure!(
            known,
            "its architecture is {}; only {} are computed exactly here",
            gguf.architecture,
            ARCHITECTURES.join(" and ")
        );
        let (heads, kv_heads) = gguf.heads()?;
        let tensors = tensors.into_iter().filter(|tensor| tensor.name != FACTORS);
        gguf.tensors = tensors
            .map(|ListedTensor { name, shape, stored, start, length }| {
                let permuted_heads = match name.split('.').nth(2) {
                    _ if gguf.architecture != "llama" => None,
                    Some("attn_q") => Some(heads as usize),
                    Some("attn_k") => Some(kv_heads as usize),
                    _ => None,
                };
                StoredTensor { name: name_in_checkpoint(&name), shape, stored, start, length, permuted_heads }
            })
            .collect();
        Ok(gguf)
    }

    /// Checks that the file is a whole model.
    fn check_kind(&self) -> Result<()> {
        let number = |name: &str| self.fields.get(name).and_then(integer);
        if let Some(parts) = number("split.count").filter(|parts| *parts > 1) {
            let part = number("split.no").unwrap_or(0).saturating_add(1);
            bail!(
                "it is part {part} of {parts} of a model\nhint: make one file of all parts with llama.cpp's \
                 `llama-gguf-split --merge FIRST-PART WHOLE.gguf`"
            );
        }
        match self.text("general.type") {
            Ok("adapter") => bail!(
                "it is an adapter (LoRA), no model\nhint: merge it into its model with llama.cpp's `llama-export-lora`"
            ),
            Ok(other) if other != "model" => bail!("it is of the type {other} (general.type), no language model"),
            _ => Ok(()),
        }
    }

    pub fn text(&self, name: &str) -> Result<&str> {
        match self.fields.get(name) {
            Some(Field::String(text)) => Ok(text),
            Some(_) => bail!("{name} in its metadata is no text"),
            None => bail!("the text {name} is missing from its metadata"),
        }
    }
}

/// The numbers of a tensor that is part of the settings.
fn rope_factors(tensor: &ListedTensor, file: &mut File) -> Result<Vec<f32>> {
    let is_list = tensor.stored == GgmlDType::F32 && tensor.shape.len() == 1 && tensor.shape[0] <= MOST_FACTORS;
    ensure!(is_list, "it has shape {:?}; a list of F32 is expected", tensor.shape);
    let mut bytes = vec![0; tensor.length];
    file.seek(SeekFrom::Start(tensor.start))?;
    file.read_exact(&mut bytes)?;
    let (numbers, _) = bytes.as_chunks();
    Ok(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect())
}

/// `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`. Unknown names stay as they are, and nobody takes them.
fn name_in_checkpoint(name: &str) -> String {
    if let Some((_, whole)) = WHOLE.iter().find(|(whole, _)| *whole == name) {
        return (*whole).to_owned();
    }
    let parts: Vec<&str> = name.split('.').collect();
    let ["blk", layer, part, end] = parts[..] else { return name.to_owned() };
    let part = IN_LAYER.iter().find(|(known, _)| *known == part);
    part.map_or_else(|| name.to_owned(), |(_, part)| format!("model.layers.{layer}.{part}.{end}"))
}

/// What [`name_in_checkpoint`] was given.
pub(super) fn name_in_file(name: &str) -> String {
    if let Some((whole, _)) = WHOLE.iter().find(|(_, whole)| *whole == name) {
        return (*whole).to_owned();
    }
    let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    let parts = layer.and_then(|(layer, rest)| Some((layer, rest.rsplit_once('.')?)));
    let Some((layer, (part, end))) = parts else { return name.to_owned() };
    let part = IN_LAYER.iter().find(|(_, known)| *known == part);
    part.map_or_else(|| name.to_owned(), |(part, _)| format!("blk.{layer}.{part}.{end}"))
}
