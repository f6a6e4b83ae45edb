//! The files of one checkpoint, and how they are chosen among the files of a folder or repository.
//!
//! The choice is the same in a folder, in the cache and on the hub. Weights are safetensors only, because reading
//! a pickle can run code. The index of a sharded checkpoint is not trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::repo::check_inside;
use super::snapshot::{Origin, Snapshot, names_in};
use crate::bounded_read;

const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
/// Name of the file that PEFT saves beside the weights of an adapter (LoRA).
const ADAPTER: &str = "adapter_config.json";
const INDEX: &str = "model.safetensors.index.json";
const TOKENIZER: &str = "tokenizer.json";
/// End of the name of a GGUF file.
pub(super) const GGUF_END: &str = ".gguf";

/// Paths of a checkpoint's files on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointFiles {
    pub config: PathBuf,
    /// Weights: one file, or the shards in the order of their names; none where they are not on this machine and not needed.
    pub weights: Vec<PathBuf>,
    pub tokenizer: Option<PathBuf>,
    pub tokenizer_config: Option<PathBuf>,
    /// File that names special tokens if tokenizer_config.json does not.
    pub special_tokens_map: Option<PathBuf>,
    pub generation_config: Option<PathBuf>,
    pub chat_template: Option<PathBuf>,
    /// Commit on the hub, with the path of a GGUF file there; `None` for a folder.
    pub commit: Option<String>,
    /// Whether the tokenizer belongs to another checkpoint.
    pub has_other_tokenizer: bool,
}

impl CheckpointFiles {
    /// Files that determine results: the configuration, the weights and the tokenizer.
    pub(in crate::lm) fn digested(&self) -> impl Iterator<Item = &PathBuf> {
        // A GGUF file is everything at once.
        let weights = self.weights.iter().filter(|file| **file != self.config);
        [&self.config].into_iter().chain(weights).chain(&self.tokenizer)
    }

    /// This checkpoint with the tokenizer of another, chat template included.
    #[must_use]
    pub(super) fn with_tokenizer(self, other: CheckpointFiles) -> CheckpointFiles {
        let CheckpointFiles { tokenizer, tokenizer_config, special_tokens_map, chat_template, .. } = other;
        let has_other_tokenizer = true;
        CheckpointFiles {
            tokenizer,
            tokenizer_config,
            special_tokens_map,
            chat_template,
            has_other_tokenizer,
            ..self
        }
    }

    /// Whether a tokenizer was found; a GGUF file has its own.
    pub(super) fn has_tokenizer(&self) -> bool {
        self.tokenizer.is_some() || self.weights.contains(&self.config)
    }

    /// Identifies the checkpoint by the commit, or by a digest, for which every file is read. The tokenizer of another checkpoint
    /// adds a digest.
    pub fn revision(&self) -> Result<String> {
        let other = self.tokenizer.as_ref().filter(|_| self.has_other_tokenizer);
        let revision = match &self.commit {
            Some(commit) => commit.clone(),
            None => self.digest(self.digested().filter(|path| Some(*path) != other))?,
        };
        Ok(match other {
            Some(tokenizer) => format!("{revision} tokenizer {}", self.digest([tokenizer].into_iter())?),
            None => revision,
        })
    }

    fn digest<'a>(&self, files: impl Iterator<Item = &'a PathBuf>) -> Result<String> {
        // A checkpoint's own names tell its files apart; the name of a GGUF file says nothing.
        let is_whole = |path: &PathBuf| *path == self.config && self.weights.contains(path);
        digest_of(files.map(|path| {
            let name = path.file_name().filter(|_| !is_whole(path)).unwrap_or("model.gguf".as_ref());
            let name = name.to_string_lossy().into_owned();
            let file = bounded_read::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok((name, file.metadata()?.len(), BufReader::with_capacity(1 << 20, file)))
        }))
    }
}

/// Digest over names, lengths and contents of files, wherever their bytes come from: `sha256:` and 16 hex digits.
pub(in crate::lm) fn digest_of<R: Read>(
    files: impl IntoIterator<Item = Result<(String, u64, R)>>,
) -> Result<String> {
    let mut hash = Sha256::new();
    for file in files {
        let (name, length, mut bytes) = file?;
        // Lengths come first, so that different sets of files never give the same bytes.
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(&name);
        hash.update(length.to_le_bytes());
        io::copy(&mut bytes, &mut hash).with_context(|| format!("cannot read {name}"))?;
    }
    let hex: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{hex}"))
}

