//! The tensors of a checkpoint: every tensor is checked and taken exactly once. It is a long file because all ways to take one
//! (whole, rows, experts, in blocks, in integers) check the same table.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::gguf::{self, Architecture, Gguf};
use super::stored_bytes::{bytes_in_order, float_type, tensor, transposed, with_scales};
use crate::bounded_read;
use crate::lm::arithmetic::blocks::Blocks;
use crate::lm::arithmetic::integers::Width;
use crate::lm::arithmetic::layers::Weight;
use crate::lm::arithmetic::matrix::Matrix;
use crate::lm::arithmetic::stored_type::StoredType;
use crate::lm::arithmetic::types::Arithmetic;
use crate::lm::shape::matrices::{EMBEDDING, OUTPUT};

/// Number of parameters below which quantised models are exact; larger ones are rounded to half precision.
const EXACT_BELOW: u64 = 1 << 30;

/// Names that families give to parts of experts, and the usual names.
const USUAL_NAMES: [(&str, &str); 10] = [
    // Llama 4
    (".feed_forward.", ".mlp."),
    // gpt-oss, Llama 4
    (".mlp.router.", ".mlp.gate."),
    // DeepSeek
    (".mlp.shared_experts.", ".mlp.shared_expert."),
    // Mixtral
    (".block_sparse_moe.", ".mlp."),
    (".w1.", ".gate_proj."),
    (".w2.", ".down_proj."),
    (".w3.", ".up_proj."),
    // Gemma 4
    (".router.proj.", ".mlp.gate."),
    (".experts.", ".mlp.experts."),
    (".mlp.mlp.", ".mlp."),
];

/// Largest header of a file in bytes; it is parsed into several times as much memory. An entry takes about a hundred bytes, and the
/// largest mixtures of experts have some ten thousand tensors per file.
const MOST_HEADER: u64 = 16 << 20;
/// Bytes at the beginning of a safetensors file that say how long its header is.
const PREFIX: u64 = 8;

/// Tensors of a checkpoint that have not been taken yet.
#[derive(Default)]
pub(in crate::lm) struct Weights {
    files: Vec<(PathBuf, Box<dyn Data>)>,
    tensors: BTreeMap<String, TensorLocation>,
    /// Architecture of a GGUF file.
    architecture: Option<&'static Architecture>,
    /// Bytes in memory of the tensors that were taken.
    pub held: usize,
    /// Whether any taken tensor is multiplied in integers.
    pub has_integers: bool,
}

/// Bytes of a file, on disk or in memory.
trait Data: Read + Seek {
    fn range(&mut self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.seek(SeekFrom::Start(start))?;
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl<T: Read + Seek> Data for T {}

struct TensorLocation {
    /// Name in the file.
    name: String,
    file: usize,
    start: u64,
    length: usize,
    stored: Stored,
    shape: Vec<usize>,
    /// Whether matrices are stored with their columns as rows.
    is_transposed: bool,
    /// Number of heads whose rows are in another order ([`bytes_in_order`]).
    permuted_heads: Option<usize>,
    /// Scales of the tensor's blocks, if they are a tensor of their own.
    scales: Option<Box<TensorLocation>>,
}

/// Type in which a tensor is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    Known(StoredType),
    /// Type of safetensors that is not read.
    Other(Dtype),
}

impl Weights {
    /// Opens the files of a checkpoint and reads their headers.
    pub fn open(paths: &[PathBuf]) -> Result<Weights> {
        let mut weights = Weights::default();
        for path in paths {
            let file = bounded_read::open(path).context("cannot open the file");
            let added = file.and_then(|file| match is_gguf(path) {
                true => weights.add_gguf(path, Box::new(file)),
                false => weights.add(path, Box::new(file)),
            });
            added.with_context(|| format!("cannot use the weights {}", path.display()))?;
        }
        weights.use_usual_names()?;
        weights.join_scales()?;
        Ok(weights)
    }

