//! `score --stream` and `write --stream`: every answer is that of the command for one text, whatever was asked before it.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use crate::support::program::{command, run};
use serde_json::{Value, json};

/// The answers to some lines, and the exit code.
fn ask(folder: &Path, arguments: &[&str], lines: &[impl AsRef<[u8]>]) -> (Vec<Value>, Option<i32>) {
    let mut program = command(folder);
    let mut child = program
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<&[u8]> = lines.iter().map(AsRef::as_ref).collect();
    child.stdin.take().unwrap().write_all(&lines.join(&b'\n')).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    let answers = String::from_utf8(ended.stdout).unwrap();
    (answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), ended.status.code())
}

const TEXT: &str = "Mara Fenwick lived in Oakford. The ship came in the night, and nobody knew why it had come.\n";

#[test]
fn answers_are_those_of_single_commands() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.txt"), TEXT).unwrap();
    fs::write(folder.join("t.json"), "[0, 40, 41, 42, 43, 44, 45, 46]").unwrap();
    // TOVA under another name, and a policy that has no other.
    let define = "define:\n  mine: {score: 2 * attention, scope: layer}\n  other: {score: 'ema(attention, 0.9)', scope: head}\n";
    fs::write(folder.join("define.yaml"), define).unwrap();
    let cases = [
        (json!({"text": TEXT}), vec!["--text", "a.txt"]),
        (
            json!({"text": TEXT, "policy": "tova", "cache_size": 8}),
            vec!["--text", "a.txt", "--policy", "tova", "--cache-size", "8"],
        ),
        (
            json!({"text": TEXT, "policy": "mine", "cache_size": 8}),
            vec!["--text", "a.txt", "--policy", "tova", "--cache-size", "8"],
        ),
        (
            json!({"tokens": [0, 40, 41, 42, 43, 44, 45, 46], "policy": "random", "cache_size": 3, "seed": 5}),
            vec!["--tokens", "t.json", "--policy", "random", "--cache-size", "3", "--seed", "5"],
        ),
        (
            json!({"text": TEXT, "policy": "h2o", "cache_size": 6, "positions": "squeezed"}),
            vec!["--text", "a.txt", "--policy", "h2o", "--cache-size", "6", "--positions", "squeezed"],
        ),
        (
            json!({"text": TEXT, "policy": "truncate", "cache_size": 7}),
            vec!["--text", "a.txt", "--policy", "truncate", "--cache-size", "7"],
        ),
    ];
    let lines: Vec<String> = cases.iter().map(|(request, _)| request.to_string()).collect();
    let (answers, code) =
        ask(folder, &["score", "--model", "pocket", "--stream", "--define", "define.yaml"], &lines);
    assert_eq!((answers.len(), code), (cases.len(), Some(0)));
    for (answer, (request, arguments)) in answers.iter().zip(&cases) {
        let alone = run(folder, &[&["score", "--model", "pocket"], &arguments[..]].concat()).with_code(0);
        let alone: Value = serde_json::from_str(&alone.stdout).unwrap();
        for key in ["nll", "survivors"] {
            assert_eq!(answer[key], alone[key], "{key} of {request}");
        }
        let of = |key: &str| answer[key].as_array().unwrap().len();
        assert_eq!((of("tokens"), of("pieces")), (of("nll") + 1, of("nll") + 1), "{request}");
    }
    // The pieces are the text, after BOS.
    let pieces: Vec<&str> =
        answers[0]["pieces"].as_array().unwrap().iter().map(|piece| piece.as_str().unwrap()).collect();
    assert_eq!(pieces[1..].concat(), TEXT);

    let write = [
        "--temperature",
        "0.8",
        "--max-new-tokens",
        "12",
        "--policy",
        "tova",
        "--cache-size",
        "16",
        "--seed",
        "3",
    ];
    let alone =
        run(folder, &[&["write", "--model", "pocket", "--text", "a.txt"], &write[..]].concat()).with_code(0);
    let alone: Value = serde_json::from_str(&alone.stdout).unwrap();
    let request = json!({"text": TEXT, "seed": 3, "policy": "tova", "cache_size": 16,
        "write": {"temperature": 0.8, "max_new_tokens": 12}});
    let (answers, code) = ask(folder, &["write", "--model", "pocket", "--stream"], &[request.to_string()]);
    assert_eq!((code, &answers[0]["texts"][0]["tokens"]), (Some(0), &alone["texts"][0]["tokens"]));
}

