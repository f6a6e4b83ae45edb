//! Files and clocks that change between two runs, between a digest and its use, or while a model is read.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tova_bench::ledger::Row;

use crate::support::checkpoint;
use crate::support::material::skip;
use crate::support::program::{command, finish, run, start};
use crate::support::rows::{assert_same, kept, measured};
use crate::support::sweep::{SMALL, Sweep, write_texts};

/// A checkpoint `model` and texts, and a sweep that takes its time with them.
fn scene(models: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_texts(folder.path(), 4, 2000);
    checkpoint::copy(folder.path(), "model");
    let tasks = &["dataset: ./texts, length: 500"];
    Sweep { models, policies: "[full, tova, window]", cache_sizes: "[16, 64]", tasks, ..SMALL }
        .write(folder.path());
    folder
}

/// Changes a bit of the last weight.
fn flip(folder: &Path) {
    let path = folder.join("model/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

fn of_revision(rows: &[Row], revision: &str) -> Vec<Row> {
    rows.iter().filter(|row| row.model_revision == revision).cloned().collect()
}

#[test]
fn changed_weights_are_measured_beside_the_old_rows() {
    let folder = scene("[./model]");
    let results = folder.path().join("r");
    let arguments = ["run", "sweep.yaml", "--no-report", "--results", "r"];
    run(folder.path(), &arguments).with_code(0);
    let before = measured(&results);
    let former = before[0].model_revision.clone();
    flip(folder.path());
    run(folder.path(), &arguments).with_code(0).says(&["5 cells measured, 0 were there already"]);
    let both = measured(&results);
    assert_eq!(both.len(), 2 * before.len());
    assert_same(&of_revision(&both, &former), &before);
    // The old weights are recognised too.
    for _ in 0..2 {
        let again = run(folder.path(), &arguments).with_code(0);
        again.says(&["0 cells measured, 5 were there already"]);
        flip(folder.path());
    }
}

#[test]
fn weights_that_change_after_their_digest_fail_their_own_cells() {
    let folder = scene("[random-tiny, ./model]");
    let results = folder.path().join("r");
    let arguments = ["run", "sweep.yaml", "--no-report", "--results", "r"];
    let mut command = command(folder.path());
    command.args(arguments);
    let mut running = start(command);
    running.until(|| kept(&results).samples > 0);
    assert!(running.goes_on(), "the run was over before the weights changed");
    flip(folder.path());
    let ended = running.wait().with_code(4);
    ended.says(&["have changed since this run began", "model.safetensors", "hint: let whatever writes them end"]);
    let rows = measured(&results);
    assert!(rows.iter().all(|row| row.model == "random-tiny"), "nothing is measured with weights of another name");
    run(folder.path(), &arguments).with_code(0).says(&["5 cells measured, 5 were there already"]);
    run(folder.path(), &["run", "sweep.yaml", "--no-report", "--results", "fresh"]).with_code(0);
    assert_same(&measured(&results), &measured(&folder.path().join("fresh")));
}

#[test]
fn files_that_change_or_vanish_during_a_run_change_nothing() {
    let folder = scene("[./model]");
    run(folder.path(), &["run", "sweep.yaml", "--no-report", "--results", "expected"]).with_code(0);
    let results = folder.path().join("r");
    let mut command = command(folder.path());
    command.args(["run", "sweep.yaml", "--no-report", "--results", "r"]);
    let mut running = start(command);
    running.until(|| kept(&results).samples > 0);
    assert!(running.goes_on(), "the run was over before the files changed");
    // Books and weights are in memory.
    checkpoint::cut_short(&folder.path().join("model/model.safetensors"), 100);
    fs::remove_file(folder.path().join("model/tokenizer.json")).unwrap();
    fs::write(folder.path().join("texts/book-0.txt"), "another text").unwrap();
    fs::remove_file(folder.path().join("texts/book-3.txt")).unwrap();
    running.wait().with_code(0);
    assert_same(&measured(&results), &measured(&folder.path().join("expected")));
}

#[test]
fn changed_texts_make_other_cells() {
    let folder = scene("[random-tiny]");
    let results = folder.path().join("r");
    let arguments = ["run", "sweep.yaml", "--no-report", "--results", "r"];
    run(folder.path(), &arguments).with_code(0);
    let before = measured(&results);
    let text = folder.path().join("texts/book-2.txt");
    let mut bytes = fs::read(&text).unwrap();
    bytes[1000] = if bytes[1000] == b'a' { b'b' } else { b'a' };
    fs::write(&text, bytes).unwrap();
    let again = run(folder.path(), &arguments).with_code(0);
    again.says(&["5 cells measured, 0 were there already"]);
    assert!(!again.stderr.contains("warning:"), "the model has not changed: {}", again.stderr);
    let both = measured(&results);
    let cells: std::collections::BTreeSet<_> = before.iter().map(|row| row.cell.clone()).collect();
    let (former, new): (Vec<Row>, Vec<Row>) = both.into_iter().partition(|row| cells.contains(&row.cell));
    assert_same(&former, &before);
    assert_eq!(new.len(), before.len());
}

/// The library that gives a program another clock, where Debian's package `faketime` or another system has it.
fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.map(|entry| entry.unwrap().path());
    let places = folders.chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")]);
    places.map(|place| place.join("faketime/libfaketimeMT.so.1")).find(|library| library.is_file())
}

#[test]
fn wrong_or_jumping_clocks_change_only_dates() {
    let Some(library) = faketime() else {
        skip(
            "wrong_or_jumping_clocks_change_only_dates",
            "faketime",
            "libfaketime (Debian: apt-get install faketime)",
        );
        return;
    };
    let folder = scene("[random-tiny]");
    run(folder.path(), &["run", "sweep.yaml", "--no-report", "--results", "expected"]).with_code(0);
    let expected = measured(&folder.path().join("expected"));
    // Seconds come from a monotonic clock.
    let faked = |results: &str| {
        let mut command = command(folder.path());
        command.args(["run", "sweep.yaml", "--results", results]);
        command.env("LD_PRELOAD", &library).env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("FAKETIME_NO_CACHE", "1");
        command
    };
    let check = |results: &str, years: &[&str]| {
        let results = folder.path().join(results);
        let ledger = tova_bench::ledger::Ledger::existing(&results).unwrap();
        for row in ledger.rows().unwrap() {
            assert!(years.iter().any(|year| row.date.starts_with(year)), "{}", row.date);
            assert!((0.0..60.0).contains(&row.seconds), "{} s", row.seconds);
        }
        assert_same(&measured(&results), &expected);
    };
    for (name, shift, years) in [("past", "-75y", ["194", "195"]), ("future", "+9000y", ["+110", "+111"])] {
        let mut command = faked(name);
        command.env("FAKETIME", shift);
        finish(command).with_code(0);
        check(name, &years);
    }
    // From today to the past, to the future, and back, while samples are measured.
    let clock = folder.path().join("clock");
    fs::write(&clock, "+0").unwrap();
    let mut command = faked("jumps");
    command.env("FAKETIME_TIMESTAMP_FILE", &clock);
    let mut running = start(command);
    let results = folder.path().join("jumps");
    for shift in ["-70y", "+80y", "-30d"] {
        let before = kept(&results);
        running.until(|| kept(&results) != before);
        fs::write(&clock, shift).unwrap();
    }
    running.wait().with_code(0);
    check("jumps", &["19", "20", "21"]);
    let dates = tova_bench::ledger::Ledger::existing(&results).unwrap().rows().unwrap();
    let years: std::collections::BTreeSet<_> = dates.iter().map(|row| row.date[..4].to_string()).collect();
    // How many of the three jumps hit a sample depends on the machine.
    assert!(years.len() > 1, "the clock did not jump: {years:?}");
}
