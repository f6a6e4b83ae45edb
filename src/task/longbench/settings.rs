//! The settings of `longbench`, as read and as checked.

use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::{NOT_IN_E, SUBSETS, Subset, V2};
use crate::task::benchmark::{Benchmark, Definition, builtin_definition};
use crate::task::canonical::limit_text;
use crate::task::data::{self, Texts, check_source};
use crate::task::request::{GenerationConfig, WriteYaml};
use crate::task::spec::TaskSpec;
use crate::yaml::{self, ConfigError, Spanned};

/// Which of the three benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// LongBench: 16 English and code subsets, each with a measure of its own
    #[default]
    V1,
    /// LongBench-E: 13 of them, with rows of all lengths
    E,
    /// LongBench v2: questions with four choices
    V2,
}

impl Version {
    /// The name in YAML and cell ids.
    pub fn name(self) -> &'static str {
        ["v1", "e", "v2"][self as usize]
    }

    /// Its subsets, in LongBench's order.
    pub fn subsets(self) -> impl Iterator<Item = &'static str> {
        let has = move |name: &&str| self == Version::V1 || self == Version::E && !NOT_IN_E.contains(name);
        SUBSETS.split(' ').filter(has)
    }
}

/// LongBench: questions, summaries, examples to follow, retrieval and code over long contexts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LongBenchYaml {
    /// Where its files are: a folder (starting with `./`, `../` or `/`), a `.jsonl`, `.json` or `.zip` file, or
    /// `THUDM/LongBench` (v2: `THUDM/LongBench-v2`) on the hub.
    dataset: Spanned<String>,
    /// Which of the three benchmarks.
    #[schemars(extend("default" = "v1"))]
    version: Option<Version>,
    /// The subsets to measure; by default all English and code ones that the data set has. Version 2 has none.
    #[serde(default)]
    #[schemars(schema_with = "subset_names")]
    subsets: Vec<Spanned<String>>,
    /// Tokens of prompt and answer together; a prompt that is too long loses its middle.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// Only the first rows of each subset; by default all of them.
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
        let dataset = check_source(&self.dataset, &[])?;
        let version = self.version.unwrap_or_default();
        let subsets = chosen(&self.subsets, version)?;
        let is_v2 = version == Version::V2;
        if let Some(aware) = self.write.query_aware.as_ref().filter(|aware| is_v2 && !aware.value) {
            let message = "a prompt of LongBench v2 is one text, whose question is not marked";
            let hint = "remove `query_aware`: the cache is cut after the whole prompt";
            return yaml::refuse(aware.referenced, message, hint);
        }
        let length = data::length(&self.length)?;
        // The limit of a subset gives way to the sweep's own.
        let own_limits = self.write.max_new_tokens.is_none();
        let wanted = version.subsets().filter(|name| subsets.is_empty() || subsets.contains(name));
        let names = if is_v2 { vec!["v2"] } else { wanted.collect() };
        let of_name = |name: &&str| builtin_definition(&format!("longbench_{name}"));
        let files: Vec<Definition> = names.iter().map(of_name).collect::<Result<_, _>>()?;
        let longest = files.iter().map(|definition| definition.generation.max_new_tokens).max().unwrap_or(0);
        let generation = self.write.check(length, GenerationConfig::greedy(longest))?;
        let samples = yaml::limit("`samples`", &self.samples)?;
        let settings = vec![
            ("version", version.name().to_string()),
            ("length", length.to_string()),
            ("limits", if own_limits { "subset" } else { "sweep" }.to_string()),
        ];
        let subset_names = if subsets.is_empty() { "all".to_owned() } else { subsets.join(",") };
        let selection = vec![("subsets", subset_names), ("samples", limit_text(samples))];
        let prepared = |(name, mut definition): (&str, Definition)| {
            if is_v2 {
                definition.reader = Some(Arc::new(V2));
            } else {
                let of_e = if version == Version::E { "_e" } else { "" };
                definition.dataset.name = Some(format!("{name}{of_e}"));
                definition.reader = Some(Arc::new(Subset { is_optional: subsets.is_empty() }));
                definition.cache.is_plain = !definition.cache.chat_template;
                if own_limits {
                    definition.limit_answers(definition.generation.max_new_tokens.min(generation.max_new_tokens));
                }
            }
            Arc::new(definition)
        };
        let definitions = names.into_iter().zip(files).map(prepared).collect();
        let task = Benchmark { definitions, over: Some(dataset.to_string()), samples };
        let spec = TaskSpec::new("longbench", dataset, length, settings, task);
        Ok(TaskSpec { generation: Some(generation), selection, ..spec })
    }
}

fn subset_names(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> = Version::V1.subsets().collect();
    json_schema!({"type": ["array", "null"], "items": {"enum": names}, "uniqueItems": true, "default": []})
}

/// The subsets of the sweep, in LongBench's order.
fn chosen(names: &[Spanned<String>], version: Version) -> Result<Vec<&'static str>, ConfigError> {
    if let Some(name) = names.first().filter(|_| version == Version::V2) {
        return yaml::refuse(name.referenced, "LongBench v2 has no subsets", "remove `subsets`");
    }
    let known: Vec<&str> = version.subsets().collect();
    let chosen = yaml::words("subsets", names, &known)?;
    Ok(known.into_iter().filter(|name| chosen.contains(name)).collect())
}
