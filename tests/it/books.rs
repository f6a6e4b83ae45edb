//! Which books of a data set are read and where their samples begin; what is said of texts that are too short or repeat their prompt.
//! Every place is computed here once more. Tokens are bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};
use tova_bench::ledger::{Row, read_rows};
use tova_bench::parquet::Table;

use crate::support::hub_server::HubServer;
use crate::support::program::{Ended, command, finish, run};

/// A text of so many letters, another for each seed.
fn letters(seed: u64, length: usize) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.alphanumeric()).collect()
}

/// Writes books into a folder of the working directory.
fn write_books(folder: &Path, name: &str, books: &[(&str, &str)]) {
    fs::create_dir_all(folder.join(name)).unwrap();
    books.iter().for_each(|(book, text)| fs::write(folder.join(name).join(book), text).unwrap());
}

/// Writes a sweep of one task, called `name`.
fn write_sweep(folder: &Path, name: &str, task: &str) {
    let text =
        format!("models: [random-tiny]\npolicies: [full, window, tova]\ncache_sizes: [8]\ntasks: [{{{task}}}]\n");
    fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
}

fn rows_of(folder: &Path, name: &str) -> Vec<Row> {
    read_rows(&folder.join(format!("results/{name}/rows.parquet"))).unwrap()
}

/// The rows of a task, measured in a results folder of their own.
fn measured(folder: &Path, name: &str, task: &str) -> Vec<Row> {
    write_sweep(folder, name, task);
    run(folder, &["run", &format!("{name}.yaml"), "--no-report"]).with_code(0);
    rows_of(folder, name)
}

/// Sample, policy and metric, to the bits of the number and the sample's id.
type Numbers = BTreeMap<(String, String, String), (u64, String)>;

fn numbers(rows: &[Row]) -> Numbers {
    let key = |row: &Row| {
        let metric = format!("{} {:?}", row.metric, row.slice);
        (row.sample.to_string(), row.policy.to_string(), metric)
    };
    rows.iter().map(|row| (key(row), (row.value.to_bits(), row.sample_id.to_string()))).collect()
}

#[test]
fn a_folder_and_a_table_of_the_hub_have_the_same_samples_of_the_same_names() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let texts = [("10146", letters(1, 300)), ("10321", letters(2, 300)), ("999", letters(3, 300))];
    let named: Vec<(String, &str)> = texts.iter().map(|(id, text)| (format!("{id}.txt"), &**text)).collect();
    let named: Vec<(&str, &str)> = named.iter().map(|(name, text)| (&**name, *text)).collect();
    write_books(folder, "pg19", &named);
    // The hub has them in another order, after a book that the folder lacks.
    let mut table = Table::default();
    let rows = [
        ("5", "x".repeat(300)),
        ("999", texts[2].1.clone()),
        ("10321", texts[1].1.clone()),
        ("10146", texts[0].1.clone()),
    ];
    table.push(
        "url",
        rows.iter().map(|(id, _)| format!("http://www.gutenberg.org/ebooks/{id}")).collect::<Vec<_>>(),
    );
    table.push("text", rows.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>());
    let bytes = table.to_parquet().unwrap();
    let hub = HubServer::start(
        "0123456789abcdef0123456789abcdef01234567",
        &[("data/test-00000-of-00001.parquet", &bytes)],
    );
    let books = "books: [999, 10146.txt], chunks_per_book: 2, length: 64";
    let of_folder = measured(folder, "folder", &format!("perplexity: {{dataset: ./pg19, {books}}}"));
    let at_hub = |name: &str, task: &str| -> Ended {
        write_sweep(folder, name, task);
        let mut command = command(folder);
        command.args(["run", &format!("{name}.yaml"), "--no-report"]).env("HF_ENDPOINT", &hub.endpoint);
        finish(command)
    };
    at_hub("hub", &format!("perplexity: {{dataset: o/n, {books}}}")).with_code(0);
    let of_hub = rows_of(folder, "hub");
    assert_eq!(numbers(&of_folder), numbers(&of_hub));
    // Cells are the same too, as the digest of the texts is.
    let cells =
        |rows: &[Row]| rows.iter().map(|row| (row.cell.clone(), row.data.clone())).collect::<BTreeSet<_>>();
    assert_eq!(cells(&of_folder), cells(&of_hub));
    let samples: Vec<&str> = of_hub.iter().filter(|row| row.metric == "nll").map(|row| &*row.sample).collect();
    assert_eq!(samples[..4], ["999.txt#0", "999.txt#1", "10146.txt#0", "10146.txt#1"]);
    assert!(of_hub.iter().all(|row| *row.selection == *"books=[999, 10146] chunks_per_book=2"));

    // A count takes the folder's first, and its samples are those of the same books by name.
    let counted =
        measured(folder, "counted", "perplexity: {dataset: ./pg19, books: 2, length: 64, chunks_per_book: 2}");
    let listed = measured(
        folder,
        "listed",
        "perplexity: {dataset: ./pg19, books: [10146, 10321], length: 64, chunks_per_book: 2}",
    );
    assert_eq!(numbers(&counted), numbers(&listed));

    let wrong = "perplexity: {dataset: o/n, books: [10146, 10312]}";
    at_hub("wrong", wrong).says(&["`10312`", "did you mean `10321`?", "o/n"]);
    write_sweep(folder, "wrong", "retention: {dataset: ./pg19, books: [book]}");
    run(folder, &["run", "wrong.yaml"]).says(&["`book`", "there are 10146, 10321, 999", "./pg19"]);
    write_sweep(folder, "twice", "retention: {dataset: ./pg19, books: [999, 999.txt]}");
    run(folder, &["run", "twice.yaml"]).with_code(2).says(&["twice.yaml:4:", "`999` is listed twice"]);
}

