//! A results folder that has lived: definitions edited and edited back, sweeps that grew, data under another path. What is
//! shown is what the sweep says, and nothing is measured twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::support::checkpoint;
use crate::support::program::{Ended, command, run, start};
use crate::support::rows::{assert_same, kept, measured};
use crate::support::sweep::{SMALL, Sweep, write_texts};
use serde_json::{Value, json};
use tova_bench::ledger::{Ledger, Row, Wanted, read_rows};

/// Runs `sweep.yaml` into the folder `out`.
fn run_into(folder: &Path, out: &str) -> Ended {
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", out]).with_code(0)
}

/// The rows of the sweep that was run last, as other programs read them.
fn current(folder: &Path) -> Vec<Row> {
    read_rows(&folder.join("rows.parquet")).unwrap()
}

/// What was measured, without when and how fast.
fn timeless(rows: Vec<Row>) -> Vec<Row> {
    rows.into_iter().map(|row| Row { seconds: 0.0, date: Default::default(), ..row }).collect()
}

/// NLL per token by policy and size: the query of the README.
fn nll(rows: &[Row]) -> BTreeMap<(String, Option<u32>), f64> {
    let mut sums: BTreeMap<_, [f64; 2]> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.metric == "nll" && row.slice.is_none()) {
        let [value, weight] = sums.entry((row.policy.to_string(), row.cache_size)).or_default();
        (*value, *weight) = (*value + row.value, *weight + row.weight);
    }
    sums.into_iter().map(|(place, [value, weight])| (place, value / weight)).collect()
}

/// The value that `report.csv` has for a policy at a size, one for each table.
fn reported(folder: &Path, policy: &str, size: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.join("report.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let at = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let [metric, policy_at, size_at, slice, value] = ["metric", "policy", "cache_size", "slice", "value"].map(at);
    let is_asked = |line: &Vec<&str>| {
        line[metric] == "nll" && line[policy_at] == policy && line[size_at] == size && line[slice].is_empty()
    };
    lines.filter(is_asked).map(|line| line[value].to_owned()).collect()
}

const TASK: &str = "dataset: ./texts, length: 64, books: 2, chunks_per_book: 2";

/// A policy of one's own that keeps some newest entries.
fn mine(keep_recent: u32) -> String {
    format!("define: {{mine: {{score: last_attention, scope: layer, keep_recent: {keep_recent}}}}}\n")
}

fn edited<'a>(more: &'a str, tasks: &'a [&'a str]) -> Sweep<'a> {
    Sweep { policies: "[full, tova, mine]", cache_sizes: "[16]", tasks, more, ..SMALL }
}

#[test]
fn an_edit_and_back_shows_the_numbers_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 3, 80);
    let (of_8, of_2) = (mine(8), mine(2));
    let one = edited(&of_8, &[TASK]);
    one.write(folder);
    let first = run_into(folder, "lived");
    first.says(&["3 cells measured, 0 were there already"]);
    assert!(!first.stderr.contains("keeps"), "{}", first.stderr);
    let before = timeless(current(&folder.join("lived")));
    run(folder, &["baseline", "save", "b", "lived", "--dir", "."]).with_code(0);

    edited(&of_2, &[TASK]).write(folder);
    let second = run_into(folder, "lived");
    second.says(&["1 cells measured, 2 were there already"]);
    // Said before anything is measured.
    let note = second.stderr.find("lived keeps 1 cell of the sweep run here before (`sweep`)").unwrap();
    assert!(note < second.stderr.find("measured").unwrap(), "{}", second.stderr);
    let other = timeless(current(&folder.join("lived")));
    assert_ne!(nll(&other)[&("mine".into(), Some(16))], nll(&before)[&("mine".into(), Some(16))]);
    assert_eq!(nll(&other).len(), 3);

    one.write(folder);
    run_into(folder, "lived").says(&["0 cells measured, 3 were there already"]);
    let lived = folder.join("lived");
    assert_same(&timeless(current(&lived)), &before);
    // Nothing has moved since the baseline of this very sweep, and a new baseline has one definition.
    run(folder, &["compare", "b", "lived", "--dir", "."]).with_code(0);
    run(folder, &["compare", "b", "lived", "--dir", ".", "--exact", "--tolerance", "0"]).with_code(0);
    run(folder, &["baseline", "save", "c", "lived", "--dir", "."]).with_code(0);
    assert_eq!(timeless(read_rows(&folder.join("c.parquet")).unwrap()).len(), before.len());
    // The report has one line, and the other definition on request, under a name that says so.
    run(folder, &["report", "lived", "--format", "csv"]).with_code(0).says(&["lived also has 1 cell"]);
    let shown = nll(&before)[&("mine".into(), Some(16))].exp();
    let [value] = &reported(&lived, "mine", "16")[..] else { panic!("one table") };
    assert!((value.parse::<f64>().unwrap() / shown - 1.0).abs() < 1e-12, "{value} {shown}");
    run(folder, &["report", "lived", "--format", "csv", "--all"]).with_code(0);
    assert_eq!(reported(&lived, "mine (keep_recent 8)", "16").len(), 1);
    assert_eq!(reported(&lived, "mine (keep_recent 2)", "16").len(), 1);
    // Another sweep's file brings in its cells.
    fs::write(folder.join("other.yaml"), edited(&of_2, &[TASK]).text()).unwrap();
    run(folder, &["report", "lived", "--format", "csv", "--sweep", "other.yaml"]).with_code(0);
    let expected = nll(&other)[&("mine".into(), Some(16))].exp();
    let value: f64 = reported(&lived, "mine", "16")[0].parse().unwrap();
    assert!((value / expected - 1.0).abs() < 1e-12, "{value} {expected}");
}

