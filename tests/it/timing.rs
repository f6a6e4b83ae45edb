//! The task `timing` through the command line: counts, resumed runs and refusals. No test asserts a time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::program::{Ended, run};
use crate::support::rows::{kept, measured};
use tova_bench::ledger::Row;

fn sweep(folder: &Path, models: &str, policies: &str, sizes: &str, task: &str) {
    let text =
        format!("models: {models}\npolicies: {policies}\ncache_sizes: {sizes}\ntasks:\n  - timing: {{{task}}}\n");
    fs::write(folder.join("sweep.yaml"), text).unwrap();
}

fn time(folder: &Path, results: &str, more: &[&str]) -> Ended {
    run(folder, &[&["run", "sweep.yaml", "--results", results], more].concat())
}

/// By policy and size, the value and weight of every repeat.
type Repeats<'a> = BTreeMap<(&'a str, Option<u32>), Vec<(f64, f64)>>;

fn of<'a>(rows: &'a [Row], metric: &str) -> Repeats<'a> {
    let mut found = Repeats::new();
    for row in rows.iter().filter(|row| row.metric == metric) {
        found.entry((row.policy.as_str(), row.cache_size)).or_default().push((row.value, row.weight));
    }
    found
}

/// random-tiny holds 257 x 32 twice, and in each of its 2 layers 32 x 32 twice, 32 x 16 twice, 32 x 64 three times and
/// two norms; and a last norm.
const WEIGHTS: u64 = 4 * (2 * 257 * 32 + 2 * (2 * 1024 + 2 * 512 + 3 * 2048 + 2 * 32) + 32);
/// Keys and values of an entry: 2 layers, 2 key-value heads of 8.
const ENTRY: u64 = 4 * 2 * 2 * 2 * 8;

#[test]
fn caches_and_batches_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Room for three sequences of the full cache, and a little.
    let memory = WEIGHTS + 3 * 100 * ENTRY + 5;
    let task = format!("length: 100, prompt: 10, memory: {memory} B, repeats: 2, warm_up: 3");
    sweep(folder, "[random-tiny]", "[full, window+4, h2o, tova, knorm]", "[9, 24, 99, 200]", &task);
    let ended = time(folder, "r", &[]).with_code(0);
    ended.says(&["17 cells measured, 0 were there already, 0 failed"]);
    assert!(ended.stdout.starts_with("What decoding costs · random-tiny · random-tokens"), "{}", ended.stdout);
    assert!(ended.stdout.contains("Medians of 2 repeats") && !ended.stdout.contains("paper"), "{}", ended.stdout);

    let rows = measured(&folder.join("r"));
    let entries = |size: Option<u32>| size.map_or(100, |size| u64::from(size) + 1).min(100);
    for ((policy, size), caches) in of(&rows, "cache_bytes") {
        let bytes = ENTRY * entries(size);
        assert_eq!(caches, [(bytes as f64, 1.0); 2], "{policy} {size:?}");
        let batch = (memory - WEIGHTS) / bytes;
        assert_eq!(of(&rows, "batch")[&(policy, size)], [(batch as f64, 1.0); 2], "{policy} {size:?}");
        for (metric, tokens) in
            [("prefill", 10.0), ("first_token", 1.0), ("decode", 90.0), ("decode_batch", 90.0 * batch as f64)]
        {
            let measured = &of(&rows, metric)[&(policy, size)];
            assert!(
                measured.iter().all(|m| m.0 > 0.0 && m.1 == tokens) && measured.len() == 2,
                "{metric} {measured:?}"
            );
        }
    }
    assert_eq!(of(&rows, "cache_bytes").len(), 17);
    let row = rows.iter().find(|row| row.cache_size == Some(9)).unwrap();
    assert_eq!((row.length, row.prompt_tokens, row.new_tokens), (100, 10, 90));
    assert_eq!((row.cluster.as_str(), row.dataset.as_str()), ("repeats", "random-tokens"));
    assert_eq!(row.generation, Some(format!("prompt=10 memory={memory} repeats=2 warm_up=3").into()));
    assert!(row.device.contains("thread"), "{}", row.device);
    assert_eq!(row.allocated_bytes, ENTRY * 10 * ((memory - WEIGHTS) / (ENTRY * 10)));

    let report = fs::read_to_string(folder.join("r/report.md")).unwrap();
    assert!(report.contains("| policy, size | cache | of full |"), "{report}");
    assert!(report.contains("### Tokens/s in the largest batch"), "{report}");
}

