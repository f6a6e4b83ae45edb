//! Files, names and texts of others: none makes the program wait, drives the terminal that it prints on, or takes more than the machine
//! has; and a file that it writes is whole.

#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::faults::disks::with_mounts;
use crate::support::checkpoint::copy;
use crate::support::program::run;
use crate::support::sweep::{SMALL, Sweep};

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Nobody ever writes into the pipe, so whoever reads it waits for ever, which fails the test after two minutes.
#[test]
fn a_pipe_in_the_place_of_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["pipe", "pipe.yaml", "pipe.gguf", "pipe.parquet", "pipe.jsonl", "pipe.safetensors", "pipe.zip"] {
        make_pipe(&at(name));
    }
    fs::write(at("text.txt"), "a text").unwrap();
    copy(folder.path(), "model");
    fs::remove_file(at("model/config.json")).unwrap();
    make_pipe(&at("model/config.json"));
    SMALL.write(folder.path());
    run(folder.path(), &["run", "sweep.yaml", "--results", "r"]).with_code(0);
    fs::write(at("task.yaml"), "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: pipe.jsonl}}\ntest_split: test\noutput_type: generate_until\ndoc_to_text: x\ndoc_to_target: y\nmetric_list: [{metric: f1}]\n").unwrap();
    let sweeps = [
        ("define", Sweep { more: "define: {mine: {score: 'dot(\"pipe.safetensors\", keys)', scope: head}}\n", policies: "[full, mine]", ..SMALL }.text()),
        ("heads", Sweep { more: "define: {mine: {score: random, scope: head, budget: {heads: pipe, full: 50%}}}\n", policies: "[full, mine]", ..SMALL }.text()),
        ("data", Sweep { tasks: &["dataset: ./pipe.parquet, length: 64"], ..SMALL }.text()),
        ("zip", "models: [random-tiny]\npolicies: [full]\ntasks: [{longbench: {dataset: ./pipe.zip, subsets: [lcc]}}]\n".to_owned()),
        ("rows", "models: [pocket]\npolicies: [full]\ntasks: [{benchmark: ./task.yaml}]\n".to_owned()),
        ("file", "models: [pocket]\npolicies: [full]\ntasks: [{benchmark: ./pipe.yaml}]\n".to_owned()),
        ("model", Sweep { models: "[./pipe.gguf]", ..SMALL }.text()),
    ];
    let mut commands: Vec<Vec<String>> = Vec::new();
    for (name, text) in sweeps {
        fs::write(at(&format!("{name}.yaml")), text).unwrap();
        commands.push(vec!["run".into(), format!("{name}.yaml"), "--results".into(), format!("r-{name}")]);
    }
    for words in [
        "run pipe.yaml",
        "score --model pocket --text pipe",
        "score --model pocket --tokens pipe",
        "score --model pocket --text text.txt --define pipe",
        "score --model ./model --text text.txt",
        "score --model ./pipe.gguf --text text.txt",
        "show --model pocket --text pipe -o a.html",
        "compare pipe.parquet r",
        "compare r pipe.parquet",
        "report pipe",
        "merge out pipe",
    ] {
        commands.push(words.split(' ').map(str::to_owned).collect());
    }
    for command in commands {
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let ended = run(folder.path(), &arguments);
        ended.sound();
        assert!(matches!(ended.code, Some(1 | 2)), "{arguments:?}: {:?}\n{}", ended.code, ended.stderr);
        assert!(
            ended.stderr.contains("pipe") || ended.stderr.contains("config.json"),
            "{arguments:?}: {}",
            ended.stderr
        );
    }
    // In the place of what a results folder has.
    let cells = fs::read_dir(at("r/cells")).unwrap().map(|cell| cell.unwrap().path());
    for cell in cells.collect::<Vec<_>>() {
        fs::remove_file(&cell).unwrap();
        make_pipe(&cell);
    }
    for (arguments, words) in [
        (&["report", "r"][..], "only ordinary files are read"),
        (&["merge", "out", "r"], "is not an ordinary file"),
        (&["run", "sweep.yaml", "--results", "r"], "only ordinary files are read"),
    ] {
        run(folder.path(), arguments).with_code(1).says(&[words]);
    }
}

/// Whether a terminal would show a text as it is.
fn is_harmless(text: &str) -> bool {
    let turns = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !text.contains(|c: char| (c.is_control() && c != '\n' && c != '\t') || turns(c))
}

