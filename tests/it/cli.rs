//! The command line end to end: results do not depend on how the work is split, and bad input is refused with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::checkpoint::{configure, copy, cut_short, golden, write_tokenizer};
use crate::support::program::{Ended, command, finish, run};
use crate::support::rows::{assert_same, measured};
use crate::support::sweep::{SMALL, Sweep, write_texts};
use serde_json::{Value, json};
use tova_bench::ledger::{Row, Text};
use tova_bench::metric::Slice;

// --- the same numbers however the work is split ---

const EVERYTHING: Sweep<'static> = Sweep {
    policies: "[full, truncate, window, window+4, tova, tova-head, h2o, h2o-layer, knorm, knorm-layer, random]",
    cache_sizes: "[7, 128]",
    tasks: &[
        "dataset: ./texts, length: 200, stride: 150, tail: keep, compare_to_full: true",
        "dataset: random-words, length: 64, books: 2, chunks_per_book: 2, bos: false",
    ],
    ..SMALL
};

const RUN: [&str; 4] = ["run", "sweep.yaml", "--no-report", "--results"];

#[test]
fn threads_and_order_do_not_change_results() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 3, 80);
    EVERYTHING.write(folder);
    run(folder, &[&RUN[..], &["one", "--threads", "1"]].concat()).with_code(0);
    let expected = measured(&folder.join("one"));
    assert!(expected.len() > 500, "{}", expected.len());
    for threads in ["2", "3"] {
        run(folder, &[&RUN[..], &[threads, "--threads", threads]].concat()).with_code(0);
        assert_same(&measured(&folder.join(threads)), &expected);
    }
    // Cells start in another order, and share the unbounded pass over a sample with other cells.
    let backwards =
        "[random, knorm-layer, knorm, h2o-layer, h2o, tova-head, tova, window+4, window, truncate, full]";
    Sweep { policies: backwards, cache_sizes: "[128, 7]", ..EVERYTHING }.write(folder);
    run(folder, &[&RUN[..], &["backwards"]].concat()).with_code(0);
    assert_same(&measured(&folder.join("backwards")), &expected);
}

#[test]
fn shards_and_selections_add_up_to_the_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 3, 80);
    EVERYTHING.write(folder);
    run(folder, &[&RUN[..], &["one"]].concat())
        .with_code(0)
        .says(&["42 cells measured, 0 were there already, 0 failed"]);
    let expected = measured(&folder.join("one"));
    let mut shares = 0;
    for shard in ["3/3", "1/3", "2/3"] {
        let ended = run(folder, &[&RUN[..], &["shards", "--shard", shard]].concat()).with_code(0);
        let (cells, _) = ended.stderr.split_once(" cells measured, 0 were there already").unwrap();
        let share: usize = cells.rsplit('\n').next().unwrap().parse().unwrap();
        ended.says(&[&format!("{} left to other shards", 42 - share)]);
        shares += share;
    }
    assert_eq!(shares, 42);
    assert_same(&measured(&folder.join("shards")), &expected);
    for only in [
        &["--only", "policy=tova,h2o"][..],
        &["--only", "policy=tova", "--only", "size=7"],
        &["--limit", "5"],
        &[],
    ] {
        run(folder, &[&RUN[..], &["only"], only].concat()).with_code(0);
    }
    assert_same(&measured(&folder.join("only")), &expected);
}

#[test]
fn extreme_sizes_and_lengths_work() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 2, 12);
    fs::write(folder.join("texts/short.txt"), "a").unwrap();
    for positions in ["absolute", "slot", "squeezed"] {
        Sweep {
            policies: "[full, window, tova, tova-head, h2o, h2o-layer, knorm, random, mine]",
            cache_sizes: "[1, 2, 127, 128, 129, 4000000000]",
            tasks: &[
                "dataset: ./texts, length: 2, chunks_per_book: 3, compare_to_full: true",
                "dataset: ./texts, length: 3, stride: 1, tail: keep, chunks_per_book: 3",
                "dataset: ./texts, length: 300, tail: keep, bos: false, compare_to_full: true",
            ],
            more: &format!(
                "define: {{mine: {{score: last_attention, scope: head, keep_recent: 100%}}}}\npositions: {positions}\n"
            ),
            ..SMALL
        }
        .write(folder);
        let ended = run(folder, &["run", "sweep.yaml", "--results", positions]).with_code(0);
        ended.says(&["147 cells measured, 0 were there already, 0 failed"]);
        for row in measured(&folder.join(positions)) {
            assert!(row.value.is_finite() && row.weight > 0.0, "{row:?}");
        }
        run(folder, &["report", positions]).with_code(0);
    }
}

