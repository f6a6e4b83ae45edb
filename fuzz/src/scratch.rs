//! A temporary folder for the files of one process, in memory if possible, and inputs that consist of several
//! files.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

/// Separates the files of one input.
pub const CUT: &[u8] = b"\n%%\n";

/// The files of an input.
pub fn parts(input: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = input;
    while let Some(at) = rest.windows(CUT.len()).position(|window| window == CUT) {
        parts.push(&rest[..at]);
        rest = &rest[at + CUT.len()..];
    }
    parts.push(rest);
    parts
}

/// A folder of this process, in memory if the system has `/dev/shm`.
pub fn folder(name: &str) -> PathBuf {
    static ROOT: OnceLock<TempDir> = OnceLock::new();
    let memory = Path::new("/dev/shm");
    let root = ROOT.get_or_init(|| {
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        made.expect("a temporary folder")
    });
    let folder = root.path().join(name);
    std::fs::create_dir_all(&folder).expect("a folder below the temporary one");
    folder
}

/// Writes a file, or removes it if there is nothing to write.
pub fn write(file: &Path, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => std::fs::write(file, bytes).expect("a file in the temporary folder"),
        None => drop(std::fs::remove_file(file)),
    }
}