    /// Reads the weights of a safetensors file in memory.
    pub fn from_bytes(bytes: Cow<'static, [u8]>) -> Result<Weights> {
        let mut weights = Weights::default();
        weights.add(Path::new("(in memory)"), Box::new(Cursor::new(bytes)))?;
        Ok(weights)
    }

    fn add(&mut self, path: &Path, mut data: Box<dyn Data>) -> Result<()> {
        const DAMAGED: &str = "the file is truncated, damaged or no safetensors file; fetch it again";
        let damaged = |error: io::Error| anyhow!("{error}: {DAMAGED}");
        let total = data.seek(SeekFrom::End(0))?;
        ensure!(total > 0, "the file is empty");
        let prefix = data.range(0, PREFIX as usize).map_err(damaged)?;
        let length = prefix.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
        ensure!(
            length <= MOST_HEADER,
            "by its own account its header has {length} bytes, more than {MOST_HEADER}: {DAMAGED}"
        );
        let header = data.range(PREFIX, length as usize).map_err(damaged)?;
        // Offsets and sizes of the tensors are checked here.
        let header: Metadata = serde_json::from_slice(&header).map_err(|error| damaged(error.into()))?;
        let described = PREFIX + length + header.data_len() as u64;
        ensure!(total == described, "it has {total} bytes and its header describes {described}: {DAMAGED}");
        for (name, tensor) in header.tensors() {
            let (start, end) = tensor.data_offsets;
            let location = TensorLocation {
                name: name.clone(),
                file: self.files.len(),
                start: PREFIX + length + start as u64,
                length: end - start,
                stored: Stored::of(tensor.dtype),
                shape: tensor.shape.clone(),
                is_transposed: false,
                permuted_heads: None,
                scales: None,
            };
            if let Some(other) = self.tensors.insert(name.clone(), location) {
                bail!("tensor {name} is in {} as well", self.files[other.file].0.display());
            }
        }
        self.files.push((path.to_path_buf(), data));
        Ok(())
    }

    /// Adds the tensors of a GGUF file, by the names that transformers gives them.
    fn add_gguf(&mut self, path: &Path, data: Box<dyn Data>) -> Result<()> {
        let Gguf { architecture, tensors, .. } = Gguf::read(path)?;
        self.architecture = Some(architecture);
        for tensor in tensors {
            let location = TensorLocation {
                name: tensor.in_file,
                file: self.files.len(),
                start: tensor.start,
                length: tensor.length,
                stored: Stored::Known(tensor.stored),
                shape: tensor.shape,
                is_transposed: false,
                permuted_heads: tensor.permuted_heads,
                scales: None,
            };
            if let Some(other) = self.tensors.insert(tensor.name, location) {
                bail!("tensor {} is listed twice; convert the model again", other.name);
            }
        }
        self.files.push((path.to_path_buf(), data));
        Ok(())
    }

    /// Gives parts of experts their usual names. Of a model that also reads images or sound, keeps the language model, under the
    /// names that it has alone.
    ///
    /// # Errors
    ///
    /// Two tensors that would have one name, and layers of a language model beside those of another.
    fn use_usual_names(&mut self) -> Result<()> {
        self.rename(|name| {
            let usual = |name: String, (own, usual): (&str, &str)| name.replace(own, usual);
            Ok(Some(USUAL_NAMES.into_iter().fold(name.to_owned(), usual)))
        })?;
        const PREFIXES: [&str; 2] = ["model.language_model.", "language_model."];
        let own = |name: &str| PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).map(str::to_owned);
        if !self.tensors.keys().any(|name| own(name).is_some()) {
            return Ok(());
        }
        let is_head = |name: &str| name.starts_with("lm_head.");
        let is_of_text = |name: &str| {
            ["model.layers.", "model.embed_tokens", "model.norm."].iter().any(|own| name.starts_with(own))
        };
        self.rename(|name| {
            Ok(match own(name) {
                // `language_model.model.layers.0` as well as `model.language_model.layers.0`.
                Some(own) if own.starts_with("model.") || is_head(&own) => Some(own),
                Some(own) => Some(format!("model.{own}")),
                None if is_of_text(name) => {
                    bail!("tensor {name} stands beside a language model of its own; the checkpoint is of an unknown architecture")
                }
                None => Some(name.to_owned()).filter(|name| is_head(name)),
            })
        })
    }

