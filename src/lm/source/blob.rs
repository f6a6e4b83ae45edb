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

/// Links the file `name` of a snapshot to its blob. On systems where few users may make links, the snapshot holds the
/// file itself, as with hf-hub.
#[cfg_attr(not(unix), expect(unused_variables))]
pub(super) fn link(blob: &Path, name: &str, link: &Path) -> std::io::Result<()> {
    link.parent().map_or(Ok(()), fs::create_dir_all)?;
    // A link to a deleted blob would be in the way.
    if link.is_symlink() && !link.exists() {
        fs::remove_file(link).or_else(|error| ignore(error, ErrorKind::NotFound))?;
    }
    #[cfg(unix)]
    let made = {
        let up = "../".repeat(name.split('/').count() + 1);
        let target = Path::new(&up).join("blobs").join(blob.file_name().unwrap_or_default());
        std::os::unix::fs::symlink(target, link)
    };
    #[cfg(not(unix))]
    let made = fs::rename(blob, link);
    made.or_else(|error| ignore(error, ErrorKind::AlreadyExists))
}

/// Success if another process was faster.
fn ignore(error: std::io::Error, kind: ErrorKind) -> std::io::Result<()> {
    if error.kind() == kind { Ok(()) } else { Err(error) }
}
