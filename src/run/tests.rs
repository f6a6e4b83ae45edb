//! Ids of cells and samples as golden values: no change of the program may move one, as results under it would be lost.
//!
//! Every sweep of `configs/` is planned with the built-in model as far as its texts are in the program, and another sweep has
//! the settings and odd texts that those lack. The goldens are digests over ids. `UPDATE_GOLDENS=1` writes them anew: all of
//! them with a new engine or schema version, otherwise only the lines of a sweep that was edited.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::ledger::CellId;
use crate::lm::source::HubSettings;
use crate::run::{Prepared, prepare};
use crate::sweep::{Selection, Sweep};

const GOLDENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/ids.txt");

/// Quotes and backslashes, control and white-space characters, combining marks (the first of a text, too), joined emoji, a byte
/// order mark, and private and unassigned characters: those that are escaped, and those that are not.
const ODD: &str = "\u{301}'It\u{2019}s' \"a\" \\ b\t\r\n\0\u{7f}\u{85}\u{a0}\u{ad} e\u{301} \u{200b}\u{200d}\u{202e}\u{2028} \
    日本語 \u{1f469}\u{200d}\u{1f4bb} \u{feff}\u{e000}\u{378}\u{e0001} İß $12.50 (don't) [x] -- ";

/// Settings that no sweep of `configs/` has, on texts in a folder.
const OTHERS: &str = r#"
models: [random-tiny]
policies: [full, truncate, window+4, tova, h2o, random, mine, layered]
define:
  mine: {score: "ema(attention, 0.9)", scope: head, keep_first: 2, keep_recent: 10%}
  layered: {score: last_attention, scope: layer, budget: {pyramid: 20}}
cache_sizes: [16, 40]
seed: 3
tasks:
  - perplexity: {dataset: FOLDER, length: 64, stride: 24, bos: false, tail: keep, compare_to_full: true}
  - perplexity: {dataset: FOLDER, length: 64, bos: true}
  - retention: {dataset: FOLDER, length: 64, bos: false, maps: 2, map_layers: [1, 0], eviction_log: true}
  - retention: {dataset: FOLDER, length: 64, tail: keep, maps: 0}
  - needle: {dataset: FOLDER, lengths: [256, 200], depths: [50, 0], texts: 1, write: {stop: ["\"\n", "é"]}}
  - needle: {dataset: FOLDER, lengths: [256], texts: 1, fact: {needle: "A \"b\".", question: "c?\n", answer: "é"}}
  - longbench: {dataset: FOLDER, length: 900, subsets: [trec, qasper]}
  - longbench: {dataset: FOLDER, version: v2, length: 900, write: {max_new_tokens: 16, chat_template: false}}
  - math: {dataset: embedded, samples: 3, repeats: 2, length: 640, write: {temperature: 0.6, top_p: 0.95, top_k: 4}}
  - ruler: {tasks: [vt, niah_single_2], lengths: [4096, 3072], samples: 2, write: {repetition_penalty: 1.2}}
  - story: {request: "Write \"é\" \\ now.\n", stories: 2, length: 128}
"#;

/// The texts of `OTHERS`.
fn write_texts(folder: &Path) {
    fs::write(folder.join("odd \"1\".txt"), ODD.repeat(6)).unwrap();
    fs::write(folder.join("plain.txt"), "The quick brown fox's tail, 12 dogs and \"one\" cat.\n".repeat(9))
        .unwrap();
    let v1 = |subset: &str, classes: &str| {
        let row = serde_json::json!({"_id": "r\"1", "input": ODD, "context": ODD.repeat(3), "answers": [ODD, "b"],
            "length": 3999, "dataset": subset, "language": "en"});
        let row = row.to_string();
        format!("{}, \"all_classes\": {classes}}}\n", row.trim_end_matches('}'))
    };
    fs::create_dir(folder.join("data")).unwrap();
    fs::write(folder.join("data/qasper.jsonl"), v1("qasper", "null")).unwrap();
    fs::write(folder.join("data/trec.jsonl"), v1("trec", r#"["a", "b \" é"]"#)).unwrap();
    let v2 = serde_json::json!([{"_id": "w1", "domain": "Code", "sub_domain": "x", "difficulty": "hard", "length": "short",
        "question": ODD, "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d", "answer": "C", "context": ODD}]);
    fs::write(folder.join("data.json"), v2.to_string()).unwrap();
}

/// A line for each model and task: its cells, its samples, and the digest of their ids.
fn lines(name: &str, sweep: &Sweep) -> String {
    let hub = HubSettings { offline: true, ..HubSettings::with_cache_dir("nowhere") };
    let Prepared { model_tasks, unavailable, .. } =
        prepare(sweep, &Selection::default().of(sweep).unwrap(), None, &hub, &(), "machine").unwrap();
    let mut text = String::new();
    for model_task in &model_tasks {
        let mut ids = String::new();
        for cell in &model_task.cells {
            writeln!(ids, "{}", cell.name.id()).unwrap();
            for sample in 0..model_task.samples.len() {
                writeln!(ids, "{}", model_task.sample_id(cell, sample).as_deref().unwrap_or("-")).unwrap();
            }
        }
        let (task, dataset) = (model_task.task.name, &model_task.task.dataset);
        let dataset = if dataset.starts_with('/') { "folder" } else { dataset };
        let (cells, samples) = (model_task.cells.len(), model_task.samples.len());
        let digest = CellId::of(&ids);
        writeln!(text, "{name} {task} {dataset}: {cells} cells of {samples} samples {digest}").unwrap();
    }
    if let Some(unavailable) = unavailable.first() {
        panic!("{name}, {}: {:#}", unavailable.task, unavailable.error);
    }
    text
}

#[test]
fn no_id_has_moved() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let folders = ["builtin", "examples", "findings", "paper", "published"].map(|name| root.join(name));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut configs: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    // By name; those of other publications come together, where a folder `published` would stand.
    configs.sort_by_key(|path| {
        let name = Path::new(path.file_name().unwrap());
        if path.parent().unwrap().ends_with("published") { Path::new("published").join(name) } else { name.into() }
    });
    let own = Sweep::parse("models: [pocket]\npolicies: [full]\ntasks: [{story: {}}]\n", "own.yaml").unwrap();
    let mut found = String::new();
    for path in configs {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut sweep = Sweep::read(&path, &[]).unwrap();
        let specs: Vec<String> = sweep.expand().iter().map(|cell| cell.spec().to_string()).collect();
        writeln!(found, "{name}: {} specs {}", specs.len(), CellId::of(&specs.join("\n"))).unwrap();
        // Models and texts of the hub or of a folder are there on some machines only.
        if sweep.models.iter().any(|model| model.source.to_string().contains('/')) {
            sweep.models = own.models.clone();
        }
        sweep.tasks.retain(|task| !task.dataset.contains('/'));
        if !sweep.tasks.is_empty() {
            found += &lines(name, &sweep);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    write_texts(folder.path());
    let others = OTHERS.replace("FOLDER", folder.path().to_str().unwrap());
    found += &lines("others", &Sweep::parse(&others, "others.yaml").unwrap());
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(GOLDENS, &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(GOLDENS).unwrap());
}
