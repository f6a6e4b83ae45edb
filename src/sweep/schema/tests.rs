//! The schema and the program accept the same: every committed sweep, and lists of good and bad documents.

use std::collections::BTreeMap;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use super::super::Sweep;
use super::names::{self, preset_entries};
use super::*;
use crate::yaml::schema::assert_words;

/// Valid sweeps and invalid ones.
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
    fn read() -> Documents {
        serde_saphyr::from_str(include_str!("../../../tests/sweeps/documents.yaml")).unwrap()
    }

    /// The lines, with the usual ones for missing keys.
    fn whole(&self, lines: &str) -> String {
        let given = |key: &str| lines.lines().any(|line| line.split_once(':').is_some_and(|(own, _)| own == key));
        let usual = self.usual.iter().filter(|(key, _)| !given(key));
        usual.map(|(key, value)| format!("{key}: {value}\n")).collect::<String>() + lines.trim_end() + "\n"
    }

    fn of_task(&self, task: &str) -> String {
        self.whole(&format!("policies: [full, tova]\ntasks: [{{{task}}}]"))
    }

    fn good(&self) -> Vec<String> {
        let wholes = self.good.iter().map(|lines| self.whole(lines));
        wholes.chain(self.good_tasks.iter().map(|task| self.of_task(task))).collect()
    }

    fn bad(&self) -> Vec<String> {
        let wholes = self.bad.iter().map(|lines| self.whole(lines));
        let mut bad: Vec<String> = wholes.chain(self.bad_tasks.iter().map(|task| self.of_task(task))).collect();
        bad.extend(["[1, 2]\n".to_string(), "models: [pocket]\n".to_string(), "7\n".to_string()]);
        bad
    }
}

fn document(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

fn whole() -> Value {
    serde_json::from_str(&json_schema().unwrap()).unwrap()
}

#[test]
fn the_schema_and_the_program_accept_the_same() {
    let (schema, documents) = (whole(), Documents::read());
    for yaml in documents.good() {
        Sweep::parse(&yaml, "good.yaml").unwrap_or_else(|error| panic!("{error}\n{yaml}"));
        assert!(accepts(&schema, &document(&yaml)), "the schema refuses\n{yaml}");
    }
    for yaml in documents.bad() {
        assert!(Sweep::parse(&yaml, "bad.yaml").is_err(), "the program accepts\n{yaml}");
        assert!(!accepts(&schema, &document(&yaml)), "the schema accepts\n{yaml}");
    }
}

#[test]
fn differences_between_schema_and_program_are_known() {
    let (schema, documents) = (whole(), Documents::read());
    for yaml in documents.beyond_the_schema.iter().map(|lines| documents.whole(lines)) {
        assert!(Sweep::parse(&yaml, "bad.yaml").is_err(), "{yaml}");
        assert!(accepts(&schema, &document(&yaml)), "{yaml}");
    }
    for yaml in documents.other_spellings.iter().map(|lines| documents.whole(lines)) {
        assert!(Sweep::parse(&yaml, "good.yaml").is_ok(), "{yaml}");
        assert!(!accepts(&schema, &document(&yaml)), "{yaml}");
    }
}

/// Validates a value against a schema: draft 07, as far as this schema uses it. Unknown words are refused, so that none is
/// ignored. scripts/schema_check.py does the same with another validator.
fn accepts(schema: &Value, value: &Value) -> bool {
    let rules = match schema {
        Value::Bool(all) => return *all,
        other => other.as_object().unwrap(),
    };
    let holds = |inner: &Value| accepts(inner, value);
    let length = |text: &str| text.chars().count() as u64;
    rules.iter().all(|(word, rule)| match word.as_str() {
        "$schema" | "title" | "description" | "default" | "examples" | "format" | "enumDescriptions" => true,
        "type" => match rule {
            Value::Array(kinds) => kinds.iter().any(|kind| is_a(value, kind.as_str().unwrap())),
            kind => is_a(value, kind.as_str().unwrap()),
        },
        "enum" => rule.as_array().unwrap().iter().any(|one| equal(one, value)),
        "const" => equal(rule, value),
        "allOf" => rule.as_array().unwrap().iter().all(holds),
        "anyOf" => rule.as_array().unwrap().iter().any(holds),
        "not" => !holds(rule),
        "if" => !holds(rule) || holds(&rules["then"]),
        "then" => rules.contains_key("if"),
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
        "pattern" => value.as_str().is_none_or(|text| Regex::new(rule.as_str().unwrap()).unwrap().is_match(text)),
        "minLength" => value.as_str().is_none_or(|text| length(text) >= rule.as_u64().unwrap()),
        "maxLength" => value.as_str().is_none_or(|text| length(text) <= rule.as_u64().unwrap()),
        "items" => value.as_array().is_none_or(|list| list.iter().all(|item| accepts(rule, item))),
        "contains" => value.as_array().is_none_or(|list| list.iter().any(|item| accepts(rule, item))),
        "minItems" => value.as_array().is_none_or(|list| list.len() as u64 >= rule.as_u64().unwrap()),
        "uniqueItems" => value.as_array().is_none_or(|list| {
            list.iter().enumerate().all(|(at, item)| list[..at].iter().all(|other| !equal(item, other)))
        }),
        "required" => value.as_object().is_none_or(|object| {
            rule.as_array().unwrap().iter().all(|key| object.contains_key(key.as_str().unwrap()))
        }),
        "minProperties" => value.as_object().is_none_or(|object| object.len() as u64 >= rule.as_u64().unwrap()),
        "maxProperties" => value.as_object().is_none_or(|object| object.len() as u64 <= rule.as_u64().unwrap()),
        "properties" => value.as_object().is_none_or(|object| {
            rule.as_object()
                .unwrap()
                .iter()
                .all(|(key, inner)| object.get(key).is_none_or(|own| accepts(inner, own)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|object| {
            let known = |key: &str| rules.get("properties").is_some_and(|known| known.get(key).is_some());
            object.iter().all(|(key, own)| known(key) || accepts(rule, own))
        }),
        "propertyNames" => value
            .as_object()
            .is_none_or(|object| object.keys().all(|key| accepts(rule, &Value::String(key.clone())))),
        other => panic!("`{other}` is unknown to this validator"),
    })
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("`{other}` is no type"),
    }
}

/// Numbers are equal by value: 1 and 1.0.
fn equal(a: &Value, b: &Value) -> bool {
    a == b || a.as_f64().is_some_and(|a| b.as_f64() == Some(a))
}

fn configs() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sweeps = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    sweeps.map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_committed_sweep_is_valid_and_names_the_schema() {
    let (schema, configs) = (whole(), configs());
    assert!(configs.len() > 10);
    for (path, yaml) in configs {
        assert!(accepts(&schema, &document(&yaml)), "{path}");
        assert!(yaml.starts_with("# yaml-language-server: $schema=sweep.schema.json\n"), "{path}");
    }
}

#[test]
fn the_committed_schema_is_the_printed_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/sweep.schema.json");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == json_schema().unwrap(),
        "write it anew: cargo run --release -- schema > configs/sweep.schema.json"
    );
}

/// A key, by the path to it.
struct Key<'a> {
    path: String,
    schema: &'a Value,
    /// Whether the mapping may do without it, and it is not one of several of which there must be one.
    optional: bool,
}

