//! Disks that are full or read-only, files in the way, and files that were damaged.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::scene::skipped;
use crate::support::material::skip;
use crate::support::program::{Ended, finish, isolated, run};
use crate::support::rows::{assert_same, measured};
use crate::support::sweep::{SMALL, Sweep};

#[test]
fn a_damaged_result_is_named_and_measured_again_after_its_removal() {
    let folder = tempfile::tempdir().unwrap();
    SMALL.write(folder.path());
    let arguments = ["run", "sweep.yaml", "--results", "r"];
    let check = ["plan", "sweep.yaml", "--results", "r", "--check"];
    run(folder.path(), &arguments).with_code(0);
    run(folder.path(), &check).with_code(0);
    let expected = measured(&folder.path().join("r"));
    let cells = folder.path().join("r/cells");
    let result = fs::read_dir(&cells).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&result).unwrap();
    let name = result.file_name().unwrap().to_str().unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&flipped, &whole[..whole.len() / 2], &[]] {
        fs::write(&result, damaged).unwrap();
        for arguments in [&arguments[..], &["report", "r"]] {
            run(folder.path(), arguments).with_code(1).says(&[name, "damaged", "hint: remove"]);
        }
        let plan = run(folder.path(), &check).with_code(4);
        assert!(plan.stdout.contains(name) && plan.stdout.contains("2 cells: 1 done, 1 to do"), "{}", plan.stdout);
    }
    // The file of another cell, whole.
    let other = fs::read_dir(&cells).unwrap().map(|entry| entry.unwrap().path()).find(|path| *path != result);
    fs::copy(other.unwrap(), &result).unwrap();
    run(folder.path(), &check).with_code(4);
    fs::remove_file(&result).unwrap();
    run(folder.path(), &arguments).with_code(0).says(&["1 cells measured, 1 were there already"]);
    assert_same(&measured(&folder.path().join("r")), &expected);
}

#[test]
fn a_file_in_the_place_of_the_results_is_named() {
    let folder = tempfile::tempdir().unwrap();
    SMALL.write(folder.path());
    fs::write(folder.path().join("taken"), "a file").unwrap();
    for results in ["taken", "taken/below"] {
        let ended = run(folder.path(), &["run", "sweep.yaml", "--results", results]).with_code(1);
        ended.says(&["results cannot be written to taken", "a file is in the way", "hint: choose another"]);
    }
    assert_eq!(fs::read_to_string(folder.path().join("taken")).unwrap(), "a file");
}

/// A shell in a mount namespace of its own, whose mounts end with it, even if it is killed. `None`, with a message, where
/// the system does not allow it.
pub fn with_mounts(test: &str, folder: &Path, script: &str) -> Option<Ended> {
    let shell = |script: &str| {
        let mut unshare = isolated(Command::new("unshare"), folder);
        // In a user namespace, users who are not root can mount too.
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        unshare.arg("sh").arg(env!("CARGO_BIN_EXE_tova-bench"));
        unshare
    };
    let mut probe = shell("mkdir -p disk && mount -t tmpfs -o size=64k none disk && mount --bind disk disk");
    match probe.output() {
        Ok(output) if output.status.success() => Some(finish(shell(&format!("set -e\n{script}")))),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            skip(test, "mounts", &format!("to mount a file system: {}", why.trim()));
            None
        }
        Err(error) => {
            skip(test, "mounts", &format!("the command unshare: {error}"));
            None
        }
    }
}

#[test]
fn a_read_only_folder_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    SMALL.write(folder.path());
    let script = "mkdir -p disk && mount --bind disk disk && mount -o remount,ro,bind disk\n\
        \"$1\" run sweep.yaml --results disk/r";
    let Some(ended) = with_mounts("a_read_only_folder", folder.path(), script) else { return };
    ended.with_code(1).says(&["results cannot be written to disk/r", "Read-only", "hint: choose another"]);
}

#[test]
fn a_full_disk_keeps_finished_samples_and_the_run_resumes_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = Sweep {
        policies: "[full, tova, h2o, truncate]",
        cache_sizes: "[8, 32]",
        tasks: &["dataset: random-words, length: 256, books: 2, chunks_per_book: 4"],
        ..SMALL
    };
    sweep.write(folder.path());
    run(folder.path(), &["run", "sweep.yaml", "--results", "expected"]).with_code(0);
    let expected = measured(&folder.path().join("expected"));
    // Room for nothing at all, for some samples, for all samples but no cells, and for all but the figures.
    for (room, says) in [
        (0, "results cannot be written to disk/r"),
        (28, "the disk is full"),
        (120, "the disk is full"),
        (304, "tova-bench report disk/r"),
    ] {
        let script = format!(
            "mount -t tmpfs -o size=4m none disk
             head -c $((4096 - {room}))k /dev/zero > disk/filler 2>> filler.err || true
             \"$1\" run sweep.yaml --results disk/r > full.out && exit 99 || echo \"full: $?\" >&2
             ls disk/r/cells/*.parquet 2>> filler.err | wc -l > cells
             cat disk/r/partial/*.jsonl 2>> filler.err | wc -l > samples
             rm disk/filler
             \"$1\" run sweep.yaml --results disk/r > freed.out
             cp -r disk/r results"
        );
        let Some(ended) = with_mounts("a_full_disk", folder.path(), &script) else { return };
        let ended = ended.with_code(0);
        ended.says(&["full: 1", "No space left on device", says]);
        if room < 200 {
            ended.says(&["hint: free space there, then run the same command again"]);
        }
        let count = |file: &str| -> usize {
            fs::read_to_string(folder.path().join(file)).unwrap().trim().parse().unwrap()
        };
        eprintln!("{room} KiB of room kept {} cells and {} samples of others", count("cells"), count("samples"));
        assert_eq!(skipped(&ended), count("cells"), "{}", ended.stderr);
        let results = folder.path().join("results");
        assert_same(&measured(&results), &expected);
        fs::remove_dir_all(results).unwrap();
    }
}
