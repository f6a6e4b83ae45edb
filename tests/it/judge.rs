//! `judge` end to end: the program, a ledger of stories, and a judge server on the loopback interface that answers,
//! fails, or hangs up.

#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::judge_server::{JudgeServer, Reply, Request};
use crate::support::program::{Ended, Running, command, finish, start};
use crate::support::rows::kept;
use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tova_bench::ledger::{CellId, CellName};
use tova_bench::ledger::{Ledger, Opened, Row, Text};
use tova_bench::metric::Slice;

const KEY: &str = "sk-test-0123456789/abcdef";

// --- a ledger of stories ---

fn row(policy: &str, size: Option<u32>, sample: &str, text: &str) -> Row {
    let word = |word: &str| Text::from(word);
    Row {
        sweep: word("stories"),
        model: word("o/storyteller"),
        model_revision: word("0123"),
        policy: word(policy),
        cache_size: size,
        positions: word("absolute"),
        prefill: word("stream"),
        task: word("story"),
        dataset: word("paper"),
        length: 4096,
        bos: true,
        sample: word(sample),
        cluster: word(sample),
        metric: word("new_tokens"),
        value: 12.0,
        weight: 1.0,
        output: Some(text.to_string()),
        prompt_tokens: 60,
        new_tokens: 12,
        ..Row::default()
    }
}

fn text(policy: &str, size: Option<u32>, sample: &str) -> String {
    let size = size.map_or(String::new(), |size| format!("-{size}"));
    format!("By {policy}{size} in {sample}: once upon a time, in a town of \"3\" countries.")
}

/// Writes a complete cell of stories; each has a second row, of another metric.
fn write_cell(results: &Path, rows: Vec<Row>) {
    let Row { model, policy, cache_size, .. } = &rows[0];
    let meaning =
        format!("{:?}", rows.iter().map(|row| Row { date: Text::new(), ..row.clone() }).collect::<Vec<_>>());
    let name = CellName::new(CellId::of(&meaning), "story", model, policy, cache_size.map(|size| size as usize));
    let ledger = Ledger::open(results).unwrap();
    let Opened::Journal(journal) = ledger.journal(&name).unwrap() else { panic!("taken or complete") };
    let count = rows.len();
    for (index, row) in rows.into_iter().enumerate() {
        let row = Row { cell: name.id().to_string().into(), ..row };
        let diversity = Row { metric: "distinct_2".into(), value: 0.5, output: None, ..row.clone() };
        journal.append(index, vec![diversity, row]).unwrap();
    }
    journal.complete(count).unwrap();
}

/// Stories of these seeds.
fn stories(policy: &str, size: Option<u32>, seeds: usize) -> Vec<Row> {
    let sample = |seed: usize| format!("seed-{seed}");
    (0..seeds).map(|seed| row(policy, size, &sample(seed), &text(policy, size, &sample(seed)))).collect()
}

/// A folder with results `r`: the full cache's stories, and those of `tova` at some sizes.
fn folder(sizes: &[u32], seeds: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r");
    write_cell(&results, stories("full", None, seeds));
    for &size in sizes {
        write_cell(&results, stories("tova", Some(size), seeds));
    }
    folder
}

// --- the judge ---

/// What a request asks about: the policy of the bounded cache, the sample, and whether its story is shown first.
fn subject(request: &Request) -> (String, String, bool) {
    let split = |text: &str| {
        let (writer, sample) =
            text.strip_prefix("By ").unwrap().split_once(':').unwrap().0.split_once(" in ").unwrap();
        (writer.to_string(), sample.to_string())
    };
    let (first, second) = (split(&request.first), split(&request.second));
    assert_eq!(first.1, second.1, "stories of two samples are compared");
    assert_eq!([&first.0, &second.0].iter().filter(|writer| **writer == "full").count(), 1);
    let judged_first = second.0 == "full";
    let (writer, sample) = if judged_first { first } else { second };
    (writer, sample, judged_first)
}

fn says(text: &str) -> Reply {
    Reply::Says(text.to_string())
}

fn subjects(server: &JudgeServer) -> Vec<(String, String, bool)> {
    server.requests().iter().map(subject).collect()
}

/// Prefers the bounded cache's story.
fn prefers_it(request: &Request) -> Reply {
    says(if subject(request).2 { "(A)" } else { "(B)" })
}

fn error(message: &str, code: &str) -> String {
    json!({"error": {"message": message, "type": "x", "param": null, "code": code}}).to_string()
}

fn program(folder: &Path, url: &str) -> Command {
    let mut command = command(folder);
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.env_remove("OPENAI_API_KEY").args(["judge", "r", "--base-url", url]);
    command
}

