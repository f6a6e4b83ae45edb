//! What `run` shows on stderr while it measures, for programs that read it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::checkpoint::{copy, cut_short};
use crate::support::program::{Ended, run};
use crate::support::rows::measured;
use crate::support::sweep::{SMALL, Sweep};
use serde_json::Value;

/// Every line of stderr as an object.
fn stream(ended: &Ended) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    ended.stderr.lines().map(parse).collect()
}

fn of<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

fn run_json(folder: &Path, sweep: &str, code: i32) -> Vec<Value> {
    stream(&run(folder, &["run", sweep, "--results", "r", "--progress", "json"]).with_code(code))
}

#[test]
fn a_stream_has_every_sample_and_cell_of_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lines = run_json(folder, "smoke", 0);
    let rows = measured(&folder.join("r"));
    let kept: BTreeSet<(String, String)> =
        rows.iter().map(|row| (row.cell.to_string(), row.sample.to_string())).collect();
    let cells: BTreeMap<String, _> = rows.iter().map(|row| (row.cell.to_string(), row)).collect();
    assert_eq!((cells.len(), kept.len()), (82, 82 * 4));

    let id = |line: &Value| line["cell"]["id"].as_str().unwrap().to_owned();
    let samples = of(&lines, "sample");
    assert_eq!(samples.len(), kept.len());
    let told: BTreeSet<_> =
        samples.iter().map(|line| (id(line), line["sample"].as_str().unwrap().to_owned())).collect();
    assert_eq!(told, kept);
    let mut done: BTreeMap<String, u64> = BTreeMap::new();
    for (at, line) in samples.iter().enumerate() {
        let (cell, row) = (&line["cell"], cells[&id(line)]);
        assert_eq!(cell["model"], row.model.as_str());
        assert_eq!(cell["policy"], row.policy.as_str());
        assert_eq!(cell["cache_size"].as_u64(), row.cache_size.filter(|_| row.policy != "full").map(u64::from));
        assert_eq!((&cell["task"], &cell["dataset"]), (&row.task.as_str().into(), &row.dataset.as_str().into()));
        let of_cell = done.entry(id(line)).or_default();
        *of_cell += 1;
        assert_eq!((line["samples_done"].as_u64(), &line["samples"]), (Some(*of_cell), &4.into()));
        assert_eq!((&line["run"]["samples_done"], &line["run"]["samples"]), (&(at + 1).into(), &328.into()));
    }
    let ended: BTreeSet<_> = of(&lines, "cell_done").into_iter().map(id).collect();
    assert_eq!(ended, cells.into_keys().collect());

    assert_eq!(lines[0]["event"], "started");
    let last = lines.last().unwrap();
    assert_eq!((&last["event"], &last["cells_measured"]), (&"finished".into(), &82.into()));
    assert!(folder.join(last["report"].as_str().unwrap()).is_file());

    let again = run_json(folder, "smoke", 0);
    assert_eq!(again.len(), 2, "{again:?}");
    assert_eq!((&again[0]["cells_skipped"], &again[1]["cells_skipped"]), (&82.into(), &82.into()));
    assert_eq!(again[1]["run"]["samples_done"], 328);
}

#[test]
fn a_stream_has_failures_and_errors() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    copy(folder, "broken");
    cut_short(&folder.join("broken/model.safetensors"), 100_000);
    Sweep { models: "[./broken, ./missing, random-tiny]", ..SMALL }.write(folder);
    let lines = run_json(folder, "sweep.yaml", 4);
    let failed = of(&lines, "cell_failed");
    let policies: Vec<_> = failed.iter().map(|line| line["cell"]["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["full", "tova"]);
    assert!(failed.iter().all(|line| line["error"].as_str().unwrap().contains("truncated")), "{failed:?}");
    let missing = of(&lines, "cells_failed");
    assert_eq!((missing.len(), &missing[0]["cells"], &missing[0]["model"]), (1, &2.into(), &"./missing".into()));
    let last = lines.last().unwrap();
    assert_eq!((&last["cells_failed"], &last["cells_measured"]), (&4.into(), &2.into()));

    let lines = run_json(folder, "nowhere.yaml", 2);
    assert_eq!((lines.len(), &lines[0]["event"], &lines[0]["exit_code"]), (1, &"error".into(), &2.into()));
    assert!(lines[0]["message"].as_str().unwrap().contains("nowhere.yaml"), "{lines:?}");
}

#[test]
fn a_quiet_run_says_only_what_became_of_it() {
    let folder = tempfile::tempdir().unwrap();
    SMALL.write(folder.path());
    let command = ["run", "sweep.yaml", "--results", "r", "--no-report", "--progress", "none"];
    let ended = run(folder.path(), &command).with_code(0);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    ended.says(&["2 cells measured"]);
}
