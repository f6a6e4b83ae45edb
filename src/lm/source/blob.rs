//! Blobs of the cache and the pointers of a snapshot to them.
//!
//! A blob is named by its etag and shared by every commit that has it; a pointer is a relative link, so the cache can be
//! moved. Another process may work on the same files: whatever it made stays.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::hub_http::RemoteFile;

/// What is wrong with a blob: its length, or its content where the etag is a SHA-256 (large files).
pub(super) fn damage(blob: &Path, described: &RemoteFile) -> std::io::Result<Option<String>> {
    let mut file = fs::File::open(blob)?;
    let (length, expected) = (file.metadata()?.len(), described.size);
    if length != expected {
        return Ok(Some(format!("{length} bytes instead of {expected}")));
    }
    let etag = described.etag.as_str();
    if etag.len() == 64 && etag.bytes().all(|b| b.is_ascii_hexdigit()) {
        let mut hash = Sha256::new();
        std::io::copy(&mut file, &mut hash)?;
        let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if !found.eq_ignore_ascii_case(etag) {
            return Ok(Some("its SHA-256 is not the one the hub names".to_owned()));
        }
    }
    Ok(None)
}

/// A pointer to a deleted blob is in the way of a new one. One that leads to a file stays: another process made it.
fn clear_dangling(pointer: &Path) -> std::io::Result<()> {
    if !pointer.is_symlink() || pointer.exists() {
        return Ok(());
    }
    match fs::remove_file(pointer) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Points the snapshot at a blob that is there already, as files that did not change between commits are.
#[cfg(unix)]
pub(super) fn link(blob: &Path, pointer: &Path) -> std::io::Result<()> {
    let beyond = |path: &Path| std::io::Error::new(ErrorKind::InvalidInput, path.display().to_string());
    let root = blob.ancestors().find(|root| pointer.starts_with(root)).ok_or_else(|| beyond(blob))?;
    let inner = blob.strip_prefix(root).map_err(|_| beyond(blob))?;
    let folder = pointer.parent().ok_or_else(|| beyond(pointer))?;
    let depth = folder.strip_prefix(root).map_err(|_| beyond(pointer))?.components().count();
    let up: PathBuf = std::iter::repeat_n("..", depth).collect();
    fs::create_dir_all(folder)?;
    clear_dangling(pointer)?;
    match std::os::unix::fs::symlink(up.join(inner), pointer) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Where links need rights that few have, the file itself stands in the snapshot, as hf-hub does it there.
#[cfg(not(unix))]
pub(super) fn link(blob: &Path, pointer: &Path) -> std::io::Result<()> {
    pointer.parent().map_or(Ok(()), fs::create_dir_all)?;
    clear_dangling(pointer)?;
    fs::rename(blob, pointer)
}
