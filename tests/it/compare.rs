//! `compare` and `baseline` end to end: the program, results folders that were tampered with on purpose, and what it
//! says of them, by exit code and in every format.

use std::fs;
use std::path::Path;

use crate::support::program::{Ended, run};
use serde_json::Value;
use tempfile::TempDir;
use tova_bench::ledger::{Row, Text, read_rows, write_rows};

// --- results to tamper with ---

fn row(policy: &str, size: Option<u32>, book: usize, metric: &str, value: f64, weight: f64) -> Row {
    let word = |word: &str| Text::from(word);
    Row {
        cell: format!("{policy}-{}", size.unwrap_or(0)).into(),
        sweep: word("gate"),
        model: word("o/model"),
        model_revision: word("0123"),
        policy: word(policy),
        cache_size: size,
        positions: word("absolute"),
        prefill: word("stream"),
        task: word("perplexity"),
        dataset: word("books"),
        length: 128,
        sample: format!("book-{book:02}.txt#0").into(),
        cluster: format!("book-{book:02}.txt").into(),
        metric: word(metric),
        value,
        weight,
        engine: 2,
        commit: Some(word("abc")),
        device: word("cpu"),
        date: word("2026-01-01T00:00:00Z"),
        ..Row::default()
    }
}

/// Twelve books under three rules: perplexity, and recall of ten facts.
fn measured() -> Vec<Row> {
    let mut rows = Vec::new();
    for (policy, size, cost) in [("full", None, 0.0), ("tova", Some(64), 0.1), ("window", Some(64), 0.9)] {
        for book in 0..12 {
            let nll = 2.0 + 0.1 * book as f64 + cost;
            rows.push(row(policy, size, book, "nll", nll * 127.0, 127.0));
            rows.push(row(policy, size, book, "recall", 8.0 - cost.ceil() - (book % 3) as f64, 10.0));
        }
    }
    rows
}

/// One sequence timed three times.
fn timed(device: &str, seconds: [f64; 3]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (repeat, seconds) in seconds.into_iter().enumerate() {
        let row = row("tova", Some(64), repeat, "decode", seconds, 1000.0);
        let (cell, sample) = (format!("timing-{}", device.len()).into(), format!("repeat#{repeat}").into());
        let (task, cluster) = ("timing".into(), "repeats".into());
        rows.push(Row { task, cluster, cell, sample, device: device.into(), ..row });
    }
    rows
}

fn changed(rows: &[Row], change: impl Fn(&mut Row)) -> Vec<Row> {
    let mut rows = rows.to_vec();
    rows.iter_mut().for_each(change);
    rows
}

/// Writes a results folder, one file for each cell.
fn ledger(folder: &Path, name: &str, rows: &[Row]) {
    let cells = folder.join(name).join("cells");
    fs::create_dir_all(&cells).unwrap();
    for rows in rows.chunk_by(|a, b| a.cell == b.cell) {
        write_rows(&cells.join(format!("{}__{}__{}.parquet", rows[0].task, rows[0].policy, rows[0].cell)), rows)
            .unwrap();
    }
}

/// A folder with a saved baseline `good` of these rows.
fn saved(rows: &[Row]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    ledger(folder.path(), "results/good", rows);
    run(folder.path(), &["baseline", "save", "good", "results/good"]).with_code(0);
    folder
}

/// Compares the baseline with other rows.
fn compared(folder: &TempDir, rows: &[Row], more: &[&str]) -> Ended {
    let folder = folder.path();
    let _ = fs::remove_dir_all(folder.join("results/new"));
    ledger(folder, "results/new", rows);
    run(folder, &[&["compare", "good", "results/new"], more].concat())
}