/// The program with a key and a judge's name.
fn keyed(folder: &Path, url: &str, judge: &str) -> Command {
    let mut command = program(folder, url);
    command.args(["--judge-model", judge]).env("OPENAI_API_KEY", KEY);
    command
}

/// Judges the results `r` of a folder, with a key.
fn judge(folder: &Path, server: &JudgeServer, arguments: &[&str]) -> Ended {
    judge_named("judge-1", folder, server, arguments)
}

fn judge_named(name: &str, folder: &Path, server: &JudgeServer, arguments: &[&str]) -> Ended {
    let mut command = keyed(folder, &server.url, name);
    command.args(arguments);
    finish(command)
}

// --- what is in the ledger ---

fn verdict_rows(folder: &Path) -> Vec<Row> {
    let rows = Ledger::existing(&folder.join("r")).unwrap().rows().unwrap();
    rows.into_iter().filter(|row| row.task == "judge").collect()
}

/// Pair and place of the verdicts in journals that are not complete.
fn journalled(results: &Path) -> BTreeSet<(String, String, bool)> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(results.join("partial")).unwrap() {
        let journal = fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in journal.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line: Value = serde_json::from_str(line).unwrap();
            for row in line["sample"]["rows"].as_array().unwrap().iter().filter(|row| row["metric"] == "verdict") {
                let writer = format!("{}-{}", row["policy"].as_str().unwrap(), row["cache_size"]);
                let first = row["slice"]["name"] == "first";
                assert!(
                    found.insert((writer, row["sample"].as_str().unwrap().to_string(), first)),
                    "twice: {row}"
                );
            }
        }
    }
    found
}

/// Checks that every pair has both verdicts and one result, each once.
#[track_caller]
fn assert_whole(rows: &[Row], pairs: usize) {
    let mut seen = BTreeSet::new();
    for row in rows {
        let key = (row.cache_size, &row.sample, &row.metric, &row.slice);
        assert!(seen.insert(key), "{key:?} is there twice");
    }
    let count = |metric: &str| rows.iter().filter(|row| row.metric == metric).count();
    assert_eq!(count("verdict"), 2 * pairs);
    assert_eq!(count("judge_unreadable"), pairs);
    for metric in ["judge_win", "judge_tie", "judge_loss"] {
        assert_eq!(count(metric), pairs, "{metric}");
    }
}

/// Every file below a folder, as bytes.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push((entry.path(), fs::read(entry.path()).unwrap()));
        }
    }
    found
}

/// Checks that the key is in no output, no file and no row, not even in part.
#[track_caller]
fn assert_secret(folder: &Path, ended: &Ended) {
    let secret = &KEY[3..14];
    assert!(!ended.stdout.contains(secret) && !ended.stderr.contains(secret), "{ended:?}");
    for (path, bytes) in files(folder) {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{}", path.display());
    }
    // Columns of a Parquet file may be compressed.
    for row in Ledger::existing(&folder.join("r")).unwrap().rows().unwrap() {
        assert!(!format!("{row:?}").contains(secret), "{row:?}");
    }
}

// --- tests ---

