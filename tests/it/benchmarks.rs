//! Task files through the command line, against what lm-evaluation-harness 0.4.13 measures with its own `hf` model on the pocket
//! model and the same rows (`tests/golden/lm_eval.json`, made by `tests/golden/make/lm_eval_witness.py`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

use crate::support::program::run;
use crate::support::rows::measured;
use serde::Deserialize;
use serde_json::{Value, json};
use tova_bench::ledger::Row;
use tova_bench::metric::Slice;

/// What the harness measured of a task.
#[derive(Deserialize)]
struct Measured {
    rows: BTreeMap<String, Vec<Value>>,
    samples: Vec<Sample>,
    metrics: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Sample {
    answers: Vec<Value>,
}

/// How far a log-likelihood may be from the harness', in nats. It sums in another order.
const TOLERANCE: f64 = 1e-3;

fn goldens() -> BTreeMap<String, Measured> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/lm_eval.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The file of a task: the built-in one, or one of the tests.
fn file(task: &str) -> String {
    let own = format!("{}/tests/benchmarks/{task}.yaml", env!("CARGO_MANIFEST_DIR"));
    if Path::new(&own).is_file() { own } else { built_in(task).to_owned() }
}

fn built_in(task: &str) -> &str {
    if task == "mmlu_anatomy" { "mmlu" } else { task }
}

/// The rows of the results for each row of the data, in their order.
fn by_sample<'r>(rows: &'r [Row], task: &str, policy: &str, golden: &Measured) -> Vec<Vec<&'r Row>> {
    let own = |name: &str| {
        let own =
            rows.iter().filter(|row| row.task == built_in(task) && row.policy == policy && row.sample == name);
        own.collect::<Vec<_>>()
    };
    let named = match task {
        "arc_easy" => Some(("test", "id")),
        "triviaqa" => Some(("validation", "question_id")),
        _ => None,
    };
    let names = (0..golden.samples.len()).map(|at| match named {
        Some((split, id)) => golden.rows[split][at][id].as_str().unwrap().to_owned(),
        None => at.to_string(),
    });
    names.map(|name| own(&name)).collect()
}

/// The log-likelihoods of a sample, or its answer.
fn answers(rows: &[&Row]) -> Value {
    let of = |metric: &str| rows.iter().find(|row| row.metric == metric && row.slice.is_none());
    if let Some(row) = of("loglikelihood") {
        return serde_json::from_str(row.output.as_ref().unwrap()).unwrap();
    }
    if let Some(row) = of("byte_perplexity") {
        return vec![-row.value].into();
    }
    let text = of("new_tokens").unwrap().output.clone();
    vec![text.unwrap()].into()
}

#[test]
fn tasks_are_measured_as_the_harness_measures_them() {
    let folder = tempfile::tempdir().unwrap();
    let goldens = goldens();
    let mut sweep = "models: [pocket]\npolicies: [full, tova]\ncache_sizes: [4]\ntasks:\n".to_owned();
    for (task, golden) in &goldens {
        let own = folder.path().join("rows").join(task);
        fs::create_dir_all(&own).unwrap();
        for (split, rows) in &golden.rows {
            let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
            fs::write(own.join(format!("{split}.jsonl")), lines).unwrap();
        }
        writeln!(sweep, "  - benchmark: {{task: {}, dataset: ./rows/{task}/, length: 2048}}", file(task)).unwrap();
    }
    fs::write(folder.path().join("sweep.yaml"), sweep).unwrap();
    run(folder.path(), &["run", "sweep.yaml", "--no-report", "--results", "out"]).with_code(0);
    let rows = measured(&folder.path().join("out"));
    for (task, golden) in &goldens {
        let (full, bounded) = (by_sample(&rows, task, "full", golden), by_sample(&rows, task, "tova", golden));
        let found = |samples: &[Vec<&Row>]| samples.iter().map(|rows| answers(rows)).collect::<Vec<_>>();
        for (found, sample) in found(&full).iter().zip(&golden.samples) {
            assert_answers(task, found, &sample.answers);
        }
        for (name, expected) in &golden.metrics {
            let found = metric(&full, name);
            assert!(
                (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                "{task} {name}: {found} for {expected}"
            );
        }
        // A request meets what the cache keeps of its prompt.
        assert!(!full.is_empty() && found(&full) != found(&bounded), "{task}");
    }
}

#[track_caller]
fn assert_answers(task: &str, found: &Value, expected: &[Value]) {
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), expected.len(), "{task}");
    for (found, expected) in found.iter().zip(expected) {
        match expected {
            Value::String(_) => assert_eq!(found, expected, "{task}"),
            // With whether it is the likeliest text, where the harness says it.
            _ => {
                let log = expected.as_f64().or_else(|| expected[0].as_f64()).unwrap();
                let found = found.as_f64().unwrap();
                assert!((found - log).abs() <= TOLERANCE, "{task}: {found} for {log}");
            }
        }
    }
}

