//! Writing that survives a kill and a full disk: a file appears whole or not at all.
//!
//! Knows files, not what is in them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes a whole file: to a temporary name in the same folder, then to the disk, then renamed into place.
///
/// # Errors
/// A folder that can't be written or a full disk; nothing is left behind then, and an older file stays.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary(path);
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(advised(error)).with_context(|| format!("{} cannot be written", path.display()));
    }
    sync_folder(path)
}

/// Makes a rename or a removal in a file's folder survive a power cut.
pub(super) fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some network file systems cannot sync a folder; the file itself is on the disk.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        outcome => outcome.with_context(|| format!("{} cannot be brought to the disk", folder.display())),
    }
}

/// Removes a file that may not exist.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}

/// Makes a folder and proves that a file can be written into it, before hours of work depend on it.
pub(super) fn make_writable(folder: &Path) -> Result<()> {
    let what = || format!("results cannot be written to {}", folder.display());
    fs::create_dir_all(folder).map_err(advised).with_context(what)?;
    let mut probe =
        tempfile::Builder::new().prefix(".probe-").tempfile_in(folder).map_err(advised).with_context(what)?;
    // A full disk still makes an empty file.
    probe.write_all(&[0; 4096]).and_then(|()| probe.as_file().sync_all()).map_err(advised).with_context(what)?;
    probe.close().with_context(what)
}

/// A write that failed for a reason with a known way out. It ends its chain, so that the hint is what is read last.
#[derive(Debug, thiserror::Error)]
#[error("{error}; {advice}")]
struct WriteError {
    error: io::Error,
    advice: &'static str,
}

/// Whether an error is a full disk: then the next cell would fail as well.
pub fn is_disk_full(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|write: &WriteError| is_full(write.error.kind()))
}

fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// An IO error with what to do about it, where that is known.
pub(super) fn advised(error: io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        kind if is_full(kind) => {
            "what was measured before is kept\n\
             hint: free space there, then run the same command again: it continues where it stopped"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "nothing was written\nhint: choose another results folder, or change the permissions of this one"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is in the way\nhint: choose another results folder"
        }
        _ => return error.into(),
    };
    WriteError { error, advice }.into()
}

/// The name a file has until it is whole. It is hidden, and no `.parquet`, so no reader takes it for a result; two
/// writers of one cell are kept apart by the journal's lock.
fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tmp");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_appears_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(folder.path()), ["a.parquet"]);
    }

    #[test]
    fn a_full_disk_is_recognised_and_the_hint_comes_last() {
        let full = |kind| advised(io::Error::from(kind)).context("the file").context("the cell");
        assert!(is_disk_full(&full(io::ErrorKind::StorageFull)));
        assert!(is_disk_full(&full(io::ErrorKind::QuotaExceeded)));
        assert!(!is_disk_full(&full(io::ErrorKind::PermissionDenied)));
        assert!(!is_disk_full(&full(io::ErrorKind::TimedOut)));
        let printed = format!("{:#}", full(io::ErrorKind::StorageFull));
        assert!(printed.ends_with("it continues where it stopped"), "{printed}");
    }

    #[test]
    fn nothing_is_left_where_writing_fails() {
        let folder = tempfile::tempdir().unwrap();
        // A folder in the file's place: the rename fails after the temporary file was written.
        let path = folder.path().join("a.parquet");
        fs::create_dir_all(path.join("inside")).unwrap();
        assert!(write_whole(&path, b"one").is_err());
        assert_eq!(names(folder.path()), ["a.parquet"]);
        assert!(make_writable(&folder.path().join("b")).is_ok());
        write_whole(&folder.path().join("file"), b"").unwrap();
        let error = format!("{:#}", make_writable(&folder.path().join("file/below")).unwrap_err());
        assert!(error.contains("hint:") && error.contains("file/below"), "{error}");
        assert!(names(&folder.path().join("b")).is_empty());
    }
}