/// Each line by itself: what it is, the id that comes back if it is JSON, and a word of the error; none where it is answered.
#[test]
fn every_line_is_answered_with_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let lines: [(&[u8], Value, &str); 16] = [
        (b"{\"id\": 7, \"text\": \"a\", \"policy\": \"toba\", \"cache_size\": 3}", json!(7), "toba"),
        (b"", Value::Null, "line 2 of stdin is no request: it is blank"),
        (b"not json", Value::Null, "line 3"),
        (b"{\"text\": \"a\", \"polcy\": \"tova\", \"id\": [2]}", json!([2]), "polcy"),
        (b"{\"id\": \"x\", \"text\": \"a\", \"tokens\": [1]}", json!("x"), "either"),
        (b"{\"tokens\": [99999999]}", Value::Null, "99999999"),
        (b"{\"tokens\": []}", Value::Null, "no token"),
        (b"{\"text\": \"a\", \"policy\": \"tova\"}", Value::Null, "needs a cache size"),
        (b"{\"text\": \"a\", \"write\": {}}", Value::Null, "write"),
        (b"{\"text\": \"caf\xe9\", \"id\": 9}", Value::Null, "utf-8"),
        (b"{\"id\": 10, \"text\": \"a\"", Value::Null, "line 11"),
        (b"{\"id\": 11, \"text\": 5}", json!(11), "a string"),
        (b"[12, \"a\"]", Value::Null, "a JSON object"),
        (b"{\"id\": 13, \"text\": \"a\"}", json!(13), ""),
        (b"  \r", Value::Null, "blank"),
        (b"{\"id\": {\"n\": [1]}, \"text\": \"a b c\"}\r", json!({"n": [1]}), ""),
    ];
    let asked: Vec<&[u8]> = lines.iter().map(|(line, ..)| *line).collect();
    let (answers, code) = ask(folder.path(), &["score", "--model", "pocket", "--stream"], &asked);
    assert_eq!((answers.len(), code), (lines.len(), Some(1)));
    for (answer, (_, id, word)) in answers.iter().zip(&lines) {
        assert_eq!(answer["id"], *id, "{answer}");
        match answer["error"].as_str() {
            Some(error) => assert!(!word.is_empty() && error.contains(word), "{word}: {answer}"),
            None => assert!(word.is_empty() && answer["nll"].as_array().is_some_and(|nll| !nll.is_empty())),
        }
    }
    let written = [json!({"text": "a", "write": ["stream", 3]}), json!({"text": "a", "evictions": true})];
    let (answers, code) =
        ask(folder.path(), &["write", "--model", "pocket", "--stream"], &written.map(|line| line.to_string()));
    assert_eq!((answers.len(), code), (2, Some(1)));
    assert!(
        answers.iter().all(|answer| answer["error"].is_string()),
        "a list is not read by position: {answers:?}"
    );
}

/// However an editor or another system saved it, a text has the same tokens from a file and from a request.
#[test]
fn a_text_is_the_same_from_a_file_and_from_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let plain = "The ship came.\nNobody knew why.\n\nMara did.\n";
    let saved = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
    fs::write(folder.join("saved.txt"), &saved).unwrap();
    let alone = run(folder, &["score", "--model", "pocket", "--text", "saved.txt"]).with_code(0);
    let alone: Value = serde_json::from_str(&alone.stdout).unwrap();
    let lines = [plain, &saved].map(|text| json!({"text": text}).to_string());
    // The stream itself may begin with a byte order mark too.
    let lines = [format!("\u{feff}{}", lines[0]), lines[1].clone()];
    let (answers, code) = ask(folder, &["score", "--model", "pocket", "--stream"], &lines);
    assert_eq!((answers.len(), code), (2, Some(0)));
    assert_eq!((&answers[0], &answers[0]["nll"]), (&answers[1], &alone["nll"]));
}

