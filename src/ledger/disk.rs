//! Writing that survives a kill, a full disk and company: a file appears whole or not at all.
//!
//! Knows files, not what is in them. It trusts no clock and no lock. Each writer has a temporary file of its own; whoever
//! brings a file into its place sweeps away the temporary files of others who meant to write the same one, dead or alive,
//! and a living one whose temporary file was swept away writes it again.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes a whole file: to a temporary name in the same folder, then to the disk, then renamed into place.
///
/// # Errors
/// A folder that can't be written or a full disk; nothing is left behind then, and an older file stays.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    appear(path, bytes, File::sync_all)?;
    sync_folder(path)
}

/// Writes a file that can be derived again: whole as all others, but a power cut may still cost it.
///
/// # Errors
/// As for results: a folder that can't be written or a full disk; an older file stays.
pub fn write_derived(path: &Path, bytes: &[u8]) -> Result<()> {
    appear(path, bytes, |_| Ok(()))
}

/// Times a writer is patient with others that sweep its temporary file away: each of them has just written the file.
const PATIENCE: usize = 100;

fn appear(path: &Path, bytes: &[u8], settle: impl Fn(&File) -> io::Result<()>) -> Result<()> {
    let folder = folder_of(path);
    let start = temporary_start(path);
    let attempt = || -> io::Result<()> {
        let mut temporary = unique(&start, TEMPORARY_END).tempfile_in(folder)?;
        temporary.write_all(bytes)?;
        settle(temporary.as_file())?;
        temporary.persist(path)?;
        Ok(())
    };
    let mut written = attempt();
    for _ in 0..PATIENCE {
        match &written {
            Err(error) if error.kind() == io::ErrorKind::NotFound && folder.is_dir() => written = attempt(),
            _ => break,
        }
    }
    written.map_err(advised).with_context(|| format!("{} cannot be written", path.display()))?;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| is_temporary(name, &start)) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// The folder a file is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a rename or a removal in a file's folder survive a power cut.
fn sync_folder(path: &Path) -> Result<()> {
    let folder = folder_of(path);
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
    // Without a name, so that a kill leaves nothing.
    let mut probe = tempfile::tempfile_in(folder).map_err(advised).with_context(what)?;
    // A full disk still makes an empty file.
    probe.write_all(&[0; 4096]).and_then(|()| probe.sync_all()).map_err(advised).with_context(what)
}

/// Makes an empty file that nobody else has made: `start`, six letters or digits, `end`.
pub(super) fn create_unique(folder: &Path, start: &str, end: &str) -> io::Result<(File, PathBuf)> {
    Ok(unique(start, end).tempfile_in(folder)?.keep()?)
}

fn unique<'a>(start: &'a str, end: &'a str) -> tempfile::Builder<'a, 'a> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(start).suffix(end);
    // As of any other file: who may read it is for the user's umask to say. A folder may be a group's.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// What tells a file or a folder from another that came into its place; where the system does not say, all are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    pub fn of(metadata: &Metadata) -> Identity {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Identity(metadata.dev(), metadata.ino())
        }
        #[cfg(not(unix))]
        {
            let _ = metadata;
            Identity(0, 0)
        }
    }

    /// That of what a path leads to now, if it leads to anything.
    pub fn at(path: &Path) -> io::Result<Option<Identity>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(Identity::of(&metadata))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether an open file has no name any more, so that it goes when it is closed.
pub(super) fn is_removed(file: &File) -> bool {
    match file.metadata() {
        #[cfg(unix)]
        Ok(metadata) => std::os::unix::fs::MetadataExt::nlink(&metadata) == 0,
        #[cfg(not(unix))]
        Ok(_) => false,
        // A server that has forgotten the file says so.
        Err(_) => true,
    }
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
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)
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
        io::ErrorKind::NotFound => {
            "its folder is not there\n\
             hint: if it was moved, bring it back or name its new place with --results, then run the same command again"
        }
        _ => return error.into(),
    };
    WriteError { error, advice }.into()
}

/// Temporary files are hidden, and no `.parquet`, so no reader takes one for a result.
const TEMPORARY_END: &str = ".tmp";

/// How the names of a file's temporary files begin.
fn temporary_start(path: &Path) -> String {
    format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Whether a name is that of a temporary file whose name begins so: six letters or digits, or none, as in the first
/// version of this program, follow.
fn is_temporary(name: &str, start: &str) -> bool {
    let middle = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(TEMPORARY_END));
    let middle = middle.or((format!("{start}tmp") == name).then_some(""));
    middle
        .is_some_and(|middle| [0, 6].contains(&middle.len()) && middle.bytes().all(|b| b.is_ascii_alphanumeric()))
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
    fn a_file_appears_whole_and_takes_what_dead_writers_left_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let others = [".a.parquet.b.abc123.tmp", ".a.parquet.tmpp", ".aa.parquet.tmp", "a.parquet.tmp"];
        for name in [".a.parquet.tmp", ".a.parquet.aB3dE6.tmp"].iter().chain(&others) {
            fs::write(folder.path().join(name), b"half").unwrap();
        }
        write_whole(&path, b"one").unwrap();
        write_derived(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mut expected: Vec<&str> = others.into_iter().chain(["a.parquet"]).collect();
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected, "files of other names stay");
    }

    #[test]
    fn writers_of_one_file_leave_one_of_their_contents_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let contents: Vec<Vec<u8>> = (0..4).map(|writer| vec![writer; 100_000 + writer as usize]).collect();
        write_derived(&path, &contents[0]).unwrap();
        std::thread::scope(|scope| {
            for bytes in &contents {
                scope.spawn(|| (0..50).for_each(|_| write_derived(&path, bytes).unwrap()));
            }
            for _ in 0..500 {
                assert!(contents.contains(&fs::read(&path).unwrap()), "a reader never sees a torn file");
            }
        });
        assert_eq!(names(folder.path()), ["a.parquet"]);
    }

    #[cfg(unix)]
    #[test]
    fn files_are_readable_as_the_umask_says() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        fs::write(folder.path().join("plain"), b"").unwrap();
        write_whole(&folder.path().join("whole"), b"").unwrap();
        let (_, unique) = create_unique(folder.path(), "journal.", ".jsonl").unwrap();
        assert_eq!(mode("whole"), mode("plain"));
        assert_eq!(mode(unique.file_name().unwrap().to_str().unwrap()), mode("plain"));
    }

    #[test]
    fn a_full_disk_is_recognised_and_the_hint_comes_last() {
        let full = |kind| advised(io::Error::from(kind)).context("the file").context("the cell");
        assert!(is_disk_full(&full(io::ErrorKind::StorageFull)));
        assert!(is_disk_full(&full(io::ErrorKind::QuotaExceeded)));
        assert!(is_disk_full(&full(io::ErrorKind::FileTooLarge)));
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
        let gone = format!("{:#}", write_whole(&folder.path().join("gone/a"), b"one").unwrap_err());
        assert!(gone.contains("gone/a") && gone.contains("hint: if it was moved"), "{gone}");
        assert!(make_writable(&folder.path().join("b")).is_ok());
        write_whole(&folder.path().join("file"), b"").unwrap();
        let error = format!("{:#}", make_writable(&folder.path().join("file/below")).unwrap_err());
        assert!(error.contains("hint:") && error.contains("file/below"), "{error}");
        assert!(names(&folder.path().join("b")).is_empty());
    }
}
