//! Task files through the command line: rows, names, paths and windows that once were read otherwise than they should be.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tova_bench::ledger::Row;

use crate::support::program::{Ended, run};
use crate::support::rows::measured;

/// A task over `rows.jsonl`.
const TASK: &str = r#"dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
doc_to_text: "{{text}} {{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\n"], max_gen_toks: 4}
"#;

const ROW: &str = r#"{"text": "Mara ran.", "question": "Who?", "answer": "Mara"}"#;

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }
}

fn sweep(policies: &str, sizes: &str, tasks: &str) -> String {
    format!("models: [pocket]\npolicies: {policies}\ncache_sizes: {sizes}\ntasks:\n{tasks}")
}

fn run_sweep(folder: &Path, text: &str) -> Ended {
    fs::write(folder.join("sweep.yaml"), text).unwrap();
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", "out/results"])
}

/// Whatever a file calls itself, its cells stay in the results folder, each under a name of its own.
#[test]
fn names_of_tasks_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let long = "x".repeat(200);
    let names = ["../../../escaped", "a/b", "a-b", ".x", "/tmp/escaped", "..", &long];
    write(folder, &[("rows.jsonl", ROW)]);
    let mut tasks = String::new();
    for (at, name) in names.iter().enumerate() {
        fs::write(folder.join(format!("{at}.yaml")), format!("task: {}\n{TASK}", json!(name))).unwrap();
        tasks += &format!("  - benchmark: {at}.yaml\n");
    }
    run_sweep(folder, &sweep("[full]", "[]", &tasks)).with_code(0);
    let files: Vec<String> = fs::read_dir(folder.join("out/results/cells"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files.len(), names.len(), "{files:?}");
    assert!(files.iter().all(|file| !file.starts_with('.') && file.len() < 200), "{files:?}");
    let mut outside: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    outside.retain(|name| name.to_string_lossy().contains("escaped"));
    assert!(outside.is_empty() && !folder.parent().unwrap().join("escaped").exists(), "{outside:?}");
    let tasks: std::collections::BTreeSet<String> =
        measured(&folder.join("out/results")).iter().map(|row| row.task.to_string()).collect();
    assert_eq!(tasks, names.iter().map(|name| name.to_string()).collect());
}

#[test]
fn a_sweep_is_not_named_out_of_the_folder_of_results() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["../x", "/tmp/x", "a/../../b", &"x".repeat(201)] {
        let text = format!("name: {name}\n{}", sweep("[full]", "[]", "  - perplexity: {dataset: random-words}\n"));
        fs::write(folder.path().join("sweep.yaml"), text).unwrap();
        run(folder.path(), &["plan", "sweep.yaml"])
            .with_code(2)
            .says(&["sweep.yaml:1:7", "does not name a folder"]);
    }
}

/// A path that exists needs no `./`.
#[test]
fn paths_that_exist_are_paths() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let texts = "Mara ran to the mill. ".repeat(60);
    write(
        folder,
        &[
            ("pg19/a.txt", texts.as_str()),
            ("owner/name/test.jsonl", ROW),
            ("rows.jsonl", ROW),
            ("keys.yaml", TASK),
        ],
    );
    crate::support::checkpoint::copy(folder, "my-model");
    fs::write(folder.join("named"), format!("task: named\n{TASK}")).unwrap();
    let tasks = "  - perplexity: {dataset: pg19, length: 32}\n  - benchmark: keys.yaml\n  - benchmark: named\n  \
                 - benchmark: {task: keys.yaml, dataset: owner/name, length: 64}\n";
    run_sweep(folder, &sweep("[full]", "[]", tasks).replace("pocket", "my-model, pocket")).with_code(0);
    let rows = measured(&folder.join("out/results"));
    assert!(rows.iter().any(|row| row.model == "my-model" && row.dataset == "pg19"));
    assert!(rows.iter().any(|row| row.dataset == "owner/name") && rows.iter().any(|row| row.task == "named"));
}