#[test]
fn the_smoke_sweep_runs_resumes_and_reports() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), &["run", "smoke"]).with_code(0);
    first.says(&["82 cells measured", "written to results/smoke"]);
    assert!(first.stdout.contains("tova-head"), "{}", first.stdout);
    let second = run(folder.path(), &["run", "smoke"]).with_code(0);
    second.says(&["82 cells measured already, skipped", "0 cells measured, 82 were there already"]);
    assert_eq!(second.stdout, first.stdout);
    let report = run(folder.path(), &["report", "results/smoke", "--out", "elsewhere"]).with_code(0);
    assert_eq!(report.stdout, first.stdout);
    assert!(folder.path().join("elsewhere/report.md").is_file());
    let redrawn =
        run(folder.path(), &["report", "results/smoke", "--figure", "figure3", "--format", "pdf"]).with_code(0);
    assert_eq!(redrawn.stdout, "");
    // The paper has no figure of these.
    redrawn.says(&["results/smoke/paper/figure-3.pdf", "not shown", "tova-head"]);
    let all = run(folder.path(), &["report", "results/smoke", "--figure", "all"]).with_code(0);
    all.says(&["paper/figure-3.svg", "not drawn: Figure 8", "configs/paper/retention.yaml"]);
    assert!(all.stdout.contains("tova-head"), "Table 3 is shown: {}", all.stdout);
    run(folder.path(), &["report", "results/smoke", "--figure", "8,table1"]).with_code(1).says(&[
        "error: Figure 8",
        "Table 1",
        "`tova-bench run configs/paper/table1.yaml`",
    ]);
    let few = ["report", "results/smoke", "--out", "few", "--format", "csv,svg"];
    let few = run(folder.path(), &few).with_code(0);
    assert!(few.stderr.contains(" files written to few"), "{}", few.stderr);
    assert!(!few.stderr.contains(".md") && !few.stderr.contains(".png"), "{}", few.stderr);
    for file in ["report.md", "summary.md", "report.tex", "report.csv", "pairs.csv"] {
        assert!(folder.path().join("elsewhere").join(file).is_file(), "{file}");
    }
    let near = ["report", "results/smoke", "--out", "elsewhere", "--within", "5%", "--within", "2recall"];
    let near = run(folder.path(), &near).with_code(0);
    assert!(near.stdout.contains("at most 5 % of perplexity from full \u{B7} "), "{near:?}");
    assert!(!near.stdout.contains(" nats") && near.stdout.contains("  within 2recall: "), "{near:?}");
    let short = first.stdout.lines().count();
    let all = run(folder.path(), &["report", "results/smoke", "--out", "elsewhere", "--all"]).with_code(0).stdout;
    assert!(short < 50 && all.lines().count() > 3 * short, "{short} lines, and {all}");
    // Pairs are against the first policy, or the one asked for, in the terminal and in the files.
    assert!(all.contains("perplexity: window against the others"), "{all}");
    let of_tova = ["report", "results/smoke", "--out", "elsewhere", "--all", "--reference", "tova"];
    let of_tova = run(folder.path(), &of_tova).with_code(0).stdout;
    assert!(
        of_tova.contains("tova against the others") && !of_tova.contains("window against the others"),
        "{of_tova}"
    );
    let markdown = fs::read_to_string(folder.path().join("elsewhere/report.md")).unwrap();
    assert!(markdown.contains("Perplexity: tova against the others"), "{markdown}");
    for unknown in ["full", "tovo"] {
        let ended = run(folder.path(), &["report", "results/smoke", "--reference", unknown]).with_code(2);
        ended.says(&[&format!("--reference {unknown}"), "the policies are", "tova-head", "truncate"]);
    }
    // Planned contrasts, named here or in the sweep.
    let asked = ["report", "results/smoke", "--out", "elsewhere", "--contrasts", "tova - window,tova-head - tova"];
    let asked = run(folder.path(), &asked).with_code(0).stdout;
    assert!(
        asked.contains("perplexity: planned contrasts") || asked.contains("Perplexity: planned contrasts"),
        "{asked}"
    );
    let ended = run(folder.path(), &["report", "results/smoke", "--contrasts", "tova - tovo"]).with_code(2);
    ended.says(&["`tovo` of --contrasts", "did you mean `tova`", "the policies are"]);
    let planned = "models: [random-tiny]\npolicies: [window, tova]\ncache_sizes: [16]\ncontrasts: [tova - window]\n\
                   tasks:\n  - perplexity: {dataset: random-words, length: 96, books: 6, chunks_per_book: 1}\n";
    fs::write(folder.path().join("planned.yaml"), planned).unwrap();
    let ran = run(folder.path(), &["run", "planned.yaml"]).with_code(0);
    assert!(
        ran.stdout.contains("planned contrasts") && ran.stdout.contains("tova \u{2212} window"),
        "{}",
        ran.stdout
    );
    let drawn = run(folder.path(), &["report", "results/planned", "--format", "csv"]).with_code(0);
    assert!(drawn.stdout.contains("planned contrasts"), "{}", drawn.stdout);
    let plan = run(folder.path(), &["plan", "smoke"]).with_code(0);
    assert!(plan.stdout.contains("82 cells: 82 done, nothing to do") && plan.stderr.is_empty(), "{plan:?}");
    for what in [
        &["list"][..],
        &["list", "scores"],
        &["list", "tasks"],
        &["list", "models"],
        &["list", "sweeps"],
        &["doctor", "--offline"],
        &["--help"],
        &["--version"],
    ] {
        let ended = run(folder.path(), what).with_code(0);
        assert!(!ended.stdout.is_empty() && ended.stderr.is_empty(), "{ended:?}");
    }
}

/// A byte order mark and CRLF belong to how a file was saved, not to its text.
#[test]
fn texts_are_the_same_however_they_were_saved() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let plain = "A fox ran.\nAn owl saw it.\n\n".repeat(20);
    let score = |text: &str| {
        fs::write(folder.join("a.txt"), text).unwrap();
        let arguments =
            ["score", "--model", "random-tiny", "--text", "a.txt", "--policy", "tova", "--cache-size", "16"];
        run(folder, &arguments).with_code(0).stdout
    };
    let expected = score(&plain);
    assert_eq!(score(&format!("\u{feff}{}", plain.replace('\n', "\r\n"))), expected);
}

/// Two models and two tasks read the folder; what is wrong with it is said once.
#[test]
fn missing_books_are_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("texts")).unwrap();
    for name in ["a.txt", "b.txt", ".c.txt", "notes.md"] {
        fs::write(folder.join("texts").join(name), "A fox ran. ".repeat(200)).unwrap();
    }
    let models = "models: [random-tiny, {source: random-tiny, dtype: bf16}]\npolicies: [full]\n";
    let tasks = "tasks:\n  - perplexity: {dataset: ./texts, length: 64, books: 3}\n  \
                 - needle: {dataset: ./texts, lengths: [400], depths: [50], texts: 4}\n";
    fs::write(folder.join("sweep.yaml"), format!("{models}{tasks}")).unwrap();
    let ended = run(folder, &["plan", "sweep.yaml"]).with_code(0);
    assert!(ended.stdout.contains("4 cells"), "{}", ended.stdout);
    for said in ["only 2 of the 3 books", "only 2 of the 4 texts"] {
        assert_eq!(ended.stderr.matches(said).count(), 1, "{said}: {}", ended.stderr);
    }
}

#[test]
fn the_printed_schema_is_the_committed_one() {
    let folder = tempfile::tempdir().unwrap();
    for (files, committed) in [
        ("sweep", include_str!("../../configs/sweep.schema.json")),
        ("benchmark", include_str!("../../configs/benchmark.schema.json")),
    ] {
        let printed = run(folder.path(), &["schema", files]).with_code(0);
        assert!(
            printed.stdout == committed,
            "write it anew: tova-bench schema {files} > configs/{files}.schema.json"
        );
        assert!(printed.stderr.is_empty(), "{}", printed.stderr);
    }
}

