//! `score` and `write`: one text under one cache, by flags.

use std::fs;
use std::path::Path;

use crate::support::program::run;
use serde_json::Value;

const TEXT: &str = "Mara Fenwick lived in Oakford. The ship came in the night, and nobody knew why it had come.\n";

/// The answer of `score` with the pocket model to a file.
fn score(folder: &Path, file: &str, more: &[&str]) -> Value {
    let ended = run(folder, &[&["score", "--model", "pocket", "--text", file], more].concat()).with_code(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_defined_policy_is_asked_for_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.txt"), TEXT).unwrap();
    // TOVA under another name.
    fs::write(folder.join("define.yaml"), "define:\n  mine: {score: 2 * attention, scope: layer}\n").unwrap();
    let mine = score(folder, "a.txt", &["--define", "define.yaml", "--policy", "mine", "--cache-size", "8"]);
    assert_eq!(mine, score(folder, "a.txt", &["--policy", "tova", "--cache-size", "8"]));
    assert_ne!(mine["nll"], score(folder, "a.txt", &[])["nll"]);
}

/// However an editor or another system saved it, a text has the same tokens.
#[test]
fn marks_and_line_ends_of_a_file_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let plain = "The ship came.\nNobody knew why.\n\nMara did.\n";
    fs::write(folder.join("plain.txt"), plain).unwrap();
    fs::write(folder.join("saved.txt"), format!("\u{feff}{}", plain.replace('\n', "\r\n"))).unwrap();
    assert_eq!(score(folder, "plain.txt", &[]), score(folder, "saved.txt", &[]));
}

/// What was read and not evicted survives, at every size and scope.
#[test]
fn evictions_and_survivors_are_all_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.txt"), TEXT).unwrap();
    for policy in ["tova", "tova-head", "h2o"] {
        let answer = score(folder, "a.txt", &["--policy", policy, "--cache-size", "8", "--evictions"]);
        let tokens = answer["tokens"].as_array().unwrap().len() as u64;
        let numbers =
            |of: &Value| of.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect::<Vec<u64>>();
        let evicted: Vec<Vec<u64>> = answer["evictions"].as_array().unwrap().iter().map(numbers).collect();
        for (layer, groups) in (0..).zip(answer["survivors"].as_array().unwrap()) {
            for (head, survivors) in (0..).zip(groups.as_array().unwrap()) {
                let own = evicted.iter().filter(|row| (row[1], row[2]) == (layer, head));
                let mut all = numbers(survivors);
                // The cache is full from the ninth token on, and then one leaves for each.
                assert_eq!(own.clone().map(|row| row[0]).collect::<Vec<u64>>(), (8..tokens).collect::<Vec<u64>>());
                all.extend(own.map(|row| row[3]));
                all.sort_unstable();
                assert_eq!(all, (0..tokens).collect::<Vec<u64>>(), "{policy}, layer {layer}, head {head}");
            }
        }
    }
    assert!(score(folder, "a.txt", &["--policy", "tova", "--cache-size", "8"]).get("evictions").is_none());
}

/// A batch is its texts written alone, each with its own seed: that of the choice of tokens, and that of what a policy evicts.
#[test]
fn texts_of_a_batch_are_those_of_their_seeds() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.txt"), TEXT).unwrap();
    fs::write(folder.join("define.yaml"), "define:\n  noisy: {score: attention + 0.1 * random, scope: layer}\n")
        .unwrap();
    for (policy, temperature, differ) in
        [("random", "0", true), ("noisy", "0", true), ("tova", "0", false), ("tova", "1", true)]
    {
        let write = |seed: u64, batch: &str| {
            let seed = seed.to_string();
            let settings =
                ["write", "--model", "pocket", "--text", "a.txt", "--define", "define.yaml", "--seed", &seed];
            let cache = ["--policy", policy, "--cache-size", "8", "--temperature", temperature];
            let ended =
                run(folder, &[&settings[..], &cache, &["--max-new-tokens", "16", "--batch", batch]].concat());
            let answer: Value = serde_json::from_str(&ended.with_code(0).stdout).unwrap();
            answer["texts"].as_array().unwrap().clone()
        };
        let alone: Vec<Value> = (7..10).flat_map(|seed| write(seed, "1")).collect();
        assert_eq!(write(7, "3"), alone, "{policy}");
        assert_eq!(alone[0] != alone[1] && alone[1] != alone[2] && alone[0] != alone[2], differ, "{policy}");
    }
}

/// What a sweep refuses under `write:`, the command refuses too.
#[test]
fn settings_that_sweeps_refuse_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.txt"), TEXT).unwrap();
    let task = |write: &str| {
        let sweep =
            "models: [pocket]\npolicies: [full]\ntasks:\n  - needle: {dataset: embedded, lengths: [512], write: ";
        fs::write(folder.join("sweep.yaml"), format!("{sweep}{{{write}}}}}\n")).unwrap();
        run(folder, &["plan", "sweep.yaml"]).code
    };
    assert_eq!(task("repetition_penalty: 1.2"), Some(0));
    let flags = |flags: &[&str]| {
        run(folder, &[&["write", "--model", "pocket", "--text", "a.txt", "--max-new-tokens", "2"], flags].concat())
            .code
    };
    for penalty in ["0.01", "1.2", "100"] {
        assert_eq!(flags(&["--repetition-penalty", penalty]), Some(0), "{penalty}");
    }
    for (penalty, in_yaml) in [("inf", ".inf"), ("nan", ".nan"), ("0", "0"), ("100.5", "100.5"), ("1e39", "1e39")]
    {
        let found = [flags(&["--repetition-penalty", penalty]), task(&format!("repetition_penalty: {in_yaml}"))];
        assert_eq!(found, [Some(2); 2], "{penalty}");
    }
    assert_eq!([flags(&["--stop", ""]), task("stop: [\"\"]")], [Some(2); 2]);
    assert_eq!([flags(&["--temperature", "101"]), task("temperature: 101")], [Some(2); 2]);
}