/// Columns that no template uses may hold anything; those that are used are named.
#[test]
fn only_columns_that_are_used_must_be_text_or_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parquet/types.parquet");
    fs::copy(golden, folder.join("types.parquet")).unwrap();
    let used = r#"{"text": "a \ud83d", "question": "b", "answer": "c"}"#;
    write(folder, &[("used.json", format!("[{ROW}, {used}]").as_str())]);
    let task = |name: &str, file: &str, text: &str| {
        let own = TASK.replace("rows.jsonl", file).replace("{{text}} {{question}}", text);
        let own = if file.ends_with("parquet") { own.replace("{{answer}}", "{{text}}") } else { own };
        fs::write(folder.join(name), own).unwrap();
        format!("  - benchmark: {name}\n")
    };
    let good = task("types.yaml", "types.parquet", "{{decimal}} {{timestamp_us}} {{dictionary}}");
    run_sweep(folder, &sweep("[full]", "[]", &good)).with_code(0);
    let prompts = run(folder, &["plan", "sweep.yaml", "--prompts", "1"]).with_code(0).stdout;
    assert!(prompts.contains("1.50 1970-01-01 00:00:00.000001 a"), "{prompts}");
    let bad = [task("image.yaml", "types.parquet", "{{image}}"), task("used.yaml", "used.json", "{{text}}")];
    let ended = run_sweep(folder, &sweep("[full]", "[]", &[good, bad.concat()].concat())).with_code(4);
    ended.says(&["column `image` of types.parquet", "used.json, row 2: "]);
}

/// Under `truncate` a window is read in pieces of the prefix and k - 1 tokens, each as a text of its own.
#[test]
fn windows_are_truncated_into_pieces_that_score_every_token() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Every word is a token.
    crate::support::checkpoint::copy(folder, "model");
    let words = ["a", "b", "c", "d", "e", "f", "g"];
    let task = "dataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n\
                output_type: loglikelihood_rolling\ndoc_to_target: \"{{text}}\"\nmetric_list: [{metric: byte_perplexity}]\n";
    fs::write(folder.join("task.yaml"), task).unwrap();
    let nll = |results: &str, policy: &str| -> f64 {
        let rows: Vec<Row> = measured(&folder.join(results));
        rows.iter()
            .filter(|row| row.policy == policy && row.metric == "byte_perplexity")
            .map(|row| row.value)
            .sum()
    };
    let row = |words: &[&str]| json!({ "text": words.join(" ") }).to_string() + "\n";
    // The tokenizer's BOS begins the text, as a token of it.
    for (size, pieces) in [(2, 1), (3, 2), (4, 3)] {
        fs::write(folder.join("rows.jsonl"), row(&words)).unwrap();
        let tasks = "  - benchmark: {task: task.yaml, length: 64}\n";
        let text = sweep("[full, truncate]", &format!("[{size}]"), tasks).replace("pocket", "./model");
        let whole = format!("whole-{size}");
        fs::write(folder.join("sweep.yaml"), &text).unwrap();
        run(folder, &["run", "sweep.yaml", "--no-report", "--results", &whole]).with_code(0);
        // BOS, then the words; each piece scored after BOS.
        let tokens: Vec<u32> = std::iter::once(1).chain((2..).take(words.len())).collect();
        let mut expected = 0.0;
        for piece in tokens.chunks(pieces) {
            let ids = Value::from([&[1], piece].concat());
            fs::write(folder.join("tokens.json"), ids.to_string()).unwrap();
            let scored = run(folder, &["score", "--model", "./model", "--tokens", "tokens.json"]).with_code(0);
            let scored: Value = serde_json::from_str(&scored.stdout).unwrap();
            let nlls = scored["nll"].as_array().unwrap();
            assert_eq!(nlls.len(), piece.len());
            expected += nlls.iter().filter_map(Value::as_f64).sum::<f64>();
        }
        let found = nll(&whole, "truncate");
        assert!((found - expected).abs() < 1e-4 * expected, "size {size}: {found} for {expected}");
    }
}
