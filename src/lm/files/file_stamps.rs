//! Detects that a model's files changed during a run.
//!
//! A run names its cells after a digest of the files and loads the weights later, perhaps hours later. The file system's stamps are
//! cheap to compare but may differ without a change of content, as after `chmod`; if they differ, the digest is computed again.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use super::source::CheckpointFiles;
use crate::bounded_read;

/// Files of a checkpoint, the stamps they had at first, and their revision.
#[derive(Debug)]
pub(in crate::lm) struct StampedFiles {
    pub files: CheckpointFiles,
    stamps: Vec<Stamp>,
    /// Revision, once it was computed.
    revision: OnceLock<String>,
}

/// Device, inode and length of a file, and the time of its last change of any kind, which no program can set back, in seconds and
/// nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

impl StampedFiles {
    /// Records the stamps, before anything in the files is read.
    ///
    /// # Errors
    ///
    /// Files that are missing, or only as a Git LFS clone leaves them.
    pub fn new(files: CheckpointFiles) -> Result<StampedFiles> {
        files.digested().try_for_each(|path| check_fetched(path))?;
        Ok(StampedFiles { stamps: stamps(&files)?, files, revision: OnceLock::new() })
    }

    /// Revision of the files, computed at the first call.
    pub fn revision(&self) -> Result<String> {
        let revision = self.files.revision()?;
        Ok(self.revision.get_or_init(|| revision).clone())
    }

    /// Checks that the files still have the revision; does nothing if it was never computed.
    pub fn check(&self) -> Result<()> {
        let Some(revision) = self.revision.get() else { return Ok(()) };
        if stamps(&self.files).is_ok_and(|now| now == self.stamps) {
            return Ok(());
        }
        let is_same = self.files.revision().is_ok_and(|found| found == *revision);
        let names: Vec<String> = self.files.digested().map(|path| path.display().to_string()).collect();
        ensure!(
            is_same,
            "the files of the model have changed since this run began ({})\nhint: let whatever writes them end, then run the same \
             command again: results of the former files are kept",
            names.join(", ")
        );
        Ok(())
    }
}

/// Refuses a text of some lines that stands for a file that Git LFS has not fetched.
fn check_fetched(path: &Path) -> Result<()> {
    let is_short = path.metadata().is_ok_and(|file| file.is_file() && file.len() < MOST_POINTER);
    let is_pointer = is_short
        && bounded_read::bytes(path, MOST_POINTER)
            .is_ok_and(|bytes| bytes.starts_with(b"version https://git-lfs.github.com/spec/"));
    ensure!(
        !is_pointer,
        "{} is not the file itself but what a Git LFS clone leaves in its place: run `git lfs pull` there, or fetch the file anew",
        path.display()
    );
    Ok(())
}

const MOST_POINTER: u64 = 1024;

fn stamps(files: &CheckpointFiles) -> Result<Vec<Stamp>> {
    let stamp = |path: &PathBuf| {
        let file = path.metadata().with_context(|| format!("cannot find {}", path.display()))?;
        Ok((file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
    };
    files.digested().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::source::{HubSettings, ModelSource};
    use super::*;

    #[test]
    fn only_changes_of_content_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["config.json", "model.safetensors"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let source = ModelSource::Folder(folder.path().display().to_string());
        let files = source.resolve(&HubSettings::with_cache_dir("nowhere"), &()).unwrap();
        let weights = &files.weights[0].clone();
        let stamped = StampedFiles::new(files).unwrap();
        // No revision was computed yet.
        fs::write(weights, "others").unwrap();
        stamped.check().unwrap();
        stamped.revision().unwrap();
        stamped.check().unwrap();
        // Another file with the same bytes.
        fs::write(folder.path().join("copy"), "others").unwrap();
        fs::rename(folder.path().join("copy"), weights).unwrap();
        stamped.check().unwrap();
        // Other bytes of the same length, with the time of modification set back.
        let time = weights.metadata().unwrap().modified().unwrap();
        fs::write(weights, "OTHERS").unwrap();
        fs::File::options().write(true).open(weights).unwrap().set_modified(time).unwrap();
        let error = format!("{:#}", stamped.check().unwrap_err());
        assert!(error.contains("model.safetensors)") && error.contains("hint: let"), "{error}");
        fs::remove_file(weights).unwrap();
        assert!(format!("{:#}", stamped.check().unwrap_err()).contains("have changed since"));
    }

    #[test]
    fn what_git_lfs_leaves_in_place_of_a_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 4976698672\n";
        fs::write(folder.path().join("config.json"), "{}").unwrap();
        fs::write(folder.path().join("model.safetensors"), pointer).unwrap();
        let source = ModelSource::Folder(folder.path().display().to_string());
        let files = source.resolve(&HubSettings::with_cache_dir("nowhere"), &()).unwrap();
        let error = StampedFiles::new(files).unwrap_err().to_string();
        assert!(
            error.contains("model.safetensors is not the file itself") && error.contains("git lfs pull"),
            "{error}"
        );
    }
}
