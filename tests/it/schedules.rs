//! Sweeps whose policies cut prompts or evict in bursts, against `score`, which reads each text for itself: the same tokens, prompt,
//! policy and size. (What `score` computes is compared with the oracle and with kvpress in `golden.rs`.)

use std::fs;
use std::path::Path;

use crate::support::program::run;
use crate::support::rows::measured;
use crate::support::sweep::write_texts;
use serde_json::Value;
use tova_bench::ledger::Row;
use tova_bench::lm::tiny_shape;

/// Policies of the sweep, as it names them, with schedules that `score` is told.
const POLICIES: [(&str, &str, &str); 16] = [
    ("tova", "cut", "absolute"),
    ("h2o", "cut", "absolute"),
    ("h2o", "cut+8", "absolute"),
    ("knorm", "cut", "absolute"),
    ("window+4", "cut", "slot"),
    ("tova", "cut", "squeezed"),
    ("remembers", "cut", "absolute"),
    ("ranks", "cut+1", "absolute"),
    ("smooths", "cut", "absolute"),
    ("expects", "cut+8", "absolute"),
    ("expects", "cut", "slot"),
    ("blocks", "cut", "absolute"),
    ("rereads", "cut", "absolute"),
    ("kept", "4", "absolute"),
    ("tova", "8", "absolute"),
    ("h2o", "16", "slot"),
];

