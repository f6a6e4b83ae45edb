//! The tensors of a checkpoint: every tensor is checked and taken exactly once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Tensor};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

/// Bytes of a file's header, which is parsed into several times as much memory. An entry takes about a hundred bytes, and the
/// largest mixtures of experts have some ten thousand tensors per file.
const MOST_HEADER: u64 = 16 << 20;

/// The tensors of a checkpoint that have not been taken yet.
pub(super) struct Weights {
    files: Vec<(PathBuf, Data)>,
    tensors: BTreeMap<String, TensorLocation>,
}

enum Data {
    /// The header is parsed in the map. Tensors are read from the file: if it is truncated meanwhile, reading is an error, while
    /// accessing the map would end the program.
    Mapped(Mmap, File),
    Held(Cow<'static, [u8]>),
}

impl std::ops::Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Data::Mapped(map, _) => map,
            Data::Held(bytes) => bytes,
        }
    }
}

struct TensorLocation {
    file: usize,
    start: usize,
    end: usize,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl Weights {
    /// Maps the files of a checkpoint and reads their headers.
    ///
    /// # Errors
    /// A file that is missing, truncated or no safetensors file, or two files with the same tensor.
    pub fn open(paths: &[PathBuf]) -> Result<Weights> {
        let mut weights = Weights { files: Vec::new(), tensors: BTreeMap::new() };
        for path in paths {
            let added = map(path).and_then(|(map, file)| weights.add(path, Data::Mapped(map, file)));
            added.with_context(|| format!("cannot use the weights {}", path.display()))?;
        }
        Ok(weights)
    }

    /// A safetensors file that is in memory already.
    pub fn from_bytes(bytes: Cow<'static, [u8]>) -> Result<Weights> {
        let mut weights = Weights { files: Vec::new(), tensors: BTreeMap::new() };
        weights.add(Path::new("(in memory)"), Data::Held(bytes))?;
        Ok(weights)
    }

    fn add(&mut self, path: &Path, data: Data) -> Result<()> {
        let length = data.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
        ensure!(
            length <= MOST_HEADER,
            "its header has {length} bytes by its own account, more than {MOST_HEADER}: the file is damaged or no safetensors \
             file; fetch it again"
        );
        let parsed = SafeTensors::deserialize(&data).map_err(|error| {
            anyhow::anyhow!("{error}: the file is truncated, damaged or no safetensors file; fetch it again")
        })?;
        let base = data.as_ptr().addr();
        for (name, view) in parsed.tensors() {
            let start = view.data().as_ptr().addr() - base;
            let location = TensorLocation {
                file: self.files.len(),
                start,
                end: start + view.data().len(),
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
            };
            if let Some(other) = self.tensors.insert(name.clone(), location) {
                bail!("tensor {name} is in {} as well", self.files[other.file].0.display());
            }
        }
        self.files.push((path.to_path_buf(), data));
        Ok(())
    }

    /// The type of most bytes of the checkpoint.
    pub fn dtype(&self) -> Result<DType> {
        let mut bytes: BTreeMap<&'static str, (usize, DType)> = BTreeMap::new();
        for (name, location) in &self.tensors {
            if let Ok(dtype) = float_type(location.dtype) {
                bytes.entry(dtype.as_str()).or_insert((0, dtype)).0 += location.end - location.start;
            } else if name.ends_with(".weight") {
                float_type(location.dtype).with_context(|| format!("tensor {name} cannot be used"))?;
            }
        }
        let most = bytes.into_values().max_by_key(|(bytes, _)| *bytes);
        Ok(most.context("the checkpoint holds no f32, f16 or bf16 tensor")?.1)
    }

    /// Bytes of all tensors as stored.
    pub fn bytes(&self) -> u64 {
        self.tensors.values().map(|location| (location.end - location.start) as u64).sum()
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Takes a tensor, as `dtype` on `device`.
    ///
    /// # Errors
    /// A tensor that is missing, has another shape, or a type that is no float.
    pub fn take(&mut self, name: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
        let Some(location) = self.tensors.remove(name) else {
            let files: Vec<_> = self.files.iter().map(|(path, _)| path.display().to_string()).collect();
            bail!(
                "tensor {name} is missing from {}; the checkpoint is incomplete or of another architecture",
                files.join(", ")
            );
        };
        let (path, data) = &self.files[location.file];
        ensure!(
            location.shape == shape,
            "tensor {name} in {} has shape {:?}, but config.json asks for {shape:?}; \
             the two files belong to different models",
            path.display(),
            location.shape
        );
        let stored = float_type(location.dtype)
            .with_context(|| format!("tensor {name} in {} cannot be used", path.display()))?;
        let bytes = match data {
            Data::Mapped(_, file) => Cow::Owned(
                read_at(file, location.start, location.end - location.start)
                    .with_context(|| format!("tensor {name} cannot be read from {}", path.display()))?,
            ),
            Data::Held(bytes) => Cow::Borrowed(&bytes[location.start..location.end]),
        };
        Ok(Tensor::from_raw_buffer(&bytes, stored, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)?)
    }

    /// Checks that all weights were taken; otherwise they belong to another network.
    ///
    /// # Errors
    /// Names some of the remaining tensors.
    pub fn finish(self) -> Result<()> {
        let buffer = |name: &str| name.ends_with("rotary_emb.inv_freq");
        let left: Vec<&str> = self.tensors.keys().map(String::as_str).filter(|name| !buffer(name)).collect();
        ensure!(
            left.is_empty(),
            "the checkpoint has {} tensors that its config.json does not describe ({}{}); \
             it is of another architecture and would be computed wrongly",
            left.len(),
            left.iter().take(3).copied().collect::<Vec<_>>().join(", "),
            if left.len() > 3 { ", ..." } else { "" }
        );
        Ok(())
    }
}

fn read_at(mut file: &File, start: usize, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.seek(SeekFrom::Start(start as u64))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn map(path: &Path) -> Result<(Mmap, File)> {
    let file = File::open(path).context("cannot open the file")?;
    ensure!(file.metadata()?.len() > 0, "the file is empty");
    // SAFETY: only the header is read from the map, immediately. A process that truncates the file at that moment would end
    // this one; one that changes it gives other names and offsets, which are checked.
    #[expect(unsafe_code)]
    let map = unsafe { Mmap::map(&file) }.context("cannot map the file into memory")?;
    Ok((map, file))
}

fn float_type(dtype: Dtype) -> Result<DType> {
    match dtype {
        Dtype::F32 => Ok(DType::F32),
        Dtype::F16 => Ok(DType::F16),
        Dtype::BF16 => Ok(DType::BF16),
        other => bail!("it is stored as {other:?}; only F32, F16 and BF16 checkpoints are supported"),
    }
}
