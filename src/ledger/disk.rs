//! Writing files that appear whole or not at all, whatever is killed and whoever else writes.
//!
//! No clocks and no locks are involved. Each writer has a temporary file of its own and renames it into place; it then removes
//! temporary files left by other writers of the same file, and a living writer whose temporary file was removed starts over.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::bounded_read;

/// Writes a whole file: to a temporary name in the same folder, then to the disk, then renamed into place.
///
/// # Errors
/// A folder that cannot be written or a full disk; nothing is left behind, and an older file stays.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    replace(path, bytes, File::sync_all).map_err(advised).with_context(cannot(path))?;
    sync_folder(path)
}

/// Writes a file that can be derived again: whole too, but not synced to the disk.
///
/// # Errors
/// A folder that cannot be written or a full disk; an older file stays.
pub fn write_derived(path: &Path, bytes: &[u8]) -> Result<()> {
    replace(path, bytes, |_| Ok(())).map_err(advised).with_context(cannot(path))
}

/// Writes the file that a user named for what a command makes: whole too, where links lead to; into a pipe or a device as it is.
///
/// # Errors
/// What [`write_derived`] refuses.
pub fn write_output(path: &Path, bytes: &[u8]) -> Result<()> {
    let is_stream = fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
    let written = match is_stream {
        true => fs::write(path, bytes),
        false => replace(&path.canonicalize().unwrap_or(path.to_owned()), bytes, |_| Ok(())),
    };
    written.with_context(cannot(path))
}

fn cannot(path: &Path) -> impl FnOnce() -> String {
    move || format!("{} cannot be written", path.display())
}

/// How often a writer starts over after another removed its temporary file.
const MAX_ATTEMPTS: usize = 100;

fn replace(path: &Path, bytes: &[u8], sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    let folder = folder_of(path);
    let start = format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy());
    let attempt = || -> io::Result<()> {
        let mut temporary = unique(&start, TEMPORARY_END).tempfile_in(folder)?;
        temporary.write_all(bytes)?;
        sync(temporary.as_file())?;
        temporary.persist(path)?;
        Ok(())
    };
    let was_removed = |error: &io::Error| error.kind() == io::ErrorKind::NotFound && folder.is_dir();
    let mut attempts = 1;
    loop {
        match attempt() {
            Err(error) if was_removed(&error) && attempts < MAX_ATTEMPTS => attempts += 1,
            written => break written?,
        }
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| is_temporary(name, &start)) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs a file's folder, so that a rename in it survives a power cut.
fn sync_folder(path: &Path) -> Result<()> {
    let folder = folder_of(path);
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some network file systems cannot sync a folder; the file itself is on the disk.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        outcome => outcome.with_context(|| format!("{} cannot be synced", folder.display())),
    }
}

/// The bytes of a file; `None` if another process removed it.
pub(super) fn read_unless_removed(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    match bounded_read::bytes(path, limit) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => bytes.map(Some).with_context(|| format!("{} cannot be read", path.display())),
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

/// Creates a folder and checks that files can be written to it, before hours of work depend on it.
pub(super) fn make_writable(folder: &Path) -> Result<()> {
    let what = || format!("results cannot be written to {}", folder.display());
    fs::create_dir_all(folder).map_err(advised).with_context(what)?;
    // An unnamed file: a kill leaves nothing behind.
    let mut probe = tempfile::tempfile_in(folder).map_err(advised).with_context(what)?;
    // A full disk can still create an empty file.
    probe.write_all(&[0; 4096]).and_then(|()| probe.sync_all()).map_err(advised).with_context(what)
}

/// Creates an empty file with a unique name: `start`, six letters or digits, `end`.
pub(super) fn create_unique(folder: &Path, start: &str, end: &str) -> io::Result<(File, PathBuf)> {
    Ok(unique(start, end).tempfile_in(folder)?.keep()?)
}

fn unique<'a>(start: &'a str, end: &'a str) -> tempfile::Builder<'a, 'a> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(start).suffix(end);
    // The usual permissions, by the umask: the folder may belong to a group.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// Adds advice to a failed write where there is some. It is the last of an error chain, so that the hint is printed last.
pub(super) fn advised(error: io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "the disk is full, and what was measured before is kept\n\
             hint: free space there, then run the same command again: it continues where it stopped"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "nothing was written\nhint: choose another results folder, or change the permissions of this one"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is in the way\nhint: choose another results folder"
        }
        io::ErrorKind::NotFound => {
            "its folder does not exist\n\
             hint: if it was moved, move it back or name its new place with --results; if it was removed or moved, run the same \
             command again to continue with what is left"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {advice}"))
}

/// Temporary files are hidden and do not end in `.parquet`, so no reader takes them for results.
const TEMPORARY_END: &str = ".tmp";

/// Whether a name is `start`, six letters or digits, and the ending of temporary files.
fn is_temporary(name: &str, start: &str) -> bool {
    let middle = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(TEMPORARY_END));
    middle.is_some_and(|middle| middle.len() == 6 && middle.bytes().all(|b| b.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn concurrent_writers_leave_one_whole_file_and_remove_leftovers_of_killed_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let others = [".a.parquet.b.abc123.tmp", ".a.parquet.tmp", ".aa.parquet.tmp", "a.parquet.tmp"];
        for name in [".a.parquet.aB3dE6.tmp"].iter().chain(&others) {
            fs::write(folder.path().join(name), b"half").unwrap();
        }
        let contents: Vec<Vec<u8>> = (0..4).map(|writer| vec![writer; 100_000 + writer as usize]).collect();
        write_whole(&path, &contents[0]).unwrap();
        std::thread::scope(|scope| {
            for bytes in &contents {
                scope.spawn(|| (0..50).for_each(|_| write_derived(&path, bytes).unwrap()));
            }
            for _ in 0..500 {
                assert!(contents.contains(&fs::read(&path).unwrap()), "a reader never sees a torn file");
            }
        });
        let mut expected: Vec<&str> = others.into_iter().chain(["a.parquet"]).collect();
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected, "files of other names stay");
    }

    #[cfg(unix)]
    #[test]
    fn the_umask_decides_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [plain, whole] = ["plain", "whole"].map(|name| folder.path().join(name));
        fs::write(&plain, b"").unwrap();
        write_whole(&whole, b"").unwrap();
        let (_, unique) = create_unique(folder.path(), "journal.", ".jsonl").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!([mode(&whole), mode(&unique)], [mode(&plain); 2]);
    }

    #[test]
    fn a_full_disk_is_recognised() {
        use io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, StorageFull, TimedOut};
        let full = |kind: io::ErrorKind| advised(kind.into()).to_string().contains("the disk is full");
        assert_eq!([StorageFull, QuotaExceeded, FileTooLarge].map(full), [true; 3]);
        assert_eq!([PermissionDenied, TimedOut].map(full), [false; 2]);
    }

    #[test]
    fn failed_writes_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        // A folder in the file's place: the rename fails after the temporary file was written.
        fs::create_dir_all(folder.path().join("a.parquet/inside")).unwrap();
        assert!(write_whole(&folder.path().join("a.parquet"), b"one").is_err());
        let gone = format!("{:#}", write_whole(&folder.path().join("gone/a"), b"one").unwrap_err());
        assert!(gone.contains("gone/a") && gone.contains("hint: if it was moved"), "{gone}");
        assert_eq!(names(folder.path()), ["a.parquet"]);
        make_writable(folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["a.parquet"]);
    }
}