/// Seconds and date of each sample under each policy and size: a sample that is used again keeps them.
fn when(rows: &[Row]) -> BTreeMap<(String, Option<u32>, String), (u64, String)> {
    let place = |row: &Row| (row.policy.to_string(), row.cache_size, row.sample.to_string());
    rows.iter().map(|row| (place(row), (row.seconds.to_bits(), row.date.to_string()))).collect()
}

/// Runs a small sweep, then a larger one in the same folder and in a fresh one. All rows of both are the same, and of the
/// samples in the grown folder as many are `new`, for each of the cells.
fn grows(text: impl Fn(usize) -> String, sizes: [usize; 2], new: usize) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 4, 400);
    let write = |size: usize| fs::write(folder.join("sweep.yaml"), text(size)).unwrap();
    write(sizes[0]);
    run_into(folder, "grown");
    let former = when(&current(&folder.join("grown")));
    write(sizes[1]);
    run_into(folder, "grown");
    run_into(folder, "fresh");
    let grown = current(&folder.join("grown"));
    let found = when(&grown);
    assert!(former.iter().all(|(sample, when)| found.get(sample) == Some(when)), "{former:?}\n{found:?}");
    let cells: BTreeSet<_> = found.keys().map(|(policy, size, _)| (policy, size)).collect();
    assert_eq!(found.len() - former.len(), new * cells.len());
    assert_same(&timeless(grown), &timeless(current(&folder.join("fresh"))));
    run(folder, &["compare", "fresh", "grown", "--exact", "--tolerance", "0"]).with_code(0);
}

/// A sweep of one task over every kind of policy.
fn of_task(task: &str) -> String {
    format!(
        "models: [pocket]\npolicies: [full, truncate, window, tova, tova@slot, h2o, knorm, random]\n\
         cache_sizes: [64, 128]\ntasks:\n  - {task}\n"
    )
}

#[test]
fn more_books_and_chunks_measure_only_what_is_new() {
    let books = |books: usize| {
        of_task(&format!("perplexity: {{dataset: embedded, length: 300, books: {books}, chunks_per_book: 1}}"))
    };
    grows(books, [3, 4], 1);
    let chunks = |chunks: usize| {
        let texts = format!("dataset: ./texts, length: 150, books: 2, chunks_per_book: {chunks}");
        of_task(&format!("perplexity: {{{texts}, compare_to_full: true}}"))
    };
    grows(chunks, [1, 2], 2);
    // The first sample has the maps, whichever others there are.
    let retention = |chunks: usize| {
        let texts = format!("dataset: ./texts, length: 150, books: 2, chunks_per_book: {chunks}");
        of_task(&format!("retention: {{{texts}}}"))
    };
    grows(retention, [1, 2], 2);
}

