//! `doctor` end to end: problems come with advice and exit code 1, and secrets are never shown.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::support::http::{HttpServer, response};
use crate::support::hub_server::HubServer;
use crate::support::program::{Ended, command, finish, run, say};
use serde_json::Value;

/// The report as an object, and the run it is of.
fn doctor(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (Value, Ended) {
    let mut command = command(folder);
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy", "openai_api_key"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SLURM")) {
        command.env_remove(name);
    }
    command.args(["doctor", "--json", "--threads", "1"]).args(arguments).envs(variables.iter().copied());
    let ended = finish(command);
    ended.sound();
    (serde_json::from_str(&ended.stdout).expect("doctor --json prints JSON"), ended)
}

#[track_caller]
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

fn advice(check: &Value) -> String {
    check["advice"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_working_machine_has_no_problems() {
    let folder = tempfile::tempdir().unwrap();
    let (report, ended) = doctor(folder.path(), &["--offline", "--device", "cpu"], &[]);
    assert_eq!(ended.code, Some(0), "{report:#}");
    let value = |name: &str| check(&report, name)["value"].as_str().unwrap();
    let start = format!("{}, commit ", env!("CARGO_PKG_VERSION"));
    let engine = format!(", engine {}, ", tova_bench::ledger::ENGINE_VERSION);
    let version = value("version");
    assert!(
        version.starts_with(&start) && version.contains(&engine) && version.contains("candle 0."),
        "{version}"
    );
    let rate: f64 = value("products").split(' ').next().unwrap().parse().unwrap();
    assert!(rate > 0.0, "{rate}");
    assert!(value("memory").contains(" available of "), "{report:#}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "doctor leaves nothing behind");

    // As text: a severity on each line, advice below, no colours.
    let text = run(folder.path(), &["doctor", "--offline", "--threads", "1"]);
    assert!(!text.stdout.contains('\u{1b}') && text.stderr.is_empty(), "{text:?}");
    for line in text.stdout.lines().take_while(|line| !line.is_empty()) {
        let known = ["ok  ", "note", "PROBLEM", "      "].iter().any(|start| line.starts_with(start));
        assert!(known, "{line}");
    }
    assert!(text.stdout.trim_end().ends_with(": ready to run"), "{}", text.stdout);
}

#[test]
fn tokens_are_reported_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let server = HubServer::start("0123456789abcdef0123456789abcdef01234567", &[]);
    let secrets = [("HF_TOKEN", "hf_s3cret"), ("OPENAI_API_KEY", "sk-s3cret"), ("HF_ENDPOINT", &server.endpoint)];
    let (report, ended) = doctor(folder.path(), &[], &secrets);
    assert!(
        check(&report, "hub token")["value"].as_str().unwrap().starts_with("present, from HF_TOKEN"),
        "{report:#}"
    );
    assert!(check(&report, "hub")["value"].as_str().unwrap().ends_with(" answers"), "{report:#}");
    let asked = server.contents.lock().unwrap().requests.clone();
    let asked: Vec<_> = asked.iter().map(|(path, token)| (path.as_str(), token.as_deref())).collect();
    assert_eq!(
        asked,
        [("/api/whoami-v2", Some("Bearer hf_s3cret"))],
        "one question, with the token in its header"
    );
    let mut shown = vec![ended];

    // From the file where `huggingface-cli login` puts it.
    let home = folder.path().join(".cache/huggingface");
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join("token"), "hf_s3cret\n").unwrap();
    let (report, ended) = doctor(folder.path(), &["--offline"], &[]);
    assert!(check(&report, "hub token")["value"].as_str().unwrap().contains("huggingface/token"), "{report:#}");
    shown.push(ended);

    // Malformed, or in a variable that is printed elsewhere.
    for (name, value, code) in [
        ("HF_TOKEN", "hf_s3cret hf_s3cret", 1),
        ("HF_ENDPOINT", "https://me:s3cret@mirror.example", 1),
        ("HTTPS_PROXY", "http://me:s3cret@127.0.0.1:9", 0),
    ] {
        let (report, ended) = doctor(folder.path(), &[], &[(name, value)]);
        check(&report, "hub");
        assert_eq!(ended.code, Some(code), "{report:#}");
        shown.push(ended);
    }
    let human = finish({
        let mut command = command(folder.path());
        command.args(["doctor", "--offline"]).envs(secrets);
        command
    });
    shown.push(human);
    for ended in shown {
        assert!(!ended.stdout.contains("s3cret") && !ended.stderr.contains("s3cret"), "{ended:?}");
    }
}

#[test]
fn a_refused_token_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let hub = HttpServer::start(|_, _| response(401, &[], b""));
    let (report, ended) = doctor(folder.path(), &[], &[("HF_TOKEN", "hf_gone"), ("HF_ENDPOINT", &hub.url)]);
    assert_eq!(ended.code, Some(1), "{report:#}");
    let token = check(&report, "hub token");
    assert!(token["verdict"] == "problem" && advice(token).contains("settings/tokens"), "{token}");
    assert_eq!(check(&report, "hub")["verdict"], "ok");
}

