//! The settings of `longbench`, as read and as checked.

use std::collections::BTreeSet;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::subsets::{CHINESE, SUBSETS, Subset};
use super::{LongBench, v2};
use crate::format::did_you_mean;
use crate::task::data::{self, DataSource, Texts, check_source, published_sources};
use crate::task::generation::{GenerationConfig, WriteYaml};
use crate::task::spec::{TaskSpec, limit_text};
use crate::yaml::schema::{Named, setting};
use crate::yaml::{self, ConfigError, Spanned};

/// Which of the three benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    #[default]
    V1,
    E,
    V2,
}

impl Version {
    /// The words in YAML, in the order of the variants.
    pub const WORDS: &[Named] = &[
        ("v1", "LongBench: 16 English and code subsets, each with a measure of its own"),
        ("e", "LongBench-E: 13 of them, with rows of all lengths"),
        ("v2", "LongBench v2: questions with four choices"),
    ];

    /// The name in YAML and cell ids.
    pub fn name(self) -> &'static str {
        Version::WORDS[self as usize].0
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        setting(Version::WORDS, "v1", true)
    }
}

/// LongBench: questions, summaries, examples to follow, retrieval and code over long contexts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LongBenchYaml {
    /// Where its files are: a folder (starting with `./`, `../` or `/`), a `.jsonl`, `.json` or `.zip` file, or
    /// `THUDM/LongBench` (v2: `THUDM/LongBench-v2`) on the hub.
    #[schemars(schema_with = "published_sources")]
    dataset: Spanned<String>,
    /// Which of the three benchmarks.
    #[serde(default)]
    #[schemars(schema_with = "Version::schema")]
    version: Option<Version>,
    /// The subsets to measure; by default all English and code ones that the data set has. Version 2 has none.
    #[serde(default)]
    #[schemars(schema_with = "subset_names")]
    subsets: Vec<Spanned<String>>,
    /// Tokens of prompt and answer together; a prompt that is too long loses its middle.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// Only the first rows of each subset; null: all of them.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    samples: Option<Spanned<u64>>,
    /// How answers are written; by default greedily, with each subset's own limit of tokens.
    #[serde(default)]
    write: WriteYaml,
}

impl LongBenchYaml {
    /// Checks every value.
    ///
    /// # Errors
    /// A value out of its range, a subset that is unknown or cannot be measured, or settings that contradict each other.
    pub fn check(self) -> Result<TaskSpec, ConfigError> {
        let forms = "a folder or file of LongBench (starting with ./, ../ or /), or a hub data set with its files, such \
                     as THUDM/LongBench or THUDM/LongBench-v2";
        let dataset = check_source(&self.dataset, forms)?;
        if !matches!(dataset, DataSource::Path(_) | DataSource::Hub(_)) {
            return yaml::refuse(
                self.dataset.referenced,
                format!("`{dataset}` holds nothing of LongBench"),
                format!("use {forms}"),
            );
        }
        let version = self.version.unwrap_or_default();
        let subsets = chosen(&self.subsets, version)?;
        let is_v2 = version == Version::V2;
        if let Some(aware) = self.write.query_aware.as_ref().filter(|aware| is_v2 && !aware.value) {
            return yaml::refuse(
                aware.referenced,
                "a prompt of LongBench v2 is one text, whose question is not marked",
                "remove `query_aware`: the cache is cut after the whole prompt",
            );
        }
        let length = data::length(&self.length)?;
        // The limit of a subset gives way to the sweep's own.
        let own_limits = self.write.max_new_tokens.is_none();
        let limits = if subsets.is_empty() { SUBSETS.iter().collect() } else { subsets.clone() };
        let longest = limits.iter().map(|subset| subset.max_new_tokens).max().unwrap_or(0);
        let longest = if is_v2 { v2::MAX_NEW_TOKENS } else { longest };
        let generation = Some(self.write.check(length, GenerationConfig::greedy(longest))?);
        let samples = yaml::limit("`samples`", &self.samples)?;
        let names: Vec<&str> = subsets.iter().map(|subset| subset.name).collect();
        let settings = vec![
            ("version", version.name().to_string()),
            ("length", length.to_string()),
            ("limits", if own_limits { "subset" } else { "sweep" }.to_string()),
        ];
        let subset_names = if names.is_empty() { "all".to_owned() } else { names.join(",") };
        let selection = vec![("subsets", subset_names), ("samples", limit_text(samples))];
        let task = LongBench { dataset: dataset.clone(), version, subsets, samples, own_limits };
        let spec = TaskSpec::new("longbench", dataset, length, settings, task);
        Ok(TaskSpec { generation, selection, ..spec })
    }
}

fn subset_names(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> = SUBSETS.iter().map(|subset| subset.name).collect();
    json_schema!({"type": ["array", "null"], "items": {"enum": names}, "uniqueItems": true, "default": []})
}

/// The subsets of the sweep, in LongBench's order.
fn chosen(names: &[Spanned<String>], version: Version) -> Result<Vec<&'static Subset>, ConfigError> {
    let mut chosen = BTreeSet::new();
    for name in names {
        let place = name.referenced;
        if version == Version::V2 {
            return yaml::refuse(place, "LongBench v2 has no subsets", "remove `subsets`");
        }
        let known = || SUBSETS.iter().filter(|subset| version != Version::E || subset.in_e);
        if CHINESE.contains(&name.value.as_str()) {
            return yaml::refuse(
                place,
                format!("`{}` is Chinese, and scores of Chinese text are not supported", name.value),
                "remove it: most of their measures count words as the Python package jieba splits them",
            );
        }
        let Some(at) = SUBSETS.iter().position(|subset| subset.name == name.value) else {
            let near = did_you_mean(&name.value, known().map(|subset| subset.name));
            let all: Vec<&str> = known().map(|subset| subset.name).collect();
            return yaml::refuse(
                place,
                format!("LongBench has no subset `{}`", name.value),
                format!("{near}use some of {}", all.join(", ")),
            );
        };
        if version == Version::E && !SUBSETS[at].in_e {
            return yaml::refuse(place, format!("LongBench-E has no `{}`", name.value), "remove it");
        }
        if !chosen.insert(at) {
            return yaml::refuse(place, format!("`{}` is listed twice", name.value), "remove one of them");
        }
    }
    Ok(chosen.into_iter().map(|at| &SUBSETS[at]).collect())
}