#[test]
fn the_default_sweep_needs_no_network() {
    let folder = tempfile::tempdir().unwrap();
    let offline = |arguments: &[&str]| {
        let mut command = command(folder.path());
        command.args(arguments).env("HF_HUB_OFFLINE", "1").env("HF_ENDPOINT", "http://127.0.0.1:9");
        finish(command).with_code(0)
    };
    let plan = offline(&["plan"]);
    assert!(plan.stdout.contains("sweep pocket, results in results/pocket"), "{}", plan.stdout);
    assert!(plan.stdout.contains("144 cells: 0 done, 144 to do"), "{}", plan.stdout);
    let only = ["run", "--only", "policy=full,window", "--only", "size=64", "--limit", "1"];
    let ended = offline(&only);
    ended.says(&["1 cells measured", "written to results/pocket"]);
    assert!(ended.stdout.contains("Perplexity · pocket · embedded"), "{}", ended.stdout);
    let all = offline(&["report", "results/pocket", "--all"]);
    assert!(all.stdout.contains("Recall (%) · pocket · embedded"), "{}", all.stdout);
    let report = fs::read_to_string(folder.path().join("results/pocket/report.md")).unwrap();
    assert!(
        report.contains("<summary>Recall (%) by distance</summary>")
            && report.contains("<summary>Recall (%) by kind</summary>"),
        "{report}"
    );
    assert!(folder.path().join("results/pocket/figures/recall-pocket-embedded-by-distance-linear.svg").is_file());
}

const EMBEDDED: Sweep<'static> = Sweep {
    models: "[pocket]",
    policies: "[full, truncate, window+4, tova, h2o, knorm]",
    cache_sizes: "[30, 200]",
    tasks: &["dataset: embedded, length: 512, stride: 400, books: 3, chunks_per_book: 3"],
    more: "",
};

#[test]
fn recall_does_not_depend_on_how_the_work_is_split() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    EMBEDDED.write(folder);
    run(folder, &[&RUN[..], &["one", "--threads", "1"]].concat()).with_code(0);
    let expected = measured(&folder.join("one"));
    run(folder, &[&RUN[..], &["three", "--threads", "3"]].concat()).with_code(0);
    assert_same(&measured(&folder.join("three")), &expected);
    // With fewer cells, the unbounded pass over a sample is shared with fewer, or not needed.
    for only in ["policy=knorm", "policy=tova,truncate", "size=30"] {
        run(folder, &[&RUN[..], &["parts", "--only", only]].concat()).with_code(0);
    }
    run(folder, &[&RUN[..], &["parts"]].concat()).with_code(0);
    assert_same(&measured(&folder.join("parts")), &expected);

    // Positions of samples of 512 tokens, BOS not scored; the second of a book begins to score at its 401st.
    let mut samples: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in expected.iter().filter(|row| row.metric == "nll") {
        samples.entry((&row.cell, &row.sample)).or_default().push(row);
    }
    for (place, rows) in samples {
        let weight = |row: &&Row| (Slice::text(row.slice.as_ref()), row.weight);
        let found: Vec<(String, f64)> = rows.iter().map(weight).collect();
        let (all, first) = if place.1.ends_with("#0") { (511.0, 127.0) } else { (400.0, 16.0) };
        let weights =
            [("", all), ("position:0-127", first), ("position:128-255", 128.0), ("position:256-511", 256.0)];
        assert_eq!(found, weights.map(|(group, weight)| (group.into(), weight)), "{place:?}");
        let sum: f64 = rows[1..].iter().map(|row| row.value).sum();
        assert!((sum - rows[0].value).abs() < 1e-9 * sum, "{place:?}");
    }

    // Every recall is of one kind and one distance, so parts sum to the whole.
    let mut sums: BTreeMap<(Text, Text, Text), BTreeMap<String, [f64; 2]>> = BTreeMap::new();
    for row in expected.iter().filter(|row| row.metric.starts_with("recall")) {
        let by = row.slice.as_ref().map_or("", |slice| &slice.kind).to_string();
        let place = (row.cell.clone(), row.sample.clone(), row.metric.clone());
        let sum = sums.entry(place).or_default().entry(by).or_default();
        sum[0] += row.value;
        sum[1] += row.weight;
        assert!(row.weight >= 1.0 && (0.0..=row.weight).contains(&row.value), "{row:?}");
    }
    assert!(sums.len() > 20, "{}", sums.len());
    for (place, sums) in sums {
        let [whole, distance, kind] = ["", "distance", "kind"].map(|by| sums[by]);
        assert_eq!((whole[1], whole[1]), (distance[1], kind[1]), "{place:?}");
        assert!((whole[0] - distance[0]).abs() < 1e-9 && (whole[0] - kind[0]).abs() < 1e-9, "{place:?}");
    }
}

#[test]
fn the_pocket_model_gives_the_same_rows_as_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let checkpoint = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/pocket");
    EMBEDDED.write(folder);
    run(folder, &[&RUN[..], &["inside", "--only", "policy=tova"]].concat()).with_code(0);
    Sweep { models: &format!("[{}]", checkpoint.display()), ..EMBEDDED }.write(folder);
    run(folder, &[&RUN[..], &["outside", "--only", "policy=tova"]].concat()).with_code(0);
    let [inside, outside] = ["inside", "outside"].map(|results| measured(&folder.join(results)));
    let renamed: Vec<Row> = outside.into_iter().map(|row| Row { model: "pocket".into(), ..row }).collect();
    assert_same(&renamed, &inside);
}

// --- score ---

struct Scored {
    nll: Vec<Option<f64>>,
    /// (layers)(groups)(entries)
    survivors: Vec<Vec<Vec<u32>>>,
}

/// `score` of a golden checkpoint's tokens.
fn score(checkpoint: &str, arguments: &[&str]) -> Scored {
    let folder = golden(checkpoint);
    let model = folder.to_str().unwrap();
    let common = ["score", "--model", model, "--tokens", "tokens.json"];
    let ended = run(&folder, &[&common[..], arguments].concat()).with_code(0);
    assert_eq!(ended.stderr, "");
    assert_eq!(ended.stdout.lines().count(), 1, "one JSON object on one line");
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(answer.as_object().unwrap().keys().collect::<Vec<_>>(), ["nll", "survivors"]);
    Scored {
        nll: serde_json::from_value(answer["nll"].clone()).unwrap(),
        survivors: serde_json::from_value(answer["survivors"].clone()).unwrap(),
    }
}

