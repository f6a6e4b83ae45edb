//! What `show` writes against `score`, which reads the same text for itself, and texts that are hard to show.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::support::program::{Ended, run};

const TEXT: &str = "The ferry crossed before dawn, and nobody saw who came ashore. ";

/// The data of a page.
pub fn data(page: &str) -> Value {
    let start = page.find("<script id=\"data\" type=\"application/json\">").expect("a page has data");
    let json = &page[start..];
    serde_json::from_str(&json[json.find('>').unwrap() + 1..json.find("</script>").unwrap()]).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

fn floats(value: &Value) -> Vec<f32> {
    bytes(value).as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

pub fn shorts(value: &Value) -> Vec<usize> {
    bytes(value).as_chunks::<2>().0.iter().map(|two| u16::from_le_bytes(*two).into()).collect()
}

/// Runs a command with the pocket model and a text.
fn try_it(folder: &Path, command: &str, text: &str, arguments: &[&str]) -> Ended {
    fs::write(folder.join("text.txt"), text).unwrap();
    let common = [command, "--model", "pocket", "--text", "text.txt", "--device", "cpu"];
    run(folder, &[&common[..], arguments].concat())
}

/// The page of a text.
fn shown(folder: &Path, text: &str, arguments: &[&str]) -> String {
    try_it(folder, "show", text, &[arguments, &["-o", "page.html"]].concat()).with_code(0);
    fs::read_to_string(folder.join("page.html")).unwrap()
}

fn scored(folder: &Path, text: &str, arguments: &[&str]) -> Value {
    serde_json::from_str(&try_it(folder, "score", text, arguments).with_code(0).stdout).unwrap()
}

/// The positions that survive, group by group through all layers.
fn survivors(score: &Value) -> Vec<Vec<usize>> {
    let groups = score["survivors"].as_array().unwrap().iter().flat_map(|layer| layer.as_array().unwrap());
    groups.map(|group| serde_json::from_value(group.clone()).unwrap()).collect()
}

#[test]
fn a_page_has_the_survivors_and_likelihoods_of_score() {
    let folder = tempfile::tempdir().unwrap();
    let text = TEXT.repeat(12);
    fs::write(
        folder.path().join("own.yaml"),
        "define: {pooled: {score: last_attention, scope: head, budget: {pool: heads, floor: 20%}}}",
    )
    .unwrap();
    for (policy, size, schedule) in [
        ("tova", "24", "1"),
        ("tova-head", "24", "1"),
        ("h2o", "24", "1"),
        ("tova", "24", "16"),
        ("h2o", "40", "cut"),
        ("window+4", "16", "1"),
        ("pooled", "24", "1"),
    ] {
        let arguments = [
            "--policy",
            policy,
            "--cache-size",
            size,
            "--schedule",
            schedule,
            "--prompt",
            "64",
            "--define",
            "own.yaml",
        ];
        let page = data(&shown(folder.path(), &text, &arguments));
        let score = scored(folder.path(), &text, &arguments);
        let (tokens, side) = (page["tokens"].as_u64().unwrap() as usize, &page["sides"][0]);
        let nll: Vec<f32> = serde_json::from_value(score["nll"].clone()).unwrap();
        assert_eq!(floats(&side["nll"]), nll, "{policy} {size} {schedule}");
        let full: Vec<f32> = serde_json::from_value(scored(folder.path(), &text, &[])["nll"].clone()).unwrap();
        assert_eq!(floats(&page["full"]), full);
        let held = |left: &[usize]| (0..tokens).filter(|token| left[*token] >= tokens).collect::<Vec<_>>();
        let groups: Vec<_> = shorts(&side["left"]).chunks(tokens).map(held).collect();
        assert_eq!(groups, survivors(&score), "{policy} {size} {schedule}");
    }
}

/// Cells of `perplexity` branch off the full cache that they share; `show` reads every text from its beginning.
#[test]
fn a_sample_of_perplexity_is_shown_as_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let text = TEXT.repeat(40);
    fs::create_dir(path.join("texts")).unwrap();
    fs::write(path.join("texts/ferry.txt"), &text).unwrap();
    let sweep = "models: [pocket]\npolicies: [full, tova, tova-head, h2o, snapkv, 'tova@cut', 'h2o@16']\n\
                 cache_sizes: [300]\ntasks:\n  - perplexity:\n      \
                 {dataset: ./texts, length: 4000, tail: keep, prompt: 400, eviction_log: true}\n";
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    run(path, &["run", "sweep.yaml", "--results", "results", "--device", "cpu"]).with_code(0);
    let results = path.join("results");
    let report = fs::read_to_string(results.join("report.html")).unwrap();
    let mut links: Vec<&str> = report.split("href=\"").filter_map(|rest| rest.split('"').next()).collect();
    links.retain(|link| link.starts_with("logs/"));
    for (policy, schedule) in
        [("tova", "1"), ("tova-head", "1"), ("h2o", "1"), ("snapkv", "cut"), ("tova", "cut"), ("h2o", "16")]
    {
        let arguments = ["--policy", policy, "--cache-size", "300", "--schedule", schedule, "--prompt", "400"];
        let own = data(&shown(path, &text, &arguments));
        let name = match (policy, schedule) {
            (_, "1") | ("snapkv", _) => format!("{policy} with 300 entries"),
            _ => format!("{policy}@{schedule} with 300 entries"),
        };
        let pages = links.iter().map(|link| data(&fs::read_to_string(results.join(link)).unwrap()));
        let page = pages.into_iter().find(|page| page["sides"][0]["name"] == name);
        let page = page.unwrap_or_else(|| panic!("no page of {name} among {links:?}"));
        assert_eq!(page["sides"][0]["left"], own["sides"][0]["left"], "{name}");
        // Only what follows the prompt is scored.
        let same = |a: &Value, b: &Value| {
            let (a, b) = (floats(a), floats(b));
            assert_eq!(a.len(), b.len(), "{name}");
            assert!(a[..399].iter().all(|nll| nll.is_nan()), "{name}");
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 5e-5;
            assert!(a[399..].iter().zip(&b[399..]).all(near), "{name}");
        };
        same(&page["sides"][0]["nll"], &own["sides"][0]["nll"]);
        same(&page["full"], &own["full"]);
    }
}

#[test]
fn attention_that_is_gone_follows_from_what_left() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--policy", "window", "--cache-size", "16", "--against", "window", "--against-size", "4096"];
    let page = data(&shown(folder.path(), &TEXT.repeat(8), &arguments));
    let (tokens, attention) = (page["tokens"].as_u64().unwrap() as usize, &page["attention"]);
    let top = attention["top"].as_u64().unwrap() as usize;
    let (others, shares) = (shorts(&attention["tokens"]), floats(&attention["shares"]));
    // Window keeps the newest: a query sees itself and the 16 tokens before it.
    let gone = floats(&attention["sides"][0]["shares"]);
    for (at, (share, gone)) in shares.iter().zip(&gone).enumerate() {
        let (query, token) = (at / top, others[at]);
        assert_eq!(*gone, if query - token > 16 { *share } else { 0.0 }, "{query} {token}");
    }
    // A row sums to 1 with what a token pays to itself, and all of it is received by some token.
    let (received, lost) = (floats(&attention["received"]), floats(&attention["sides"][0]["received"]));
    let paid = floats(&attention["sides"][0]["paid"]);
    let sum = |numbers: &[f32]| numbers.iter().map(|number| f64::from(*number)).sum::<f64>();
    assert!(sum(&received) > 0.2 * tokens as f64 && sum(&received) < tokens as f64);
    assert!((sum(&paid) - sum(&lost)).abs() < 1e-3 && sum(&paid) > 1.0);
    assert!(paid[..=16].iter().all(|paid| *paid == 0.0));
    // Nothing leaves a cache that is larger than the text.
    assert!(floats(&attention["sides"][1]["paid"]).iter().all(|paid| *paid == 0.0));
}