/// The token at which the samples of a book of so many tokens begin, from its name and its tokens.
type Place<'a> = &'a dyn Fn(&str, usize) -> usize;

/// The place of `random:SEED` in a book, in floating point.
fn random_place(seed: u64, book: &str, tokens: usize, span: usize) -> usize {
    let digest = Sha256::digest(format!("{seed} {book}").as_bytes());
    let share = u64::from_be_bytes(digest[..8].try_into().unwrap()) as f64 / 2f64.powi(64);
    ((share * tokens as f64) as usize).min(tokens - span)
}

/// The numbers are those of books that begin where the samples should, and so are the samples' tokens.
#[test]
fn samples_begin_where_the_sweep_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let books = [("a.txt", letters(4, 500)), ("b.txt", letters(5, 777)), ("c.txt", letters(6, 131))];
    let texts: Vec<(&str, &str)> = books.iter().map(|(name, text)| (*name, &**text)).collect();
    write_books(folder, "whole", &texts);
    // Two samples of 64 text tokens, a stride of 65 apart; BOS is the first token of each.
    let span = 65 + 64;
    let task = |dataset: &str, more: &str| {
        format!("perplexity: {{dataset: {dataset}, length: 65, stride: 65, bos: true, chunks_per_book: 2{more}}}")
    };
    let places: [(&str, Place<'_>); 4] = [
        ("1", &|_, _| 1),
        ("middle", &|_, tokens| (tokens - span) / 2),
        ("random", &|book, tokens| random_place(0, book, tokens, span)),
        ("random:7", &|book, tokens| random_place(7, book, tokens, span)),
    ];
    let mut seen = BTreeSet::new();
    for (at, (start, place)) in places.iter().enumerate() {
        let found = measured(folder, &format!("found{at}"), &task("./whole", &format!(", start: {start}")));
        let begins: BTreeMap<&str, usize> =
            texts.iter().map(|(book, text)| (*book, place(book, text.len()))).collect();
        let cut: Vec<(&str, &str)> = texts.iter().map(|(book, text)| (*book, &text[begins[book]..])).collect();
        write_books(folder, &format!("cut{at}"), &cut);
        let expected = measured(folder, &format!("expected{at}"), &task(&format!("./cut{at}"), ""));
        // Where a word starts depends on what is before it, so the NLL by words may differ.
        let values = |rows: &[Row]| {
            let tokens = numbers(rows).into_iter().filter(|((_, _, metric), _)| metric.starts_with("nll "));
            tokens.map(|(key, (bits, _))| (key, bits)).collect::<Vec<_>>()
        };
        assert_eq!(values(&found), values(&expected), "{start}");
        for row in &found {
            let chunk: usize = row.sample.rsplit_once('#').unwrap().1.parse().unwrap();
            assert_eq!(row.start, Some((begins[&*row.cluster] + 65 * chunk) as u32), "{start} {}", row.sample);
        }
        // Both samples of a book are one cluster.
        let clusters: BTreeSet<&str> = found.iter().map(|row| &*row.cluster).collect();
        assert_eq!(clusters, BTreeSet::from(["a.txt", "b.txt", "c.txt"]));
        seen.insert(begins.into_values().collect::<Vec<_>>());
    }
    assert_eq!(seen.len(), 4, "each of the four is another place: {seen:?}");

    // 0 is what was before there was a choice; the same token in another way is the same sample.
    let ids = |rows: &[Row]| numbers(rows).into_iter().map(|(key, (_, id))| (key, id)).collect::<BTreeMap<_, _>>();
    let plain = measured(folder, "plain", &task("./whole", ", books: [a]"));
    assert_eq!(ids(&plain), ids(&measured(folder, "zero", &task("./whole", ", books: [a], start: 0"))));
    let middle = ids(&measured(folder, "middle", &task("./whole", ", books: [a], start: middle")));
    let token = format!(", books: [a], start: {}", (500 - span) / 2);
    assert_eq!(middle, ids(&measured(folder, "token", &task("./whole", &token))));
    assert!(ids(&plain).iter().all(|(key, id)| middle.get(key) != Some(id)));

    // A random place is the same for shorter samples, and for the other task.
    let starts =
        |rows: &[Row]| rows.iter().map(|row| (row.cluster.to_string(), row.start)).collect::<BTreeSet<_>>();
    let shorter = "dataset: ./whole, length: 17, bos: true, chunks_per_book: 1, start: random, books: [a, b]";
    let [read, kept] = ["perplexity", "retention"]
        .map(|name| starts(&measured(folder, &format!("short-{name}"), &format!("{name}: {{{shorter}}}"))));
    let expected = texts[..2]
        .iter()
        .map(|(book, text)| ((*book).to_owned(), Some(random_place(0, book, text.len(), span) as u32)));
    assert_eq!((&read, &kept), (&expected.collect(), &read));

    write_sweep(folder, "all", "perplexity: {dataset: ./whole, start: middle}");
    run(folder, &["plan", "all.yaml"]).with_code(2).says(&["all.yaml:4:", "chunks_per_book"]);
    write_sweep(folder, "late", "perplexity: {dataset: ./whole, length: 64, start: 5000}");
    run(folder, &["run", "late.yaml"]).says(&["from token 5000 on", "smaller length or start"]);
}