#[test]
fn both_orders_decide_a_pair() {
    let folder = folder(&[16], 9);
    let folder = folder.path();
    // At size 32 the cache was never full for the first six.
    let mut late = stories("tova", Some(32), 9);
    for row in &mut late[..6] {
        row.output = Some(text("full", None, &row.sample));
    }
    write_cell(&folder.join("r"), late);
    // At size 64 it never was.
    let mut never = stories("tova", Some(64), 9);
    for row in &mut never {
        row.output = Some(text("full", None, &row.sample));
    }
    write_cell(&folder.join("r"), never);
    let server = JudgeServer::start(|request| {
        let (writer, sample, first) = subject(request);
        let place = |it: bool| if it == first { "A" } else { "B" };
        match (writer.as_str(), sample.as_str()) {
            ("tova-32", _) => says("(C)"),
            (_, "seed-0") => says(&format!("({})", place(true))),
            (_, "seed-1") => says(&format!("Response ({}) is better.", place(false))),
            // The same place both times.
            (_, "seed-2") => says("a"),
            (_, "seed-3") => says("**(B)**"),
            (_, "seed-4") => says("(C) equal quality"),
            // Preferred in one order only.
            (_, "seed-5") => says(if first { "(A)" } else { "(C)" }),
            (_, "seed-6") => says("Both stories have their merits."),
            (_, "seed-7") if !request.reminded => says("It is hard to say; perhaps (A), perhaps (B)."),
            (_, "seed-7") => says(&place(true).to_lowercase()),
            // Unreadable in one order, clear in the other.
            (_, "seed-8") => says(if first { "(A)" } else { "(A) and (B)" }),
            _ => unreachable!("{writer} {sample}"),
        }
    });
    let ended = judge(folder, &server, &[]).with_code(0);
    // 18 calls at size 16: both of seed-6, one of seed-8 and both of seed-7 are asked twice; 6 at size 32.
    let requests = 18 + 2 + 1 + 2 + 6;
    assert_eq!(server.requests().len(), requests);
    let tokens = format!("tokens used: {} prompt, {} completion, in 24 calls", 100 * requests, 3 * requests);
    assert!(ended.stdout.contains(&tokens), "{}", ended.stdout);
    ended.says(&["10 pairs judged, 15 identical and so equal, 2 unreadable, 0 open, 0 failed"]);
    ended.says(&[
        "unreadable: seed-6: the answer names no choice, or several: \"Both stories have their merits.\"",
    ]);

    let rows = verdict_rows(folder);
    let value = |size: u32, sample: &str, metric: &str, group: Option<&str>| {
        let found: Vec<&Row> = rows
            .iter()
            .filter(|row| row.cache_size == Some(size) && row.sample == sample)
            .filter(|row| {
                row.metric == metric && row.slice.as_ref().and_then(|slice| slice.name.as_deref()) == group
            })
            .collect();
        assert!(found.len() < 2, "{found:?}");
        found.first().map(|row| (row.value, row.weight))
    };
    let (first, second) = (Some("first"), Some("second"));
    for (sample, verdicts, ending) in [
        ("seed-0", [(1.0, 1.0), (1.0, 1.0)], "judge_win"),
        ("seed-1", [(0.0, 1.0), (0.0, 1.0)], "judge_loss"),
        ("seed-2", [(1.0, 1.0), (0.0, 1.0)], "judge_tie"),
        ("seed-3", [(0.0, 1.0), (1.0, 1.0)], "judge_tie"),
        ("seed-4", [(0.5, 1.0), (0.5, 1.0)], "judge_tie"),
        ("seed-5", [(1.0, 1.0), (0.5, 1.0)], "judge_tie"),
        ("seed-6", [(0.0, 0.0), (0.0, 0.0)], "judge_unreadable"),
        ("seed-7", [(1.0, 1.0), (1.0, 1.0)], "judge_win"),
        ("seed-8", [(1.0, 1.0), (0.0, 0.0)], "judge_unreadable"),
    ] {
        assert_eq!(value(16, sample, "verdict", first), Some(verdicts[0]), "{sample}");
        assert_eq!(value(16, sample, "verdict", second), Some(verdicts[1]), "{sample}");
        let readable = ending != "judge_unreadable";
        for metric in ["judge_win", "judge_tie", "judge_loss"] {
            let expected = readable.then_some((f64::from(u8::from(metric == ending)), 1.0));
            assert_eq!(value(16, sample, metric, None), expected, "{sample} {metric}");
        }
        let expected = Some((f64::from(u8::from(!readable)), 1.0));
        assert_eq!(value(16, sample, "judge_unreadable", None), expected, "{sample}");
    }
    for (size, sample) in [(32, "seed-5"), (64, "seed-0")] {
        assert_eq!(value(size, sample, "verdict", first), None, "identical stories are not asked about");
        let found =
            ["judge_win", "judge_tie", "judge_loss", "judge_unreadable"].map(|m| value(size, sample, m, None));
        assert_eq!(found, [0.0, 1.0, 0.0, 0.0].map(|flag| Some((flag, 1.0))));
    }
    for row in &rows {
        assert_eq!(
            (row.policy.as_str(), row.model.as_str(), row.model_revision.as_str()),
            ("tova", "o/storyteller", "0123")
        );
        assert_eq!(row.dataset, "paper judged by judge-1");
        assert!(server.url.contains(row.device.as_str()), "{}", row.device);
        let identical = row.cache_size == Some(64) || row.cache_size == Some(32) && row.sample.as_str() < "seed-6";
        assert_eq!(row.output.is_some(), row.metric == "verdict" || identical && row.metric == "judge_tie");
        assert!(row.metric == "verdict" || (row.prompt_tokens, row.new_tokens) == (0, 0));
    }
    let raw = |sample: &str| {
        let row = rows.iter().find(|row| {
            row.sample == sample && row.slice.as_ref().and_then(|slice| slice.name.as_deref()) == first
        });
        row.map(|row| (row.output.clone().unwrap(), row.prompt_tokens, row.new_tokens)).unwrap()
    };
    assert_eq!(raw("seed-1"), ("Response (B) is better.".to_string(), 100, 3));
    assert_eq!(raw("seed-6"), ("Both stories have their merits.".to_string(), 200, 6));

    // A second run makes no request and prints the same.
    let again = judge(folder, &server, &[]).with_code(0);
    assert_eq!(server.requests().len(), requests);
    assert_eq!(again.stdout, ended.stdout);
    assert_eq!(verdict_rows(folder), rows);
    // Another judge has verdicts of its own, beside the first one's.
    let other = judge_named("judge-2", folder, &server, &["--only", "size=32"]).with_code(0);
    other.says(&["3 pairs judged, 6 identical"]);
    assert_eq!(server.requests().len(), requests + 6);
    assert_eq!(verdict_rows(folder).len(), rows.len() + 6 + 9 * 4);
    // Reports read the rows as any others.
    let report = finish({
        let mut report = command(folder);
        report.args(["report", "r"]);
        report
    });
    assert!(report.with_code(0).stdout.contains("Judged better than full (%)"));
    let lines = fs::read_to_string(folder.join("r/report.csv")).unwrap();
    let names: Vec<&str> = lines.lines().next().unwrap().split(',').collect();
    let at =
        |name: &str| names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("{name}: {names:?}"));
    let ties = lines.lines().filter(|line| line.contains("judged equal to full (%)") && line.contains("judge-1"));
    let ties: Vec<_> = ties.map(|line| line.split(',').collect::<Vec<_>>()).collect();
    let of_size = |size: &str| ties.iter().find(|fields| fields[at("cache_size")] == size).unwrap();
    // Size 16: wins 0 and 7; ties 2, 3, 4 and 5; loss 1; unreadable 6 and 8. Size 32: three ties that were judged, six of identical
    // stories; size 64: nine of those.
    let share = |size: &str| of_size(size)[at("value")].parse::<f64>().unwrap().round();
    assert_eq!(["16", "32", "64"].map(share), [57.0, 100.0, 100.0]);
}

