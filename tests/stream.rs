//! `score --stream` and `write --stream`: every answer is that of the command for one text, whatever was asked before it.

mod support;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use support::program::{command, run};

/// The answers to some lines, and the exit code.
fn ask(folder: &Path, arguments: &[&str], lines: &[String]) -> (Vec<Value>, Option<i32>) {
    let mut program = command(folder);
    let mut child = program
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.join("\n").as_bytes()).unwrap();
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

#[test]
fn a_request_that_fails_is_answered_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        "{\"id\": 7, \"text\": \"a\", \"policy\": \"toba\", \"cache_size\": 3}",
        "",
        "not json",
        "{\"text\": \"a\", \"polcy\": \"tova\"}",
        "{\"id\": \"x\", \"text\": \"a\", \"tokens\": [1]}",
        "{\"tokens\": [99999999]}",
        "{\"tokens\": []}",
        "{\"text\": \"a\", \"policy\": \"tova\"}",
        "{\"text\": \"a\", \"write\": {}}",
        "{\"id\": {\"n\": [1]}, \"text\": \"a b c\"}",
    ]
    .map(str::to_owned);
    let (answers, code) = ask(folder.path(), &["score", "--model", "pocket", "--stream"], &lines);
    assert_eq!((answers.len(), code), (9, Some(1)), "a blank line is no request");
    let words = ["toba", "line 3", "polcy", "either", "99999999", "no token", "needs a cache size", "write"];
    for (answer, word) in answers.iter().zip(words) {
        assert!(answer["error"].as_str().is_some_and(|error| error.contains(word)), "{word}: {answer}");
    }
    assert_eq!((&answers[0]["id"], &answers[3]["id"]), (&json!(7), &json!("x")));
    assert_eq!(answers[8]["id"], json!({"n": [1]}));
    assert!(answers[8]["nll"].as_array().is_some_and(|nll| !nll.is_empty()));
}