/// A text whose scored part, from byte 200 on, has `length` bytes of the part before; what is beside them differs.
fn repeating(seed: u64, length: usize) -> String {
    let text = letters(seed, 300);
    let copied = &text[50..50 + length];
    assert!(
        text.as_bytes()[49] != text.as_bytes()[219]
            && text.as_bytes()[50 + length] != text.as_bytes()[220 + length]
    );
    format!("{}{copied}{}", &text[..220], &text[220 + length..])
}

#[test]
fn repeats_and_short_texts_are_said_before_after_and_in_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let texts = [
        ("a.txt", repeating(11, 31)),
        ("b.txt", repeating(12, 40)),
        ("c.txt", letters(13, 300)),
        ("d.txt", letters(14, 299)),
        ("e.txt", repeating(15, 32)),
    ];
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, &**text)).collect();
    write_books(folder, "texts", &texts);
    let task = |books: &str| {
        let books = format!("books: [{books}]");
        format!(
            "perplexity: {{dataset: ./texts, {books}, length: 301, bos: true, prompt: 201, chunks_per_book: 1}}"
        )
    };
    write_sweep(folder, "sweep", &task("a, b, c, d, e"));
    let repeats = "repeated prompts: in 2 samples (b.txt#0, e.txt#0) 32 or more scored tokens in a row are in the prompt too, most in \
        b.txt#0 with 40 of 100 tokens";
    let short = "too short for the samples asked for: 1 of 5 books (d.txt)";
    let plan = run(folder, &["plan", "sweep.yaml"]).with_code(0);
    assert!(plan.stdout.contains(repeats) && plan.stdout.contains(short), "{}", plan.stdout);
    run(folder, &["run", "sweep.yaml"]).with_code(0).says(&[repeats, short]);
    let report = |name: &str| fs::read_to_string(folder.join(format!("results/{name}/report.md"))).unwrap();
    // In Markdown marks of texts are escaped.
    let plain = |text: String| text.replace('\\', "");
    let drawn = plain(report("sweep"));
    assert!(drawn.contains(repeats) && drawn.contains(short), "{drawn}");
    let noted = |rows: &[Row]| -> BTreeSet<(String, String, u64, u64, Option<String>)> {
        let rows = rows.iter().filter(|row| ["repeats_prompt", "too_short"].contains(&&*row.metric));
        let [value, weight] = [|row: &Row| row.value as u64, |row: &Row| row.weight as u64];
        rows.map(|row| {
            (row.sample.to_string(), row.metric.to_string(), value(row), weight(row), row.output.clone())
        })
        .collect()
    };
    let of = |sample: &str, metric: &str, value, weight, output: Option<&str>| {
        (sample.to_owned(), metric.to_owned(), value, weight, output.map(str::to_owned))
    };
    let repeated =
        [of("b.txt#0", "repeats_prompt", 40, 100, None), of("e.txt#0", "repeats_prompt", 32, 100, None)];
    let too_short = of("a.txt#0", "too_short", 1, 5, Some("d.txt"));
    let rows = rows_of(folder, "sweep");
    assert_eq!(noted(&rows), repeated.iter().cloned().chain([too_short]).collect());

    // Where samples are used again, it is said of the books of the new sweep.
    write_sweep(folder, "fewer", &task("a, b, e"));
    run(folder, &["run", "fewer.yaml", "--results", "results/sweep"]).with_code(0).says(&[repeats]);
    let fewer = rows_of(folder, "sweep");
    assert_eq!(noted(&fewer), BTreeSet::from(repeated));
    let dates = |rows: &[Row]| {
        rows.iter()
            .filter(|row| *row.sample == *"b.txt#0")
            .map(|row| (row.date.clone(), row.seconds.to_bits()))
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(dates(&fewer), dates(&rows), "they are used again");
    assert!(!plain(report("sweep")).contains("too short"));
}
