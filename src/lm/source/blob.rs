//! Blobs of the cache, and the links of a snapshot to them.
//!
//! A blob is named by its etag and shared by all commits that have it; links are relative, so the cache can be
//! moved. Other processes may work on the same files: whatever they made is kept.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::hub_http::RemoteFile;

/// What is wrong with a blob: its length, or its content if the etag is a SHA-256, as it is for large files.
pub(super) fn damage(blob: &Path, remote: &RemoteFile) -> std::io::Result<Option<String>> {
    let mut file = fs::File::open(blob)?;
    let (length, expected) = (file.metadata()?.len(), remote.size);
    if length != expected {
        return Ok(Some(format!("{length} bytes instead of {expected}")));
    }
    let etag = remote.etag.as_str();
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

/// Removes a link to a deleted blob, which would be in the way of a new one.
fn remove_dangling(link: &Path) -> std::io::Result<()> {
    if !link.is_symlink() || link.exists() {
        return Ok(());
    }
    match fs::remove_file(link) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Links the file `name` of a snapshot to its blob.
#[cfg(unix)]
pub(super) fn link(blob: &Path, name: &str, link: &Path) -> std::io::Result<()> {
    let up = "../".repeat(name.split('/').count() + 1);
    let blob = Path::new(&up).join("blobs").join(blob.file_name().unwrap_or_default());
    link.parent().map_or(Ok(()), fs::create_dir_all)?;
    remove_dangling(link)?;
    match std::os::unix::fs::symlink(blob, link) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// On systems where few users may make links, the snapshot holds the file itself, as with hf-hub.
#[cfg(not(unix))]
pub(super) fn link(blob: &Path, _name: &str, link: &Path) -> std::io::Result<()> {
    link.parent().map_or(Ok(()), fs::create_dir_all)?;
    remove_dangling(link)?;
    fs::rename(blob, link)
}
