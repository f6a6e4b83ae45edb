//! What loses one cell and nothing else: a fault of the program while it is measured, and numbers that are none. And what loses no cell.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support::checkpoint::copy;
use crate::support::program::run as run_program;
use crate::support::sweep::{SMALL, Sweep, write_texts};
use serde_json::Value;
use tova_bench::eviction::{CustomScore, DefinedPolicy, Policy, Score, Step, presets};
use tova_bench::ledger::Ledger;
use tova_bench::lm::Device;
use tova_bench::lm::source::HubSettings;
use tova_bench::run::{Event, Machine, Outcome, prepare, run};
use tova_bench::sweep::{self, Selection};

/// A function that scores entries, and has a fault in texts of more than 40 tokens.
fn faulty(step: &Step<'_>) -> Option<Vec<f64>> {
    assert!(step.seen < 40, "the panic of this test, which is fine to see");
    Some(step.positions.iter().map(|position| f64::from(*position)).collect())
}

#[test]
fn a_panic_fails_its_cell_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let task = |length: usize| format!("dataset: random-words, length: {length}, books: 2, chunks_per_book: 1");
    let (short, long) = (task(32), task(64));
    // The policy of its own comes after the sweep's, and so before and after the faulty cells there are others.
    Sweep { policies: "[full, tova, window]", tasks: &[&short, &long], ..SMALL }.write(folder.path());
    let score = Score::Custom(CustomScore::new("faulty".into(), Box::new(faulty)));
    let policy = Policy { score, ..presets::by_name("tova").unwrap() };
    let own = [DefinedPolicy { name: "faulty".to_owned(), policy, format: None }];
    let sweep = sweep::Sweep::read(&folder.path().join("sweep.yaml"), &own).unwrap();
    let ledger = Ledger::open(&folder.path().join("results")).unwrap();
    let machine = Machine { devices: vec![Device::CPU], threads: 3, stop: Arc::default() };
    // The same again: what is done stays, and the cell fails once more.
    for (done, skipped) in [(7, 0), (0, 7)] {
        let hub = HubSettings::with_cache_dir("nowhere");
        let prepared =
            prepare(&sweep, &Selection::default().of(&sweep).unwrap(), Some(&ledger), &hub, &(), "").unwrap();
        let failed = std::sync::Mutex::new(Vec::new());
        let observe = |event: Event<'_>| {
            if let Event::CellFailed { cell, error } = event {
                failed.lock().unwrap().push((
                    cell.cell.policy.clone(),
                    cell.cell.task.length,
                    format!("{error:#}"),
                ));
            }
        };
        let outcome = run(&sweep.name, &prepared, &ledger, &machine, &observe).unwrap();
        assert_eq!(outcome, Outcome { done, skipped, failed: 1, ..Outcome::default() });
        let failed = failed.into_inner().unwrap();
        let [(policy, length, error)] = failed.as_slice() else { panic!("{failed:?}") };
        assert_eq!((policy.as_str(), *length), ("faulty", 64));
        assert!(
            error.contains("sample ") && error.contains("the program has a fault: the panic of this test"),
            "{error}"
        );
    }
    assert!(fs::read_dir(folder.path().join("results/cells")).unwrap().count() >= 7);
}

/// Makes the first number of a row of a matrix none, in whatever type it is stored.
fn spoil(model: &Path, tensor: &str, row: usize) {
    let file = model.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    let of = |part: &Value| part.as_u64().unwrap() as usize;
    let tensor = &tensors[tensor];
    let (start, end, rows) =
        (of(&tensor["data_offsets"][0]), of(&tensor["data_offsets"][1]), of(&tensor["shape"][0]));
    // NaN in f32, f16 and bf16.
    bytes[header + start + (end - start) / rows * row..][..4].copy_from_slice(&[0xc0, 0x7f, 0xc0, 0x7f]);
    fs::write(file, bytes).unwrap();
}