/// A metric over all samples, by the harness' name: that of the metric, and that of the filter.
fn metric(samples: &[Vec<&Row>], name: &str) -> f64 {
    let (metric, filter) = name.split_once(',').unwrap();
    let id = if metric == "perplexity" { "target_perplexity" } else { metric };
    let all = || samples.iter().flatten().filter(|row| row.metric == id);
    let slice = Slice::named("filter", filter);
    let by_filter: Vec<_> = all().filter(|row| row.slice.as_ref() == Some(&slice)).collect();
    let chosen = if by_filter.is_empty() { all().filter(|row| row.slice.is_none()).collect() } else { by_filter };
    let mean = chosen.iter().map(|row| row.value).sum::<f64>() / chosen.iter().map(|row| row.weight).sum::<f64>();
    if metric.ends_with("perplexity") { mean.exp() } else { mean }
}

/// A task of one file of rows.
const KEYS: &str = r#"dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
doc_to_text: "{{text}}\nQuestion: {{question}}\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\n"], max_gen_toks: 4}
metric_list: [{metric: f1}]
cache: {context: "{{text}}"}
"#;

#[test]
fn rows_that_cannot_be_used_are_named_and_other_tasks_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let row = |text: &str| json!({"text": text, "question": "Who ran?", "answer": "Mara"}).to_string();
    let good = row("Mara ran. ");
    fs::write(folder.join("good.jsonl"), format!("{good}\n\n{good}\n")).unwrap();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases = [
        ("field.jsonl", format!("{good}\n{}\n", r#"{"text": "a"}"#), "field.jsonl, line 2"),
        ("broken.jsonl", format!("{good}\n{{\"text\": \n"), "broken.jsonl, line 2"),
        ("list.jsonl", format!("{good}\n[1]\n"), "list.jsonl, line 2: a row is an object"),
        ("deep.jsonl", format!("{{\"text\": {deep}}}\n"), "deep.jsonl, line 1"),
        ("empty.jsonl", String::new(), "has no rows"),
        ("missing.csv", "text,question\na,b\n".into(), "missing.csv, row 1"),
    ];
    let mut sweep = "models: [random-tiny]\npolicies: [full]\ntasks:\n".to_owned();
    let mut task = |name: &str, keys: &str| {
        fs::write(folder.join(format!("{name}.yaml")), keys.replace("FILE", &format!("./{name}"))).unwrap();
        writeln!(sweep, "  - benchmark: ./{name}.yaml").unwrap();
    };
    for (name, text, _) in &cases {
        fs::write(folder.join(name), text).unwrap();
        task(name, KEYS);
    }
    let others = [
        (
            "endless.jsonl",
            "{{text}}{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "line 1",
        ),
        ("huge.jsonl", "{{text}}{{ 'x' * 900000000 }}", "line 1"),
    ];
    for (name, text, _) in &others {
        fs::write(folder.join(name), &good).unwrap();
        task(name, &KEYS.replace("{{text}}\\nQuestion: {{question}}", text));
    }
    // Its rows have no answer.
    fs::write(folder.join("untold.jsonl"), r#"{"text": "a", "question": "Who?", "answers": []}"#).unwrap();
    task("untold.jsonl", &KEYS.replace("\"{{answer}}\"", "answers"));
    // A file of more than two thousand million bytes.
    File::create(folder.join("file.jsonl")).unwrap().set_len((2 << 30) + 1).unwrap();
    task("file.jsonl", KEYS);
    task("good.jsonl", KEYS);
    fs::write(folder.join("sweep.yaml"), &sweep).unwrap();
    let ended = run(folder, &["run", "sweep.yaml", "--no-report", "--results", "out"]).with_code(4);
    let named = cases.iter().map(|(name, _, words)| (*name, *words));
    let more = [
        ("file.jsonl", "too many for such a file"),
        ("untold.jsonl", "no row has a target, with which the metric `f1`"),
    ];
    for (name, words) in named.chain(others.iter().map(|(name, _, words)| (*name, *words))).chain(more) {
        let said = ended.stderr.lines().any(|line| line.contains(name) && line.contains(words));
        assert!(said, "{name}, {words}:\n{}", ended.stderr);
    }
    let rows = measured(&folder.join("out"));
    assert!(rows.iter().any(|row| row.metric == "f1") && rows.iter().all(|row| row.task == "good.jsonl"));
}

/// Built-in files with rows in the columns of their data sets, and what each asks, by hand.
#[test]
fn built_in_files_ask_what_their_rows_say() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let hotpot = json!({
        "id": "5a", "question": "Where is the mill?", "answer": "Oakford", "type": "bridge", "level": "easy",
        "context": {"title": ["Mill", "Owl"], "sentences": [["It turns. ", "It is in Oakford."], ["An owl flies."]]},
    });
    let ruler = json!({
        "context": "The magic number for owls is 17.", "question": "\nWhat is it?", "answer_prefix": " It is",
        "answer": ["17"], "task": "niah_single_1", "max_new_tokens": 5,
    });
    let babilong = json!({"input": " Mara went home. ", "question": "Where is Mara? ", "target": "home"});
    let nolima = json!({
        "haystack": "A book. Yuki lives next to the opera.", "question": "Who has been to Dresden?",
        "gold_answers": ["Yuki"], "depth": 50,
    });
    let arc = json!({
        "id": "m1", "question": "Why?", "answerKey": "2", "choices": {"text": ["rain", "sun"], "label": ["1", "2"]},
    });
    let cases = [
        (
            "hotpotqa",
            "validation",
            hotpot,
            "Mill: It turns. It is in Oakford.\nOwl: An owl flies.\n",
            "\nQuestion: Where is the mill?\nAnswer:",
        ),
        ("ruler_rows", "test", ruler, "The magic number for owls is 17.", "\nWhat is it? It is"),
        ("babilong_qa1", "qa1", babilong, "Mara went home.", "\nWhere is Mara?"),
        (
            "nolima",
            "test",
            nolima,
            "A book. Yuki lives next to the opera.",
            "\n\nUse the information provided in the book snippet to answer the question.",
        ),
        ("arc_challenge", "test", arc, "", "Question: Why?\nAnswer:"),
    ];
    let mut sweep = "models: [pocket]\npolicies: [full]\ntasks:\n".to_owned();
    for (task, split, row, ..) in &cases {
        fs::create_dir_all(folder.join(task)).unwrap();
        fs::write(folder.join(task).join(format!("{split}.jsonl")), format!("{row}\n")).unwrap();
        writeln!(sweep, "  - benchmark: {{task: {task}, dataset: ./{task}/, length: 4096}}").unwrap();
    }
    fs::write(folder.join("sweep.yaml"), sweep).unwrap();
    let prompts = run(folder, &["plan", "sweep.yaml", "--prompts", "1"]).with_code(0).stdout;
    for (task, _, _, context, rest) in &cases {
        let marked = if context.is_empty() {
            (*rest).to_owned()
        } else {
            format!("[[context]]{context}[[/context]]{rest}")
        };
        assert!(prompts.contains(&marked), "{task}: {marked:?} is missing from\n{prompts}");
    }
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", "out"]).with_code(0);
    let rows = measured(&folder.join("out"));
    for (task, metric) in [
        ("hotpotqa", "f1"),
        ("ruler_rows", "ruler"),
        ("babilong_qa1", "found"),
        ("nolima", "found"),
        ("arc_challenge", "acc"),
    ] {
        assert!(rows.iter().any(|row| row.task == task && row.metric == metric), "{task}");
    }
    let written = rows.iter().find(|row| row.task == "ruler_rows" && row.output.is_some()).unwrap();
    assert!(written.new_tokens <= 5 && written.references.as_deref().is_some_and(|text| text.contains("17")));
}
