//! The program accepts the good documents and refuses the others, and the schema describes every key with its default.
//! .ci/checks/schema_check.py validates the same documents with the schema.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::super::Sweep;
use super::names::{self, preset_entries};
use super::*;
use crate::yaml::schema::assert_words;

/// Valid and invalid sweeps.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Documents {
    usual: BTreeMap<String, String>,
    good: Vec<String>,
    good_tasks: Vec<String>,
    bad: Vec<String>,
    bad_tasks: Vec<String>,
    beyond_the_schema: Vec<String>,
    other_spellings: Vec<String>,
}

impl Documents {
    /// The lines, with the usual ones for missing keys.
    fn whole(&self, lines: &str) -> String {
        let given = |key: &str| lines.lines().any(|line| line.split_once(':').is_some_and(|(own, _)| own == key));
        let usual = self.usual.iter().filter(|(key, _)| !given(key));
        usual.map(|(key, value)| format!("{key}: {value}\n")).collect::<String>() + lines.trim_end() + "\n"
    }

    fn all(&self, lists: &[&[String]], tasks: &[String]) -> Vec<String> {
        let tasks = tasks.iter().map(|task| format!("policies: [full, tova]\ntasks: [{{{task}}}]"));
        lists.iter().copied().flatten().cloned().chain(tasks).map(|lines| self.whole(&lines)).collect()
    }
}

#[test]
fn good_documents_are_accepted_and_bad_ones_refused() {
    let documents: Documents =
        serde_saphyr::from_str(include_str!("../../../tests/sweeps/examples.yaml")).unwrap();
    for yaml in documents.all(&[&documents.good, &documents.other_spellings], &documents.good_tasks) {
        Sweep::parse(&yaml, "good.yaml").unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    }
    for yaml in documents.all(&[&documents.bad, &documents.beyond_the_schema], &documents.bad_tasks) {
        assert!(Sweep::parse(&yaml, "bad.yaml").is_err(), "{yaml}");
    }
    for yaml in ["[1, 2]\n", "models: [pocket]\n", "7\n"] {
        assert!(Sweep::parse(yaml, "bad.yaml").is_err(), "{yaml}");
    }
}

fn whole() -> Value {
    serde_json::from_str(&json_schema().unwrap()).unwrap()
}

#[test]
fn the_committed_schema_is_the_printed_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/sweep.schema.json");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, json_schema().unwrap()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == json_schema().unwrap(),
        "write it anew: cargo run --release -- schema > configs/sweep.schema.json"
    );
}

/// Checks the keys below a schema, and adds the path of each to `found`.
fn check_keys(schema: &Value, at: &str, found: &mut Vec<String>) {
    for (key, inside) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{at}/{key}");
        check_keys(inside, &path, found);
        let description = inside["description"].as_str().unwrap_or_default();
        assert!(description.len() > 8, "{path} has no description");
        if inside["properties"].is_object() {
            assert_eq!(inside["additionalProperties"], Value::Bool(false), "{path}");
        }
        let required = schema["required"].as_array().is_some_and(|keys| keys.contains(&key.as_str().into()));
        // With `minProperties` it is one of several of which there must be one.
        let optional = !required && schema["minProperties"].is_null();
        let says_default = inside.get("default").is_some() || description.contains("default");
        assert!(!optional || says_default, "{path} may be left out, and its default is not documented");
        found.push(path);
    }
    let parts = ["items", "additionalProperties"].into_iter().filter_map(|part| schema.get(part));
    for part in parts.chain(schema["anyOf"].as_array().into_iter().flatten()) {
        check_keys(part, at, found);
    }
}

#[test]
fn every_key_is_described_and_no_other_is_allowed() {
    let mut found = Vec::new();
    check_keys(&whole(), "", &mut found);
    for path in
        ["/name", "/tasks/perplexity/stride", "/tasks/qasper/write/top_p", "/define/score", "/models/dtype"]
    {
        assert!(found.iter().any(|found| found == path), "{path}");
    }
}

