//! Several processes on one folder: writers of the same cells, a stopped one, readers.

use std::path::PathBuf;
use std::time::Duration;

use super::scene::{LONG, Scene, skipped, under_way};
use crate::support::program::run;
use crate::support::rows::kept;
use crate::support::sweep::Sweep;

#[test]
fn several_processes_share_a_folder() {
    let scene = Scene::new();
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(scene.start("shared"));
        // Each starts while the others are at another place.
        std::thread::sleep(scene.undisturbed.mul_f64(0.2));
    }
    for running in all {
        running.wait().with_code(0);
    }
    // No cell may be missing or measured twice.
    let last = scene.to_the_end("shared");
    assert_eq!(skipped(&last), scene.cells);
    scene.assert_same("shared");
}

#[test]
fn two_sweeps_share_their_common_cells() {
    let scene = Scene::new();
    // Another name, other names of policies, fewer cells here and more there.
    let more = "define:\n  mine: {score: last_attention, scope: layer}\n";
    let other = Sweep { policies: "[window, mine, h2o, full]", cache_sizes: "[16, 130]", more, ..LONG };
    std::fs::write(scene.folder.path().join("other.yaml"), other.text()).unwrap();
    let mut one = scene.start("two");
    // It is measuring its first task, five of whose cells are also the other sweep's.
    one.until(|| kept(&scene.results("two")).samples > 0);
    let arguments = ["run", "other.yaml", "--no-report", "--results", "two"];
    let ended = run(scene.folder.path(), &arguments).with_code(0);
    assert!(!ended.stderr.contains("14 cells measured"), "{}", ended.stderr);
    one.wait().with_code(0);
    // The cells that each left to the other.
    scene.to_the_end("two");
    run(scene.folder.path(), &arguments).with_code(0).says(&["0 cells measured, 14 were there already"]);
    let ids: std::collections::BTreeSet<_> = scene.expected.iter().map(|row| row.cell.clone()).collect();
    let mut rows = crate::support::rows::measured(&scene.results("two"));
    // `window` instead of `window+4`, in two tasks and sizes, belongs only to the other sweep.
    assert_eq!(kept(&scene.results("two")).cells, scene.cells + 4);
    rows.retain(|row| ids.contains(&row.cell));
    // A shared cell has the names of the sweep that measured it.
    let plain = |row: &tova_bench::ledger::Row| tova_bench::ledger::Row {
        sweep: Default::default(),
        policy: Default::default(),
        ..row.clone()
    };
    let expected: Vec<_> = scene.expected.iter().map(plain).collect();
    crate::support::rows::assert_same(&rows.iter().map(plain).collect::<Vec<_>>(), &expected);
}

#[test]
fn a_paused_process_keeps_its_cells_and_continues() {
    let scene = Scene::new();
    let results = scene.results("stopped");
    let mut first = scene.start("stopped");
    first.until(|| under_way(&results));
    assert!(first.signal(libc::SIGSTOP), "the run was over before the signal");
    let second = scene.run_beside("stopped");
    second.says(&["0 cells measured", "measured by another process"]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(first.signal(libc::SIGCONT));
    first.wait().with_code(0);
    scene.to_the_end("stopped");
    scene.assert_same("stopped");
}

#[test]
fn readers_see_complete_files_during_a_run() {
    let scene = Scene::new();
    let results = scene.results("read");
    let folder = scene.folder.path();
    let mut running = scene.start("read");
    let mut looks = 0;
    running.until(|| kept(&results).cells > 0);
    while running.goes_on() {
        let read = |arguments: &[&str]| run(folder, arguments).with_code(0);
        read(&["plan", "sweep.yaml", "--results", "read"]);
        read(&["report", "read", "--out", "report"]);
        // Samples may be added between its two looks, which it reports.
        let compared = run(folder, &["compare", "read", "read"]);
        compared.sound();
        assert!(!compared.stderr.contains("damaged"), "{}", compared.stderr);
        looks += 1;
    }
    assert!(looks > 0, "the run was over before anybody looked");
    running.wait().with_code(0);
    scene.assert_same("read");
}

#[test]
fn several_reports_into_one_folder_leave_complete_files() {
    let scene = Scene::new();
    scene.to_the_end("drawn");
    let folder: PathBuf = scene.folder.path().to_path_buf();
    run(&folder, &["report", "drawn", "--out", "expected"]).with_code(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| run(&folder, &["report", "drawn", "--out", "shared"]).with_code(0));
        }
    });
    let files = |name: &str| {
        let mut found: Vec<(PathBuf, Vec<u8>)> = Vec::new();
        let root = folder.join(name);
        for part in [root.clone(), root.join("figures")] {
            let paths = std::fs::read_dir(part).unwrap().map(|entry| entry.unwrap().path());
            found.extend(
                paths
                    .filter(|path| path.is_file())
                    .map(|path| (path.strip_prefix(&root).unwrap().to_path_buf(), std::fs::read(&path).unwrap())),
            );
        }
        found.sort();
        found
    };
    let (expected, shared) = (files("expected"), files("shared"));
    assert!(expected.len() > 10);
    let names = |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&shared), names(&expected), "no temporary file is left");
    for ((name, shared), (_, expected)) in shared.iter().zip(&expected) {
        assert!(shared == expected, "{} differs", name.display());
    }
}

#[test]
fn unfinished_cells_merge_with_all_their_journals() {
    let scene = Scene::new();
    let results = scene.results("apart");
    for samples in [21, 45] {
        let mut running = scene.start("apart");
        running.until(|| under_way(&results) && kept(&results).samples >= samples);
        assert!(running.signal(libc::SIGKILL), "the run was over before the kill");
        drop(running);
    }
    let left = kept(&results);
    let journals = std::fs::read_dir(results.join("partial")).unwrap().map(|entry| entry.unwrap().path());
    let journals = journals.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")).count();
    assert!(journals > scene.cells - left.cells, "some cell has two journals: {journals}, {left:?}");
    for _ in 0..2 {
        run(scene.folder.path(), &["merge", "together", "apart"]).with_code(0);
        assert_eq!(kept(&scene.results("together")), left);
    }
    let last = scene.to_the_end("together");
    assert_eq!(skipped(&last), left.cells);
    scene.assert_same("together");
}
