//! Formats of keys and values: one meaning in sweeps, texts and definitions, caches that go on from a shared reading, and refusals.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::program::run;
use crate::support::rows::measured;
use crate::support::sweep::write_texts;
use serde_json::Value;

const TOKENS: usize = 300;

/// Scores the first tokens of the text, and returns the NLLs that follow the first `prompt`.
fn score(path: &Path, prompt: usize, more: &[&str]) -> Vec<f64> {
    let prompt_text = prompt.to_string();
    let base = ["score", "--model", "pocket", "--tokens", "tokens.json", "--prompt", &prompt_text];
    let printed: Value =
        serde_json::from_str(&run(path, &[&base[..], more].concat()).with_code(0).stdout).unwrap();
    let nll: Vec<f64> = serde_json::from_value(printed["nll"].clone()).unwrap();
    nll[prompt - 1..].to_vec()
}

/// A text of the built-in model in a folder, and the first of its tokens.
fn text(path: &Path) {
    write_texts(path, 1, 400);
    let all = run(path, &["score", "--model", "pocket", "--text", "texts/book-0.txt", "--evictions"]).with_code(0);
    let printed: Value = serde_json::from_str(&all.stdout).unwrap();
    let tokens: Vec<u32> = serde_json::from_value(printed["tokens"].clone()).unwrap();
    fs::write(path.join("tokens.json"), serde_json::to_string(&tokens[..TOKENS]).unwrap()).unwrap();
}

/// Largest difference of sums of NLLs that are the same. In f32 reads of other lengths differ by a millionth. A number near the border of two
/// levels is then rounded the other way, which moves the sum by up to 0.01; two formats differ by 0.03 and more.
const SAME: f64 = 0.02;

/// Rows of a sweep, whose cells take over from what the full cache of their format has read, have the numbers of `score`, which
/// reads from the start; and so, alone, has each policy under another spelling of the same format.
#[test]
fn a_format_is_the_same_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    text(path);
    let prompt = 250;
    let policies = [
        "full",
        "full@q8_0",
        "full@kivi-2",
        "truncate@q4_0",
        "tova",
        "tova@q8_0",
        "tova@q4_0h",
        "h2o@turbo-3",
        "window+4@kivi-2",
        "tova@cut@turbo-4/q8_0",
        "snapkv@iq4_nl",
        "expected@q5_1",
        "keydiff@fp8_e4m3",
        "tova-head@16@q5_0",
        "mine",
    ];
    let sweep = format!(
        "models: [pocket]\npolicies: [{}]\ncache_sizes: [180]\ndefine:\n\
         \x20 mine: {{score: attention, scope: head, format: {{keys: q8_0, values: turbo-3}}}}\n\
         tasks:\n  - perplexity: {{dataset: ./texts, length: {TOKENS}, prompt: {prompt}, books: 1, chunks_per_book: 1}}\n",
        policies.join(", ")
    );
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    run(path, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let rows = measured(&path.join("results"));
    let rows: Vec<_> = rows.iter().filter(|row| row.metric == "nll" && row.slice.is_none()).collect();
    assert_eq!(rows.len(), policies.len());
    let of = |policy: &str| -> f64 {
        let variant = if policy == "mine" { "mine@q8_0/turbo-3" } else { policy };
        let row = rows.iter().find(|row| row.variant() == variant).unwrap_or_else(|| panic!("{policy}"));
        row.value
    };
    let mut values = BTreeSet::new();
    for policy in policies {
        let sized: &[&str] = if policy.starts_with("full") { &[] } else { &["--cache-size", "180"] };
        let own = if policy == "mine" { ["--define", "sweep.yaml"].as_slice() } else { &[] };
        let read = |chunk: &str| -> f64 {
            let more = [&["--policy", policy, "--chunk", chunk], sized, own].concat();
            score(path, prompt, &more).iter().sum()
        };
        for chunk in ["300", "64"] {
            assert!((of(policy) - read(chunk)).abs() < SAME, "{policy}: {} {}", of(policy), read(chunk));
        }
        values.insert(of(policy).to_bits());
    }
    assert_eq!(values.len(), policies.len(), "two formats have the same numbers");
    for (policy, flag, name) in
        [("full", "q8_0", "full@q8_0"), ("tova", "q4_0h", "tova@q4_0h"), ("tova@q8_0", "q4_0", "tova@q8_0")]
    {
        let sized: &[&str] = if policy == "full" { &[] } else { &["--cache-size", "180"] };
        let by_flag: f64 =
            score(path, prompt, &[&["--policy", policy, "--format", flag], sized].concat()).iter().sum();
        assert!((by_flag - of(name)).abs() < SAME, "{policy} --format {flag}");
    }
    // The sweep's format is that of policies that evict and do not say another; `full` is what they are compared with.
    let sweep = fs::read_to_string(path.join("sweep.yaml")).unwrap();
    let sweep =
        sweep.replace(&policies.join(", "), "full, tova, h2o@turbo-3, tova@f32").replace("  mine", "  other");
    fs::write(path.join("usual.yaml"), format!("format: q8_0\n{sweep}")).unwrap();
    run(path, &["run", "usual.yaml", "--results", "usual"]).with_code(0);
    let usual = measured(&path.join("usual"));
    let mut found: Vec<_> = usual
        .iter()
        .filter(|row| row.metric == "nll" && row.slice.is_none())
        .map(|row| (row.variant().into_owned(), row.value))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = ["full", "h2o@turbo-3", "tova", "tova@q8_0"].map(|name| (name.to_owned(), of(name)));
    assert_eq!(found, expected);
}