#[test]
fn what_a_model_writes_is_shown_after_its_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let cache = ["--policy", "tova", "--cache-size", "32"];
    let page = data(&shown(folder.path(), TEXT, &[&cache[..], &["--write", "12"]].concat()));
    let written = try_it(folder.path(), "write", TEXT, &[&cache[..], &["--max-new-tokens", "12"]].concat());
    let written: Value = serde_json::from_str(&written.with_code(0).stdout).unwrap();
    let tokens = written["texts"][0]["tokens"].as_array().unwrap().len();
    assert_eq!(
        page["tokens"].as_u64().unwrap() as usize,
        scored(folder.path(), TEXT, &[])["nll"].as_array().unwrap().len() + 1 + tokens
    );
    let html = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert_eq!(html.matches("<span class=\"h").count() - 6, page["tokens"].as_u64().unwrap() as usize);
    assert_eq!(html.matches("data-written").count() - html.matches("[data-written]").count(), tokens);
    let refused =
        try_it(folder.path(), "show", TEXT, &["--policy", "truncate", "--cache-size", "16", "--write", "4"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("truncate"), "{}", refused.stderr);
}

#[test]
fn a_picture_shows_what_is_held_at_its_step() {
    let folder = tempfile::tempdir().unwrap();
    let text = TEXT.repeat(6);
    let cache = ["--policy", "tova", "--cache-size", "16"];
    try_it(folder.path(), "show", &text, &[&cache[..], &["--at", "40", "-o", "a.svg"]].concat()).with_code(0);
    let svg = fs::read_to_string(folder.path().join("a.svg")).unwrap();
    // The same tokens alone, read by `score`.
    let all = data(&shown(folder.path(), &text, &cache));
    let left = shorts(&all["sides"][0]["left"]);
    let tokens = all["tokens"].as_u64().unwrap() as usize;
    let groups = left.len() / tokens;
    let held = |token: usize| (0..groups).filter(|group| left[group * tokens + token] >= 40).count();
    // The newest has a colour of its own; one more of full shade is in the legend.
    let whole = (0..39).filter(|token| held(*token) == groups).count();
    let some = (0..39).filter(|token| held(*token) > 0).count();
    assert_eq!(svg.matches("opacity=\"0.43").count(), whole + 1);
    assert_eq!(svg.matches("class=\"band\"").count(), some + 1 + 6);
    for (ending, start) in [("png", &b"\x89PNG"[..]), ("pdf", b"%PDF")] {
        let name = format!("a.{ending}");
        try_it(folder.path(), "show", &text, &[&cache[..], &["--at", "20,40", "-o", &name]].concat()).with_code(0);
        assert!(fs::read(folder.path().join(&name)).unwrap().starts_with(start));
    }
    try_it(folder.path(), "show", &text, &[&cache[..], &["--frames", "30", "-o", "a.png"]].concat()).with_code(0);
    let animation = fs::read(folder.path().join("a.png")).unwrap();
    assert!(animation.len() < 2 << 20);
    assert_eq!(animation.windows(4).filter(|name| name == b"fcTL").count(), 30);
    for (arguments, words) in [
        (&["-o", "a.gif"][..], ".html, .svg, .png or .pdf"),
        (&["-o", "a.svg", "--at", "4000"], "tokens"),
        (&["-o", "a.html", "--at", "1,2"], "one step"),
        (&["-o", "a.svg", "--frames", "5"], ".png"),
    ] {
        let refused = try_it(folder.path(), "show", &text, &[&cache[..], arguments].concat());
        assert!(refused.code != Some(0) && refused.stderr.contains(words), "{}", refused.stderr);
    }
}