#[test]
fn requests_follow_the_chat_completions_api() {
    let folder = folder(&[16], 1);
    let folder = folder.path();
    let server = JudgeServer::start(prefers_it);
    judge(folder, &server, &["--concurrency", "1"]).with_code(0);
    let requests = server.requests();
    let [one, other] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(one.line, "POST /v1/chat/completions");
    assert_eq!(one.authorization.as_deref(), Some(format!("Bearer {KEY}").as_str()));
    let keys: Vec<&String> = one.body.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert_eq!((&one.body["model"], &one.body["temperature"]), (&json!("judge-1"), &json!(0)));
    assert_eq!(one.body["max_tokens"], json!(32));
    assert_eq!(one.body["messages"].as_array().unwrap().len(), 1);
    assert_eq!(one.body["messages"][0]["role"], "user");
    let question = one.body["messages"][0]["content"].as_str().unwrap();
    assert!(question.starts_with("Help me decide which response is better given the prompt:"), "{question}");
    assert!(question.contains(tova_bench::task::STORY_REQUEST), "{question}");
    assert_eq!((&one.first, &one.second), (&text("tova", Some(16), "seed-0"), &text("full", None, "seed-0")));
    assert_eq!((&other.first, &other.second), (&one.second, &one.first));

    // A local server needs no key; its address and the judge's name may come from the environment.
    let mut local = command(folder);
    local.env_remove("OPENAI_API_KEY").args(["judge", "r", "--key-env", "NO_SUCH_KEY"]);
    local.env("TOVA_BENCH_JUDGE_URL", format!("{}/", server.url)).env("TOVA_BENCH_JUDGE_MODEL", "judge-2");
    finish(local).with_code(0).says(&["NO_SUCH_KEY holds no key"]);
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    assert_eq!((&requests[2].authorization, &requests[2].body["model"]), (&None, &json!("judge-2")));
    assert_whole(
        &verdict_rows(folder).into_iter().filter(|row| row.dataset.ends_with("2")).collect::<Vec<_>>(),
        1,
    );
}

/// As OpenAI's newer models do, in their words.
#[test]
fn a_judge_is_asked_in_the_form_that_it_takes() {
    let folder = folder(&[16], 3);
    let folder = folder.path();
    let refused = |message: &str| Reply::Raw(400, Vec::new(), error(message, "unsupported_parameter"));
    let server = JudgeServer::start(move |request| match &request.body {
        body if body.get("max_tokens").is_some() => refused(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        ),
        body if body.get("temperature").is_some() => refused(
            "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
        ),
        _ => prefers_it(request),
    });
    let mut program = keyed(folder, &format!("{}/chat/completions", server.url), "judge-1");
    program.args(["--concurrency", "1"]);
    let ended = finish(program).with_code(0);
    ended.says(&[
        "note: the judge wants `max_completion_tokens`",
        "note: the judge does not take a temperature of 0",
    ]);
    let requests = server.requests();
    assert_eq!(requests.len(), 2 + 6, "each form is refused once");
    assert!(requests.iter().all(|request| request.line == "POST /v1/chat/completions"));
    assert_eq!(requests[7].body["max_completion_tokens"], json!(4096));
    assert_whole(&verdict_rows(folder), 3);
}

