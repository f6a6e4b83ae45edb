//! The folders that runs write to: whether they are writable, how much space they have, and whether locks hold there.
//!
//! For a folder that does not exist yet, the nearest existing parent is checked; nothing is made.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::json;

use super::finding::{Finding, Severity};
use crate::format::Bytes;
use crate::lm::{Mount, mounts};

/// A sweep of a thousand cells takes some megabytes.
const LEAST_FOR_RESULTS: u64 = 50_000_000;
/// A model of 7 billion parameters in 16 bits, with some room.
const LITTLE_FOR_MODELS: u64 = 15_000_000_000;

pub(super) fn results(folder: &Path) -> Finding {
    let advice = "choose another with --results, or change its permissions";
    let (finding, free) = check("results", folder, advice);
    finding.problem_if(free.is_some_and(|free| free < LEAST_FOR_RESULTS), "too little space for results")
}

pub(super) fn cache(folder: &Path, offline: bool) -> Finding {
    let advice = "models cannot be fetched: set HF_HOME or HF_HUB_CACHE to a folder of your own";
    let (mut finding, free) = check("cache", folder, advice);
    if offline {
        // Nothing is fetched then.
        finding.severity = finding.severity.min(Severity::Note);
        return finding;
    }
    finding.note_if(
        free.is_some_and(|free| free < LITTLE_FOR_MODELS),
        "a model of 7 B parameters takes 13.5 GB: set HF_HOME to a folder with more room",
    )
}

/// Checks a folder, or its nearest existing parent. Also returns the free bytes, if the system says.
fn check(name: &'static str, folder: &Path, if_not_writable: &str) -> (Finding, Option<u64>) {
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let checked = whole.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let canonical = fs::canonicalize(checked).unwrap_or_else(|_| checked.to_path_buf());
    let mount = mount_of(&canonical, mounts());
    let (free, locks) = (free_bytes(checked), probe(checked));
    let kind = mount.as_ref().map(|mount| mount.kind.as_str());
    let new = if checked == whole { "" } else { " (will be made)" };
    let free_text = free.map_or(String::new(), |free| format!(", {} free", Bytes(free)));
    let on = kind.map_or(String::new(), |kind| format!(" on {kind}"));
    let finding = Finding::ok(name, format!("{}{new}{free_text}{on}", folder.display())).figures(json!({
        "folder": folder.display().to_string(),
        "free_bytes": free,
        "file_system": kind,
        "writable": locks.is_ok(),
    }));
    let finding = match locks {
        Err(error) => {
            finding.problem(format!("cannot write to {}: {error}; {if_not_writable}", checked.display()))
        }
        Ok(false) => finding.note(
            "this file system has no locks: give each process a --results of its own (Lustre: mount with -o flock; \
             NFS: start lockd)",
        ),
        Ok(true) => finding.note_if(
            mount.as_ref().is_some_and(locks_are_local),
            "locks hold on one node only, by a mount option: give the shards of each node a --results of their own",
        ),
    };
    (finding, free)
}

/// Writes and removes a small file; whether a lock on it keeps others out.
fn probe(folder: &Path) -> io::Result<bool> {
    if !folder.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "a file is in the way"));
    }
    let mut file = tempfile::Builder::new().prefix(".doctor-").tempfile_in(folder)?;
    file.write_all(&[0; 4096])?;
    file.as_file().sync_all()?;
    let second = File::open(file.path())?;
    let holds = file.as_file().try_lock().is_ok() && matches!(second.try_lock(), Err(TryLockError::WouldBlock));
    file.close()?;
    Ok(holds)
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

/// The mount that a path lies on: the deepest, and the last of several at one point, which hides the others.
fn mount_of(path: &Path, mounts: Vec<Mount>) -> Option<Mount> {
    let around = mounts.into_iter().filter(|mount| path.starts_with(&mount.point));
    around.max_by_key(|mount| mount.point.components().count())
}

/// Whether a mount of a network file system keeps locks to one node.
fn locks_are_local(mount: &Mount) -> bool {
    let has = |names: &[&str]| mount.options.iter().any(|option| names.contains(&option.as_str()));
    match mount.kind.as_str() {
        "lustre" => has(&["localflock"]),
        kind => kind.starts_with("nfs") && has(&["nolock", "local_lock=all", "local_lock=flock"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &str, kind: &str, options: &str) -> Mount {
        let options = options.split(',').map(str::to_string).collect();
        Mount { point: point.into(), kind: kind.into(), options }
    }

    #[test]
    fn the_deepest_and_last_mount_counts() {
        let all = || vec![mount("/", "ext4", "rw"), mount("/a", "nfs4", "rw"), mount("/a", "lustre", "rw,flock")];
        assert_eq!(mount_of(Path::new("/a/b"), all()).unwrap().kind, "lustre");
        assert_eq!(mount_of(Path::new("/ab"), all()).unwrap().kind, "ext4");
        assert!(mount_of(Path::new("/a"), Vec::new()).is_none());
    }

    #[test]
    fn mounts_with_local_locks_are_recognized() {
        for (kind, options, local) in [
            ("ext4", "rw", false),
            ("nfs4", "rw,vers=4.2,local_lock=none", false),
            ("nfs", "rw,nolock", true),
            ("nfs4", "rw,local_lock=flock", true),
            ("lustre", "rw,flock", false),
            ("lustre", "rw,localflock", true),
        ] {
            assert_eq!(locks_are_local(&mount("/x", kind, options)), local, "{kind} {options}");
        }
    }
}
