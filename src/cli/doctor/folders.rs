//! The folders that are written to, results and the cache: room, permission, locks, and what kind of disk it is.
//!
//! A folder that is not there yet is judged by the nearest one above it, and not made.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::finding::{Finding, Verdict};
use crate::cli::sweeps::bytes;
use crate::lm::source::HubSettings;
use crate::lm::{Mount, mounts};

/// Results are small: a sweep of a thousand cells takes some megabytes.
const LEAST_FOR_RESULTS: u64 = 50_000_000;
const LITTLE_FOR_RESULTS: u64 = 1_000_000_000;
/// A model of 7 billion parameters in 16 bits, with some room.
const LITTLE_FOR_MODELS: u64 = 15_000_000_000;

/// Models and data sets that are named; of the others only the number is said.
const NAMED: usize = 6;

pub(super) fn results(folder: &Path) -> Finding {
    let place = Place::of(folder);
    let finding = place.finding("results", folder, "choose another with --results, or change its permissions");
    match place.free {
        Some(free) if free < LEAST_FOR_RESULTS => finding.but(Verdict::Problem, "free space there"),
        Some(free) if free < LITTLE_FOR_RESULTS => finding
            .but(Verdict::Note, "little space: a run stops where the disk is full, and goes on when it is not"),
        _ => finding,
    }
}

/// The cache as a place to write to, and what is in it.
pub(super) fn cache(settings: &HubSettings, offline: bool) -> [Finding; 2] {
    let folder = &settings.cache_dir;
    let place = Place::of(folder);
    let mut finding = place.finding(
        "cache",
        folder,
        "models cannot be fetched: set HF_HOME or HF_HUB_CACHE to a folder of your own",
    );
    if offline && finding.verdict == Verdict::Problem {
        // Nothing is fetched then.
        finding.verdict = Verdict::Note;
    }
    if place.free.is_some_and(|free| free < LITTLE_FOR_MODELS) && !offline {
        finding = finding
            .but(Verdict::Note, "a model of 7 B parameters takes 13.5 GB: set HF_HOME to a folder with more room");
    }
    [finding, contents(folder)]
}

/// What is known of a folder, or of the one above it that is there.
struct Place {
    /// The folder looked at.
    seen: PathBuf,
    exists: bool,
    free: Option<u64>,
    mount: Option<Mount>,
    /// A file could be written and brought to the disk.
    written: io::Result<()>,
    locks: Locks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locks {
    Hold,
    /// A second one was given while the first was held, or none is given at all.
    DoNot,
    Unknown,
}

impl Place {
    fn of(folder: &Path) -> Place {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let seen = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/")).to_path_buf();
        let (written, locks) = match probe(&seen) {
            Ok(locks) => (Ok(()), locks),
            Err(error) => (Err(error), Locks::Unknown),
        };
        let canonical = fs::canonicalize(&seen).unwrap_or_else(|_| seen.clone());
        let mount = mount_of(&canonical, mounts());
        Place { exists: seen == folder, free: free_bytes(&seen), mount, written, locks, seen }
    }

    fn finding(&self, name: &'static str, folder: &Path, if_not_written: &str) -> Finding {
        let kind = self.mount.as_ref().map(|mount| mount.kind.as_str());
        let made = if self.exists { "" } else { " (will be made)" };
        let free = self.free.map_or(String::new(), |free| format!(", {} free", bytes(free)));
        let value =
            format!("{}{made}{free}{}", folder.display(), kind.map_or(String::new(), |k| format!(" on {k}")));
        let finding = Finding::ok(name, value)
            .figure("folder", folder.display().to_string())
            .figure("free_bytes", self.free)
            .figure("file_system", kind)
            .figure("writable", self.written.is_ok());
        let finding = match &self.written {
            Ok(()) => finding,
            Err(error) => finding.but(
                Verdict::Problem,
                format!("nothing can be written to {}: {error}; {if_not_written}", self.seen.display()),
            ),
        };
        let finding = match self.locks {
            Locks::DoNot => finding.but(
                Verdict::Note,
                "this file system gives no locks, so two runs must not write there at the same time: give each shard \
                 a --results of its own (Lustre: mount with -o flock; NFS: start lockd)",
            ),
            Locks::Hold | Locks::Unknown => finding,
        };
        match self.mount.as_ref().and_then(caution) {
            Some(caution) => finding.but(Verdict::Note, caution),
            None => finding,
        }
    }
}

/// Writes a file as a result is written, looks whether a lock on it keeps others out, and removes it.
fn probe(folder: &Path) -> io::Result<Locks> {
    if !folder.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "a file is in the way"));
    }
    let mut file = tempfile::Builder::new().prefix(".doctor-").tempfile_in(folder)?;
    file.write_all(&[0; 4096])?;
    file.as_file().sync_all()?;
    let second = File::open(file.path())?;
    let locks = match file.as_file().try_lock() {
        Err(_) => Locks::DoNot,
        Ok(()) => match second.try_lock() {
            Err(TryLockError::WouldBlock) => Locks::Hold,
            Ok(()) | Err(TryLockError::Error(_)) => Locks::DoNot,
        },
    };
    file.close()?;
    Ok(locks)
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

/// The mount a path lies on: the deepest, and of several at one point the last, which covers the others.
fn mount_of(path: &Path, mounts: Vec<Mount>) -> Option<Mount> {
    let on_it = mounts.into_iter().filter(|mount| path.starts_with(&mount.point));
    on_it.max_by_key(|mount| mount.point.components().count())
}