#[test]
fn repeats_are_samples_and_the_machine_is_part_of_the_id() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    sweep(folder, "[random-tiny]", "[full, tova]", "[8, 16]", "length: 60, memory: 200 kB, repeats: 4");
    for shard in ["1/2", "2/2"] {
        time(folder, "r", &["--no-report", "--threads", "1", "--shard", shard]).with_code(0);
    }
    time(folder, "r", &["--threads", "1"])
        .with_code(0)
        .says(&["3 cells measured already", "0 cells measured, 3 were"]);
    let plan = run(folder, &["plan", "sweep.yaml", "--results", "r", "--threads", "1"]).with_code(0);
    assert!(plan.stdout.contains("3 cells: 3 done, nothing to do"), "{}", plan.stdout);
    assert!(plan.stdout.contains("memory: 200 kB for weights and caches"), "{}", plan.stdout);
    // Another number of threads means other cells.
    time(folder, "r", &["--no-report", "--threads", "2"])
        .with_code(0)
        .says(&["3 cells measured, 0 were there already"]);
    let rows = measured(&folder.join("r"));
    let repeats = |row: &&Row| row.metric == "decode" && row.device.ends_with("1 thread");
    let mut names: Vec<&str> = rows.iter().filter(repeats).map(|row| row.sample.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["repeat#0", "repeat#1", "repeat#2", "repeat#3"]);
    // Both machines are in the report, also where each ran into a folder of its own.
    time(folder, "s", &["--no-report", "--threads", "3"]).with_code(0);
    run(folder, &["merge", "m", "r", "s"]).with_code(0);
    for (results, tables) in [("r", 2), ("m", 3)] {
        let report = run(folder, &["report", results]).with_code(0).stdout;
        assert_eq!(report.matches("What decoding costs · ").count(), tables, "{report}");
    }
}

#[test]
fn a_signal_ends_the_run_between_steps_and_the_same_command_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    sweep(folder, "[random-tiny]", "[tova]", "[64]", "length: 1500, memory: 1 MB, repeats: 3");
    let mut command = crate::support::program::command(folder);
    command.args(["run", "sweep.yaml", "--results", "r", "--no-report"]);
    let mut running = crate::support::program::start(command);
    running.until(|| kept(&folder.join("r")).samples > 0);
    if running.signal(libc::SIGINT) {
        let ended = running.wait();
        assert!(ended.code == Some(130) || ended.code == Some(0), "{ended:?}");
    }
    time(folder, "r", &[]).with_code(0);
    assert_eq!(kept(&folder.join("r")).cells, 1);
    assert_eq!(of(&measured(&folder.join("r")), "batch").values().next().unwrap().len(), 3);
}

/// The counted bytes are those by which the process grows, in a batch that outweighs everything else.
#[cfg(target_os = "linux")]
#[test]
fn counted_bytes_are_resident_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = "[random-h256-l2-a4-k4-f64-v257]";
    // The caches are full before the end: 400 entries of the full cache, 51 of TOVA's.
    sweep(folder, model, "[full, tova]", "[50]", "length: 400, prompt: 300, memory: 80 MB, repeats: 1");
    time(folder, "r", &[]).with_code(0);
    let rows = measured(&folder.join("r"));
    for (policy, batch) in [(("full", None), 46.0), (("tova", Some(50)), 368.0)] {
        let [(counted, _)] = of(&rows, "cache_bytes")[&policy][..] else { panic!("one repeat") };
        let [(resident, sequences)] = of(&rows, "resident_bytes")[&policy][..] else { panic!("one repeat") };
        assert_eq!(counted, 2.0 * 2.0 * 256.0 * 4.0 * if policy.1.is_some() { 51.0 } else { 400.0 });
        assert_eq!(sequences, batch, "{policy:?}");
        let each = resident / sequences;
        eprintln!("{policy:?}: {counted} bytes counted, {each} resident");
        // Some pages were there before, and the tables of a step come on top.
        assert!((each / counted - 1.0).abs() < 0.12, "{policy:?}: {each} resident, {counted} counted");
    }
}

#[test]
fn sweeps_that_cannot_be_timed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    sweep(folder, "[random-tiny]", "[full, tova]", "[8]", "length: 1000, memory: 160 kB");
    let ended = time(folder, "r", &["--no-report"]).with_code(4);
    ended.says(&[
        "the task's `memory` of 160 kB does not hold the weights (140 kB) and the cache of one sequence (256 kB)",
        "1 cells measured, 0 were there already, 1 failed",
    ]);
    let plan = run(folder, &["plan", "sweep.yaml", "--results", "r"]).with_code(0);
    assert!(plan.stdout.contains("failed:"), "{}", plan.stdout);
    run(folder, &["report", "r"]).with_code(0).says(&["note: r lacks 1 cell of its sweep"]);
    sweep(folder, "[random-tiny]", "[full]", "[]", "length: 1000, memory: 900 TB");
    time(folder, "r", &["--no-report"]).with_code(1).says(&["`memory` of 900 TB leaves", "grant it less"]);
}
