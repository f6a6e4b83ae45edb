//! Checkpoint files: memory-mapped, checked, and every tensor taken exactly once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Tensor};
use memmap2::{Mmap, UncheckedAdvice};
use safetensors::{Dtype, SafeTensors};

/// The tensors of a checkpoint that nobody has taken yet.
pub(super) struct Weights {
    files: Vec<(PathBuf, Data)>,
    /// name -> where it is
    tensors: BTreeMap<String, Place>,
}

enum Data {
    Mapped(Mmap),
    Held(Cow<'static, [u8]>),
}

impl std::ops::Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Data::Mapped(map) => map,
            Data::Held(bytes) => bytes,
        }
    }
}

struct Place {
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
            let added = map(path).and_then(|map| weights.add(path, Data::Mapped(map)));
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
        let parsed = SafeTensors::deserialize(&data).map_err(|error| {
            anyhow::anyhow!("{error}: the file is truncated, damaged or no safetensors file; fetch it again")
        })?;
        let base = data.as_ptr().addr();
        for (name, view) in parsed.tensors() {
            let start = view.data().as_ptr().addr() - base;
            let place = Place {
                file: self.files.len(),
                start,
                end: start + view.data().len(),
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
            };
            if let Some(other) = self.tensors.insert(name.clone(), place) {
                bail!("tensor {name} is in {} as well", self.files[other.file].0.display());
            }
        }
        self.files.push((path.to_path_buf(), data));
        Ok(())
    }

    /// The type most bytes of the checkpoint have.
    pub fn dtype(&self) -> Result<DType> {
        let mut bytes: BTreeMap<&'static str, (usize, DType)> = BTreeMap::new();
        for (name, place) in &self.tensors {
            if let Ok(dtype) = float_type(place.dtype) {
                bytes.entry(dtype.as_str()).or_insert((0, dtype)).0 += place.end - place.start;
            } else if name.ends_with(".weight") {
                float_type(place.dtype).with_context(|| format!("tensor {name} cannot be used"))?;
            }
        }
        let most = bytes.into_values().max_by_key(|(bytes, _)| *bytes);
        Ok(most.context("the checkpoint holds no f32, f16 or bf16 tensor")?.1)
    }

    /// Bytes of all tensors as stored.
    pub fn bytes(&self) -> u64 {
        self.tensors.values().map(|place| (place.end - place.start) as u64).sum()
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Takes a tensor, as `dtype` on `device`.
    ///
    /// # Errors
    /// A tensor that is missing, has another shape, or a type that is no float.
    pub fn take(&mut self, name: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
        let Some(place) = self.tensors.remove(name) else {
            let files: Vec<_> = self.files.iter().map(|(path, _)| path.display().to_string()).collect();
            bail!(
                "tensor {name} is missing from {}; the checkpoint is incomplete or of another architecture",
                files.join(", ")
            );
        };
        let (path, data) = &self.files[place.file];
        ensure!(
            place.shape == shape,
            "tensor {name} in {} has shape {:?}, but config.json asks for {shape:?}; \
             the two files belong to different models",
            path.display(),
            place.shape
        );
        let stored = float_type(place.dtype)
            .with_context(|| format!("tensor {name} in {} cannot be used", path.display()))?;
        let tensor = Tensor::from_raw_buffer(&data[place.start..place.end], stored, shape, &Device::Cpu)?
            .to_dtype(dtype)?
            .to_device(device)?;
        // The pages just copied are not needed again. Dropping them keeps the peak at one copy of the model; it is
        // only advice, so a system that refuses it loses nothing.
        if let Data::Mapped(map) = data {
            // SAFETY: a shared read-only file map reads the same bytes again if it is touched again.
            #[expect(unsafe_code)]
            let _ = unsafe {
                map.unchecked_advise_range(UncheckedAdvice::DontNeed, place.start, place.end - place.start)
            };
        }
        Ok(tensor)
    }

    /// Refuses a checkpoint with weights nobody took: the network they belong to is not the one that was built.
    ///
    /// # Errors
    /// Names some of the tensors left.
    pub fn finish(self) -> Result<()> {
        let buffer = |name: &str| name.ends_with("rotary_emb.inv_freq");
        let left: Vec<&str> = self.tensors.keys().map(String::as_str).filter(|name| !buffer(name)).collect();
        ensure!(
            left.is_empty(),
            "the checkpoint holds {} tensors that its config.json gives no place to ({}{}); \
             it is of another architecture and would be computed wrongly",
            left.len(),
            left.iter().take(3).copied().collect::<Vec<_>>().join(", "),
            if left.len() > 3 { ", ..." } else { "" }
        );
        Ok(())
    }
}

fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path).context("cannot open the file")?;
    ensure!(file.metadata()?.len() > 0, "the file is empty");
    // SAFETY: the map is only read. Another process that shortens the file meanwhile would end this one, as with
    // every program that maps weights; nothing is read that could be misread as anything but numbers.
    #[expect(unsafe_code)]
    unsafe { Mmap::map(&file) }.context("cannot map the file into memory")
}

fn float_type(dtype: Dtype) -> Result<DType> {
    match dtype {
        Dtype::F32 => Ok(DType::F32),
        Dtype::F16 => Ok(DType::F16),
        Dtype::BF16 => Ok(DType::BF16),
        other => bail!("it is stored as {other:?}; only F32, F16 and BF16 checkpoints are supported"),
    }
}
