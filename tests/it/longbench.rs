//! LongBench through the command line: its three versions, and files that are missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::program::{Ended, run};
use crate::support::rows::measured;
use serde_json::json;
use tova_bench::ledger::Row;

/// Made-up rows of two subsets, LongBench-E's of one of them, and of version 2.
fn write_data(folder: &Path) {
    let text = "The mill stands in Oakford. The baker is Mara. ".repeat(20);
    let row = |id: &str, length: usize| {
        json!({
            "_id": id, "input": "Where does the mill stand?", "context": text, "answers": ["Oakford"], "length": length,
            "all_classes": ["Oakford", "Mara"],
        })
    };
    let write = |name: &str, rows: &[serde_json::Value]| {
        fs::write(folder.join(name), rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    };
    write("qasper.jsonl", &[row("a", 9), row("b", 9)]);
    write("trec.jsonl", &[row("a", 9)]);
    write("qasper_e.jsonl", &[row("a", 9), row("b", 8000)]);
    let choice = json!({
        "_id": "a", "domain": "Made up", "difficulty": "easy", "length": "short", "question": "Where?", "choice_A": "x",
        "choice_B": "y", "choice_C": "z", "choice_D": "Oakford", "answer": "D", "context": text,
    });
    fs::write(folder.join("data.json"), json!([choice]).to_string()).unwrap();
}

fn answer(folder: &Path, tasks: &[&str]) -> Ended {
    answer_under(folder, "", tasks)
}

/// Answers the tasks under a schedule, which is a line of the sweep.
fn answer_under(folder: &Path, schedule: &str, tasks: &[&str]) -> Ended {
    let tasks: String =
        tasks.iter().map(|task| format!("  - longbench: {{dataset: ./, length: 400, {task}}}\n")).collect();
    let policies = format!("policies: [full, truncate, tova]\ncache_sizes: [64, 400]\n{schedule}");
    fs::write(folder.join("sweep.yaml"), format!("models: [pocket]\n{policies}tasks:\n{tasks}")).unwrap();
    let _ = fs::remove_dir_all(folder.join("out"));
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", "out"])
}

/// The slices of a metric.
fn slices(rows: &[Row], metric: &str) -> BTreeSet<String> {
    rows.iter()
        .filter(|row| row.metric == metric)
        .filter_map(|row| Some(row.slice.as_ref()?.to_string()))
        .collect()
}

#[test]
fn each_version_is_answered_and_scored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_data(folder);
    let versions = [
        ("samples: 2", 3, "longbench", &["subset:qasper", "subset:trec"][..]),
        ("subsets: [trec], write: {max_new_tokens: 5}", 1, "longbench", &["subset:trec"]),
        (
            "version: e",
            2,
            "longbench",
            &[
                "length:0-4k",
                "length:8k+",
                "subset and length:qasper 0-4k",
                "subset and length:qasper 8k+",
                "subset:qasper",
            ],
        ),
        ("version: v2", 1, "accuracy", &["difficulty:easy", "domain:Made up", "length:short"]),
    ];
    for (task, samples, metric, expected) in versions {
        answer(folder, &[task]).with_code(0);
        let rows = measured(&folder.join("out"));
        assert_eq!(slices(&rows, metric).into_iter().collect::<Vec<_>>(), expected, "{task}");
        let written: Vec<&Row> = rows.iter().filter(|row| row.output.is_some()).collect();
        assert_eq!(written.len(), 5 * samples, "{task}");
        for row in &written {
            // The prompts lose their middle: once to the length, and once more to the cache of `truncate`.
            let most = if (row.policy.as_str(), row.cache_size) == ("truncate", Some(64)) { 64 } else { 400 };
            assert!(row.prompt_tokens <= most && row.prompt_tokens + row.new_tokens <= 400, "{}", row.sample);
            assert!(!task.contains("max_new_tokens") || row.new_tokens <= 5, "{}", row.sample);
            let full = written.iter().find(|full| full.policy == "full" && full.sample == row.sample).unwrap();
            assert!(row.cache_size != Some(400) || row.output == full.output, "{} {}", row.policy, row.sample);
        }
    }
}

#[test]
fn a_cache_can_be_cut_before_the_question() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_data(folder);
    for version in ["samples: 2", "version: e"] {
        let cut = |aware: bool| format!("{version}, write: {{query_aware: {aware}}}");
        answer_under(folder, "schedule: cut+1\n", &[&cut(true), &cut(false)]).with_code(0);
        let rows = measured(&folder.join("out"));
        let texts = |prefill: &str, size: u32| -> Vec<&str> {
            let own = rows.iter().filter(|row| row.policy == "tova" && row.cache_size == Some(size));
            let own = own.filter(|row| row.prefill == prefill);
            own.filter_map(|row| row.output.as_deref()).collect()
        };
        // A cache that holds the whole prompt is never cut.
        assert_eq!(texts("stream", 400), texts("cut_before_question", 400), "{version}");
        let [after, before] = ["stream", "cut_before_question"].map(|prefill| texts(prefill, 64));
        assert!(after.len() == before.len() && after != before, "{version}: {after:?} {before:?}");
    }
}

#[test]
fn a_missing_subset_is_named_and_other_tasks_still_run() {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let ended = answer(folder.path(), &["subsets: [trec, musique]", "subsets: [trec]"]);
    ended.says(&["the subset musique is not there", "has no musique.jsonl"]);
    ended.with_code(4).says(&["5 cells measured"]);
}