/// What was read and not evicted survives, at every size and scope; a cut prompt is another than a streamed one.
#[test]
fn evictions_and_schedules_are_asked_for_by_request() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let score = ["score", "--model", "pocket", "--stream"];
    for policy in ["tova", "tova-head", "h2o"] {
        let request = json!({"text": TEXT, "policy": policy, "cache_size": 8, "evictions": true});
        let answer = ask(folder, &score, &[request.to_string()]).0.remove(0);
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
    let plain =
        ask(folder, &score, &[json!({"text": TEXT, "policy": "tova", "cache_size": 8}).to_string()]).0.remove(0);
    assert!(plain.get("evictions").is_none());

    fs::write(folder.join("a.txt"), TEXT).unwrap();
    let of_schedule =
        |schedule: &str| json!({"text": TEXT, "schedule": schedule, "write": {"max_new_tokens": 12}}).to_string();
    let former = json!({"text": TEXT, "write": {"prefill": "one_shot"}}).to_string();
    let settings =
        ["write", "--model", "pocket", "--policy", "tova", "--cache-size", "8", "--max-new-tokens", "12"];
    let asked = [of_schedule("cut+1"), of_schedule("1"), json!({"text": TEXT}).to_string(), former];
    let (mut answers, code) = ask(folder, &[&settings[..], &["--schedule", "cut+1", "--stream"]].concat(), &asked);
    assert_eq!(code, Some(1));
    let refused = answers.pop().unwrap()["error"].to_string();
    assert!(refused.contains("cut+1"), "{refused}");
    let alone = |more: &[&str]| {
        let ended = run(folder, &[&settings[..], &["--text", "a.txt"], more].concat()).with_code(0);
        serde_json::from_str::<Value>(&ended.stdout).unwrap()["texts"][0]["tokens"].clone()
    };
    let (cut, streamed) = (alone(&["--schedule", "cut+1"]), alone(&[]));
    assert_ne!(cut, streamed);
    let found: Vec<&Value> = answers.iter().map(|answer| &answer["texts"][0]["tokens"]).collect();
    assert_eq!(found, [&cut, &streamed, &cut]);
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

/// What a sweep refuses under `write:`, the command and a request refuse too.
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
    let asked = |write: Value| {
        let line = json!({"text": TEXT, "write": write}).to_string();
        ask(folder, &["write", "--model", "pocket", "--max-new-tokens", "2", "--stream"], &[line]).1
    };
    for penalty in ["0.01", "1.2", "100"] {
        let number: f64 = penalty.parse().unwrap();
        let found = [flags(&["--repetition-penalty", penalty]), asked(json!({"repetition_penalty": number}))];
        assert_eq!(found, [Some(0); 2], "{penalty}");
    }
    for (penalty, in_yaml) in [("inf", ".inf"), ("nan", ".nan"), ("0", "0"), ("100.5", "100.5"), ("1e39", "1e39")]
    {
        let found = [flags(&["--repetition-penalty", penalty]), task(&format!("repetition_penalty: {in_yaml}"))];
        assert_eq!(found, [Some(2); 2], "{penalty}");
    }
    assert_eq!([flags(&["--stop", ""]), task("stop: [\"\"]")], [Some(2); 2]);
    assert_eq!([flags(&["--temperature", "101"]), task("temperature: 101")], [Some(2); 2]);
    for write in [json!({"stop": [""]}), json!({"repetition_penalty": 1e39}), json!({"temperature": 101})] {
        assert_eq!(asked(write.clone()), Some(1), "{write}");
    }
}
