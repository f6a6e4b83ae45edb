//! Results folders that vanish during a run: removed, moved, unmounted, or without their journals.

use std::fs;

use crate::disks::with_mounts;
use crate::scene::{Scene, under_way};
use crate::support::rows::{assert_same, kept, measured};
use crate::support::sweep::{SMALL, Sweep};

#[test]
fn a_removed_folder_ends_the_run_and_loses_only_its_cells() {
    let scene = Scene::new();
    let results = scene.results("removed");
    let mut running = scene.start("removed");
    running.until(|| under_way(&results));
    let before = kept(&results).samples;
    // Files that are written meanwhile hinder the removal, as they would a user's.
    while fs::remove_dir_all(&results).is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {}
    let ended = running.wait().with_code(1);
    ended.says(&["error:", "removed", "hint:"]);
    let left = kept(&results);
    eprintln!("{}\n{before} samples before, {left:?} after", ended.stderr);
    assert!(left.samples >= before && left.torn == 0, "{before} samples before, {left:?} after");
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
fn journals_that_are_removed_are_written_again() {
    let scene = Scene::new();
    let results = scene.results("robbed");
    let mut running = scene.start("robbed");
    let mut removed = 0;
    running.until(|| {
        if under_way(&results) && removed < 200 {
            for entry in fs::read_dir(results.join("partial")).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|ending| ending == "jsonl") {
                    removed += usize::from(fs::remove_file(path).is_ok());
                }
            }
        }
        false
    });
    running.wait().with_code(0);
    assert!(removed > 10, "only {removed} journals were removed");
    eprintln!("{removed} journals were removed");
    scene.to_the_end("robbed").says(&["0 cells measured, 38 were there already"]);
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
