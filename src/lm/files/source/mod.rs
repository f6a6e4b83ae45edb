//! Where a model comes from: a folder, a repository of the Hugging Face hub, or a model inside the program.
//!
//! This module parses what a user writes into a [`ModelSource`], and resolves it to [`CheckpointFiles`], paths on
//! this machine. It does not look inside the files, and no name from a file or from the network leads outside its
//! folder.

mod checkpoint;
mod download;
mod error;
mod hub;
mod hub_http;
mod random_shape;
mod repo;
mod settings;
mod snapshot;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

pub use checkpoint::CheckpointFiles;
pub(in crate::lm) use checkpoint::digest_of;
pub use download::DownloadProgress;
pub use error::HubError;
pub use hub::Hub;
pub use hub_http::whoami;
pub use random_shape::{RANDOM, RANDOM_FORM, RandomShape};
pub use repo::RepoId;
pub use settings::{HubSettings, Token};
use snapshot::Snapshot;

/// The branch used if none is named.
pub const DEFAULT_REVISION: &str = "main";

/// The name of the trained model in the program.
pub const POCKET: &str = "pocket";

/// The name of the built-in random model.
pub const RANDOM_TINY: &str = "random-tiny";

/// A model as users name it. [`fmt::Display`] gives the canonical text, which parses to the same source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelSource {
    /// A tiny model with random weights, made in memory.
    RandomTiny,
    /// A model of a given shape with random weights, made in memory.
    Random(RandomShape),
    /// The trained model inside the program.
    Pocket,
    /// Folder, as written; `~/` is the home directory.
    Folder(String),
    /// GGUF file, as written.
    File(String),
    /// Repository of the hub at a branch, tag or commit; `file` names a GGUF file in it.
    Hub { repo: RepoId, revision: String, file: Option<String> },
}

impl ModelSource {
    /// Finds the files on this machine, downloaded from the hub first if needed.
    pub fn resolve(&self, settings: &HubSettings, progress: &dyn DownloadProgress) -> Result<CheckpointFiles> {
        match self {
            ModelSource::File(text) => checkpoint::of_file(&expand_home(text)?),
            ModelSource::Hub { file: Some(file), .. } => {
                self.take(settings, progress, |snapshot| checkpoint::gguf_of(snapshot, file, settings.without_weights))
            }
            _ => self.take(settings, progress, |snapshot| checkpoint::gather(snapshot, settings.without_weights)),
        }
        .with_context(|| format!("model `{self}`"))
    }

    /// Finds the files, with the tokenizer of another source, which [`check_tokenizer`](Self::check_tokenizer) accepts.
    pub fn resolve_with_tokenizer(
        &self,
        tokenizer: &ModelSource,
        settings: &HubSettings,
        progress: &dyn DownloadProgress,
    ) -> Result<CheckpointFiles> {
        let found = tokenizer.take(settings, progress, checkpoint::tokenizer_of);
        let found = found.with_context(|| format!("tokenizer `{tokenizer}`"))?;
        Ok(self.resolve(settings, progress)?.with_tokenizer(found))
    }