    /// Gives tensors other names; those for which `named` returns `None` are left out.
    fn rename(&mut self, named: impl Fn(&str) -> Result<Option<String>>) -> Result<()> {
        for (own, location) in std::mem::take(&mut self.tensors) {
            let Some(name) = named(&own)? else { continue };
            if let Some(other) = self.tensors.insert(name, location) {
                bail!(
                    "tensors {} and {own} stand for the same part of the model; make the checkpoint anew",
                    other.name
                );
            }
        }
        Ok(())
    }

    /// Joins the two tensors that gpt-oss stores in MXFP4, `name_blocks` (.., rows, columns / 32, 16) and `name_scales` (.., rows,
    /// columns / 32), to one tensor `name.weight` (.., rows, columns), and gives its bias the usual name. In `gate_up_proj` the
    /// rows of gate and up alternate.
    fn join_scales(&mut self) -> Result<()> {
        const BYTES: Stored = Stored::Other(Dtype::U8);
        let names = self.tensors.keys().filter_map(|name| name.strip_suffix("_blocks").map(str::to_owned));
        for name in names.collect::<Vec<_>>() {
            let parts = ["blocks", "scales"].map(|part| self.tensors.remove(&format!("{name}_{part}")));
            let [Some(blocks), Some(scales)] = parts else {
                bail!("tensor {name}_scales is missing; the checkpoint is incomplete")
            };
            let mut shape = scales.shape.clone();
            let fit = blocks.shape == [&shape[..], &[16]].concat();
            let is_mxfp4 = fit && blocks.stored == BYTES && scales.stored == BYTES;
            let Some(columns) = shape.last_mut().filter(|_| is_mxfp4) else {
                bail!(
                    "tensors {name}_blocks and {name}_scales are not MXFP4 together; no other blocks are read here"
                )
            };
            *columns *= StoredType::Mxfp4.block_size();
            let permuted_heads = name.ends_with("gate_up_proj").then_some(1);
            self.rename_bias(&name, permuted_heads);
            let (stored, scales) = (Stored::Known(StoredType::Mxfp4), Some(Box::new(scales)));
            let joined = TensorLocation { stored, shape, permuted_heads, scales, ..blocks };
            self.tensors.insert(format!("{name}.weight"), joined);
        }
        Ok(())
    }

    /// Gives a bias the usual name; its rows may be in another order.
    fn rename_bias(&mut self, name: &str, permuted_heads: Option<usize>) {
        if let Some(bias) = self.tensors.remove(&format!("{name}_bias")) {
            self.tensors.insert(format!("{name}.bias"), TensorLocation { permuted_heads, ..bias });
        }
    }

    /// Type that most bytes are stored as, by its name, and the type that all weights are rounded to unless another is asked for.
    /// The latter is the type of most bytes, but MXFP4 stays as it is. A GGUF file is exact in f32, unless the model is too large
    /// for that.
    pub fn dtype(&self) -> Result<(String, DType)> {
        let mut bytes: BTreeMap<String, (usize, StoredType)> = BTreeMap::new();
        for (name, location) in &self.tensors {
            match location.stored.known().with_context(|| format!("tensor {name} cannot be used")) {
                Ok(stored) => bytes.entry(stored.name()).or_insert((0, stored)).0 += location.length,
                Err(error) if name.ends_with(".weight") => return Err(error),
                Err(_) => {}
            }
        }
        let most = |of: &dyn Fn(StoredType) -> bool| {
            bytes.iter().filter(|(_, (_, stored))| of(*stored)).max_by_key(|(_, (bytes, _))| *bytes)
        };
        let (name, _) = most(&|_| true).context("the checkpoint holds no f32, f16 or bf16 tensor")?;
        let rounded = most(&|stored| stored != StoredType::Mxfp4);
        let dtype = rounded.map_or(DType::BF16, |(_, (_, stored))| float_type(*stored));
        let is_exact = self.is_gguf() && self.parameters() < EXACT_BELOW;
        Ok((name.to_lowercase(), if is_exact { DType::F32 } else { dtype }))
    }