/// A completion that ends so, with this message.
fn completes(message: Value, finish: &str) -> Reply {
    let body = json!({"choices": [{"message": message, "finish_reason": finish}], "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
    Reply::Raw(200, Vec::new(), body.to_string())
}

#[test]
fn a_judge_may_think_first() {
    let folder = folder(&[16], 3);
    let folder = folder.path();
    let server = JudgeServer::start(|request| {
        let (_, _, first) = subject(request);
        let answer = if first { "(A)" } else { "(B)" };
        match request.body["max_tokens"].as_u64() {
            Some(32) => completes(json!({"content": "<think>\nOkay, the user wants me to"}), "length"),
            _ => completes(
                json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "(C)?"}]}, {"type": "text", "text": answer}]}),
                "stop",
            ),
        }
    });
    judge(folder, &server, &["--concurrency", "1"]).with_code(0).says(&["3 pairs judged", "0 unreadable"]);
    assert_eq!(server.requests().len(), 1 + 6, "the limit is too small once");
    assert_whole(&verdict_rows(folder), 3);
}

#[test]
fn an_answer_that_cannot_be_read_is_not_paid_for_twice() {
    let folder = folder(&[16], 3);
    let folder = folder.path();
    let cut = || completes(json!({"content": "", "reasoning_content": "Okay, the user"}), "length");
    let server = JudgeServer::start(move |request| match subject(request).1.as_str() {
        "seed-0" => cut(),
        "seed-1" => completes(json!({"content": null, "refusal": "I cannot compare these."}), "stop"),
        _ => completes(json!({"content": null}), "content_filter"),
    });
    let ended = judge(folder, &server, &["--concurrency", "1"]).with_code(4);
    ended.says(&[
        "unreadable: seed-0: cut off after 4096 tokens, before a choice",
        "unreadable: seed-1: the judge declined to answer: \"I cannot compare these.\"",
        "unreadable: seed-2: the judge declined to answer",
        "3 unreadable",
    ]);
    assert_eq!(server.requests().len(), 1 + 6, "more room helps once, and nothing else does");
    let rows = verdict_rows(folder);
    assert!(rows.iter().any(|row| row.output.as_deref() == Some("[cut off after 4096 tokens, before a choice]")));
    judge(folder, &server, &[]).with_code(4);
    assert_eq!(server.requests().len(), 1 + 6, "another run asks nothing");
}

#[test]
fn transient_failures_are_retried() {
    let folder = folder(&[16], 6);
    let folder = folder.path();
    let server = JudgeServer::start(|request| {
        let raw = |status, headers, body: &str| Reply::Raw(status, headers, body.to_string());
        match (subject(request).1.as_str(), request.before) {
            ("seed-0", 0) => {
                raw(429, vec![("retry-after", "2".into())], &error("slow down", "rate_limit_exceeded"))
            }
            ("seed-1", 0) => raw(500, vec![], "oh"),
            ("seed-1", 1) => raw(503, vec![], ""),
            ("seed-2", 0) => raw(200, vec![], "{\"choices\": [{\"mess"),
            ("seed-3", 0) => Reply::CutOff("(A)".into()),
            ("seed-4", 0) => raw(200, vec![], "{\"choices\": []}"),
            ("seed-5", 0) => Reply::Late(Duration::from_secs(10), "(A)".into()),
            _ => prefers_it(request),
        }
    });
    let ended = judge(folder, &server, &["--timeout", "2", "--concurrency", "12"]).with_code(0);
    ended.says(&["asking again in", "6 pairs judged, 0 identical and so equal, 0 unreadable, 0 open, 0 failed"]);
    let requests = server.requests();
    let mut times: BTreeMap<(String, bool), Vec<_>> = BTreeMap::new();
    for requests in &requests {
        let (_, sample, first) = subject(requests);
        times.entry((sample, first)).or_default().push(requests.at);
    }
    for ((sample, first), times) in times {
        assert_eq!(times.len(), if sample == "seed-1" { 3 } else { 2 }, "{sample} {first}");
        let wait = times[1] - times[0];
        let least = match sample.as_str() {
            "seed-0" => 2.0,
            "seed-5" => 2.2,
            _ => 0.25,
        };
        assert!(wait.as_secs_f64() >= least, "{sample}: asked again after {wait:?}");
    }
    let rows = verdict_rows(folder);
    assert_whole(&rows, 6);
    assert!(rows.iter().filter(|row| row.metric == "judge_win").all(|row| row.value == 1.0));
}

