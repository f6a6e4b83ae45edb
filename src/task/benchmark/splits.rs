//! Which files of a data set hold a split: as its own README says, or by the names that `datasets` knows.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use fancy_regex::Regex;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
struct Card {
    #[serde(default)]
    configs: Vec<Config>,
}

#[derive(Debug, Deserialize)]
struct Config {
    config_name: String,
    #[serde(default)]
    data_files: Value,
}

/// Other names of splits in the names of files.
const ALIASES: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("validation", &["validation", "valid", "val", "dev"]),
    ("test", &["test", "testing", "eval"]),
];

/// The files of a split among those of a data set, of which also the README.md is given; in the order of their names.
///
/// # Errors
/// A configuration that the README has not, or no file of the split; the message says what there is.
pub fn files(names: &[String], readme: &str, config: Option<&str>, split: &str) -> Result<Vec<String>> {
    let by_readme = of_card(names, readme, config, split)?;
    if let Some(found) = by_readme.filter(|found| !found.is_empty()) {
        return Ok(found);
    }
    let rows: Vec<&String> = names.iter().filter(|name| is_rows(name)).collect();
    let in_config =
        |name: &&&String| config.is_none_or(|config| name.split('/').any(|part| is_called(part, &[config])));
    let of_config: Vec<&String> = rows.iter().filter(in_config).copied().collect();
    // A data set with one configuration need not name it.
    let candidates = if of_config.is_empty() { rows } else { of_config };
    let own = [split];
    let words = ALIASES.iter().find(|(name, _)| *name == split).map_or(&own[..], |(_, words)| words);
    let called = |words: &[&str]| -> Vec<String> {
        let named = candidates.iter().filter(|name| name.split('/').any(|part| is_called(part, words)));
        named.map(|name| (*name).clone()).collect()
    };
    // Another name only where there is none of its own.
    let mut found = called(&own);
    if found.is_empty() {
        found = called(words);
    }
    if !found.is_empty() {
        return Ok(found);
    }
    match candidates[..] {
        [only] if split != "train" && !is_of_other_split(only, words) => Ok(vec![only.clone()]),
        [] => bail!("there is no file of rows (.jsonl, .json, .csv or .parquet)"),
        _ => {
            let names: Vec<&str> = candidates.iter().take(10).map(|name| name.as_str()).collect();
            bail!("no file is called after the split {split}; there are {}", names.join(", "))
        }
    }
}

fn is_of_other_split(name: &str, words: &[&str]) -> bool {
    let others = ALIASES.iter().flat_map(|(_, others)| *others).filter(|other| !words.contains(other));
    let others: Vec<&str> = others.copied().collect();
    name.split('/').any(|part| is_called(part, &others))
}

/// Whether a part of a path is one of the words, or begins or ends with one: `test`, `test-00000-of-00001.parquet`, `my_test.csv`.
fn is_called(part: &str, words: &[&str]) -> bool {
    let stem = part.split('.').next().unwrap_or(part);
    words.iter().any(|word| {
        part == *word
            || part.strip_prefix(word).is_some_and(|rest| rest.starts_with(['-', '_', '.']))
            || stem.strip_suffix(word).is_some_and(|rest| rest.ends_with(['-', '_', '.']))
    })
}

/// What the README's `configs` say; `None` where it has none.
fn of_card(names: &[String], readme: &str, config: Option<&str>, split: &str) -> Result<Option<Vec<String>>> {
    let Some(front) = readme.strip_prefix("---").and_then(|rest| rest.split_once("\n---")) else {
        return Ok(None);
    };
    // Much else stands there, which may be no YAML of ours; then the names of files decide.
    let Ok(card) = crate::yaml::parse_yaml::<Card>(front.0, "README.md") else { return Ok(None) };
    if card.configs.is_empty() {
        return Ok(None);
    }
    let configs: Vec<&str> = card.configs.iter().map(|config| config.config_name.as_str()).collect();
    let wanted = config.unwrap_or("default");
    let found = card.configs.iter().find(|config| config.config_name == wanted);
    let Some(found) = found.or(card.configs.first().filter(|_| config.is_none() && configs.len() == 1)) else {
        if config.is_none() {
            bail!("it has several configurations: write one of {} as dataset_name", configs.join(", "));
        }
        return Ok(None);
    };
    let mut by_split: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let list = |paths: &Value| -> Vec<String> {
        let one = paths.as_str().map(str::to_owned);
        let many = paths.as_array().into_iter().flatten().filter_map(|path| path.as_str().map(str::to_owned));
        one.into_iter().chain(many).collect()
    };
    match &found.data_files {
        Value::Array(entries) if entries.iter().all(Value::is_object) => {
            for entry in entries {
                let split = entry["split"].as_str().unwrap_or("train").to_owned();
                by_split.entry(split).or_default().extend(list(&entry["path"]));
            }
        }
        files => drop(by_split.insert("train".into(), list(files))),
    }
    let Some(patterns) = by_split.get(split) else {
        let splits: Vec<&str> = by_split.keys().map(String::as_str).collect();
        bail!("its README names the splits {}, and not {split}", splits.join(", "));
    };
    Ok(Some(names.iter().filter(|name| patterns.iter().any(|pattern| matches(pattern, name))).cloned().collect()))
}

/// Whether a path fits a pattern, in which `*` stands for anything.
fn matches(pattern: &str, path: &str) -> bool {
    let pattern = fancy_regex::escape(pattern.trim_start_matches("./")).replace("\\*", ".*");
    Regex::new(&format!("^{pattern}$")).is_ok_and(|regex| regex.is_match(path).unwrap_or(false))
}

/// Whether a file's name says that it has rows.
pub fn is_rows(name: &str) -> bool {
    [".jsonl", ".json", ".csv", ".tsv", ".parquet", ".jsonl.zip", ".json.zip"]
        .iter()
        .any(|ending| name.ends_with(ending))
}