    /// Calls `take` with the files of a folder or a repository.
    fn take(
        &self,
        settings: &HubSettings,
        progress: &dyn DownloadProgress,
        take: impl Fn(&Snapshot<'_>) -> Result<CheckpointFiles>,
    ) -> Result<CheckpointFiles> {
        match self {
            ModelSource::Folder(text) => checkpoint::in_folder(&expand_home(text)?, take),
            ModelSource::Hub { repo, revision, .. } => Hub { settings, progress }.in_model(repo, revision, take),
            _ => bail!("it is neither a folder nor a repository"),
        }
    }

    /// Checks that the model can be given the tokenizer of another source.
    ///
    /// # Errors
    ///
    /// A model that has no files, or a tokenizer that is neither a folder nor a repository.
    pub fn check_tokenizer(&self, tokenizer: &ModelSource) -> Result<()> {
        let has_files = matches!(self, ModelSource::Folder(_) | ModelSource::File(_) | ModelSource::Hub { .. });
        ensure!(has_files, "the model `{self}` takes no tokenizer, because it is inside the program with its own");
        let is_place = matches!(tokenizer, ModelSource::Folder(_) | ModelSource::Hub { file: None, .. });
        ensure!(
            is_place,
            "`{tokenizer}` is not a place of a tokenizer: name a folder or a repository that has a tokenizer.json"
        );
        Ok(())
    }
}

impl FromStr for ModelSource {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        ensure!(!text.chars().any(char::is_control), "{text:?} is not a model: it has control characters");
        match text {
            RANDOM_TINY => return Ok(ModelSource::RandomTiny),
            POCKET => return Ok(ModelSource::Pocket),
            _ => {}
        }
        if text.starts_with(RANDOM) && !text.contains('/') && !is_path(text) {
            let shape = text.parse().with_context(|| format!("`{text}` is not a shape of a random model"))?;
            return Ok(ModelSource::Random(shape));
        }
        if text.starts_with('.') || is_path(text) {
            if text.ends_with(checkpoint::GGUF_END) {
                return Ok(ModelSource::File(text.to_owned()));
            }
            let trimmed = text.trim_end_matches('/');
            return Ok(ModelSource::Folder(if trimmed.is_empty() { "/" } else { trimmed }.to_owned()));
        }
        let (place, file) = match text.split_once(':') {
            Some((place, file)) => (place, Some(file)),
            None => (text, None),
        };
        if let Some(file) = file {
            repo::check_inside(file).with_context(|| format!("`{text}` is not a model"))?;
            ensure!(
                file.ends_with(checkpoint::GGUF_END),
                "`{text}` is not a model: after `:` comes a file that ends in {}",
                checkpoint::GGUF_END
            );
        }
        let (repo, revision) = place.split_once('@').unwrap_or((place, DEFAULT_REVISION));
        repo::check_revision(revision).with_context(|| format!("`{text}` is not a model"))?;
        let repo = repo.parse().with_context(|| {
            format!(
                "`{text}` is not a model: write `./{text}` for a folder or a GGUF file, `owner/name[@revision][:file.gguf]` for \
                 a repository of the hub, `{POCKET}` or `{RANDOM_TINY}`"
            )
        })?;
        Ok(ModelSource::Hub { repo, revision: revision.to_owned(), file: file.map(str::to_owned) })
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelSource::RandomTiny => f.write_str(RANDOM_TINY),
            ModelSource::Random(shape) => write!(f, "{shape}"),
            ModelSource::Pocket => f.write_str(POCKET),
            ModelSource::Folder(text) | ModelSource::File(text) => f.write_str(text),
            ModelSource::Hub { repo, revision, file } => {
                write!(f, "{repo}")?;
                if revision != DEFAULT_REVISION {
                    write!(f, "@{revision}")?;
                }
                file.iter().try_for_each(|file| write!(f, ":{file}"))
            }
        }
    }
}

/// Whether a text names a path and not a repository of the hub: by its beginning, or because something is there.
pub fn is_path(text: &str) -> bool {
    [".", "..", "~"].contains(&text)
        || ["./", "../", "/", "~/"].iter().any(|start| text.starts_with(start))
        || (!text.is_empty() && Path::new(text).exists())
}

/// Replaces a leading `~` by the home directory, as a shell would.
///
/// # Errors
/// A `~` if the home directory is unknown.
pub fn expand_home(text: &str) -> Result<PathBuf> {
    expand_tilde(text, std::env::home_dir())
}