#[test]
fn more_questions_and_documents_measure_only_what_is_new() {
    let questions = |questions: usize| {
        let texts = format!("dataset: embedded, documents: 1, questions: {questions}, length: 700");
        of_task(&format!("squality: {{{texts}, write: {{max_new_tokens: 12}}}}"))
    };
    grows(questions, [1, 3], 2);
    // The commonest answer, which is a metric of every sample, is another one with more documents.
    let documents = |documents: usize| {
        let texts = format!("dataset: embedded, documents: {documents}, questions: 2, length: 700");
        of_task(&format!("qasper: {{{texts}, write: {{max_new_tokens: 8}}}}"))
    };
    grows(documents, [1, 2], 2);
}

#[test]
fn more_stories_and_needles_measure_only_what_is_new() {
    let stories = |stories: usize| {
        let writing = "write: {max_new_tokens: 40, temperature: 0.8}";
        of_task(&format!("story: {{request: embedded, stories: {stories}, length: 200, {writing}}}"))
    };
    grows(stories, [2, 3], 1);
    let needles = |texts: usize| {
        of_task(&format!("needle: {{dataset: embedded, lengths: [300], depths: [0, 50], texts: {texts}}}"))
    };
    grows(needles, [1, 2], 2);
}

#[test]
fn an_interrupted_sweep_is_drawn_and_grows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = |books: usize| {
        format!(
            "models: [pocket]\npolicies: [full, tova]\ncache_sizes: [128]\ntasks:\n  \
             - perplexity: {{dataset: embedded, length: 1024, books: {books}, chunks_per_book: 2}}\n"
        )
    };
    fs::write(folder.join("sweep.yaml"), text(10)).unwrap();
    let mut command = command(folder);
    command.args(["run", "sweep.yaml", "--no-report", "--results", "a", "--threads", "1"]);
    let mut running = start(command);
    running.until(|| kept(&folder.join("a")).samples >= 5);
    assert!(running.signal(libc::SIGKILL), "the run was over before the kill");
    assert_eq!(running.wait().code, None);
    let measured = Ledger::existing(&folder.join("a")).unwrap().current(Wanted::Measured).unwrap();
    let before = when(&measured.rows);
    assert!((5..40).contains(&before.len()), "{}", before.len());
    let samples: BTreeSet<&String> = before.keys().map(|(_, _, sample)| sample).collect();
    let report = run(folder, &["report", "a"]).with_code(0).stdout;
    assert!(report.contains(&format!("{} of 20 samples", samples.len())), "{report}");
    // Other programs see no cell before it is complete.
    assert!(!folder.join("a/rows.parquet").exists() || current(&folder.join("a")).is_empty());
    let counted = || {
        let text = fs::read_to_string(folder.join("a/report.md")).unwrap();
        let line = text.split("## Where the numbers come from\n\n<details><summary>").nth(1).unwrap();
        line.split("</summary>").next().unwrap().to_owned()
    };
    let cells: BTreeSet<&str> = measured.rows.iter().map(|row| row.cell.as_str()).collect();
    let (rows, cells) = (measured.rows.len(), cells.len());
    assert_eq!(counted(), format!("0 rows of 0 complete cells, and {rows} rows of {cells} incomplete cells"));
    fs::write(folder.join("sweep.yaml"), text(11)).unwrap();
    run_into(folder, "a");
    let found = when(&current(&folder.join("a")));
    assert_eq!(found.len(), 2 * 22);
    run(folder, &["report", "a"]).with_code(0);
    assert_eq!(counted(), format!("{} rows of 2 cells", current(&folder.join("a")).len()));
    assert!(before.iter().all(|(sample, when)| found.get(sample) == Some(when)));
}

#[test]
fn tasks_that_differ_in_their_texts_have_tables_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 3, 80);
    let tasks = [
        "dataset: ./texts, length: 64, books: 2, chunks_per_book: 2",
        "dataset: ./texts, length: 64, books: 3, chunks_per_book: 2",
        "dataset: ./texts, length: 64, books: 3, chunks_per_book: 2, compare_to_full: true",
    ];
    Sweep { tasks: &tasks, ..SMALL }.write(folder);
    run_into(folder, "r");
    let report = run(folder, &["report", "r"]).with_code(0).stdout;
    for heading in ["texts · books 2", "texts · books 3", "texts · books 3 · compare_to_full yes"] {
        assert!(report.contains(heading), "{heading}: {report}");
    }
    let r = folder.join("r");
    assert_eq!((reported(&r, "full", "").len(), reported(&r, "tova", "8").len()), (3, 3));
    // A comparison sees all three, and a change in one of them.
    run(folder, &["baseline", "save", "b", "r", "--dir", "."]).with_code(0);
    let mut rows = read_rows(&folder.join("b.parquet")).unwrap();
    let changed = rows.iter_mut().filter(|row| row.selection.starts_with("books=2") && row.policy == "tova");
    changed.for_each(|row| row.value += 1.0);
    tova_bench::ledger::write_rows(&folder.join("moved.parquet"), &rows).unwrap();
    run(folder, &["compare", "b", "moved.parquet", "--dir", ".", "--exact"]).with_code(3);
}

