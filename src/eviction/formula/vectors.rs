//! Vectors that a formula multiplies keys with, from a safetensors file: one for each layer and head.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use super::canonical::Expr;
use crate::eviction::settings::Heads;

/// Bytes of a file. Vectors of the largest models have some megabytes.
const MOST_BYTES: u64 = 1 << 30;

/// A tensor (layers, heads or key-value heads, dim). It lives as long as the program, as formulas do.
#[derive(Debug, PartialEq)]
pub struct FileVectors {
    /// The name of the file.
    pub name: String,
    pub tensor: String,
    pub shape: [usize; 3],
    values: Vec<f32>,
}

/// By file, with its digest, and tensor.
static OPENED: Mutex<BTreeMap<(String, String), &'static FileVectors>> = Mutex::new(BTreeMap::new());

impl FileVectors {
    /// Reads a tensor of a file. Returns the file's name with its digest, `name.safetensors#0123456789abcdef`, by which
    /// [`of`](Self::of) finds it: what formulas have in rows and ids. Such a name is itself taken as it is.
    ///
    /// # Errors
    /// A file that cannot be read, and a tensor that is not there or has another shape.
    pub fn open(file: &str, tensor: &str) -> Result<String, String> {
        let is_digest = |digest: &str| digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        if file.rsplit_once('#').is_some_and(|(_, digest)| is_digest(digest)) && !Path::new(file).exists() {
            return Ok(file.to_owned());
        }
        let bytes =
            crate::bounded_read::bytes(Path::new(file), MOST_BYTES).map_err(|error| format!("{error:#}"))?;
        let digest = format!("{:x}", Sha256::digest(&bytes));
        let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("{name}#{}", &digest[..16]);
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(entry) = opened.entry((name.clone(), tensor.to_owned())) {
            entry.insert(Box::leak(Box::new(FileVectors::parse(&bytes, name.clone(), tensor)?)));
        }
        Ok(name)
    }

    fn parse(bytes: &[u8], name: String, tensor: &str) -> Result<FileVectors, String> {
        let file =
            SafeTensors::deserialize(bytes).map_err(|error| format!("it is not a safetensors file ({error})"))?;
        let view = file.tensor(tensor).map_err(|_| {
            let mut names = file.names();
            names.sort_unstable();
            let more = if names.len() > 8 { ", ..." } else { "" };
            names.truncate(8);
            format!("it has no tensor {tensor:?}; it has {}{more}", names.join(", "))
        })?;
        let Ok(shape) = <[usize; 3]>::try_from(view.shape()) else {
            let shape = view.shape();
            return Err(format!("{tensor:?} has the shape {shape:?}, not (layers, heads, dimensions)"));
        };
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            Dtype::F16 => data.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            Dtype::BF16 => {
                data.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
            }
            other => return Err(format!("{tensor:?} is stored as {other:?}; store it as F32, F16 or BF16")),
        };
        Ok(FileVectors { name, tensor: tensor.to_owned(), shape, values })
    }

    /// The vectors that a formula names.
    ///
    /// # Errors
    /// Those of a formula that was read from rows: their file has not been opened.
    pub(super) fn of(arguments: &[Expr]) -> Result<&'static FileVectors, String> {
        let [Expr::Text(file), Expr::Text(tensor)] = arguments else { return Err(String::new()) };
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = opened.get(&(file.clone(), tensor.clone())).copied();
        found.ok_or_else(|| format!("the file {file} was not opened; name the file itself, without its digest"))
    }

    /// Checks that it has a vector for every head of a model.
    ///
    /// # Errors
    /// Another number of layers, heads or dimensions.
    pub fn check(&self, layers: usize, heads: Heads, dim: usize) -> Result<(), String> {
        let Heads { heads, kv_heads } = heads;
        let [own_layers, own_heads, own_dim] = self.shape;
        if own_layers == layers && own_dim == dim && [heads, kv_heads].contains(&own_heads) {
            return Ok(());
        }
        let FileVectors { name, tensor, shape, .. } = self;
        Err(format!(
            "{tensor:?} of {name} has the shape {shape:?}, and the model needs [{layers}, {heads}, {dim}], or \
             [{layers}, {kv_heads}, {dim}] for its key-value heads"
        ))
    }

    /// The vector of a layer's query head, of `heads`; `None` where there is none.
    pub(super) fn of_head(&self, layer: usize, head: usize, heads: usize) -> Option<&[f32]> {
        let [_, own, dim] = self.shape;
        let at = (layer * own + head * own / heads) * dim;
        self.values.get(at..at + dim)
    }
}