fn expand_tilde(text: &str, home: Option<PathBuf>) -> Result<PathBuf> {
    let Some(rest) = text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        return Ok(PathBuf::from(text));
    };
    let home = home.context("the home directory is unknown: set HOME or write the path out")?;
    Ok(home.join(rest.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(owner_name: &str, revision: &str) -> ModelSource {
        ModelSource::Hub { repo: owner_name.parse().unwrap(), revision: revision.to_owned(), file: None }
    }

    fn hub_file(owner_name: &str, revision: &str, file: &str) -> ModelSource {
        let (repo, file) = (owner_name.parse().unwrap(), Some(file.to_owned()));
        ModelSource::Hub { repo, revision: revision.to_owned(), file }
    }

    #[test]
    fn sources_are_distinguished_by_how_they_start() {
        let folder = |text: &str| ModelSource::Folder(text.to_owned());
        for (text, expected) in [
            ("random-tiny", ModelSource::RandomTiny),
            ("pocket", ModelSource::Pocket),
            ("./pocket", folder("./pocket")),
            ("/models/a", folder("/models/a")),
            ("./a@b", folder("./a@b")),
            ("./a//", folder("./a")),
            ("../a/b/", folder("../a/b")),
            (".", folder(".")),
            ("/", folder("/")),
            ("~/models", folder("~/models")),
            ("./random-h64", folder("./random-h64")),
            ("./models/a.gguf", ModelSource::File("./models/a.gguf".to_owned())),
            ("random-h64/name", hub("random-h64/name", "main")),
            ("HuggingFaceTB/SmolLM2-135M", hub("HuggingFaceTB/SmolLM2-135M", "main")),
            ("o/n@main", hub("o/n", "main")),
            ("o/n@v1.0", hub("o/n", "v1.0")),
            ("o/n@refs/pr/3", hub("o/n", "refs/pr/3")),
            ("o/n:a.Q4_1.gguf", hub_file("o/n", "main", "a.Q4_1.gguf")),
            ("o/n@v1:sub/a.gguf", hub_file("o/n", "v1", "sub/a.gguf")),
        ] {
            let source: ModelSource = text.parse().unwrap();
            assert_eq!(source, expected, "{text}");
            assert_eq!(source.to_string().parse::<ModelSource>().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn the_canonical_text_leaves_out_defaults() {
        for (text, canonical) in [
            ("random-h64-l2-a4-f96-v300", "random-h64-l2-a4-k4-f96-v300"),
            ("random-s9-h64-l2-a4-f96-v300", "random-h64-l2-a4-k4-f96-v300-s9"),
            ("random-h64-l2-a4-f96-v300-s1", "random-h64-l2-a4-k4-f96-v300"),
            ("random-v300-f96-k2-a4-l2-h64", "random-h64-l2-a4-k2-f96-v300"),
            ("o/n@main", "o/n"),
            ("o/n@v1", "o/n@v1"),
        ] {
            let source: ModelSource = text.parse().unwrap();
            assert_eq!(source.to_string(), canonical);
            assert_eq!(canonical.parse::<ModelSource>().unwrap(), source);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let words = "llama random-h64 random-small o/ a/b/c o/n@ o/n@../x o/n@-x o/n@a//b o/n@a\\b -o/n o/.n o\\x/n \
                     o/n..m o/n--m o/n?x o/n.git o/n@a@b ~user/x o/n:a.safetensors o/n:../a.gguf o/n:/a.gguf o/n: \
                     o/n:a:b.gguf";
        for text in words.split(' ').chain(["", "/n\n", "o /n", "o/n@x\u{7}"]) {
            assert!(text.parse::<ModelSource>().is_err(), "{text:?} was accepted");
        }
        let error = "llama".parse::<ModelSource>().unwrap_err().to_string();
        assert!(error.contains("`./llama`"), "{error}");
    }

    #[test]
    fn a_tilde_is_the_home_directory_only_at_the_start() {
        for (text, expected) in [("~", "/u/"), ("~/x", "/u/x"), ("./~/x", "./~/x"), ("~user/x", "~user/x")] {
            assert_eq!(expand_tilde(text, Some("/u".into())).unwrap(), PathBuf::from(expected));
        }
        assert!(expand_tilde("~/x", None).is_err());
    }
}