const DEFINE: &str = "define:
  remembers: {score: \"ema(attention, 0.9)\", scope: head, keep_recent: \"10%\"}
  ranks: {score: \"sum(attention) * (rank(position) > size / 4)\", scope: layer}
  smooths: {score: 'smooth(window(attention, 8), 5)', scope: head, keep_recent: 8}
  expects: {score: 'expected_attention(32) * projected_value_norm', scope: head, keep_first: 4}
  blocks: {score: 'block(lag_score(6) + token_in(\"e\", \" \"), 7)', scope: layer}
  rereads: {score: reread_attention * key_redundancy, scope: head, keep_first: 4}
  kept: {score: attention, scope: layer, keep_first: prompt}
";

/// What `score` says of a text.
fn answer(folder: &Path, text: &str, more: &[&str]) -> Value {
    let ended = run(folder, &[&["score", "--model", "random-tiny", "--text", text], more].concat()).with_code(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// The NLLs of its tokens after the first.
fn nlls(folder: &Path, text: &str, more: &[&str]) -> Vec<f64> {
    let nll = &answer(folder, text, more)["nll"];
    nll.as_array().unwrap().iter().map(|nll| nll.as_f64().unwrap()).collect()
}

fn of<'r>(rows: &'r [Row], sample: &str, metric: &str) -> Vec<&'r Row> {
    rows.iter().filter(|row| row.sample == sample && row.metric == metric && row.slice.is_none()).collect()
}

#[test]
fn what_follows_a_prompt_is_as_likely_as_score_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 2, 60);
    let name = |(name, schedule, positions): &(&str, &str, &str)| format!("{name}@{schedule}@{positions}");
    let policies: Vec<String> = POLICIES.iter().map(name).collect();
    let sweep = format!(
        "models: [random-tiny]\npolicies: [full, {}]\ncache_sizes: [24, 12.5%]\n{DEFINE}tasks:\n\
         - perplexity: {{dataset: ./texts, length: 1000, tail: keep, prompt: 60%, compare_to_full: true}}\n",
        policies.join(", ")
    );
    fs::write(folder.join("sweep.yaml"), &sweep).unwrap();
    run(folder, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let rows = measured(&folder.join("results"));
    for book in ["book-0.txt", "book-1.txt"] {
        let (sample, text) = (format!("{book}#0"), format!("texts/{book}"));
        let full = nlls(folder, &text, &[]);
        let (tokens, prompt) = (full.len() + 1, (full.len() + 1) * 60 / 100);
        let own = of(&rows, &sample, "nll");
        assert_eq!(own.len(), 1 + 2 * POLICIES.len());
        for row in own {
            let place =
                format!("{book}: {} {:?} {:?} {:?}", row.policy, row.schedule, row.positions, row.cache_share);
            let mut expected = full.clone();
            if row.policy != "full" {
                // A share is that of the sample's own prompt, whatever the policy.
                let schedule = row.schedule.as_deref().unwrap();
                let size = if row.cache_share.is_some() { prompt / 8 } else { 24 };
                assert_eq!(row.cache_size, Some(size as u32), "{place}");
                let (size, prompt) = (size.to_string(), prompt.to_string());
                let arguments =
                    ["--policy", &row.policy, "--cache-size", &size, "--schedule", schedule, "--prompt", &prompt];
                let arguments =
                    [&arguments[..], &["--positions", &row.positions, "--define", "sweep.yaml"]].concat();
                expected = nlls(folder, &text, &arguments);
            }
            let after = &expected[prompt - 1..];
            assert_eq!(row.weight, (tokens - prompt) as f64, "{place}");
            let (sum, most) = (after.iter().sum::<f64>(), 1e-4 * after.len() as f64);
            assert!((row.value - sum).abs() < most, "{place}: {} for {sum}", row.value);
        }
        // The whole prompt was held, and what stayed is said apart from it.
        let shape = tiny_shape();
        let entry = (2 * shape.layers * shape.heads.kv_heads * shape.head_dim * size_of::<f32>()) as f64;
        // Rows count 16 bits a number.
        let entry_held = entry / 2.0;
        let nlls = of(&rows, &sample, "nll").into_iter();
        let is_cut = |row: &&Row| {
            ["tova", "blocks"].contains(&row.policy.as_str()) && row.schedule.as_deref() == Some("cut")
        };
        let cut: Vec<&Row> = nlls.filter(is_cut).collect();
        assert_eq!(cut.len(), 6);
        for row in cut {
            assert!(row.allocated_bytes as f64 >= entry * prompt as f64);
            let mut size = f64::from(row.cache_size.unwrap());
            if row.policy == "blocks" {
                // Whole blocks leave, so that fewer entries may be left than there is room for.
                let (entries, prompt) = (size.to_string(), prompt.to_string());
                let arguments = ["--policy", "blocks", "--cache-size", &entries, "--schedule", "cut"];
                let arguments = [&arguments[..], &["--prompt", &prompt, "--define", "sweep.yaml"]].concat();
                let survivors = &answer(folder, &text, &arguments)["survivors"];
                let of_layer = |layer: &Value| layer[0].as_array().unwrap().len();
                let entries = survivors.as_array().unwrap().iter().map(of_layer).sum::<usize>();
                let kept = entries as f64 / shape.layers as f64 - (tokens as f64 - prompt.parse::<f64>().unwrap());
                assert!(kept <= size && kept > size - 7.0, "{kept} of {size}");
                size = kept;
            }
            let mean = size + (tokens - prompt - 1) as f64 / 2.0;
            assert_eq!(row.peak_bytes, Some((entry_held * prompt as f64) as u64));
            let held = row.held_bytes.unwrap();
            assert!((held / entry_held - mean).abs() < 1e-6 * mean, "{held} bytes, {mean} entries of {entry}");
        }
    }
    // Every cell is shown under its own name, and shares beside each other.
    let report = fs::read_to_string(folder.join("results/report.csv")).unwrap();
    for shown in ["tova@cut,24,", "tova@cut,12.5%,", "ranks@cut+1,24,", "h2o@16@slot,12.5%,", "kept@4,24,"] {
        assert!(report.contains(shown), "{shown}");
    }
}

/// Questions whose prompt is cut, as shares: what is written and how likely the reference answer is do not depend on which cells are
/// measured together, or on how their prompts are read.
#[test]
fn answers_after_a_cut_prompt_do_not_depend_on_other_cells() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sweep = |policies: &str, sizes: &str, aware: bool| {
        format!(
            "models: [pocket]\npolicies: [{policies}]\ncache_sizes: [{sizes}]\n{DEFINE}tasks:\n\
             - qasper: {{dataset: embedded, documents: 1, questions: 2, length: 700, \
             write: {{max_new_tokens: 12, answer_nll: true, query_aware: {aware}}}}}\n"
        )
    };
    let answers = |name: &str, policies: &str, sizes: &str, aware: bool| {
        fs::write(folder.join("sweep.yaml"), sweep(policies, sizes, aware)).unwrap();
        run(folder, &["run", "sweep.yaml", "--no-report", "--results", name]).with_code(0);
        measured(&folder.join(name))
    };
    let all = "full, tova@cut, h2o@cut+4, remembers@cut, ranks@cut, smooths@cut, rereads@cut";
    let shown = |row: &Row| {
        let Row { policy, schedule, cache_size, sample, metric, slice, .. } = row.clone();
        (policy, schedule, cache_size, sample, metric, slice)
    };
    let numbers = |row: &Row| (row.value.to_bits(), row.weight.to_bits(), row.output.clone());
    for aware in [true, false] {
        let together = answers(&format!("together-{aware}"), all, "25%, 64", aware);
        let likely = together.iter().filter(|row| row.metric == "answer_nll" && row.slice.is_none());
        assert_eq!(likely.clone().count(), 2 * 13);
        assert!(likely.clone().all(|row| row.value > 0.0 && row.weight >= 1.0));
        // Where the whole document is kept, nothing changes; where it is cut, something does.
        let full: f64 = likely.clone().filter(|row| row.policy == "full").map(|row| row.value).sum();
        let cut = likely.filter(|row| row.policy == "tova" && row.schedule.as_deref() == Some("cut"));
        assert!(cut.map(|row| (row.value - full).abs()).fold(0.0, f64::max) > 1e-3);
        for (number, policy) in
            ["tova@cut", "h2o@cut+4", "remembers@cut", "ranks@cut", "smooths@cut", "rereads@cut"]
                .into_iter()
                .enumerate()
        {
            for row in answers(&format!("alone-{aware}-{number}"), policy, "25%", aware) {
                // Each sample's own share, of its document where that is cut before the question.
                assert!(row.cache_size.unwrap() < 175, "{:?}", row.cache_size);
                let other =
                    together.iter().find(|other| shown(other) == shown(&row) && other.cache_share.is_some());
                let other = other.unwrap_or_else(|| panic!("{:?}", shown(&row)));
                assert_eq!(numbers(other), numbers(&row), "{aware}: {:?}", shown(&row));
            }
        }
    }
}