/// The largest difference of two lists of NLLs that lack the same ones.
#[track_caller]
fn difference(one: &[Option<f64>], other: &[Option<f64>]) -> f64 {
    assert_eq!(one.len(), other.len());
    let both = one.iter().zip(other).map(|(one, other)| match (one, other) {
        (Some(one), Some(other)) => (one - other).abs(),
        (None, None) => 0.0,
        _ => panic!("one lacks an NLL the other has"),
    });
    both.fold(0.0, f64::max)
}

#[test]
fn survivors_do_not_depend_on_the_chunk_length() {
    // mistral-gqa has 2 layers of 8 heads over 2 key-value heads, and 180 tokens.
    for (policy, groups) in [
        ("full", 1),
        ("window", 1),
        ("window+4", 1),
        ("tova", 1),
        ("tova-head", 2),
        ("h2o", 2),
        ("h2o-layer", 1),
        ("knorm", 2),
        ("knorm-layer", 1),
        ("random", 1),
    ] {
        let (size, given) = if policy == "full" { (180, &[][..]) } else { (33, &["--cache-size", "33"][..]) };
        let rule = [&["--policy", policy], given].concat();
        let whole = score("mistral-gqa", &rule);
        assert_eq!((whole.nll.len(), whole.survivors.len()), (179, 2), "{policy}");
        for layer in &whole.survivors {
            assert_eq!(layer.len(), groups, "{policy}: groups");
            for group in layer {
                assert_eq!(group.len(), size, "{policy}");
                assert!(group.is_sorted_by(|a, b| a < b) && *group.last().unwrap() < 180, "{policy}: {group:?}");
            }
        }
        assert!(whole.nll.iter().all(|nll| nll.is_some_and(|nll| nll.is_finite() && nll > 0.0)), "{policy}");
        let mut worst = 0f64;
        for chunk in ["1", "7", "64"] {
            let cut = score("mistral-gqa", &[&rule[..], &["--chunk", chunk]].concat());
            assert_eq!(cut.survivors, whole.survivors, "{policy} in chunks of {chunk}");
            worst = worst.max(difference(&cut.nll, &whole.nll));
        }
        assert!(worst < 1e-4, "{policy}: NLLs differ by {worst:.1e}");
        eprintln!("{policy}: chunks of 1, 7 and 64 tokens differ by {worst:.1e} at most");
    }
}

#[test]
fn scores_do_not_depend_on_threads() {
    let rule = ["--policy", "h2o", "--cache-size", "33"];
    let one = score("yi-gqa", &[&rule[..], &["--threads", "1"]].concat());
    for threads in ["2", "3"] {
        let more = score("yi-gqa", &[&rule[..], &["--threads", threads]].concat());
        assert_eq!((more.nll, more.survivors), (one.nll.clone(), one.survivors.clone()), "{threads} threads");
    }
}

#[test]
fn truncate_starts_each_piece_with_an_empty_cache() {
    let truncated = score("llama-mha", &["--policy", "truncate", "--cache-size", "50"]);
    let full = score("llama-mha", &[]);
    // 180 tokens are pieces of 50, 50, 50 and 30. Nothing comes before a piece's first token.
    let lacks: Vec<usize> = (0..179).filter(|&i| truncated.nll[i].is_none()).map(|i| i + 1).collect();
    assert_eq!(lacks, [50, 100, 150]);
    assert!(difference(&truncated.nll[..49], &full.nll[..49]) < 1e-4);
    assert_ne!(truncated.nll[50..60], full.nll[50..60]);
    let last: Vec<u32> = (150..180).collect();
    assert!(truncated.survivors.iter().flatten().all(|group| *group == last), "{:?}", truncated.survivors);

    // A piece is the text alone.
    let folder = tempfile::tempdir().unwrap();
    let tokens: Vec<u32> =
        serde_json::from_str(&fs::read_to_string(golden("llama-mha").join("tokens.json")).unwrap()).unwrap();
    let piece = folder.path().join("piece.json");
    fs::write(&piece, json!(tokens[50..100]).to_string()).unwrap();
    let model = golden("llama-mha");
    let ended =
        run(folder.path(), &["score", "--model", model.to_str().unwrap(), "--tokens", "piece.json"]).with_code(0);
    let alone: Value = serde_json::from_str(&ended.stdout).unwrap();
    let alone: Vec<Option<f64>> = serde_json::from_value(alone["nll"].clone()).unwrap();
    assert!(difference(&truncated.nll[50..99], &alone) < 1e-4);
    for size in ["180", "181"] {
        let whole = score("llama-mha", &["--policy", "truncate", "--cache-size", size]);
        assert_eq!((whole.nll, whole.survivors), (full.nll.clone(), full.survivors.clone()));
    }
}