fn parsed(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

/// `(policy, metric, verdict)` of every point that is not as it was.
fn verdicts(document: &Value) -> Vec<(String, String, String)> {
    let points = document["points"].as_array().unwrap().iter();
    let text = |point: &Value, field: &str| point[field].as_str().unwrap().to_owned();
    let all = points.map(|point| (text(point, "policy"), text(point, "metric"), text(point, "verdict")));
    all.filter(|(_, _, verdict)| verdict != "equal").collect()
}

fn expect(document: &Value, expected: &[(&str, &str, &str)]) {
    let found = verdicts(document);
    let found: Vec<_> = found.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(found, expected);
}

// --- verdicts ---

#[test]
fn equal_results_are_equal_in_every_mode() {
    let folder = saved(&measured());
    // Other ids, dates, speeds and places change nothing.
    let again = changed(&measured(), |row| {
        row.cell = format!("{}9", row.cell).into();
        (row.date, row.seconds, row.commit) = ("2027-02-02T00:00:00Z".into(), 9.0, None);
    });
    for more in [&[][..], &["--exact"], &["--exact", "--tolerance", "0"], &["--slices"]] {
        let ended = compared(&folder, &again, more).with_code(0);
        assert!(ended.stdout.contains("6 equal\n\n6 numbers of results/new"), "{}", ended.stdout);
        // The verdict and what was compared.
        assert_eq!(ended.stdout.split("\n\n").count(), 2, "{}", ended.stdout);
    }
}

#[test]
fn each_movement_has_its_verdict() {
    let folder = saved(&measured());
    let of = |policy: &'static str, metric: &'static str, by: fn(usize) -> f64| {
        changed(&measured(), move |row| {
            let book: usize = row.cluster[5..7].parse().unwrap();
            if row.policy == policy && row.metric == metric {
                row.value += by(book);
            }
        })
    };
    // Every book a little worse: a tenth of a nat for each token is ten percent.
    let worse = compared(&folder, &of("tova", "nll", |book| 12.7 + 0.1 * (book % 2) as f64), &["--json", "-"]);
    let document = parsed(&worse.with_code(3));
    expect(&document, &[("tova", "nll", "regressed")]);
    let point =
        document["points"].as_array().unwrap().iter().find(|point| point["verdict"] == "regressed").unwrap();
    // exp(2.65) before, where books have 2.1 to 3.2 nats; exp(2.65 + 12.75/127) after.
    let (before, after) = (2.65f64.exp(), (2.65f64 + 12.75 / 127.0).exp());
    assert!((point["baseline"].as_f64().unwrap() - before).abs() < 1e-9, "{point}");
    assert!((point["results"].as_f64().unwrap() - after).abs() < 1e-9, "{point}");
    assert!((point["difference"].as_f64().unwrap() - (after - before)).abs() < 1e-9, "{point}");
    let interval = point["interval"].as_array().unwrap();
    assert!(interval[0].as_f64().unwrap() > 1.0 && interval[1].as_f64().unwrap() < 2.0, "{point}");
    assert_eq!((point["samples"].as_u64(), point["clusters"].as_u64()), (Some(12), Some(12)));

    // Half the books worse, half better by as much: noise, as long as it is less than 5 % in any book.
    let noise = of("tova", "nll", |book| if book % 2 == 0 { 5.0 } else { -5.0 });
    expect(&parsed(&compared(&folder, &noise, &["--json", "-"]).with_code(0)), &[("tova", "nll", "within_noise")]);
    let noise = of("tova", "nll", |book| if book % 2 == 0 { 12.7 } else { -12.7 });
    let ended = compared(&folder, &noise, &["--json", "-"]).with_code(3);
    expect(&parsed(&ended), &[("tova", "nll", "regressed")]);
    compared(&folder, &noise, &["--threshold", "interval+0.1%,1%"]).with_code(0);
    let better = of("window", "nll", |_| -12.7);
    let ended = compared(&folder, &better, &[]).with_code(0);
    assert!(ended.stdout.starts_with("no regression: 1 improved, 5 equal\n"), "{}", ended.stdout);
    // Of recall more is better.
    let forgets = of("window", "recall", |_| -1.0);
    let ended = compared(&folder, &forgets, &[]).with_code(3);
    assert!(ended.stdout.starts_with("REGRESSION: 1 regressed, 5 equal\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("window at 64 \u{B7} recall (%)") && ended.stdout.contains("-10.00"));
}

#[test]
fn thresholds_of_each_kind_decide() {
    let folder = saved(&measured());
    // Every token of every book costs 0.01 nats more: 1.005 % of any perplexity.
    let moved = changed(&measured(), |row| row.value += if row.metric == "nll" { 1.27 } else { 0.0 });
    let table: [(&[&str], i32); 16] = [
        (&[], 3),
        (&["--threshold", "interval"], 3),
        (&["--threshold", "perplexity=interval"], 3),
        (&["--threshold", "nll=1%"], 3),
        (&["--threshold", "nll=1.01%"], 0),
        (&["--threshold", "perplexity=1.01%"], 0),
        (&["--threshold", "1.01%"], 0),
        (&["--threshold", "interval+1.01%"], 0),
        (&["--threshold", "interval+1%"], 3),
        (&["--threshold", "recall=0%", "--threshold", "1.01%"], 0),
        (&["--threshold", "nll=0%", "--threshold", "5%"], 3),
        (&["--threshold", "nll=0%", "--threshold", "nll=5%"], 0),
        // Every book moved by as much as all together.
        (&["--threshold", "cluster+1%"], 3),
        (&["--threshold", "perplexity=cluster+1.1%"], 0),
        (&["--threshold", "perplexity=interval+1.1%,2%,cluster+1.1%"], 0),
        (&["--threshold", "perplexity=interval+1.1%,cluster+1%,2%"], 3),
    ];
    for (more, code) in table {
        let ended = compared(&folder, &moved, more);
        assert_eq!(ended.code, Some(code), "{more:?}: {}{}", ended.stdout, ended.stderr);
    }
    let refused = ["perplexty=1%", "nll=abc", "-3%", "nll", "nll=1%,cluster"]
        .map(|wrong| compared(&folder, &moved, &[&format!("--threshold={wrong}")]).with_code(2).stderr);
    insta::assert_snapshot!(refused.join("\n"));
}

#[test]
fn the_one_sample_that_moved_is_named() {
    let folder = saved(&measured());
    // A hundred-thousandth of one book under one rule: no statistic notices it.
    let moved = changed(&measured(), |row| {
        if (row.policy.as_str(), row.metric.as_str(), &row.sample[..7]) == ("tova", "nll", "book-07") {
            row.value *= 1.0 + 1e-5;
        }
    });
    let ended = compared(&folder, &moved, &[]).with_code(0);
    assert!(ended.stdout.starts_with("no regression: 1 within noise, 5 equal"), "{}", ended.stdout);
    let ended = compared(&folder, &moved, &["--exact"]).with_code(3);
    // 2.8 nats a token.
    let line = ended.stdout.lines().find(|line| line.contains("book-07.txt#0")).unwrap();
    assert!(
        line.starts_with("o/model \u{B7} tova at 64 \u{B7} perplexity \u{B7} book-07.txt#0 \u{B7} nll "),
        "{line}"
    );
    let words: Vec<&str> = line.split_whitespace().rev().take(3).collect();
    assert_eq!(words, ["+2.8e-5", "2.800028000", "2.800000000"]);
    compared(&folder, &moved, &["--exact", "--tolerance", "1e-4"]).with_code(0);

    // A text that reads otherwise, and a weight that counts otherwise.
    let texts = |text: &str| {
        let mut rows = measured();
        rows[0].output = Some(text.into());
        rows
    };
    let folder = saved(&texts("one"));
    let ended = compared(&folder, &texts("two"), &["--exact"]).with_code(3);
    assert!(ended.stdout.contains("another output"), "{}", ended.stdout);
    let weights = changed(&texts("one"), |row| row.weight += if row.metric == "recall" { 1.0 } else { 0.0 });
    let ended = compared(&folder, &weights, &["--exact", "--json", "-"]).with_code(3);
    assert_eq!(verdicts(&parsed(&ended)).len(), 3, "{}", ended.stdout);
    let ended = compared(&folder, &weights, &["--exact"]).with_code(3);
    assert_eq!(ended.stdout.matches("another weight").count(), 20, "{}", ended.stdout);
    assert!(ended.stdout.contains("Samples that moved (36)") && ended.stdout.contains("and 16 more"));
}

#[test]
fn a_machine_repeats_itself_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (results, threads) in [("one", "1"), ("two", "2")] {
        run(folder, &["run", "smoke", "--results", results, "--no-report", "--threads", threads]).with_code(0);
    }
    let ended = run(folder, &["compare", "one", "two", "--exact", "--tolerance", "0"]).with_code(0);
    assert!(ended.stdout.starts_with("the same: "), "{}", ended.stdout);
}

#[test]
fn another_engine_s_numbers_ask_for_a_new_baseline() {
    let folder = saved(&measured());
    let bumped = changed(&measured(), |row| (row.engine, row.cell) = (3, format!("{}3", row.cell).into()));
    let said = compared(&folder, &bumped, &[]).with_code(0).stdout;
    insta::assert_snapshot!(said + &compared(&folder, &bumped, &["--exact"]).with_code(3).stdout);
    run(folder.path(), &["baseline", "save", "good", "results/new", "--force"]).with_code(0);
    compared(&folder, &bumped, &["--exact"]).with_code(0);
}

#[test]
fn missing_numbers_fail_unless_allowed() {
    let folder = saved(&measured());
    let without_cell: Vec<Row> = measured().into_iter().filter(|row| row.policy != "window").collect();
    let without_book: Vec<Row> = measured().into_iter().filter(|row| !row.sample.starts_with("book-03")).collect();
    let mut said = String::new();
    for rows in [&without_cell, &without_book] {
        for exact in [&[][..], &["--exact"]] {
            said += &compared(&folder, rows, exact).with_code(3).stdout;
            compared(&folder, rows, &[exact, &["--allow-missing"]].concat()).with_code(0);
        }
    }
    // The other way round there is more than before, which is no loss.
    let folder = saved(&without_cell);
    insta::assert_snapshot!(said + &compared(&folder, &measured(), &[]).with_code(0).stdout);
}

#[test]
fn a_slower_machine_is_no_regression_and_a_slower_program_is() {
    let folder = saved(&timed("old processor, 8 threads", [1.0, 1.02, 0.98]));
    let slow = [1.5, 1.52, 1.48];
    let ended = compared(&folder, &timed("another processor, 2 threads", slow), &[]).with_code(0);
    let said = "another device: old processor, 8 threads in the baseline, another processor, 2 threads here";
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains(said) && ended.stdout.contains("1 not comparable"), "{}", ended.stdout);
    let ended = compared(&folder, &timed("old processor, 8 threads", slow), &[]).with_code(3);
    // 1000 tokens in 1 s and in 1.5 s.
    let words: Vec<&str> =
        ended.stdout.lines().find(|line| line.starts_with("tova")).unwrap().split("  ").collect();
    assert!(words.iter().any(|word| word.trim() == "1000") && ended.stdout.contains("666.7"), "{}", ended.stdout);
    assert!(ended.stdout.contains("interval+10%"), "{}", ended.stdout);
    compared(&folder, &timed("old processor, 8 threads", slow), &["--threshold", "decode=40%"]).with_code(0);
    let alone = compared(&folder, &timed("old processor, 8 threads", slow), &["--exact"]).with_code(1);
    alone.says(&["there is nothing to compare"]);
}

/// The embedded books, cut short, as files; of some the characters are in another order.
fn write_books(folder: &Path, shuffled: &[usize]) {
    let books = zstd::decode_all(&include_bytes!("../../datasets/embedded/books.jsonl.zst")[..]).unwrap();
    let books = String::from_utf8(books).unwrap();
    let texts = folder.join("texts");
    fs::create_dir_all(&texts).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    for (number, book) in books.lines().take(12).enumerate() {
        let book: Value = serde_json::from_str(book).unwrap();
        let mut characters: Vec<char> = book["text"].as_str().unwrap().chars().take(4000).collect();
        if shuffled.contains(&number) {
            rng.shuffle(&mut characters);
        }
        fs::write(texts.join(format!("book-{number:02}.txt")), characters.into_iter().collect::<String>())
            .unwrap();
    }
}

#[test]
fn three_shuffled_books_of_twelve_fail_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sweep = "models: [pocket]\npolicies: [full, tova]\ncache_sizes: [64]\ntasks:\n\
                 \x20 - perplexity: {dataset: ./texts, length: 128, chunks_per_book: 1}\n";
    fs::write(folder.join("sweep.yaml"), sweep).unwrap();
    for (results, shuffled) in [("before", &[][..]), ("again", &[]), ("after", &[1, 4, 10])] {
        write_books(folder, shuffled);
        run(folder, &["run", "sweep.yaml", "--results", results, "--no-report"]).with_code(0);
    }
    let rerun = run(folder, &["compare", "before", "again"]).with_code(0);
    assert_eq!(rerun.stdout.lines().filter(|line| !line.is_empty()).count(), 2, "{}", rerun.stdout);

    let ended = run(folder, &["compare", "before", "after", "--json", "o.json"]).with_code(3);
    let document: Value = serde_json::from_str(&fs::read_to_string(folder.join("o.json")).unwrap()).unwrap();
    for point in document["points"].as_array().unwrap() {
        assert_eq!(point["verdict"], "regressed", "{point}");
        let names =
            point["clusters_worse"].as_array().unwrap().iter().map(|cluster| cluster["name"].as_str().unwrap());
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        assert_eq!(names, ["book-01.txt", "book-04.txt", "book-10.txt"], "{point}");
    }
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let note = &words[words.find("the texts differ").unwrap()..];
    let digests = ["before", "after"].map(|results| {
        let rows = read_rows(&folder.join(results).join("rows.parquet")).unwrap();
        rows[0].data.trim_start_matches("sha256:")[..8].to_owned()
    });
    assert!(digests[0] != digests[1] && digests.iter().all(|digest| note.contains(digest)), "{note}");
    assert!(
        note.contains(
            "3 of 12 samples of one name were measured on other texts or settings: book-01.txt#0, \
                            book-04.txt#0, book-10.txt#0"
        ),
        "{note}"
    );
    run(folder, &["compare", "before", "after", "--exact"]).with_code(3);
}

