//! The token of the hub is never shown, by any command, for any response of the server, at any log level.
//!
//! The server sends the token back wherever it can.

use std::path::Path;

use crate::support::http::HttpServer;
use crate::support::program::{command, finish};

const SECRET: &str = "hf_AbCdEfKeptToOurselves";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Responses for a repository and for its files; `{T}` stands for the token that was sent.
const ANSWERS: [(&str, &str); 8] = [
    ("HTTP/1.1 401 {T}\r\nx-error-message: {T}\r\n\r\n{T}", ""),
    ("HTTP/1.1 500 {T}\r\n\r\n{T}", ""),
    ("HTTP/1.1 200 OK\r\n\r\n{\"sha\": \"{T}\", \"siblings\": []}", ""),
    ("HTTP/1.1 200 OK\r\n\r\n{\"sha\": {T}", ""),
    ("HTTP/1.1 302 {T}\r\nlocation: htp://{T}:x/{T}\r\n\r\n", ""),
    ("{DESCRIPTION}", "HTTP/1.1 302 {T}\r\nlocation: http://{T}@127.0.0.1:9/{T}\r\netag: \"{T}\"\r\n\r\n{T}"),
    (
        "{DESCRIPTION}",
        "HTTP/1.1 200 {T}\r\netag: \"{T}\"\r\nx-repo-commit: {T}\r\ncontent-range: bytes 0-0/{T}\r\n\r\n{T}",
    ),
    ("{DESCRIPTION}", "HTTP/1.1 403 {T}\r\nlocation: {T}\r\n\r\n{T}"),
];

/// A hub that always gives the same two responses.
fn hub((description, file): (&'static str, &'static str)) -> HttpServer {
    HttpServer::start(move |request, _| {
        let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or("");
        let answer = if request.line.starts_with("GET /api/") { description } else { file };
        let siblings =
            r#"[{"rfilename": "config.json"}, {"rfilename": "model.safetensors"}, {"rfilename": "test.parquet"}]"#;
        let known = format!("HTTP/1.1 200 OK\r\n\r\n{{\"sha\": \"{COMMIT}\", \"siblings\": {siblings}}}");
        let answer = answer.replace("{DESCRIPTION}", &known).replace("{T}", token);
        answer.replacen("\r\n", "\r\nconnection: close\r\n", 1).into_bytes()
    })
}

fn output(folder: &Path, hub: &str, arguments: &[&str]) -> String {
    let mut command = command(folder);
    command.env("HF_ENDPOINT", hub).env("HF_TOKEN", SECRET).env("RUST_LOG", "trace").args(arguments);
    let ended = finish(command);
    ended.sound();
    format!("{}\n{}", ended.stdout, ended.stderr)
}

#[test]
fn no_command_shows_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = "models: [o/n]\npolicies: [full]\ntasks: [{perplexity: {dataset: o/d}}]\n";
    std::fs::write(folder.path().join("s.yaml"), sweep).unwrap();
    std::fs::write(folder.path().join("t.txt"), "A fox ran.").unwrap();
    let hub = hub(ANSWERS[0]);
    for arguments in [
        &["run", "s.yaml"][..],
        &["plan", "s.yaml"],
        &["score", "--model", "o/n", "--text", "t.txt"],
        &["write", "--model", "o/n", "--text", "t.txt"],
        &["doctor"],
        &["report", "results"],
        &["compare", "results", "results"],
        &["baseline", "results"],
        &["judge", "results", "--judge-model", "m"],
        &["list"],
        &["schema"],
        &["--help"],
    ] {
        let output = output(folder.path(), &hub.url, arguments);
        assert!(!output.contains(SECRET), "{arguments:?} shows the token:\n{output}");
    }
}

#[test]
fn no_response_makes_the_token_visible() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.txt"), "A fox ran.").unwrap();
    for answers in ANSWERS {
        let output = output(folder.path(), &hub(answers).url, &["score", "--model", "o/n", "--text", "t.txt"]);
        assert!(!output.contains(SECRET), "after {answers:?}:\n{output}");
        assert!(output.contains("o/n") || output.contains("hub"), "{output}");
    }
}
