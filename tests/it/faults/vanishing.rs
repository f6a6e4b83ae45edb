//! Results folders that vanish during a run: removed, moved, unmounted, or without their journals.

use std::fs;

use super::disks::with_mounts;
use super::scene::{Scene, under_way};
use crate::support::rows::{assert_same, kept, measured};
use crate::support::sweep::{SMALL, Sweep};

#[test]
fn a_removed_folder_ends_the_run_and_loses_only_its_cells() {
    let scene = Scene::new();
    let results = scene.results("removed");
    let mut running = scene.start("removed");
    running.until(|| under_way(&results));
    // Files that are written meanwhile hinder the removal, as they would a user's.
    while fs::remove_dir_all(&results).is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {}
    let ended = running.wait().with_code(1);
    ended.says(&["error:", "removed", "hint:"]);
    assert!(!results.exists(), "nothing is made in its place");
    scene.to_the_end("removed");
    scene.assert_same("removed");
}

#[test]
fn a_moved_folder_ends_the_run_and_loses_nothing() {
    let scene = Scene::new();
    let (here, there) = (scene.results("here"), scene.results("there"));
    let mut running = scene.start("here");
    running.until(|| under_way(&here));
    let before = kept(&here);
    fs::rename(&here, &there).unwrap();
    running.wait().with_code(1).says(&["error:", "here", "hint: "]);
    assert!(!here.exists(), "nothing is made in its place");
    let left = kept(&there);
    assert!(left.cells >= before.cells && left.cells + left.samples > before.cells + before.samples, "{left:?}");
    scene.to_the_end("there").says(&[&format!("{} were there already", left.cells)]);
    scene.assert_same("there");
}

#[test]
fn a_removed_journal_ends_the_run_and_loses_only_its_samples() {
    let scene = Scene::new();
    let results = scene.results("robbed");
    let mut running = scene.start("robbed");
    running.until(|| under_way(&results));
    for entry in fs::read_dir(results.join("partial")).unwrap() {
        // Its cell may have been completed meanwhile.
        let _ = fs::remove_file(entry.unwrap().path());
    }
    running.wait().with_code(1).says(&["error:", "removed", "hint:"]);
    scene.to_the_end("robbed");
    scene.assert_same("robbed");
}

#[test]
fn an_unmounted_disk_ends_the_run_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = &["dataset: random-words, length: 512, books: 4, chunks_per_book: 8"];
    let sweep = Sweep { policies: "[full, tova, h2o]", cache_sizes: "[8, 32]", tasks, ..SMALL };
    sweep.write(folder.path());
    crate::support::program::run(folder.path(), &["run", "sweep.yaml", "--results", "expected"]).with_code(0);
    let expected = measured(&folder.path().join("expected"));
    // A second mount keeps the disk while the first is removed.
    let script = "mkdir -p disk kept && mount -t tmpfs none disk && mount --bind disk kept
         \"$1\" run sweep.yaml --results disk/r > unmounted.out &
         run=$!
         until [ \"$(cat kept/r/partial/*.jsonl 2>> waiting.err | wc -l)\" -gt 3 ]; do kill -0 $run; done
         umount -l disk
         wait $run && exit 99 || echo \"unmounted: $?\" >&2
         ls disk | wc -l > below
         mount --bind kept disk
         \"$1\" run sweep.yaml --results disk/r > mounted.out
         cp -r disk/r results";
    let Some(ended) = with_mounts("an_unmounted_disk", folder.path(), script) else { return };
    ended.with_code(0).says(&["unmounted: 1", "error:", "hint: "]);
    assert_eq!(
        fs::read_to_string(folder.path().join("below")).unwrap().trim(),
        "0",
        "nothing is made below the mount"
    );
    assert_same(&measured(&folder.path().join("results")), &expected);
}