/// `truncate` by its definition, each piece a text of its own; by `score`; and by `run`.
#[test]
fn truncate_means_the_same_to_score_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = copy(folder, "model");
    // The model's tokens 2 to 27 are a to z.
    let mut random = fastrand::Rng::with_seed(4);
    let text: Vec<u32> = (0..60).map(|_| random.u32(2..28)).collect();
    let letters: Vec<String> = text.iter().map(|token| char::from(b'a' + *token as u8 - 2).to_string()).collect();
    fs::create_dir(folder.join("texts")).unwrap();
    fs::write(folder.join("texts/text.txt"), letters.join(" ")).unwrap();
    let scored = |arguments: &[&str]| -> Vec<Option<f32>> {
        let ended = run(folder, &[&["score", "--model", "./model"], arguments].concat()).with_code(0);
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
        serde_json::from_value(answer["nll"].clone()).unwrap()
    };
    let scored_tokens = |tokens: &[u32], rule: &[&str]| {
        fs::write(folder.join("tokens.json"), json!(tokens).to_string()).unwrap();
        scored(&[&["--tokens", "tokens.json"], rule].concat())
    };
    let sizes = [2, 3, 13, 31, 60, 61, 62];
    for (adds_bos, setting) in [(true, "auto"), (false, "auto"), (false, "true")] {
        let bos = adds_bos || setting == "true";
        let config = json!({"bos_token": "<s>", "add_bos_token": adds_bos});
        fs::write(model.join("tokenizer_config.json"), config.to_string()).unwrap();
        let task = format!("dataset: ./texts, tail: keep, bos: {setting}");
        let cache_sizes = format!("{sizes:?}");
        Sweep { models: "[./model]", policies: "[truncate]", cache_sizes: &cache_sizes, tasks: &[&task], ..SMALL }
            .write(folder);
        let results = format!("{adds_bos}-{setting}");
        run(folder, &[&RUN[..], &[&results]].concat()).with_code(0);
        let rows = measured(&folder.join(&results));
        for size in sizes {
            let lead: &[u32] = if bos { &[1] } else { &[] };
            let alone: Vec<Vec<Option<f32>>> =
                text.chunks(size - lead.len()).map(|piece| scored_tokens(&[lead, piece].concat(), &[])).collect();
            // Without BOS, the first token of a piece has nothing before it.
            let expected = if bos { alone.concat() } else { alone.join(&None) };
            let size_given = size.to_string();
            let rule = ["--policy", "truncate", "--cache-size", &size_given];
            assert_eq!(scored_tokens(&[lead, &text].concat(), &rule), expected, "{size} tokens, BOS {bos}");
            if setting == "auto" {
                let of_text = scored(&[&["--text", "texts/text.txt"], &rule[..]].concat());
                assert_eq!(of_text, expected, "{size} tokens, BOS {bos}");
            }
            let own =
                |row: &&Row| row.cache_size == Some(size as u32) && row.metric == "nll" && row.slice.is_none();
            let row = rows.iter().find(own).unwrap();
            let known: Vec<f64> = expected.iter().flatten().map(|nll| f64::from(*nll)).collect();
            assert_eq!(
                (row.value, row.weight),
                (known.iter().sum(), known.len() as f64),
                "{size} tokens, BOS {bos}"
            );
        }
    }
}

#[test]
fn survivors_of_a_piece_are_positions_in_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    copy(folder, "model");
    fs::write(folder.join("text"), "a b c d e f").unwrap();
    let truncate = ["--policy", "truncate", "--cache-size", "3"];
    let ended = run(folder, &[&["score", "--model", "./model", "--text", "text"], &truncate[..]].concat());
    let answer: Value = serde_json::from_str(&ended.with_code(0).stdout).unwrap();
    // BOS a b, BOS c d, BOS e f.
    for layer in answer["survivors"].as_array().unwrap() {
        assert_eq!(layer, &json!([[0, 5, 6]]));
    }
}

#[test]
fn texts_are_read_with_the_models_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    copy(folder.path(), "model");
    fs::write(folder.path().join("text"), "a b zz ab").unwrap();
    let text = run(folder.path(), &["score", "--model", "./model", "--text", "text"]).with_code(0);
    // BOS is token 1, a and b are 2 and 3, aa to az start at 28; zz is none of the 200.
    fs::write(folder.path().join("tokens"), "[1, 2, 3, 0, 29]").unwrap();
    let tokens = run(folder.path(), &["score", "--model", "./model", "--tokens", "tokens"]).with_code(0);
    assert_eq!(text.stdout, tokens.stdout);
    let timed = ["score", "--model", "./model", "--tokens", "tokens", "--timing", "--repeat", "2"];
    let timed: Value = serde_json::from_str(&run(folder.path(), &timed).with_code(0).stdout).unwrap();
    assert_eq!(timed["timing"]["tokens"], 5);
    assert!(timed["timing"]["machine"].as_str().unwrap().contains(&tova_bench::vector::instruction_set()));
    assert_eq!(timed["timing"]["seconds"].as_array().unwrap().len(), 3);
}

// --- bad input ---

/// A folder with everything a sweep can name: `texts`, `model` with a tokenizer, and a sweep of both.
struct Setup(tempfile::TempDir);

impl Setup {
    fn new() -> Setup {
        let setup = Setup(tempfile::tempdir().unwrap());
        write_texts(setup.path(), 1, 200);
        copy(setup.path(), "model");
        setup
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, sweep: &Sweep<'_>, arguments: &[&str]) -> Ended {
        sweep.write(self.path());
        run(self.path(), &[&RUN[..], &["r"], arguments].concat())
    }

    /// What is said when both cells of a sweep fail with one message and the run ends in order. The exit code is 1, or 2 where a path
    /// leads nowhere.
    #[track_caller]
    fn failure(&self, sweep: &Sweep<'_>, code: i32) -> String {
        let ended = self.run(sweep, &[]).with_code(code);
        ended.says(&["failed: 2 cells", "0 cells measured, 0 were there already, 2 failed"]);
        assert_eq!(ended.stderr.matches("failed:").count(), 1, "the reason is printed once:\n{}", ended.stderr);
        ended.stderr
    }
}

#[test]
fn mistakes_in_a_sweep_are_refused_with_their_place() {
    let setup = Setup::new();
    let mut said = String::new();
    for sweep in [
        Sweep { more: "polices: [tova]\n", ..SMALL },
        Sweep { policies: "[full, toba]", ..SMALL },
        Sweep { cache_sizes: "[8, 0]", ..SMALL },
        Sweep { policies: "[window+4]", cache_sizes: "[4]", ..SMALL },
        Sweep { policies: "[truncate]", cache_sizes: "[1]", ..SMALL },
        Sweep { cache_sizes: "[]", ..SMALL },
        Sweep { tasks: &["dataset: books, length: 64"], ..SMALL },
        Sweep { tasks: &["dataset: random-words, length: 1"], ..SMALL },
        Sweep { tasks: &["length: 64"], ..SMALL },
        Sweep { models: "[gpt2]", ..SMALL },
        Sweep { models: "[random-tiny, random-tiny]", ..SMALL },
        Sweep { models: "[random-tiny", ..SMALL },
    ] {
        sweep.write(setup.path());
        let [ran, planned] = [&RUN[..], &["plan", "sweep.yaml", "--results"]].map(|command| {
            let ended = run(setup.path(), &[command, &["r"]].concat()).with_code(2);
            assert_eq!(ended.stdout, "");
            ended.stderr
        });
        assert_eq!(ran, planned);
        said += &ran;
        assert!(!setup.path().join("r").exists(), "nothing runs");
    }
    for sweep in ["nowhere.yaml", "texts", "model/model.safetensors"] {
        said += &run(setup.path(), &["run", sweep]).with_code(2).stderr;
    }
    insta::assert_snapshot!(said);
}