#[test]
fn identity_is_what_was_read_and_not_how_it_was_spelt() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 2, 80);
    let spelt = |dataset: &str, rest: &str, policies: &str, more: &str| {
        let task = format!("dataset: {dataset}, length: 64{rest}");
        let sweep = Sweep { policies, tasks: &[&task], more, ..SMALL };
        fs::write(folder.join("sweep.yaml"), sweep.text()).unwrap();
        run_into(folder, "r")
    };
    spelt("./texts", "", "[full, tova]", "");
    let absolute = folder.join("texts").display().to_string();
    for (dataset, rest, more) in
        [("./texts/", "", ""), ("./../texts/../texts", ", bos: true", ""), (absolute.as_str(), "", "seed: 7\n")]
    {
        let dataset = dataset.replace("./../texts/../texts", "./texts/../texts");
        let ended = spelt(&dataset, rest, "[full, tova, window]", more);
        assert!(ended.stderr.contains(", 0 failed"), "{}", ended.stderr);
        let rows = current(&folder.join("r"));
        assert_eq!(nll(&rows).len(), 3);
        let report = run(folder, &["report", "r", "--format", "csv"]).with_code(0);
        assert_eq!(reported(&folder.join("r"), "tova", "8").len(), 1, "{}", report.stdout);
        let names: BTreeSet<_> = rows.iter().map(|row| (row.dataset.clone(), row.seed)).collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
    assert_eq!(measured(&folder.join("r")).iter().map(|row| &row.cell).collect::<BTreeSet<_>>().len(), 3);
    // `auto` is the type that the weights have.
    Sweep { models: "[{source: random-tiny, dtype: f32}]", tasks: &["dataset: ./texts, length: 64"], ..SMALL }
        .write(folder);
    run_into(folder, "r").says(&["0 cells measured, 2 were there already"]);
}

/// Files of a model beside its weights: cells that use what changed are measured again, others are not.
#[test]
fn what_a_model_s_further_files_say_is_part_of_what_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = checkpoint::copy(folder, "yi-gqa");
    write_texts(folder, 1, 90);
    let sweep = "models: [./yi-gqa]\npolicies: [full]\ntasks:\n  - perplexity: {dataset: ./texts, length: 16, chunks_per_book: 1}\n  \
                 - story: {request: \"a b\", stories: 1, length: 40, write: {max_new_tokens: 5, temperature: 0}}\n";
    fs::write(folder.join("sweep.yaml"), sweep).unwrap();
    let write = |file: &str, content: Value| fs::write(model.join(file), content.to_string()).unwrap();
    let told = |config: Value| {
        let mut all = json!({"bos_token": "<s>", "add_bos_token": true});
        all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        write("tokenizer_config.json", all);
    };
    let steps: [(&str, &dyn Fn(), &str); 9] = [
        ("the first run", &|| (), "2 cells measured"),
        ("again", &|| (), "0 cells measured, 2 were there already"),
        (
            "every token ends a text",
            &|| {
                write("generation_config.json", json!({"eos_token_id": (0..200).collect::<Vec<_>>()}));
            },
            "1 cells measured, 1 were there already",
        ),
        (
            "something that is not used",
            &|| {
                write("generation_config.json", json!({"eos_token_id": (0..200).collect::<Vec<_>>(), "top_k": 3}));
            },
            "0 cells measured, 2 were there already",
        ),
        ("no BOS", &|| told(json!({"add_bos_token": false})), "2 cells measured"),
        (
            "a template",
            &|| {
                let template = "{{ messages[0].content }} c {{ eos_token }}";
                told(json!({"add_bos_token": false, "chat_template": template, "eos_token": "d"}));
            },
            "1 cells measured, 1 were there already",
        ),
        (
            "a token that the template writes",
            &|| {
                let template = "{{ messages[0].content }} c {{ eos_token }}";
                told(json!({"add_bos_token": false, "chat_template": template, "eos_token": "e"}));
            },
            "1 cells measured, 1 were there already",
        ),
        (
            "another BOS, of special_tokens_map.json",
            &|| {
                write("tokenizer_config.json", json!({"add_bos_token": true}));
                write("special_tokens_map.json", json!({"bos_token": "f"}));
            },
            "2 cells measured",
        ),
        (
            "a template in a file",
            &|| {
                fs::write(model.join("chat_template.jinja"), "{{ messages[0].content }} g").unwrap();
            },
            "1 cells measured, 1 were there already",
        ),
    ];
    for (step, change, says) in steps {
        change();
        let ended = run_into(folder, "r");
        assert!(ended.stderr.contains(says), "{step}: {}", ended.stderr);
        run_into(folder, &format!("fresh {step}"));
        assert_same(
            &timeless(current(&folder.join("r"))),
            &timeless(current(&folder.join(format!("fresh {step}")))),
        );
    }
}