#[test]
fn any_text_is_shown_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let text = "<script>alert(\"1\")</script> & 'quotes' \u{202e}turned\u{1}\u{0} \u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{4f60}\u{597d} \u{1f980}".repeat(3);
    let cache = ["--policy", "tova", "--cache-size", "8"];
    let page = shown(folder.path(), &text, &[&cache[..], &["--against", "h2o"]].concat());
    assert_eq!(page.matches("<script").count(), 2, "the data and the page's own script");
    assert!(!page.contains("alert(\"1\")") && !page.contains(['\u{202e}', '\u{1}', '\u{0}']));
    // Every token is in one unit, and there are two caches.
    let data = data(&page);
    let units: Vec<u64> = match &data["counts"] {
        Value::Null => vec![1; data["tokens"].as_u64().unwrap() as usize],
        counts => serde_json::from_value(counts.clone()).unwrap(),
    };
    assert_eq!(units.iter().sum::<u64>(), data["tokens"].as_u64().unwrap());
    assert_eq!(data["sides"].as_array().unwrap().len(), 2);
    // Pictures draw what a font has, and boxes for the rest.
    for file in ["a.png", "a.pdf", "a.svg"] {
        try_it(folder.path(), "show", &text, &[&cache[..], &["-o", file]].concat()).with_code(0);
        assert!(!fs::read(folder.path().join(file)).unwrap().is_empty());
    }
    assert!(!fs::read_to_string(folder.path().join("a.svg")).unwrap().contains(['\u{202e}', '\u{1}', '\u{0}']));
    let refused = try_it(folder.path(), "show", &"a b ".repeat(250_000), &cache);
    assert!(refused.code == Some(1) && refused.stderr.contains("16384"), "{}", refused.stderr);
}
