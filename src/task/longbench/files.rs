//! Finds LongBench's files: in a folder, in the archive of the hub, or named themselves.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Version;
use crate::task::data::{is_archive, names, text_of};

/// The most bytes of a file. LongBench's largest has tens of millions.
const MOST_BYTES: u64 = 1 << 30;

/// The archive of LongBench and LongBench-E on the hub.
pub const ARCHIVE: &str = "data.zip";

/// The file of LongBench v2.
pub const V2_FILE: &str = "data.json";

/// The name of a subset's file.
pub fn file_name(subset: &str, version: Version) -> String {
    format!("{subset}{}.jsonl", if version == Version::E { "_e" } else { "" })
}

/// The places of a file of a folder or archive.
fn places(file: &str) -> [String; 2] {
    [file.to_owned(), format!("data/{file}")]
}

/// The path of a file of this name, or of the archive that holds it: `path` itself, or what is in that folder. `None`: there is none.
///
/// # Errors
/// An archive that is damaged.
pub fn find(path: &Path, file: &str) -> Result<Option<PathBuf>> {
    if path.is_file() && !is_archive(path) {
        return Ok(Some(path.to_path_buf()).filter(|path| path.ends_with(file)));
    }
    let places = places(file);
    if let Some(found) = places.iter().map(|place| path.join(place)).find(|found| found.is_file()) {
        return Ok(Some(found));
    }
    let archive = if is_archive(path) { path.to_path_buf() } else { path.join(ARCHIVE) };
    if !archive.is_file() {
        return Ok(None);
    }
    let listed = names(&archive)?;
    Ok(Some(archive).filter(|_| places.iter().any(|place| listed.contains(place))))
}

/// The text of a file, and its name for errors.
///
/// # Errors
/// A file that is not there, or cannot be read.
pub fn read(path: &Path, file: &str) -> Result<(String, String)> {
    let found = find(path, file)?.with_context(|| format!("{} has no {file}", path.display()))?;
    text_of(&found, &places(file), MOST_BYTES)
}