// --- formats ---

#[test]
fn all_formats_agree() {
    let folder = saved(&[measured(), timed("a", [1.0; 3])].concat());
    let mut rows = changed(&measured(), |row| row.value += if row.metric == "nll" { 12.7 } else { 0.0 });
    rows.retain(|row| row.policy != "window");
    rows.extend(timed("bb", [1.0; 3]));
    let files = ["--json", "o.json", "--markdown", "o.md"];
    let ended = compared(&folder, &rows, &files).with_code(3);
    assert!(ended.stdout.starts_with("REGRESSION: 2 regressed, 2 missing, 1 not comparable, 2 equal\n"));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();

    let document: Value = serde_json::from_str(&read("o.json")).unwrap();
    assert_eq!((&document["schema_version"], &document["failed"]), (&5.into(), &true.into()));
    let counts: Vec<(&str, u64)> = document["counts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| (count["verdict"].as_str().unwrap(), count["points"].as_u64().unwrap()))
        .filter(|(_, points)| *points > 0)
        .collect();
    assert_eq!(counts, [("regressed", 2), ("missing", 2), ("not_comparable", 1), ("equal", 2)]);
    assert_eq!(document["points"].as_array().unwrap().len(), 7);
    assert_eq!(document["baseline"]["cells"], 4);

    let comment = read("o.md");
    assert!(comment.starts_with("# REGRESSION: 2 regressed, 2 missing, 1 not comparable, 2 equal\n"), "{comment}");
    assert_eq!(comment.matches("<details>").count(), comment.matches("</details>").count());
    let (open, folded) = comment.split_once("<details>").unwrap();
    assert!(open.contains("| tova at 64") && open.contains("- window at 64"), "{comment}");
    assert!(folded.contains("Not comparable (1)") && folded.contains("another device"), "{comment}");

    for (flag, file) in [("--json", "o.json"), ("--markdown", "o.md")] {
        let ended = compared(&folder, &rows, &[flag, "-"]).with_code(3);
        assert_eq!(ended.stdout, read(file), "{flag}");
    }
    compared(&folder, &rows, &["--json", "-", "--markdown", "-"]).with_code(2).says(&["only one of"]);
    compared(&folder, &rows, &["--json", "no/such/folder.json"])
        .with_code(1)
        .says(&["no/such/folder.json cannot be written"]);
}

// --- baselines ---

#[test]
fn a_baseline_is_saved_once() {
    let folder = saved(&measured());
    let file = folder.path().join("results/baselines/good.parquet");
    let bytes = fs::read(&file).unwrap();
    assert_eq!(read_rows(&file).unwrap().len(), measured().len());
    // The same rows in another order give the same bytes.
    let mut reversed = measured();
    reversed.reverse();
    ledger(folder.path(), "results/again", &reversed);
    run(folder.path(), &["baseline", "save", "again", "results/again"]).with_code(0);
    assert_eq!(fs::read(folder.path().join("results/baselines/again.parquet")).unwrap(), bytes);

    let later = changed(&measured(), |row| row.date = "2027-01-01T00:00:00Z".into());
    ledger(folder.path(), "results/later", &later);
    fs::write(folder.path().join("results/baselines/odd.parquet"), "PAR1").unwrap();
    run(folder.path(), &["compare", "odd", "good"]).with_code(1).says(&["odd.parquet", "hint:"]);
    run(folder.path(), &["baseline", "save", "odd", "results/later", "--force"]).with_code(0);
    fs::remove_file(folder.path().join("results/baselines/odd.parquet")).unwrap();
    run(folder.path(), &["compare", "god", "results/later"])
        .with_code(2)
        .says(&["`god` is neither", "results/baselines"]);
    // A baseline can also be given as a file, and elsewhere.
    run(folder.path(), &["compare", "results/baselines/good.parquet", "good"]).with_code(0);
    run(folder.path(), &["baseline", "save", "x", "results/later", "--dir", "kept"]).with_code(0);
    run(folder.path(), &["compare", "x", "results/later", "--dir", "kept", "--exact"]).with_code(0);
}

#[test]
fn a_baseline_is_not_lost_by_accident() {
    let folder = saved(&measured());
    let file = folder.path().join("results/baselines/good.parquet");
    let bytes = fs::read(&file).unwrap();
    let other = changed(&measured(), |row| row.value += 1.0);
    ledger(folder.path(), "results/other", &other);
    let save =
        |more: &[&str]| run(folder.path(), &[&["baseline", "save", "good", "results/other"], more].concat());
    let mut said = save(&[]).with_code(1).stderr;
    assert_eq!(fs::read(&file).unwrap(), bytes);
    save(&["--force"]).with_code(0);
    assert_ne!(fs::read(&file).unwrap(), bytes);

    // Unfinished and failed cells are no baseline; what is left of a finished one's journal is.
    for (part, name) in [("partial", "a__b__1234.jsonl"), ("failed", "a__b__5678.txt")] {
        let part = folder.path().join("results/other").join(part);
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join(name), "").unwrap();
        said += &run(folder.path(), &["baseline", "save", "more", "results/other"]).with_code(1).stderr;
        fs::remove_file(part.join(name)).unwrap();
    }
    fs::write(folder.path().join("results/other/partial/x__tova-64.jsonl"), "").unwrap();
    run(folder.path(), &["baseline", "save", "more", "results/other"]).with_code(0);

    for name in ["../x", "a/b", "", ".hidden", "-x", "a b", "x.parquet", &"x".repeat(65)] {
        said += &run(folder.path(), &["baseline", "save", "--", name, "results/other"]).with_code(2).stderr;
    }
    said += &run(folder.path(), &["baseline", "save", "x", "results/nothing"]).with_code(1).stderr;
    insta::assert_snapshot!(said);
}