#[test]
fn an_unreachable_judge_ends_the_run_and_loses_nothing() {
    let folder = folder(&[16], 20);
    let folder = folder.path();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut dead = keyed(folder, &format!("http://127.0.0.1:{port}/v1"), "judge-1");
    dead.args(["--retries", "1"]);
    let ended = finish(dead).with_code(1);
    ended.says(&[
        "cannot be reached",
        "asked 2 times",
        "4 calls in a row had no answer",
        "hint: verdicts so far are kept",
    ]);
    assert_secret(folder, &ended);
    // A server without TLS is unreachable by https.
    let plain = JudgeServer::start(prefers_it);
    let mut tls = keyed(folder, &plain.url.replace("http://", "https://"), "judge-1");
    tls.args(["--retries", "0"]);
    let ended = finish(tls).with_code(1);
    ended.says(&["cannot be reached", "4 calls in a row had no answer"]);
    assert_secret(folder, &ended);
    // When the judge is back, nothing is missing.
    let server = JudgeServer::start(prefers_it);
    judge(folder, &server, &[]).with_code(0);
    assert_eq!(server.requests().len(), 40);
    assert_whole(&verdict_rows(folder), 20);
}

#[test]
fn a_refused_key_ends_the_run_and_is_never_shown() {
    let folder = folder(&[16], 20);
    let folder = folder.path();
    let refusing = JudgeServer::start(|request| {
        let key = request.authorization.clone().unwrap_or_default();
        Reply::Raw(401, vec![], error(&format!("Incorrect API key provided: {key}."), "invalid_api_key"))
    });
    let ended = judge(folder, &refusing, &["--concurrency", "2"]).with_code(1);
    ended.says(&[
        "status 401",
        "Incorrect API key provided: Bearer [key].",
        "hint: check --judge-model",
        "the environment variable OPENAI_API_KEY",
    ]);
    assert!(refusing.requests().len() <= 2, "nothing is retried: {}", refusing.requests().len());
    assert_secret(folder, &ended);

    // Whatever a server echoes it in: errors with and without JSON, answers, the error of one pair.
    let echoing = JudgeServer::start(|request| {
        let key = request.authorization.clone().unwrap().replace("Bearer ", "");
        match (subject(request).1.as_str(), request.before) {
            ("seed-0", 0) => Reply::Raw(500, vec![], format!("<html>{key}</html>")),
            ("seed-1", 0) => Reply::Raw(500, vec![], json!({"headers": key}).to_string().replace('/', "\\/")),
            ("seed-2", _) => {
                Reply::Raw(400, vec![], error(&format!("too long: {key}"), "context_length_exceeded"))
            }
            ("seed-3", 0) => Reply::Raw(200, vec![], json!({"oops": key}).to_string()),
            _ => says(&format!("(A)\nYour key is {key}.")),
        }
    });
    let ended = judge(folder, &echoing, &[]).with_code(4);
    ended.says(&["too long: [key]", "19 pairs judged", "1 open, 1 failed"]);
    assert_secret(folder, &ended);
    let journals = files(&folder.join("r/partial"));
    assert!(journals.iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains("Your key is [key].")));
    let failures = files(&folder.join("r/failed"));
    assert!(failures.iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains("too long: [key]")));
    assert_eq!(
        echoing.requests().iter().filter(|requests| subject(requests).1 == "seed-2").count(),
        1,
        "not retried"
    );
    // Once the pair is judged, its error is removed.
    let server = JudgeServer::start(|request| says(&format!("(A)\n{}", request.authorization.clone().unwrap())));
    let ended = judge(folder, &server, &[]).with_code(0);
    assert_eq!(server.requests().iter().filter(|requests| !requests.reminded).count(), 2);
    assert!(files(&folder.join("r/failed")).is_empty());
    assert_secret(folder, &ended);
}

#[test]
fn a_failed_pair_stays_open_for_the_next_run() {
    let folder = folder(&[16, 32], 5);
    let folder = folder.path();
    let failing = JudgeServer::start(|request| match subject(request) {
        (writer, sample, _) if writer == "tova-16" && sample == "seed-2" => {
            Reply::Raw(500, vec![], "oh no".into())
        }
        _ => prefers_it(request),
    });
    let ended = judge(folder, &failing, &["--retries", "0", "--concurrency", "1"]).with_code(4);
    ended.says(&["failed: judge__o-storyteller__tova__16__", "seed-2", "status 500: oh no", "1 open, 1 failed"]);
    assert_eq!(kept(&folder.join("r")).cells, 4, "the full cache's, two of stories, one of verdicts");
    assert_eq!(failing.requests().len(), 19);
    let server = JudgeServer::start(prefers_it);
    judge(folder, &server, &[]).with_code(0);
    let requests = subjects(&server);
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests.iter().all(|(writer, sample, _)| writer == "tova-16" && sample == "seed-2"), "{requests:?}");
    assert_whole(&verdict_rows(folder), 10);
    assert!(files(&folder.join("r/failed")).is_empty() && files(&folder.join("r/partial")).is_empty());
}