#[test]
fn mistakes_on_the_command_line_are_refused() {
    let setup = Setup::new();
    SMALL.write(setup.path());
    fs::write(setup.path().join("tokens"), "[1, 2]").unwrap();
    let score = ["score", "--model", "random-tiny", "--tokens", "tokens"];
    let write = ["write", "--model", "random-tiny", "--tokens", "tokens"];
    let mut said = String::new();
    for (command, arguments) in [
        (&RUN[..3], &["--threads", "0"][..]),
        (&score, &["--threads", "0"]),
        (&RUN[..3], &["--only", "policy=toba"]),
        (&RUN[..3], &["--limit", "0"]),
        (&["plan", "sweep.yaml"], &["--limit", "0"]),
        // `full` has no size.
        (&RUN[..3], &["--only", "policy=full", "--only", "size=8"]),
        (&["plan", "sweep.yaml"], &["--only", "policy=full", "--only", "size=8"]),
        (&RUN[..3], &["--only", "polcy=tova"]),
        (&RUN[..3], &["--shard", "4/3"]),
        (&RUN[..3], &["--device", "tpu"]),
        (&score, &["--policy", "toba"]),
        (&score, &["--policy", "tova"]),
        (&score, &["--policy", "tova", "--cache-size", "0"]),
        (&score, &["--policy", "window+4", "--cache-size", "4"]),
        (&score, &["--policy", "truncate", "--cache-size", "1"]),
        (&score, &["--policy", "full", "--cache-size", "64"]),
        (&write, &["--cache-size", "64"]),
        (&score, &["--chunk", "0"]),
        (&score, &["--text", "tokens"]),
        (&score[..3], &[]),
        (&["score", "--tokens", "tokens", "--model"], &["gpt2"]),
        (&write, &["--top-k", "5"]),
        (&write, &["--top-p", "2", "--temperature", "1"]),
        (&["report"], &[]),
        // Names are checked before anything is read, so the folder need not exist.
        (&["report", "none"], &["--figure", "2"]),
        (&["report", "none"], &["--figure", "3,table4"]),
        (&["report", "none"], &["--figure", "curve"]),
        (&["report", "none"], &["--paper"]),
        (&["report", "none"], &["--figure", "3", "--columns", "3"]),
        (&["report", "none"], &["--format", "doc"]),
        (&["report", "r", "--within"], &["0.4"]),
        (&[], &[]),
    ] {
        let ended = run(setup.path(), &[command, arguments].concat()).with_code(2);
        said += &format!("$ {}\n{}\n", [command, arguments].concat().join(" "), ended.stderr);
        assert_eq!(ended.stdout, "");
        assert!(!setup.path().join("results").exists(), "{command:?} {arguments:?} makes no folder");
    }
    insta::assert_snapshot!(said);
    #[cfg(not(feature = "cuda"))]
    run(setup.path(), &["run", "sweep.yaml", "--device", "cuda"]).with_code(1).says(&["--device cpu"]);
}

#[test]
fn unusable_models_are_named_with_file_and_reason() {
    let setup = Setup::new();
    let model = setup.path().join("model");
    let sweep =
        Sweep { models: "[./model]", tasks: &["dataset: ./texts, length: 64, chunks_per_book: 1"], ..SMALL };
    let mut said = String::new();
    let mut damaged = |damage: &dyn Fn()| {
        damage();
        said += &setup.failure(&sweep, if model.exists() { 1 } else { 2 });
        let _ = fs::remove_dir_all(&model);
        copy(setup.path(), "model");
    };
    let weights = model.join("model.safetensors");
    damaged(&|| fs::remove_dir_all(&model).unwrap());
    damaged(&|| fs::remove_file(model.join("tokenizer.json")).unwrap());
    for length in [100_000, 4] {
        damaged(&|| cut_short(&weights, length));
    }
    damaged(&|| cut_short(&weights, 0));
    damaged(&|| configure(&model, json!({"intermediate_size": 98})));
    damaged(&|| configure(&model, json!({"num_hidden_layers": 3})));
    damaged(&|| configure(&model, json!({"num_hidden_layers": 1})));
    damaged(&|| configure(&model, json!({"model_type": "gpt_neox"})));
    damaged(&|| configure(&model, json!({"model_type": "qwen3"})));
    damaged(&|| configure(&model, json!({"quantization_config": {"bits": 4}})));
    damaged(&|| fs::write(model.join("config.json"), "{").unwrap());
    damaged(&|| fs::remove_file(model.join("config.json")).unwrap());
    damaged(&|| fs::rename(&weights, model.join("pytorch_model.bin")).unwrap());
    damaged(&|| fs::write(model.join("adapter_config.json"), "{}").unwrap());
    damaged(&|| {
        fs::write(&weights, "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n").unwrap()
    });
    damaged(&|| write_tokenizer(&model, 400));
    damaged(&|| write_tokenizer(&model, 90));
    damaged(&|| fs::write(model.join("tokenizer.json"), "{}").unwrap());
    damaged(&|| fs::write(model.join("tokenizer_config.json"), "[").unwrap());
    // The undamaged folder works.
    setup.run(&sweep, &[]).with_code(0).says(&["2 cells measured"]);
    insta::assert_snapshot!(said);
}

#[test]
fn score_refuses_damaged_models_with_code_1() {
    let setup = Setup::new();
    let tokens = golden("yi-gqa").join("tokens.json");
    cut_short(&setup.path().join("model/model.safetensors"), 100_000);
    run(setup.path(), &["score", "--model", "./model", "--tokens", tokens.to_str().unwrap()])
        .with_code(1)
        .says(&["./model", "model.safetensors", "truncated"]);
}