fn keys<'a>(schema: &'a Value, at: &str, found: &mut Vec<Key<'a>>) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (key, inside) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{at}/{key}");
        keys(inside, &path, found);
        let optional = !required.contains(&Value::from(key.as_str())) && schema["minProperties"].is_null();
        found.push(Key { path, schema: inside, optional });
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            keys(&schema[part], at, found);
        }
    }
    for choice in schema["anyOf"].as_array().into_iter().flatten() {
        keys(choice, at, found);
    }
}

#[test]
fn every_key_is_described_and_no_other_is_allowed() {
    let whole = whole();
    let mut found = Vec::new();
    keys(&whole, "", &mut found);
    for path in
        ["/name", "/tasks/perplexity/stride", "/tasks/qasper/write/top_p", "/define/score", "/models/dtype"]
    {
        assert!(found.iter().any(|key| key.path == path), "{path}");
    }
    for Key { path, schema, optional } in found {
        let description = schema["description"].as_str().unwrap_or_default();
        assert!(description.len() > 8, "{path} has no description");
        if schema["properties"].is_object() {
            assert_eq!(schema["additionalProperties"], Value::Bool(false), "{path}");
        }
        let says_default = schema.get("default").is_some() || description.contains("default");
        assert!(!optional || says_default, "{path} may be left out, and its default is not documented");
    }
}

#[test]
fn defaults_in_the_schema_are_those_of_the_program() {
    let whole = whole();
    let parse = |yaml: String| Sweep::parse(&yaml, "a.yaml").unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    let mut compared = 0;
    let usual = "models: [a/b]\npolicies: [full]\ntasks: [{story: {}}]\n";
    for (key, schema) in whole["properties"].as_object().unwrap() {
        if let Some(default) = schema.get("default") {
            assert_eq!(parse(format!("{usual}{key}: {default}\n")), parse(usual.to_string()), "{key}");
            compared += 1;
        }
    }
    for (task, schema) in whole["properties"]["tasks"]["items"]["properties"].as_object().unwrap() {
        let needed = match task.as_str() {
            "story" => "",
            "timing" => "memory: 8 GiB",
            _ => "dataset: ./t",
        };
        let with = |more: String| {
            let separator = if needed.is_empty() { "" } else { ", " };
            parse(format!("models: [a/b]\npolicies: [full]\ntasks: [{{{task}: {{{needed}{separator}{more}}}}}]\n"))
        };
        let without = match needed {
            "" => parse(usual.to_string()),
            _ => parse(format!("models: [a/b]\npolicies: [full]\ntasks: [{{{task}: {{{needed}}}}}]\n")),
        };
        for (key, schema) in schema["properties"].as_object().unwrap() {
            if let Some(default) = schema.get("default") {
                assert_eq!(with(format!("{key}: {default}")), without, "{task}: {key}");
                compared += 1;
            }
            for (inner, schema) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = schema.get("default") {
                    assert_eq!(with(format!("{key}: {{{inner}: {default}}}")), without, "{task}: {key}: {inner}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn the_schema_has_every_word() {
    use crate::{eviction, lm};
    assert_words::<eviction::Score>(names::SCORES);
    assert_words::<eviction::Scope>(names::SCOPES);
    assert_words::<eviction::Positions>(names::POSITIONS);
    assert_words::<lm::WeightType>(names::WEIGHT_TYPES);
    assert_words::<lm::RopeOverrideKind>(names::ROPE_OVERRIDES);
    let presets = preset_entries()[0]["enum"].as_array().unwrap().len();
    assert_eq!(presets, 2 + eviction::presets::PRESETS.len());
}