#[test]
fn another_seed_moves_only_what_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 2, 80);
    let sweep =
        |more| Sweep { policies: "[full, tova, random]", tasks: &["dataset: ./texts, length: 64"], more, ..SMALL };
    sweep("").write(folder);
    run_into(folder, "r");
    let zero = nll(&current(&folder.join("r")));
    sweep("seed: 7\n").write(folder);
    run_into(folder, "r").says(&["1 cells measured, 2 were there already"]);
    let seven = nll(&current(&folder.join("r")));
    let moved: Vec<&str> = zero
        .iter()
        .filter(|(place, value)| seven[place] != **value)
        .map(|((policy, _), _)| policy.as_str())
        .collect();
    assert_eq!(moved, ["random"]);
    run(folder, &["report", "r", "--format", "csv", "--all"]).with_code(0);
    let values = ["random (seed 0)", "random (seed 7)", "tova"]
        .map(|policy| reported(&folder.join("r"), policy, "8").len());
    assert_eq!(values, [1, 1, 1]);
}

#[test]
fn policies_that_mean_the_same_are_shown_under_both_names() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 2, 80);
    let more = "define: {mine: {score: last_attention, scope: layer}}\n";
    Sweep {
        policies: "[full, window, window+0, tova, mine]",
        tasks: &["dataset: ./texts, length: 64"],
        more,
        ..SMALL
    }
    .write(folder);
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", "r", "--only", "policy=mine"])
        .with_code(0)
        .says(&["1 cells measured"]);
    assert_eq!(nll(&current(&folder.join("r"))).len(), 2, "tova, which was not asked for, is measured as well");
    run_into(folder, "r").says(&["2 cells measured, 1 were there already"]);
    let nll = nll(&current(&folder.join("r")));
    let of = |policy: &str| nll[&(policy.to_owned(), Some(8))];
    assert_eq!((of("window"), of("tova"), nll.len()), (of("window+0"), of("mine"), 5));
    let plan = run(folder, &["plan", "sweep.yaml", "--results", "r"]).with_code(0).stdout;
    assert!(plan.contains("the same as tova") && plan.contains("3 done, nothing to do"), "{plan}");
}

#[test]
fn folders_with_other_samples_do_not_replace_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 3, 80);
    for (books, out) in [(3, "six"), (2, "four")] {
        let task = format!("dataset: ./texts, length: 64, books: {books}, chunks_per_book: 2");
        Sweep { tasks: &[&task], ..SMALL }.write(folder);
        run_into(folder, out);
    }
    run(folder, &["report", "six", "four", "--format", "csv", "--out", "both"]).with_code(0);
    let full = reported(&folder.join("both"), "full", "");
    assert_eq!(full.len(), 2);
    for (out, value) in [("six", &full[0]), ("four", &full[1])] {
        let expected = nll(&current(&folder.join(out)))[&("full".to_owned(), None)].exp();
        assert!((value.parse::<f64>().unwrap() / expected - 1.0).abs() < 1e-12, "{out} {value} {expected}");
    }
    // A comparison pairs the samples that both have.
    let paired = run(folder, &["compare", "four", "six"]).with_code(0).stdout;
    assert!(paired.contains("no regression: 4 equal"), "{paired}");
    // Nothing in common is no success.
    Sweep { models: "[random-h64-l2-a2-f128-v300]", ..SMALL }.write(folder);
    run_into(folder, "other");
    run(folder, &["compare", "four", "other", "--allow-missing"]).with_code(1).says(&["nothing in common"]);
}
