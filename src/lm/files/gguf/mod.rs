//! A model in one GGUF file, read as the checkpoint it was converted from.
//!
//! llama.cpp's converter renames everything and, for some families, changes the order of the rows of q and k. Both are undone here,
//! so that the rest of the program sees a checkpoint of transformers. Anything that would give other numbers is refused by name.

mod architectures;
mod header;
mod shape;
mod splits;
mod tokenizer;

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use candle_core::quantized::GgmlDType;
use serde_json::{Map, Value};

use crate::bounded_read;
use crate::lm::arithmetic::stored_type::StoredType;

pub(in crate::lm) use architectures::Architecture;
use header::{Header, ListedTensor};

/// Extension of GGUF files.
pub(in crate::lm) const ENDING: &str = "gguf";

/// Name of Llama 3.1's factors of positions, a tensor that checkpoints of transformers do not have.
const FACTORS: &str = "rope_freqs.weight";
/// Names of Phi-3's factors of positions, for long texts and for others.
const LONG_FACTORS: [&str; 2] = ["rope_factors_long.weight", "rope_factors_short.weight"];
/// Largest number of factors, far more than a head has pairs.
const MOST_FACTORS: usize = 1 << 14;

/// Header of a GGUF file.
pub(in crate::lm) struct Gguf {
    pub fields: Map<String, Value>,
    pub architecture: &'static Architecture,
    /// Tensors, by the names that checkpoints of transformers give them.
    pub tensors: Vec<ListedTensor>,
    /// Divisors of the frequencies of positions, if the file has them.
    pub rope_factors: Option<Vec<f32>>,
    /// Divisors of the frequencies of positions in long texts and in others, if the file has both.
    pub long_rope_factors: Option<[Vec<f32>; 2]>,
}

impl Gguf {
    /// Reads the header of a file.
    pub fn read(path: &Path) -> Result<Gguf> {
        let read = || {
            let mut file = bounded_read::open(path).context("cannot open the file")?;
            let total = file.metadata()?.len();
            Gguf::of(Header::read(BufReader::new(&file), total)?, &mut file)
        };
        read().with_context(|| format!("cannot use the model {}", path.display()))
    }

    fn of(Header { fields, tensors }: Header, file: &mut File) -> Result<Gguf> {
        check_kind(&fields)?;
        let architecture = Architecture::named(text(&fields, "general.architecture")?)?;
        let mut factors = |name: &str| -> Result<Option<Vec<f32>>> {
            let tensor = tensors.iter().find(|tensor| tensor.name == name);
            let factors = tensor.map(|tensor| rope_factors(tensor, file)).transpose();
            factors.with_context(|| format!("tensor {name} cannot be used"))
        };
        let rope_factors = factors(FACTORS)?;
        let [long, short] = LONG_FACTORS.map(factors);
        let long_rope_factors = match (long?, short?) {
            (None, None) => None,
            (Some(long), Some(short)) if architecture.has_long_factors() => Some([long, short]),
            _ => bail!(
                "it scales positions by {}, which is not computed here for this file",
                LONG_FACTORS.join(" and ")
            ),
        };
        let mut gguf = Gguf { fields, architecture, tensors: Vec::new(), rope_factors, long_rope_factors };
        let (heads, kv_heads) = gguf.heads()?;
        let is_setting = |name: &str| name == FACTORS || LONG_FACTORS.contains(&name);
        let tensors = tensors.into_iter().filter(|tensor| !is_setting(&tensor.name));
        gguf.tensors = tensors
            .map(|tensor| {
                let permuted_heads = match tensor.name.split('.').nth(2) {
                    _ if !architecture.permutes => None,
                    Some("attn_q") => Some(heads as usize),
                    Some("attn_k") => Some(kv_heads as usize),
                    _ => None,
                };
                let name = architecture.name_in_checkpoint(&tensor.name);
                ListedTensor { name, permuted_heads, ..tensor }
            })
            .collect();
        Ok(gguf)
    }

    /// Finds a tensor by its name in checkpoints.
    pub fn tensor(&self, name: &str) -> Option<&ListedTensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    pub fn text(&self, name: &str) -> Result<&str> {
        text(&self.fields, name)
    }
}
fn text<'f>(fields: &'f Map<String, Value>, name: &str) -> Result<&'f str> {
    match fields.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => bail!("{name} in its metadata is not a text"),
        None => bail!("the text {name} is missing from its metadata"),
    }
}

/// Checks that the file is a whole model.
fn check_kind(fields: &Map<String, Value>) -> Result<()> {
    let parts = fields.get("split.count").and_then(Value::as_u64).unwrap_or(1);
    ensure!(
        parts <= 1,
        "it is one of {parts} parts of a model\nhint: make one file of all parts with llama.cpp's \
         `llama-gguf-split --merge FIRST-PART WHOLE.gguf`"
    );
    let kind = text(fields, "general.type").unwrap_or("model");
    ensure!(
        kind == "model",
        "it is of the type {kind} (general.type), no language model\nhint: an adapter (LoRA) has to be merged into its model with \
         llama.cpp's `llama-export-lora`"
    );
    Ok(())
}

/// Reads the numbers of a tensor that is part of the settings.
fn rope_factors(tensor: &ListedTensor, file: &mut File) -> Result<Vec<f32>> {
    let is_list = tensor.stored == StoredType::Ggml(GgmlDType::F32)
        && tensor.shape.len() == 1
        && tensor.shape[0] <= MOST_FACTORS;
    ensure!(is_list, "it has shape {:?}; a list of F32 is expected", tensor.shape);
    let mut bytes = vec![0; tensor.length];
    file.seek(SeekFrom::Start(tensor.start))?;
    file.read_exact(&mut bytes)?;
    let (numbers, _) = bytes.as_chunks();
    Ok(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect())
}