    pub fn is_gguf(&self) -> bool {
        self.architecture.is_some()
    }

    /// Number of values in all tensors.
    pub fn parameters(&self) -> u64 {
        self.tensors.values().map(|location| location.shape.iter().product::<usize>() as u64).sum()
    }

    /// Whether two tensors are stored as the same numbers.
    pub fn are_equal(&mut self, one: &str, other: &str) -> Result<bool> {
        let (Some(one), Some(other)) = (self.tensors.get(one), self.tensors.get(other)) else { return Ok(false) };
        let mut bytes = |location: &TensorLocation| {
            self.files[location.file]
                .1
                .range(location.start, location.length)
                .with_context(|| format!("tensor {}", location.name))
        };
        Ok(one.stored == other.stored && one.shape == other.shape && bytes(one)? == bytes(other)?)
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Notes that the rows of each rotated pair of a head of a matrix are neighbours.
    pub fn permute(&mut self, name: &str, heads: usize) {
        if let Some(location) = self.tensors.get_mut(name) {
            location.permuted_heads = Some(heads);
        }
    }

    /// Notes that matrices of a name, if there are any, are transposed, and with `by_turns` that rows of their two parts alternate;
    /// gives their biases the usual names.
    pub fn transpose(&mut self, name: &str, by_turns: bool) {
        let Some(location) = self.tensors.get_mut(name).filter(|_| self.architecture.is_none()) else { return };
        let [.., rows, columns] = &mut location.shape[..] else { return };
        std::mem::swap(rows, columns);
        location.is_transposed = true;
        location.permuted_heads = by_turns.then_some(1);
        self.rename_bias(name, by_turns.then_some(1));
    }

    /// Splits a tensor of a name, if there is one, along its first side into `count` tensors with names of their own.
    ///
    /// # Errors
    ///
    /// Another length of the first side.
    pub fn unstack(&mut self, name: &str, count: usize, of: impl Fn(usize) -> String) -> Result<()> {
        let Some(stack) = self.tensors.remove(name) else { return Ok(()) };
        ensure!(
            stack.shape.first() == Some(&count),
            "tensor {} has shape {:?}, and the model has {count} of its parts; they belong to different models",
            stack.name,
            stack.shape
        );
        self.tensors.extend((0..count).map(|index| (of(index), stack.part(index, count))));
        Ok(())
    }

    /// Takes a tensor as `dtype` on `device`.
    pub fn take(&mut self, name: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
        self.read(name, shape, |bytes, stored| {
            Ok(tensor(bytes, stored, shape)?.to_dtype(dtype)?.to_device(device)?)
        })
    }

    /// Takes a matrix (out, in) for products. On the host it stays as it is stored, unless its numbers are rounded.
    pub fn take_matrix(
        &mut self,
        name: &str,
        (out, input): (usize, usize),
        dtype: DType,
        device: &Device,
    ) -> Result<Weight> {
        self.read(name, &[out, input], |bytes, stored| {
            if !device.is_cpu() {
                return Ok(Weight::Device(
                    tensor(bytes, stored, &[out, input])?.to_dtype(dtype)?.to_device(device)?,
                ));
            }
            Ok(Weight::Host(Arc::new(match stays(stored, dtype) {
                true => Matrix::of_blocks((out, input), Blocks::new(stored, bytes).expect("`stays` says so")),
                false => Matrix::new(&tensor(bytes, stored, &[out, input])?.to_dtype(dtype)?)?,
            })))
        })
    }

    /// Estimates the bytes that the weights take in memory, rounded to `dtype`; for products in integers it is an upper bound.
    pub fn held_bytes(&self, dtype: DType, device: &Device, arithmetic: Arithmetic) -> u64 {
        let held = |(name, location): (&String, &TensorLocation)| {
            let numbers = location.shape.iter().product::<usize>();
            let (stored, width) = match location.stored {
                Stored::Known(stored) if device.is_cpu() && stays(stored, dtype) => (
                    location.length + location.scales.as_ref().map_or(0, |scales| scales.length),
                    Blocks::width_of(stored),
                ),
                _ => (numbers * dtype.size_in_bytes(), Some(Width::Sixteen)),
            };
            let in_integers = width.map_or(0, |width| width.most_bytes(numbers));
            let is_matrix = location.shape.len() >= 2;
            match arithmetic {
                // Looked up as it is stored, and multiplied with if there is no other output matrix.
                Arithmetic::Fast if name == EMBEDDING && !self.has(OUTPUT) => stored + in_integers,
                Arithmetic::Fast if is_matrix && name != EMBEDDING => in_integers,
                _ => stored,
            }
        };
        self.tensors.iter().map(|tensor| held(tensor) as u64).sum()
    }

    /// Reads the bytes of a tensor and converts them.
    fn read<R>(
        &mut self,
        name: &str,
        shape: &[usize],
        convert: impl FnOnce(Vec<u8>, StoredType) -> Result<R>,
    ) -> Result<R> {
        let location = self.tensors.remove(name).with_context(|| {
            let files: Vec<_> = self.files.iter().map(|(path, _)| path.display().to_string()).collect();
            let end = "the checkpoint is incomplete or of another architecture";
            format!("tensor {name} is missing from {}; {end}", files.join(", "))
        })?;
        let path = self.files[location.file].0.clone();
        let read = || {
            ensure!(
                location.shape == shape,
                "it has shape {:?}, and by its description the model asks for {shape:?}; they belong to different models",
                location.shape
            );
            let mut of =
                |location: &TensorLocation| self.files[location.file].1.range(location.start, location.length);
            let mut bytes = of(&location)?;
            if let Some(scales) = &location.scales {
                bytes = with_scales(&bytes, &of(scales)?);
            }
            if location.is_transposed {
                bytes = transposed(&bytes, shape[1], shape[0]);
            }
            let bytes = bytes_in_order(bytes, shape[0], location.permuted_heads)?;
            convert(bytes, location.stored.known()?)
        };
        read().with_context(|| format!("tensor {} in {} cannot be used", location.name, path.display()))
    }

    /// Leaves out the tensors of some layers.
    pub fn leave_out_layers(&mut self, layers: Range<usize>) {
        let layer = |name: &str| name.strip_prefix("model.layers.")?.split('.').next()?.parse::<usize>().ok();
        self.tensors.retain(|name, _| !layer(name).is_some_and(|layer| layers.contains(&layer)));
    }

    /// Checks that all weights were taken; otherwise they belong to another network.
    pub fn finish(self) -> Result<()> {
        // Buffers, and layers that predict several tokens at once, which transformers does not load either.
        let buffer = |name: &str| name.ends_with("rotary_emb.inv_freq") || name.starts_with("mtp.");
        let left = self.tensors.values().map(|location| location.name.as_str());
        let left: Vec<&str> = left.filter(|name| !buffer(name)).collect();
        ensure!(
            left.is_empty(),
            "the checkpoint holds {} tensors that its description gives no place to ({}{}); \
             it is of another architecture and would be computed wrongly",
            left.len(),
            left[..left.len().min(3)].join(", "),
            if left.len() > 3 { ", ..." } else { "" }
        );
        Ok(())
    }
}

impl TensorLocation {
    /// Part `index` of `parts` equal parts of the tensor.
    fn part(&self, index: usize, parts: usize) -> TensorLocation {
        let length = self.length / parts;
        TensorLocation {
            name: self.name.clone(),
            start: self.start + (index * length) as u64,
            length,
            shape: self.shape[1..].to_vec(),
            scales: self.scales.as_ref().map(|scales| Box::new(scales.part(index, parts))),
            ..*self
        }
    }
}

/// Whether a matrix stays as it is stored although others are rounded to `dtype`. MXFP4 is exact in bf16.
fn stays(stored: StoredType, dtype: DType) -> bool {
    Blocks::width_of(stored).is_some()
        && (dtype == DType::F32 || stored == StoredType::Mxfp4 && dtype == DType::BF16)
}

/// Whether a file is a whole model as llama.cpp writes it.
pub(in crate::lm) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == gguf::ENDING)
}

