//! Whether a model's files are still those its results are named after.
//!
//! A run names its cells after a digest first and loads the weights later, perhaps hours later. What the file system says of
//! a file is cheap to ask and may alarm for nothing, as after `chmod`; so where it says that something changed, the digest
//! is taken again, and decides. Knows files, not what is in them.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use super::source::CheckpointFiles;

/// A checkpoint's files as they were first seen.
#[derive(Debug)]
pub(super) struct FileStamps {
    stamps: Vec<Stamp>,
    /// The revision, once it was asked for.
    revision: OnceLock<String>,
}

/// What a file system says of a file.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    length: u64,
    modified: Option<SystemTime>,
    /// Which file it is, and when anything about it changed last: no program sets that back.
    #[cfg(unix)]
    which: (u64, u64, i64, i64),
}

impl FileStamps {
    /// Looks at files before anything in them is read.
    ///
    /// # Errors
    /// A file that is gone.
    pub fn of(files: &CheckpointFiles) -> Result<FileStamps> {
        Ok(FileStamps { stamps: stamps(files)?, revision: OnceLock::new() })
    }

    /// The revision of the files.
    ///
    /// # Errors
    /// As [`CheckpointFiles::revision`].
    pub fn revision(&self, files: &CheckpointFiles) -> Result<String> {
        let revision = files.revision()?;
        Ok(self.revision.get_or_init(|| revision).clone())
    }

    /// Checks that the files are those of the revision. Nothing is checked where nobody asked for it.
    ///
    /// # Errors
    /// Files that have changed, or are gone.
    pub fn check(&self, files: &CheckpointFiles) -> Result<()> {
        let Some(revision) = self.revision.get() else { return Ok(()) };
        let hint = "hint: let whatever writes them end, then run the same command again: what was measured with the \
                    former files is kept";
        let now = stamps(files)
            .with_context(|| format!("the files of the model have changed since this run began\n{hint}"))?;
        if now == self.stamps {
            return Ok(());
        }
        let found = files.revision()?;
        if found == *revision {
            return Ok(());
        }
        let changed: Vec<String> = now
            .iter()
            .filter(|stamp| !self.stamps.contains(stamp))
            .map(|stamp| stamp.path.display().to_string())
            .collect();
        bail!(
            "the files of the model have changed since this run began ({}): they were {revision}, and are {found}\n{hint}",
            changed.join(", ")
        )
    }
}

fn stamps(files: &CheckpointFiles) -> Result<Vec<Stamp>> {
    let paths = [&files.config].into_iter().chain(&files.weights).chain(&files.tokenizer);
    let stamp = |path: &PathBuf| {
        let metadata = path.metadata().with_context(|| format!("cannot find {}", path.display()))?;
        Ok(Stamp {
            path: path.clone(),
            length: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            which: {
                use std::os::unix::fs::MetadataExt;
                (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
            },
        })
    };
    paths.map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn checkpoint(folder: &Path) -> CheckpointFiles {
        for name in ["config.json", "model.safetensors"] {
            fs::write(folder.join(name), name).unwrap();
        }
        CheckpointFiles {
            config: folder.join("config.json"),
            weights: vec![folder.join("model.safetensors")],
            tokenizer: None,
            tokenizer_config: None,
            generation_config: None,
            chat_template: None,
            commit: None,
        }
    }

    #[test]
    fn a_change_of_content_is_told_and_another_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let files = checkpoint(folder.path());
        let weights = &files.weights[0];
        let seen = FileStamps::of(&files).unwrap();
        // Nothing was named after the files yet.
        fs::write(weights, "others").unwrap();
        seen.check(&files).unwrap();
        seen.revision(&files).unwrap();
        seen.check(&files).unwrap();
        // The same bytes in another file.
        fs::write(folder.path().join("copy"), "others").unwrap();
        fs::rename(folder.path().join("copy"), weights).unwrap();
        seen.check(&files).unwrap();
        // Other bytes of the same length and with the time set back.
        let time = weights.metadata().unwrap().modified().unwrap();
        fs::write(weights, "OTHERS").unwrap();
        fs::File::options().write(true).open(weights).unwrap().set_modified(time).unwrap();
        let told = format!("{:#}", seen.check(&files).unwrap_err());
        assert!(told.contains("model.safetensors)") && told.contains("hint: let"), "{told}");
        fs::remove_file(weights).unwrap();
        assert!(format!("{:#}", seen.check(&files).unwrap_err()).contains("have changed since"));
    }
}