/// One logit that is not a number makes all likelihoods, and what is the likeliest token, unknown.
#[test]
fn logits_that_are_not_numbers_fail_the_cell() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    copy(path, "good");
    spoil(&copy(path, "bad"), "lm_head.weight", 7);
    write_texts(path, 1, 300);
    let choice = "task: choice\ndataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n\
        output_type: multiple_choice\ndoc_to_text: \"{{text}}\"\ndoc_to_choice: [a, b]\ndoc_to_target: 0\nmetric_list: [{metric: acc}]\n";
    fs::write(path.join("choice.yaml"), choice).unwrap();
    fs::write(path.join("rows.jsonl"), "{\"text\": \"a b c\"}\n").unwrap();
    let sweep = "models: [./bad, ./good]\npolicies: [full, tova]\ncache_sizes: [8]\ntasks:\n  \
        - perplexity: {dataset: ./texts, length: 64, books: 1, chunks_per_book: 1}\n  - benchmark: ./choice.yaml\n";
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    let ended = run_program(path, &["run", "sweep.yaml", "--results", "results"]).with_code(4);
    ended.says(&[
        "some of the model's logits are not numbers",
        "NaN or infinite numbers",
        "tokens 1 to 63 of the text",
    ]);
    let rows = Ledger::open(&path.join("results")).unwrap().rows().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.model.ends_with("good") && row.value.is_finite()));
    fs::write(path.join("prompt.txt"), "a b c").unwrap();
    let written = ["write", "--model", "./bad", "--text", "prompt.txt", "--max-new-tokens", "4"];
    run_program(path, &written).with_code(1).says(&["token 0 of the text cannot be chosen"]);
}

/// A score that never is a number fails its cell; one that sometimes is not is used, and it is said how often.
#[test]
fn scores_that_are_not_numbers_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let define =
        "define:\n  never: {score: log(logit - 1e6), scope: layer}\n  some: {score: log(logit), scope: head}\n";
    Sweep { policies: "[full, never, some, tova]", more: define, ..SMALL }.write(path);
    let ended = run_program(path, &["run", "sweep.yaml", "--results", "results"]).with_code(4);
    // 64 tokens and 8 entries: 56 times one of 9 entries leaves, in two layers.
    ended.says(&["the policy's score is not a number for any of the 1008 entries that could leave", "in sample "]);
    ended.says(&["of 2016 entries that could leave"]);
    let rows = Ledger::open(&path.join("results")).unwrap().rows().unwrap();
    let counted: Vec<_> = rows.iter().filter(|row| row.metric == "no_number").collect();
    let [row] = counted.as_slice() else { panic!("{counted:?}") };
    assert_eq!((&*row.policy, row.weight), ("some", 2016.0));
    assert!(row.value > 0.0 && row.value < row.weight, "{}", row.value);
    assert!(rows.iter().all(|row| &*row.policy != "never"));
    let note =
        format!("some at 8: in 1 sample (random-0#0) scores are not numbers, in the first {} of 2016", row.value);
    ended.says(&[&note]);
    let plan = run_program(path, &["plan", "sweep.yaml", "--results", "results"]).with_code(0);
    assert!(
        plan.stdout.contains(&note)
            && plan.stdout.contains("failed: sample random-0#0: the policy's score is not"),
        "{}",
        plan.stdout
    );
    let report = fs::read_to_string(path.join("results/report.md")).unwrap().replace('\\', "");
    let failed = "failed: perplexity__random-tiny__never__8__";
    assert!(report.contains(&note) && report.contains(failed), "{report}");
    assert!(report.contains("the policy's score is not a number for any of the 1008 entries"), "{report}");
}

/// Where a share of a short prompt is less than a policy protects, the sample has the least size that the policy can have.
#[test]
fn a_share_of_a_short_prompt_loses_no_cell() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    copy(path, "model");
    let task = "task: echo\ndataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n\
        output_type: generate_until\ndoc_to_text: \"{{text}}\"\ndoc_to_target: a\ngeneration_kwargs: {max_gen_toks: 4}\n\
        metric_list: [{metric: f1}]\n";
    fs::write(path.join("echo.yaml"), task).unwrap();
    let rows =
        [5, 100, 200].map(|words| serde_json::json!({ "text": "a b c d e ".repeat(words / 5) }).to_string());
    fs::write(path.join("rows.jsonl"), rows.join("\n")).unwrap();
    let sweep = "models: [./model]\npolicies: [full, snapkv, tova@cut]\ncache_sizes: [50%]\ntasks:\n  \
        - benchmark: {task: ./echo.yaml, length: 300}\n";
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    run_program(path, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let rows = Ledger::open(&path.join("results")).unwrap().rows().unwrap();
    let sizes = |policy: &str| {
        let of_policy = rows.iter().filter(|row| &*row.policy == policy && row.metric == "f1");
        let mut sizes: Vec<_> = of_policy.map(|row| (row.prompt_tokens, row.cache_size.unwrap())).collect();
        sizes.sort_unstable();
        sizes
    };
    // SnapKV protects the newest 64. With BOS there is a token more.
    assert_eq!(sizes("snapkv"), [(6, 64), (101, 64), (201, 100)]);
    assert_eq!(sizes("tova"), [(6, 3), (101, 50), (201, 100)]);
}