#[test]
fn permanent_errors_end_the_run_with_a_hint() {
    let folder = folder(&[16], 2);
    let folder = folder.path();
    let (port, mut said) = (Regex::new(r"127\.0\.0\.1:\d+").unwrap(), String::new());
    for (status, body) in [
        (400, error("Unsupported parameter: 'max_tokens'", "unsupported_parameter")),
        (403, error("not for you", "x")),
        (404, error("The model `judge-1` does not exist", "model_not_found")),
        (429, error("You exceeded your current quota", "insufficient_quota")),
        (307, String::new()),
    ] {
        let header = vec![("location", "http://127.0.0.1:1/".to_string())];
        let server = JudgeServer::start(move |_| Reply::Raw(status, header.clone(), body.clone()));
        let ended = judge(folder, &server, &["--concurrency", "1"]).with_code(1);
        said += &port.replace(&ended.stderr, "127.0.0.1:PORT");
        assert_eq!(server.requests().len(), 1, "{status}");
    }
    insta::assert_snapshot!(said);
}

/// Begins to judge.
fn begin(folder: &Path, server: &JudgeServer) -> Running {
    let mut command = keyed(folder, &server.url, "judge-1");
    command.args(["--concurrency", "4"]);
    start(command)
}

#[test]
fn killed_runs_resume_without_repeating_written_calls() {
    let folder = folder(&[16, 32], 30);
    let folder = folder.path();
    let results = folder.join("r");
    let server = JudgeServer::start(|request| match subject(request) {
        (_, sample, true) if sample.ends_with('3') => Reply::Late(Duration::from_millis(5), "(C)".into()),
        (_, _, first) => Reply::Late(Duration::from_millis(15), if first { "(A)" } else { "(B)" }.into()),
    });
    let (mut before, mut written, mut again) = (0, BTreeSet::new(), 0);
    for kills in 1..=4 {
        let mut running = begin(folder, &server);
        // 120 calls in all; the second cell begins after 60.
        running.until(|| server.requests().len() >= before + 22);
        assert!(running.signal(libc::SIGKILL), "the run was over before kill {kills}");
        drop(running.wait());
        // Requests in flight arrive.
        std::thread::sleep(Duration::from_millis(100));
        let requests = subjects(&server);
        for subject in &requests[before..] {
            assert!(!written.contains(subject), "{subject:?} was written down, and asked again after a kill");
        }
        let unique: BTreeSet<_> = requests.iter().cloned().collect();
        again = requests.len() - unique.len();
        assert!(again <= 8 * kills, "only calls of pairs in work at a kill may be asked again: {again}");
        let mut now = journalled(&results);
        for row in verdict_rows(folder).iter().filter(|row| row.metric == "verdict") {
            let writer = format!("tova-{}", row.cache_size.unwrap());
            now.insert((writer, row.sample.to_string(), row.slice == Some(Slice::named("shown", "first"))));
        }
        assert!(written.is_subset(&now), "a kill lost verdicts");
        assert!(now.len() + 8 * kills >= unique.len(), "{} asked, {} written down", unique.len(), now.len());
        (before, written) = (requests.len(), now);
    }
    begin(folder, &server).wait().with_code(0);
    let requests = subjects(&server);
    for subject in &requests[before..] {
        assert!(!written.contains(subject), "{subject:?} was written down, and asked again after a kill");
    }
    let unique: BTreeSet<_> = requests.iter().cloned().collect();
    assert_eq!(unique.len(), 120, "every pair was asked about in both orders");
    assert!(requests.len() - unique.len() <= 32 && requests.len() - unique.len() >= again);
    let rows = verdict_rows(folder);
    assert_whole(&rows, 60);
    // The rows are those of an undisturbed run.
    let wins = rows.iter().filter(|row| row.metric == "judge_win" && row.value == 1.0).count();
    let ties = rows.iter().filter(|row| row.metric == "judge_tie" && row.value == 1.0).count();
    assert_eq!((wins, ties), (54, 6), "seeds 3, 13 and 23 of both sizes are ties");
    crate::support::program::say(&format!(
        "4 kills: {} requests for 120 calls; the last run found {} verdicts and asked for none of them again",
        requests.len(),
        written.len()
    ));
}

#[test]
fn a_signal_waits_for_calls_in_flight() {
    for (number, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let folder = folder(&[16], 30);
        let folder = folder.path();
        let server = JudgeServer::start(|request| {
            Reply::Late(Duration::from_millis(20), if subject(request).2 { "(A)" } else { "(B)" }.into())
        });
        let mut running = begin(folder, &server);
        running.until(|| server.requests().len() >= 20);
        assert!(running.signal(number), "the run was over before the signal");
        let ended = running.wait().with_code(code);
        ended.says(&["interrupted; run the same command again"]);
        let requests: BTreeSet<_> = subjects(&server).into_iter().collect();
        assert!(requests.len() < 60, "the run went on");
        assert_eq!(journalled(&folder.join("r")), requests, "all that was asked is written down");
        assert!(ended.stdout.contains("tokens used"), "what is known is shown: {}", ended.stdout);
        begin(folder, &server).wait().with_code(0);
        assert_eq!(server.requests().len(), 60, "nothing was asked twice");
        assert_whole(&verdict_rows(folder), 30);
    }
}