/// Each section of docs/sweeps.md: its heading and its text.
fn documented() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sweeps.md")).unwrap();
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix('#') {
            Some(heading) => sections.push((heading.trim_start_matches('#').trim().to_owned(), String::new())),
            None => sections.last_mut().unwrap().1.push_str(&format!("{line}\n")),
        }
    }
    sections
}

/// The tasks with the keys of `benchmark`, as headings have them.
const BENCHMARKS: [&str; 7] =
    ["`benchmark`", "`squality`", "`qasper`", "`longbench`", "`math`", "`needle`", "`ruler`"];

#[test]
fn every_key_has_a_row_in_the_documentation() {
    let mut found = Vec::new();
    check_keys(&whole(), "", &mut found);
    let sections = documented();
    assert!(found.len() > 80, "{}", found.len());
    for path in &found {
        let (above, key) = path.rsplit_once('/').unwrap();
        let heading = match above.rsplit('/').next().unwrap() {
            "" => "Sweep files".to_owned(),
            "models" | "rope_scaling" => "Models".to_owned(),
            "define" => "Policies of your own".to_owned(),
            "tasks" => format!("`{key}`"),
            "fact" => "`needle`".to_owned(),
            task => format!("`{task}`"),
        };
        // Tasks that are benchmarks have the same keys, each explained where it belongs.
        let is_benchmark = |heading: &str| BENCHMARKS.iter().any(|task| heading.contains(task));
        let belongs = |found: &str| found.contains(&heading) || is_benchmark(&heading) && is_benchmark(found);
        let text: String =
            sections.iter().filter(|(found, _)| belongs(found)).map(|(_, text)| text.as_str()).collect();
        assert!(!text.is_empty(), "docs/sweeps.md has no section {heading}, which {path} belongs to");
        // A row has the key, its meaning and its default.
        let is_row = |line: &str| line.starts_with(&format!("| `{key}` | ")) && line.matches(" | ").count() == 2;
        let documented = above.ends_with("/tasks") || text.lines().any(is_row);
        assert!(documented, "docs/sweeps.md, {heading}: no row for the key {path}");
    }
}

#[test]
fn defaults_in_the_schema_are_those_of_the_program() {
    let parse = |yaml: String| Sweep::parse(&yaml, "a.yaml").unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    let mut compared = 0;
    let mut compare = |schema: &Value, with: &dyn Fn(&str) -> String| {
        for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(default) = schema.get("default") {
                assert_eq!(parse(with(&format!("{key}: {default}"))), parse(with("")), "{key}");
                compared += 1;
            }
        }
    };
    let whole = whole();
    compare(&whole, &|line| format!("models: [a/b]\npolicies: [full]\ntasks: [{{story: {{}}}}]\n{line}\n"));
    for (task, schema) in whole["properties"]["tasks"]["items"]["properties"].as_object().unwrap() {
        let needed = match task.as_str() {
            "story" | "ruler" => "",
            "timing" => "memory: 8 GiB, ",
            "benchmark" => "task: gsm8k, ",
            _ => "dataset: ./t, ",
        };
        let with =
            |more: &str| format!("models: [a/b]\npolicies: [full]\ntasks: [{{{task}: {{{needed}{more}}}}}]\n");
        compare(schema, &with);
        for (key, inner) in schema["properties"].as_object().unwrap() {
            // The defaults of a benchmark's answers are its file's.
            if task != "benchmark" {
                compare(inner, &|more| with(&format!("{key}: {{{more}}}")));
            }
        }
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn the_schema_has_every_word() {
    use crate::eviction;
    use crate::lm;
    assert_words::<eviction::formula::Pool>(names::POOLS);
    assert_words::<eviction::Scope>(&names::words(&eviction::SCOPES));
    assert_words::<eviction::Positions>(&names::words(&eviction::POSITIONS));
    assert_words::<lm::WeightType>(names::WEIGHT_TYPES);
    assert_words::<lm::Arithmetic>(names::ARITHMETICS);
    assert_words::<lm::RopeOverrideKind>(names::ROPE_OVERRIDES);
    let presets = preset_entries()[0]["enum"].as_array().unwrap().len();
    assert_eq!(presets, 2 + eviction::presets::PRESETS.len());
}