impl Stored {
    fn of(dtype: Dtype) -> Stored {
        match dtype {
            Dtype::F32 => Stored::Known(StoredType::Ggml(GgmlDType::F32)),
            Dtype::F16 => Stored::Known(StoredType::Ggml(GgmlDType::F16)),
            Dtype::BF16 => Stored::Known(StoredType::Ggml(GgmlDType::BF16)),
            other => Stored::Other(other),
        }
    }

    fn known(self) -> Result<StoredType> {
        match self {
            Stored::Known(stored) => Ok(stored),
            Stored::Other(other) => {
                bail!("it is stored as {other:?}; only F32, F16 and BF16 checkpoints are supported")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    /// Compares with the numbers that llama.cpp's Python package makes of the tensors (`tests/golden/make/gguf_goldens.py` wrote
    /// both).
    #[test]
    fn every_type_gives_the_numbers_of_llama_cpp() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gguf");
        let mut weights = Weights::open(&[folder.join("types.gguf")]).unwrap();
        let expected = std::fs::read(folder.join("types.safetensors")).unwrap();
        let expected = SafeTensors::deserialize(&expected).unwrap();
        assert_eq!(expected.len(), 14);
        for (name, numbers) in expected.iter() {
            let read = weights.take(name, &[2, 512], DType::F32, &Device::Cpu).unwrap();
            let read = read.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let (numbers, _) = numbers.data().as_chunks();
            let numbers = numbers.iter().map(|number| f32::from_le_bytes(*number));
            let largest = read.iter().zip(numbers).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("{name}: {largest:e}");
            assert_eq!(largest, 0.0, "{name}");
        }
        weights.finish().unwrap();
    }

    #[test]
    fn quantised_weights_are_exact_in_f32_unless_that_is_too_large() {
        let of_size = |stored: GgmlDType, parameters: u64| {
            let location = TensorLocation {
                name: "output.weight".to_owned(),
                file: 0,
                start: 0,
                length: 1,
                stored: Stored::Known(StoredType::Ggml(stored)),
                shape: vec![parameters as usize],
                is_transposed: false,
                permuted_heads: None,
                scales: None,
            };
            let tensors = BTreeMap::from([("output.weight".to_owned(), location)]);
            let data: Box<dyn Data> = Box::new(Cursor::new(Vec::new()));
            let architecture = Architecture::named("llama").ok();
            let files = vec![("m.gguf".into(), data)];
            Weights { files, tensors, architecture, ..Weights::default() }.dtype().unwrap()
        };
        assert_eq!(of_size(GgmlDType::Q4K, EXACT_BELOW - 1), ("q4_k".to_owned(), DType::F32));
        assert_eq!(of_size(GgmlDType::Q4K, EXACT_BELOW), ("q4_k".to_owned(), DType::BF16));
        assert_eq!(of_size(GgmlDType::Q8_0, EXACT_BELOW), ("q8_0".to_owned(), DType::BF16));
        assert_eq!(of_size(GgmlDType::F16, EXACT_BELOW), ("f16".to_owned(), DType::F16));
    }
}