/// Predictions of a rounded cache are compared with those of the full cache in f32, and `full@q8_0` is compared, too.
#[test]
fn rounded_caches_are_compared_with_the_full_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_texts(path, 1, 400);
    let sweep = "models: [pocket]\npolicies: [full, full@q8_0, full@q4_0, tova@q8_0]\ncache_sizes: [64]\n\
                 tasks:\n  - perplexity: {dataset: ./texts, length: 200, books: 1, chunks_per_book: 1, compare_to_full: true}\n";
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    run(path, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let rows = measured(&path.join("results"));
    let of = |policy: &str, metric: &str| {
        let mut own =
            rows.iter().filter(|row| row.variant() == policy && row.metric == metric && row.slice.is_none());
        own.next().map(|row| row.value / row.weight)
    };
    assert_eq!(of("full", "kl_to_full"), None);
    let [eight, four, tova] =
        ["full@q8_0", "full@q4_0", "tova@q8_0"].map(|policy| of(policy, "kl_to_full").unwrap());
    assert!(0.0 < eight && eight < 0.01 && eight < four && eight < tova, "{eight} {four} {tova}");
}

#[test]
fn what_a_format_cannot_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    text(path);
    let refused = |more: &[&str], words: &[&str]| {
        let base = ["score", "--tokens", "tokens.json"];
        let ended = run(path, &[&base[..], more].concat());
        assert!(ended.code != Some(0), "{more:?}");
        words.iter().for_each(|word| assert!(ended.stderr.contains(word), "{more:?}: {}", ended.stderr));
    };
    let pocket = |policy: &'static str| ["--model", "pocket", "--cache-size", "64", "--policy", policy];
    refused(&pocket("tova@slot@q8_0"), &["slot", "q8_0"]);
    refused(&pocket("tova@kivi-2/q8_0"), &["kivi"]);
    refused(&pocket("tova@q9_0"), &["q9_0", "q8_0"]);
    refused(&pocket("tova@f16h"), &["f16h"]);
    refused(&["--model", "pocket", "--policy", "full@slot"], &["full"]);
    refused(&["--model", "random-tiny", "--policy", "full@q8_0"], &["q8_0", "32"]);
    let sweep = "models: [pocket]\npolicies: [full@kivi-4, tova@kivi-4]\nmemory: [50%]\n\
                 tasks:\n  - perplexity: {dataset: ./texts, length: 200, books: 1, chunks_per_book: 1}\n";
    fs::write(path.join("kivi.yaml"), sweep).unwrap();
    let ended = run(path, &["run", "kivi.yaml", "--results", "kivi"]);
    assert!(ended.stderr.contains("kivi-4") && ended.stderr.contains("cache_sizes"), "{}", ended.stderr);
    let rows = measured(&path.join("kivi"));
    assert!(!rows.is_empty() && rows.iter().all(|row| row.variant() == "full@kivi-4" && row.held_bytes.is_some()));
}