/// Finds the files of a checkpoint. Small files come first, so that errors in them show before the weights are downloaded. Weights
/// that are not on this machine are left out `without_weights`, and fetched otherwise.
pub(super) fn gather(snapshot: &Snapshot<'_>, without_weights: bool) -> Result<CheckpointFiles> {
    ensure!(
        !snapshot.has(ADAPTER),
        "{} holds an adapter ({ADAPTER}), which is not read here, and transformers adds it to the weights: merge both (PEFT: \
         `merge_and_unload()`) and name the folder of the merged model; if the weights in this folder contain it already, move the \
         adapter's files away",
        snapshot.place
    );
    // A single file takes precedence over an index, as in transformers.
    let single = snapshot.has(SINGLE);
    let has_weights = single || snapshot.has(INDEX);
    let is_shard =
        |name: &&String| name.ends_with(".safetensors") && name.contains("-of-") && !is_other_format(name);
    if let Some(shard) = snapshot.names.iter().find(is_shard).filter(|_| !has_weights) {
        return Err(snapshot.missing(INDEX).context(format!(
            "{} has parts of a checkpoint, such as {shard}, and not the index that names them all: fetch {INDEX} too",
            snapshot.place
        )));
    }
    let other = snapshot.names.iter().find(|name| is_other_format(name));
    if let Some(other) = other.filter(|_| !has_weights) {
        bail!(
            "{} has no safetensors weights, only {other}: name a GGUF file itself (`./folder/file.gguf`, `owner/name:file.gguf`), or \
             convert other formats, of which a pickle can run any code, where you trust them (transformers: \
             `save_pretrained(\"folder\", safe_serialization=True)`) and name that folder",
            snapshot.place
        );
    }
    ensure!(snapshot.has(CONFIG), snapshot.missing(CONFIG));
    ensure!(has_weights || without_weights, snapshot.missing(&format!("{SINGLE} and {INDEX}")));
    let mut shards = match has_weights {
        true if single => vec![SINGLE.to_owned()],
        true => shards(&snapshot.path(INDEX)?)?,
        false => Vec::new(),
    };
    if without_weights && !shards.iter().all(|name| snapshot.folder.join(name).is_file()) {
        shards.clear();
    }
    if let Some(shard) = shards.iter().find(|name| !snapshot.has(name)) {
        return Err(snapshot.missing(shard).context(format!("{INDEX} of {} names {shard}", snapshot.place)));
    }

    let config = snapshot.path(CONFIG)?;
    let of_tokenizer = tokenizer_files(snapshot)?;
    Ok(CheckpointFiles {
        config,
        generation_config: optional(snapshot, "generation_config.json")?,
        weights: shards.iter().map(|name| snapshot.path(name)).collect::<Result<_>>()?,
        commit: snapshot.commit.clone(),
        ..of_tokenizer
    })
}

fn optional(snapshot: &Snapshot<'_>, name: &str) -> Result<Option<PathBuf>> {
    snapshot.has(name).then(|| snapshot.path(name)).transpose()
}

/// Finds the files of a tokenizer, as far as there are any.
fn tokenizer_files(snapshot: &Snapshot<'_>) -> Result<CheckpointFiles> {
    Ok(CheckpointFiles {
        tokenizer: optional(snapshot, TOKENIZER)?,
        tokenizer_config: optional(snapshot, "tokenizer_config.json")?,
        special_tokens_map: optional(snapshot, "special_tokens_map.json")?,
        chat_template: optional(snapshot, "chat_template.jinja")?,
        ..CheckpointFiles::default()
    })
}

/// Finds a tokenizer without its model.
pub(super) fn tokenizer_of(snapshot: &Snapshot<'_>) -> Result<CheckpointFiles> {
    ensure!(snapshot.has(TOKENIZER), snapshot.missing(TOKENIZER));
    tokenizer_files(snapshot)
}

/// Finds a GGUF file among the files of a repository.
pub(super) fn gguf_of(snapshot: &Snapshot<'_>, file: &str, without_weights: bool) -> Result<CheckpointFiles> {
    ensure!(snapshot.has(file), snapshot.missing(file));
    ensure!(
        !without_weights || snapshot.folder.join(file).is_file(),
        "{file} is description and weights in one file, so it cannot be fetched without its weights"
    );
    // A repository may hold many such files.
    let commit = snapshot.commit.as_ref().map(|commit| format!("{commit} {file}"));
    Ok(CheckpointFiles { commit, ..gguf(snapshot.path(file)?) })
}

/// Largest index in bytes; that of a model with a thousand shards has some megabytes.
const MOST_INDEX: u64 = 64 << 20;

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Lists the files that an index names, each once.
fn shards(index: &Path) -> Result<Vec<String>> {
    let Index { weight_map } = bounded_read::json(index, MOST_INDEX)?;
    let names: BTreeSet<String> = weight_map.into_values().collect();
    ensure!(!names.is_empty(), "{} names no file: download it again", index.display());
    for name in &names {
        check_inside(name).with_context(|| format!("{} is not to be trusted", index.display()))?;
        ensure!(
            name.ends_with(".safetensors"),
            "{} names {name:?}, which is not a safetensors file: convert the checkpoint to safetensors",
            index.display()
        );
    }
    Ok(names.into_iter().collect())
}

/// Whether a file holds weights in another format. (Other pickles, such as an optimizer's state, are not weights.)
fn is_other_format(name: &str) -> bool {
    (name.starts_with("pytorch_model") && name.ends_with(".bin"))
        || name.starts_with("consolidated")
        || [".ckpt", ".h5", ".msgpack", GGUF_END].iter().any(|end| name.ends_with(end))
}

/// Checkpoint that is one GGUF file.
pub(super) fn of_file(file: &Path) -> Result<CheckpointFiles> {
    ensure!(file.is_file(), "there is no file {}: check the path", file.display());
    Ok(gguf(file.to_owned()))
}

fn gguf(file: PathBuf) -> CheckpointFiles {
    CheckpointFiles { weights: vec![file.clone()], config: file, ..CheckpointFiles::default() }
}

/// Calls `take` with the files of a folder.
pub(super) fn in_folder<T>(folder: &Path, take: impl Fn(&Snapshot<'_>) -> Result<T>) -> Result<T> {
    let place = folder.display().to_string();
    let meta = folder.metadata().with_context(|| {
        format!("there is no folder {place}: check the path, or write `owner/name` for the hub")
    })?;
    ensure!(meta.is_dir(), "{place} is a file: name the folder that holds it, or a file that ends in {GGUF_END}");
    let (folder, names) = (folder.to_owned(), names_in(folder));
    take(&Snapshot { origin: Origin::Folder, place, folder, names, commit: None })
}