#[test]
fn a_signal_ends_a_wait() {
    let folder = folder(&[16], 2);
    let server = JudgeServer::start(|_| Reply::Raw(429, vec![("retry-after", "500".into())], String::new()));
    let mut running = begin(folder.path(), &server);
    running.until(|| !server.requests().is_empty());
    std::thread::sleep(Duration::from_millis(200));
    assert!(running.signal(libc::SIGINT), "the run was over before the signal");
    running.wait().with_code(130);
}

#[test]
fn only_selected_pairs_are_judged() {
    let folder = folder(&[16, 32], 4);
    let folder = folder.path();
    let server = JudgeServer::start(prefers_it);
    judge(folder, &server, &["--limit", "3"]).with_code(0).says(&["3 pairs judged", "1 open"]);
    let requests = || subjects(&server).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(requests().len(), 6);
    assert!(requests().iter().all(|(writer, sample, _)| writer == "tova-16" && sample != "seed-3"));
    judge(folder, &server, &["--only", "size=32", "--limit", "1"]).with_code(0);
    judge(folder, &server, &["--limit", "5"]).with_code(0);
    assert_eq!((server.requests().len(), requests().len()), (10, 10), "{:?}", requests());
    judge(folder, &server, &[]).with_code(0);
    assert_eq!((server.requests().len(), requests().len()), (16, 16));
    assert_whole(&verdict_rows(folder), 8);
    let ended = judge(folder, &server, &["--only", "policy=h2o"]).with_code(1);
    ended.says(&["--only selects none"]);
}

#[test]
fn stories_are_paired_with_the_full_cache_of_the_same_settings() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let results = folder.join("r");
    let of = |rows: Vec<Row>, change: &dyn Fn(&mut Row)| {
        let mut rows = rows;
        rows.iter_mut().for_each(change);
        write_cell(&results, rows);
    };
    // Two models; positions and prefill, which do not change a full cache.
    of(stories("full", None, 2), &|_| {});
    of(stories("full", None, 3), &|row| row.model_revision = "4567".into());
    of(stories("tova", Some(16), 2), &|row| {
        (row.positions, row.prefill) = ("slot".into(), "cut_before_question".into())
    });
    of(stories("tova", Some(32), 2), &|row| row.model_revision = "4567".into());
    of(stories("h2o", Some(16), 2), &|row| row.model_revision = "none".into());
    of(stories("h2o", Some(32), 2), &|row| row.length = 100);
    let server = JudgeServer::start(prefers_it);
    let ended = judge(folder, &server, &[]).with_code(4);
    ended.says(&[
        "o/storyteller, h2o 16 (cell",
        "o/storyteller, h2o 32 (cell",
        "no story of policy `full`",
        "stories without a counterpart: 1 of o/storyteller, tova",
        "4 pairs judged",
        "2 cells have no full cache's stories",
    ]);
    // Two candidates are refused.
    of(stories("full", None, 2), &|row| row.value = 13.0);
    judge(folder, &server, &["--only", "size=16", "--only", "policy=tova"])
        .with_code(4)
        .says(&["more than one cell of policy `full`"]);
}

#[test]
fn wrong_arguments_are_refused_before_any_request() {
    let folder = folder(&[16], 1);
    let folder = folder.path();
    let mut said = String::new();
    let mut run = |arguments: &[&str], code: i32| {
        let mut command = command(folder);
        command.args(["judge"]).args(arguments).env("OPENAI_API_KEY", KEY);
        let ended = finish(command).with_code(code);
        said += &ended.stderr;
        assert_secret(folder, &ended);
    };
    run(&["r"], 2);
    run(&["r", "--judge-model", " "], 2);
    run(&["r", "--judge-model", "j", "--base-url", "u"], 2);
    let with_key = format!("https://{KEY}@x/v1");
    run(&["r", "--judge-model", "j", "--base-url", &with_key], 2);
    run(&["r", "--judge-model", "j", "--key-env", KEY], 2);
    run(&["r", "--judge-model", "j", "--only", "colour=red"], 2);
    run(&["elsewhere", "--judge-model", "j"], 1);
    assert!(!folder.join("elsewhere").exists());
    fs::create_dir_all(folder.join("empty/cells")).unwrap();
    run(&["empty", "--judge-model", "j"], 1);
    insta::assert_snapshot!(said);
}