/// What to know about a kind of disk.
fn caution(mount: &Mount) -> Option<&'static str> {
    let has = |option: &str| mount.options.iter().any(|has| has == option);
    match mount.kind.as_str() {
        "tmpfs" | "ramfs" => Some("it lies in memory: it counts against the job's, and is gone after a restart"),
        "overlay" => Some(
            "it is a layer of a container and goes with it: mount a folder of the machine there (docker run -v)",
        ),
        "lustre" if has("localflock") => {
            Some("locks hold on one node only (localflock): give the shards of each node a --results of their own")
        }
        kind if kind.starts_with("nfs") && (has("nolock") || has("local_lock=all") || has("local_lock=flock")) => {
            Some(
                "locks hold on one node only (nolock or local_lock): give the shards of each node a --results of their own",
            )
        }
        _ => None,
    }
}

/// A repository in the cache.
struct Cached {
    name: String,
    bytes: u64,
    unfinished: usize,
}

/// Models and data sets, as every Hugging Face tool lays them out.
fn contents(folder: &Path) -> Finding {
    let mut cached: Vec<Cached> = names(folder).iter().filter_map(|name| repository(folder, name)).collect();
    if cached.is_empty() {
        return Finding::ok("cached", "nothing yet").figure("bytes", 0);
    }
    cached.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.name.cmp(&b.name)));
    let total: u64 = cached.iter().map(|cached| cached.bytes).sum();
    let shown: Vec<String> =
        cached.iter().take(NAMED).map(|cached| format!("{} {}", cached.name, bytes(cached.bytes))).collect();
    let more = cached.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let of = if cached.len() == 1 { "repository" } else { "repositories" };
    let value = format!("{} {of}, {}: {}{more}", cached.len(), bytes(total), shown.join(", "));
    let unfinished: usize = cached.iter().map(|cached| cached.unfinished).sum();
    let finding = Finding::ok("cached", value).figure("bytes", total).figure("repositories", cached.len());
    if unfinished == 0 {
        return finding;
    }
    finding.but(
        Verdict::Note,
        format!("{unfinished} unfinished downloads: `run` goes on with them where they stopped"),
    )
}

fn repository(folder: &Path, name: &str) -> Option<Cached> {
    let (kind, rest) = name.split_once("--")?;
    let called = rest.replace("--", "/");
    let name_shown = match kind {
        "models" => called,
        "datasets" => format!("data set {called}"),
        _ => return None,
    };
    let blobs = folder.join(name).join("blobs");
    let mut cached = Cached { name: name_shown, bytes: 0, unfinished: 0 };
    for name in names(&blobs) {
        let length = fs::metadata(blobs.join(&name)).map_or(0, |meta| meta.len());
        cached.bytes += length;
        let partial = name.ends_with(".part") || name.ends_with(".incomplete");
        cached.unfinished += usize::from(partial && length > 0);
    }
    Some(cached)
}

/// Names in a folder, sorted; none if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &str, kind: &str, options: &str) -> Mount {
        Mount { point: point.into(), kind: kind.into(), options: options.split(',').map(str::to_string).collect() }
    }

    #[test]
    fn the_deepest_mount_counts_and_of_two_the_last() {
        let all = || vec![mount("/", "ext4", "rw"), mount("/a", "nfs4", "rw"), mount("/a", "lustre", "rw,flock")];
        assert_eq!(mount_of(Path::new("/a/b"), all()).unwrap().kind, "lustre");
        assert_eq!(mount_of(Path::new("/ab"), all()).unwrap().kind, "ext4");
        assert!(mount_of(Path::new("/a"), Vec::new()).is_none());
    }

    #[test]
    fn disks_with_locks_of_one_node_are_told() {
        for (kind, options, told) in [
            ("ext4", "rw", false),
            ("nfs4", "rw,vers=4.2,local_lock=none", false),
            ("nfs", "rw,nolock", true),
            ("nfs4", "rw,local_lock=flock", true),
            ("lustre", "rw,flock", false),
            ("lustre", "rw,localflock", true),
            ("tmpfs", "rw", true),
            ("overlay", "rw", true),
        ] {
            assert_eq!(caution(&mount("/x", kind, options)).is_some(), told, "{kind} {options}");
        }
    }

    #[test]
    fn what_is_cached_is_counted() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(contents(root.path()).value, "nothing yet");
        for (path, length) in [
            ("models--o--n/blobs/abc", 3_000_000),
            ("models--o--n/blobs/def.part", 1_000_000),
            ("models--o--n/snapshots/c/config.json", 7),
            ("datasets--o--d/blobs/123", 5_000),
            ("version.txt", 1),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            File::create(path).unwrap().set_len(length).unwrap();
        }
        let found = contents(root.path());
        assert_eq!(found.value, "2 repositories, 4.0 MB: o/n 4.0 MB, data set o/d 5.0 kB");
        assert!(found.verdict == Verdict::Note && found.advice[0].starts_with("1 unfinished"), "{found:?}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_judged_and_not_made() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        let place = Place::of(&folder);
        assert!(place.written.is_ok() && !place.exists && place.free.is_some(), "{:?}", place.written);
        assert_eq!((names(root.path()).len(), place.locks), (0, Locks::Hold));
        fs::write(root.path().join("a"), "").unwrap();
        assert_eq!(results(&folder).verdict, Verdict::Problem);
    }
}