#[test]
fn a_broken_model_does_not_stop_the_others() {
    let setup = Setup::new();
    fs::rename(setup.path().join("model"), setup.path().join("broken")).unwrap();
    copy(setup.path(), "model");
    cut_short(&setup.path().join("broken/model.safetensors"), 100_000);
    let task = ["dataset: ./texts, length: 64, chunks_per_book: 2"];
    let sweep = Sweep { models: "[./broken, ./missing, ./model, random-tiny]", tasks: &task, ..SMALL };
    let ended = setup.run(&sweep, &[]).with_code(4);
    ended.says(&[
        "failed: 2 cells of perplexity with ./broken",
        "truncated",
        "failed: 2 cells of perplexity with ./missing",
    ]);
    ended.says(&["4 cells measured, 0 were there already, 4 failed"]);
    let models: BTreeSet<Text> = measured(&setup.path().join("r")).into_iter().map(|row| row.model).collect();
    assert_eq!(models.into_iter().collect::<Vec<_>>(), ["./model", "random-tiny"]);
    let plan = run(setup.path(), &["plan", "sweep.yaml", "--results", "r"]).with_code(4);
    assert!(plan.stdout.contains("failed: ") && plan.stdout.contains("./missing"), "{}", plan.stdout);
    run(setup.path(), &["plan", "sweep.yaml", "--results", "r", "--check"]).with_code(4);

    // Repaired, both are copies of ./model, so there is nothing left to measure.
    fs::remove_dir_all(setup.path().join("broken")).unwrap();
    copy(setup.path(), "broken");
    copy(setup.path(), "missing");
    let ended = setup.run(&sweep, &[]).with_code(0);
    ended.says(&["4 cells measured already, skipped", "0 failed"]);
    run(setup.path(), &["plan", "sweep.yaml", "--results", "r", "--check"]).with_code(0);
}

#[test]
fn unreadable_texts_are_named_with_file_and_reason() {
    let setup = Setup::new();
    let texts = setup.path().join("texts");
    let book = texts.join("z.txt");
    let mut said = String::new();
    let mut fails = |task: &str| {
        let code = if task.contains("./texts") && !texts.exists() { 2 } else { 1 };
        said += &setup.failure(&Sweep { tasks: &[task], ..SMALL }, code);
    };
    let task = "dataset: ./texts, length: 64, chunks_per_book: 1";
    fs::write(&book, " \n").unwrap();
    fails(task);
    fs::write(&book, b"caf\xe9 au lait").unwrap();
    fails(task);
    fs::remove_file(&book).unwrap();
    fails("dataset: ./texts, length: 5000");
    fs::rename(texts.join("book-0.txt"), texts.join("book-0.md")).unwrap();
    fails(task);
    fs::remove_dir_all(&texts).unwrap();
    fails(task);
    fs::write(setup.path().join("table.parquet"), "PAR1").unwrap();
    fails("dataset: ./table.parquet, length: 64");
    insta::assert_snapshot!(said);
}

/// A sweep beside its texts and its model, run from the folder above.
#[test]
fn paths_start_at_the_working_directory_and_the_error_says_what_is_beside_the_sweep() {
    let setup = Setup::new();
    let beside = setup.path().join("configs");
    fs::create_dir(&beside).unwrap();
    fs::rename(setup.path().join("texts"), beside.join("texts")).unwrap();
    fs::rename(setup.path().join("model"), beside.join("model")).unwrap();
    let task = "dataset: ./texts, length: 64, chunks_per_book: 1";
    let from_above = |sweep: Sweep<'_>, code: i32| {
        sweep.write(&beside);
        run(setup.path(), &["run", "configs/sweep.yaml", "--no-report", "--results", "r"]).with_code(code)
    };
    for (models, named) in [("[random-tiny]", "texts"), ("[./model]", "model")] {
        let ended = from_above(Sweep { models, tasks: &[task], ..SMALL }, 2);
        ended.says(&["run it in configs, or write configs/", &format!("configs/{named}"), "0 cells measured"]);
    }
    let plan = run(setup.path(), &["plan", "configs/sweep.yaml"]).with_code(4);
    assert!(plan.stdout.contains("or write configs/model"), "{}", plan.stdout);
    // Neither what is nowhere nor what is measured gets the advice, and some cells are enough for 4.
    let nowhere = "dataset: ./nowhere, length: 64";
    let ended = from_above(Sweep { tasks: &[nowhere], ..SMALL }, 2);
    assert!(ended.stderr.contains("./nowhere") && !ended.stderr.contains("hint"), "{}", ended.stderr);
    from_above(Sweep { tasks: &[nowhere, "dataset: random-words, length: 64, books: 1"], ..SMALL }, 4)
        .says(&["2 cells measured, 0 were there already, 2 failed"]);
    run(&beside, &["run", "sweep.yaml", "--no-report", "--results", "r"]).with_code(4);
    Sweep { tasks: &[task], ..SMALL }.write(&beside);
    run(&beside, &["run", "sweep.yaml", "--no-report", "--results", "r"]).with_code(0);
}

#[test]
fn a_token_that_cannot_be_read_stops_only_what_asks_the_hub() {
    let setup = Setup::new();
    // No text, as a file that the user may not read would be to anybody but root.
    fs::create_dir(setup.path().join("token")).unwrap();
    let with_token = |arguments: &[&str]| {
        let mut command = command(setup.path());
        command.args(arguments).env("HF_TOKEN_PATH", "token").env("HF_ENDPOINT", "http://127.0.0.1:9");
        finish(command)
    };
    SMALL.write(setup.path());
    with_token(&[&RUN[..], &["r"]].concat()).with_code(0).says(&["2 cells measured"]);
    with_token(&["plan", "sweep.yaml", "--results", "r", "--check"]).with_code(0);
    Sweep { models: "[o/n]", ..SMALL }.write(setup.path());
    let ended = with_token(&[&RUN[..], &["other"]].concat()).with_code(1);
    ended.says(&["token file token", "o/n"]);
    assert!(!ended.stderr.contains("127.0.0.1:9"), "the hub was asked:\n{}", ended.stderr);
    let doctor = with_token(&["doctor", "--offline"]).with_code(1);
    assert!(doctor.stdout.contains("token file token"), "{}", doctor.stdout);
}