#[test]
fn offline_makes_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let server = HubServer::start("0123456789abcdef0123456789abcdef01234567", &[]);
    for (arguments, variable) in [(&["--offline"][..], ("X", "")), (&[], ("HF_HUB_OFFLINE", "1"))] {
        let (report, ended) = doctor(folder.path(), arguments, &[("HF_ENDPOINT", &server.endpoint), variable]);
        assert_eq!(ended.code, Some(0), "{report:#}");
        assert!(check(&report, "hub")["value"].as_str().unwrap().contains("not asked"), "{report:#}");
    }
    assert!(server.contents.lock().unwrap().requests.is_empty());
}

#[test]
fn a_silent_or_missing_hub_is_only_a_note() {
    let folder = tempfile::tempdir().unwrap();
    // A port where nobody listens, and one that accepts and never answers.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [free, silent.local_addr().unwrap()] {
        let endpoint = format!("http://{address}");
        let (report, ended) = doctor(folder.path(), &[], &[("HF_ENDPOINT", &endpoint)]);
        let hub = check(&report, "hub");
        assert!(hub["value"].as_str().unwrap().contains("does not answer"), "{hub}");
        assert!(advice(hub).contains("HF_HUB_OFFLINE=1") && advice(hub).contains("HTTPS_PROXY"), "{hub}");
        assert_eq!((hub["verdict"].as_str(), ended.code), (Some("note"), Some(0)), "built-in models need no hub");
    }
}

#[test]
fn folders_that_are_not_writable_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let blocked = folder.path().join("file/hub");
    let blocked = blocked.to_str().unwrap();
    let (report, ended) = doctor(
        folder.path(),
        &["--results", "file/results"],
        &[("HF_HUB_CACHE", blocked), ("HF_HUB_OFFLINE", "1")],
    );
    assert_eq!(ended.code, Some(1));
    let (results, cache) = (check(&report, "results"), check(&report, "cache"));
    assert!(results["verdict"] == "problem" && advice(results).contains("--results"), "{results}");
    // Offline nothing is fetched, so a cache that can only be read does.
    assert!(cache["verdict"] == "note" && advice(cache).contains("HF_HUB_CACHE"), "{cache}");

    // `/proc` takes no files, whoever asks; a folder of one's own without permission to write only stops others than root.
    if !Path::new("/proc/self").is_dir() {
        say("skipped: no /proc to be refused by");
        return;
    }
    let (report, ended) = doctor(folder.path(), &["--offline", "--results", "/proc/results"], &[]);
    assert_eq!(ended.code, Some(1));
    assert!(advice(check(&report, "results")).contains("cannot write to /proc"), "{report:#}");
}

#[test]
fn a_missing_device_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let (report, ended) = doctor(folder.path(), &["--offline", "--device", "cuda:99"], &[]);
    assert_eq!(ended.code, Some(1));
    assert!(check(&report, "device")["value"].as_str().unwrap().contains("cuda:99"), "{report:#}");
    run(folder.path(), &["doctor", "--threads", "0"]).with_code(2).says(&["'0' for '--threads"]);
}