#[test]
fn nothing_from_a_file_drives_the_terminal() {
    const NASTY: &str = "x\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}31m\r\u{202e}\u{2066}\u{7f}y";
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let named = |end: &str| format!("{NASTY}{end}");
    fs::write(at(&named(".txt")), NASTY.repeat(3)).unwrap();
    fs::write(at(&named(".json")), format!("{{\"{NASTY}\": ")).unwrap();
    copy(folder.path(), NASTY);
    fs::write(at(&named("/config.json")), format!("{{\"model_type\": {}}}", json!(NASTY))).unwrap();
    fs::create_dir(at("data")).unwrap();
    let escaped = json!(NASTY).to_string();
    fs::write(at("key.yaml"), format!("models: [random-tiny]\n{escaped}: 1\n")).unwrap();
    fs::write(
        at("model.yaml"),
        format!(
            "models: [{}]\npolicies: [full]\ntasks: [{{perplexity: {{dataset: random-words, length: 8}}}}]\n",
            json!(format!("./{NASTY}"))
        ),
    )
    .unwrap();
    fs::write(
        at("data.yaml"),
        format!(
            "models: [random-tiny]\npolicies: [full]\ntasks: [{{perplexity: {{dataset: {}, length: 8}}}}]\n",
            json!(format!("./{NASTY}.none"))
        ),
    )
    .unwrap();
    fs::write(at("name.yaml"), format!("name: n\nmodels: [random-tiny]\npolicies: [full]\ntasks: [{{perplexity: {{dataset: {}, length: 8}}}}]\n", json!(format!("./{NASTY}.txt")))).unwrap();
    let (text, missing, tokens, model) = (named(".txt"), named(".none"), named(".json"), format!("./{NASTY}"));
    for arguments in [
        &["write", "--model", "pocket", "--text", &text, "--max-new-tokens", "3"][..],
        &[
            "show",
            "--model",
            "pocket",
            "--text",
            &text,
            "--policy",
            "tova",
            "--cache-size",
            "8",
            "-o",
            &named(".html"),
        ],
        &["score", "--model", "pocket", "--text", &missing],
        &["score", "--model", "pocket", "--tokens", &tokens],
        &["score", "--model", &model, "--text", &text],
        &["run", "key.yaml"],
        &["run", "model.yaml"],
        &["run", "data.yaml"],
        &["run", "name.yaml", "--results", "r"],
        &["plan", "name.yaml"],
        &["plan", "name.yaml", "--progress", "json"],
        &["report", "r"],
        &["report", NASTY],
        &["run", "name.yaml", &text],
    ] {
        let ended = run(folder.path(), arguments);
        ended.sound();
        assert!(is_harmless(&ended.stdout) && is_harmless(&ended.stderr), "{arguments:?}: {ended:?}");
    }
    // JSON stays what it means.
    let written = run(folder.path(), &["score", "--model", "pocket", "--text", &text]).with_code(0);
    assert!(serde_json::from_str::<serde_json::Value>(&written.stdout).is_ok(), "{}", written.stdout);
}

#[test]
fn amounts_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    SMALL.write(folder.path());
    fs::write(folder.path().join("tokens"), "[1, 2]").unwrap();
    let text = ["--model", "random-tiny", "--tokens", "tokens"];
    let huge = u64::MAX.to_string();
    for (command, arguments, words) in [
        ("show", &["--write", &huge][..], "the text has 18446744073709551615 tokens, and at most 16384 are shown"),
        ("write", &["--max-new-tokens", &huge], "18446744073709551615 new tokens are more than the"),
        ("write", &["--batch", &huge], "texts side by side"),
        ("show", &["--threads", "100000"], "100000 is not in 1..=1024"),
        ("score", &["--threads", "1025"], "1025 is not in 1..=1024"),
    ] {
        run(folder.path(), &[&[command], &text[..], arguments].concat()).says(&[words]).sound();
    }
    let jobs = run(folder.path(), &["run", "sweep.yaml", "--jobs", "1000000"]).with_code(2);
    jobs.says(&["1000000 is not in 1..=256"]);
}

/// `1` for a page, `2` for the same after the disk was filled.
#[test]
fn a_page_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text.txt"), "The ferry crossed before dawn. ".repeat(9)).unwrap();
    let script = "mount -t tmpfs -o size=1m none disk
        show() { \"$1\" show --model pocket --text text.txt --policy tova --cache-size \"$2\" -o disk/show.html; }
        show \"$1\" 16
        cp disk/show.html before.html
        head -c 1m /dev/zero > disk/filler 2> filler.err || true
        show \"$1\" 32 && exit 99 || echo \"full: $?\" >&2
        cp disk/show.html after.html
        ls -A disk > left";
    let Some(ended) = with_mounts("a_page_is_written_whole", folder.path(), script) else { return };
    ended.with_code(0).says(&["full: 1", "disk/show.html cannot be written", "No space left on device"]);
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(read("before.html").ends_with(b"</html>") && read("before.html") == read("after.html"));
    assert_eq!(read("left"), b"filler\nshow.html\n");
}