#[test]
fn unreadable_tokens_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut said = String::new();
    for text in ["hello", "[1, -2]", "[1, 2, 257]", "[257]", "[]"] {
        fs::write(folder.path().join("tokens"), text).unwrap();
        for rule in [&[][..], &["--policy", "tova", "--cache-size", "2"]] {
            let score = ["score", "--model", "random-tiny", "--tokens", "tokens"];
            let ended = run(folder.path(), &[&score[..], rule].concat()).with_code(1);
            said += &format!("{text} {}\n{}", rule.join(" "), ended.stderr);
            assert_eq!(ended.stdout, "");
        }
    }
    for kind in ["--tokens", "--text"] {
        said += &run(folder.path(), &["score", "--model", "random-tiny", kind, "nowhere"]).with_code(1).stderr;
    }
    insta::assert_snapshot!(said);
}

#[test]
fn an_unreachable_hub_is_named_with_ways_out() {
    let setup = Setup::new();
    let hub = |models: &str, data: &str, (name, value): (&str, &str)| {
        Sweep { models, tasks: &[&format!("dataset: {data}, length: 64, chunks_per_book: 1")], ..SMALL }
            .write(setup.path());
        let mut command = command(setup.path());
        // Nobody listens on port 9, unless the variable names another hub.
        command.args(RUN).arg("r").env("HF_ENDPOINT", "http://127.0.0.1:9").env(name, value);
        finish(command)
    };
    let mut said = String::new();
    for (models, data) in [("[o/n]", "random-words"), ("[random-tiny]", "o/n")] {
        for variable in [("HF_HOME", "cache"), ("HF_HUB_OFFLINE", "1")] {
            said += &hub(models, data, variable).with_code(1).stderr;
        }
    }
    said += &hub("[o/n]", "random-words", ("HF_ENDPOINT", "mirror")).with_code(1).stderr;
    // A plan does not ask the hub.
    let plan = run(setup.path(), &["plan", "sweep.yaml", "--results", "r"]).with_code(0);
    let said = said + &plan.stdout;
    insta::assert_snapshot!(said.replace(setup.path().to_str().unwrap(), "FOLDER"));
}

#[test]
fn a_plan_without_data_fails_and_says_why_once() {
    let setup = Setup::new();
    let tasks = ["dataset: ./nowhere, length: 64", "dataset: ./nowhere, length: 32"];
    Sweep { tasks: &tasks, ..SMALL }.write(setup.path());
    for check in [&[][..], &["--check"]] {
        let plan = run(setup.path(), &[&["plan", "sweep.yaml", "--results", "r"], check].concat()).with_code(4);
        assert!(!plan.stdout.contains("nothing to do"), "{}", plan.stdout);
        let last = plan.stdout.lines().last().unwrap();
        assert!(last.starts_with("4 cells cannot be planned") && last.contains("./nowhere"), "{}", plan.stdout);
        assert_eq!(plan.stdout.matches("cannot read the folder").count(), 1, "{}", plan.stdout);
    }
}

#[test]
fn a_plan_names_lengths_and_sizes_that_say_nothing_new() {
    let setup = Setup::new();
    let config = setup.path().join("model/config.json");
    let text = fs::read_to_string(&config).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    json["max_position_embeddings"] = 48.into();
    fs::write(&config, json.to_string()).unwrap();
    let tasks =
        ["dataset: ./texts, length: 64, chunks_per_book: 1", "dataset: ./texts, length: 48, chunks_per_book: 1"];
    let sweep = Sweep {
        models: "[./model]",
        policies: "[full, tova]",
        cache_sizes: "[32, 48, 64]",
        tasks: &tasks,
        ..SMALL
    };
    sweep.write(setup.path());
    let plan = run(setup.path(), &["plan", "sweep.yaml", "--results", "r"]).with_code(0).stdout;
    let tasks: Vec<&str> = plan.split("./model (").skip(1).collect();
    assert!(tasks[0].contains("up to 64 tokens, and the model was trained on 48"), "{plan}");
    assert!(tasks[0].contains("tova evicts nothing at 64: equal to full"), "{plan}");
    assert!(!tasks[1].contains("was trained on"), "{plan}");
    assert!(tasks[1].contains("tova evicts nothing at 48, 64: equal to full"), "{plan}");
}

#[test]
fn folders_without_results_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("empty")).unwrap();
    fs::create_dir_all(folder.path().join("bare/cells")).unwrap();
    for results in ["empty", "nowhere", "bare"] {
        run(folder.path(), &["report", results]).with_code(1).says(&[results, "hint:"]);
    }
    // A plan needs no results.
    run(folder.path(), &["plan", "--results", "nowhere"]).with_code(0);
}

/// As in `tova-bench schema | head`.
#[test]
fn a_closed_pipe_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = command(folder.path()).arg("schema").stdout(writer).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The commands that `--help` lists.
fn commands(folder: &Path) -> Vec<String> {
    let help = run(folder, &["--help"]).with_code(0).stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().map_while(|line| line.split_whitespace().next());
    let commands: Vec<String> = commands.filter(|command| *command != "help").map(str::to_owned).collect();
    assert!(commands.len() > 10, "{commands:?}");
    commands
}

/// Every command has help: a first line about itself, and a line for each argument.
#[test]
fn every_command_has_help() {
    let folder = tempfile::tempdir().unwrap();
    for command in commands(folder.path()) {
        let help = run(folder.path(), &[&command, "--help"]).with_code(0).stdout;
        assert!(!help.starts_with("Usage:") && help.contains("\nUsage: tova-bench"), "{help}");
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let script = run(folder.path(), &["completions", "bash"]).with_code(0).stdout;
    let function = script.split_once("()").unwrap().0.trim().to_owned();
    let completed = |words: &[&str]| {
        let words = words.join(" ");
        let (before, last) = words.rsplit_once(' ').unwrap();
        let previous = before.rsplit(' ').next().unwrap();
        let ask = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             {function} tova-bench '{last}' '{previous}'; echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["-c", &ask]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed(&["tova-bench", "pl"]), "plan");
    assert_eq!(completed(&["tova-bench", "score", "--cache-s"]), "--cache-size");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let commands = commands(folder.path());
    run(folder.path(), &["manual", "pages"]).with_code(0);
    for command in &commands {
        let page = std::fs::read_to_string(folder.path().join(format!("pages/tova-bench-{command}.1"))).unwrap();
        assert!(page.starts_with(".ie") && page.contains(".SH SYNOPSIS"), "{command}");
    }
}
