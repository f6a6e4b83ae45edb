//! LongBench and LongBench-E (Bai et al. 2024, arXiv 2308.14508), and LongBench v2 (Bai et al. 2025, arXiv 2412.15204).
//!
//! Prompts, limits and scores are those of THUDM/LongBench. A prompt is one text, which loses its middle if it is too long.

mod files;
mod rows;
mod subsets;
#[cfg(test)]
mod tests;
mod v2;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use self::subsets::{CHINESE, SUBSETS, Subset};
use super::data::{self, DataSource, Texts, check_source, digest_of, published_sources};
use super::generation::{self, GenerationConfig, Request, Scorer, WriteYaml};
use super::prepared::PreparedTask;
use super::spec::{PrepareContext, Task, TaskSpec, limit_text};
use crate::format::did_you_mean;
use crate::lm::source::{Hub, expand_home};
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
        if let Some(aware) = self.write.query_aware.as_ref().filter(|aware| !aware.value) {
            return yaml::refuse(
                aware.referenced,
                "a prompt of LongBench is one text, whose question is not marked",
                "remove `query_aware`: the cache is cut after the whole prompt",
            );
        }
        let length = data::length(&self.length)?;
        // The limit of a subset gives way to the sweep's own.
        let own_limits = self.write.max_new_tokens.is_none();
        let limits = if subsets.is_empty() { SUBSETS.iter().collect() } else { subsets.clone() };
        let longest = limits.iter().map(|subset| subset.max_new_tokens).max().unwrap_or(0);
        let longest = if version == Version::V2 { v2::MAX_NEW_TOKENS } else { longest };
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
                "remove it: its measure counts words as the Python package jieba splits them",
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

/// A benchmark of long contexts.
#[derive(Debug)]
struct LongBench {
    dataset: DataSource,
    version: Version,
    /// Empty: all that there are.
    subsets: Vec<&'static Subset>,
    /// Of each subset.
    samples: Option<usize>,
    /// Whether each subset has its own limit of new tokens.
    own_limits: bool,
}

impl Task for LongBench {
    fn prepare(&self, spec: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let most = spec.generation()?.max_new_tokens;
        let mut requests = self.requests(context)?;
        rows::gather(&mut requests);
        for request in &mut requests {
            request.length = spec.length;
            request.max_new_tokens =
                request.max_new_tokens.filter(|_| self.own_limits).map(|limit| limit.min(most));
        }
        let digest = digest(&requests);
        add_trivial(&mut requests);
        let is_v2 = self.version == Version::V2;
        let scorer =
            Scorer { score: if is_v2 { v2::score } else { score }, needs_references: true, rescore: false };
        generation::prepare(spec, context, requests, digest, scorer)
    }
}

impl LongBench {
    fn requests(&self, context: &PrepareContext<'_>) -> Result<Vec<Request>> {
        let path = self.path(context)?;
        let most = self.samples.unwrap_or(usize::MAX);
        let mut requests = Vec::new();
        if self.version == Version::V2 {
            let (text, file) = files::v2(&path)?;
            requests = v2::requests(without_mark(&text), &file, most)?;
            ensure!(!requests.is_empty(), "{file} has no rows");
        } else {
            let by_length = self.version == Version::E;
            for (subset, text, file) in files::subsets(&path, self.version, &self.subsets)? {
                let rows = rows::requests(subset, without_mark(&text), &file, by_length, most)?;
                ensure!(!rows.is_empty(), "{file} has no rows");
                let asked = self.samples.unwrap_or(0);
                data::note_fewer(
                    context.progress,
                    &self.dataset,
                    &format!("rows of {}", subset.name),
                    asked,
                    rows.len(),
                );
                requests.extend(rows);
            }
        }
        let mut names = HashSet::new();
        for Request { name, .. } in &requests {
            ensure!(names.insert(name), "two rows are named {name}; results could not tell them apart");
        }
        Ok(requests)
    }

    /// The folder or file, downloaded if it is on the hub.
    fn path(&self, context: &PrepareContext<'_>) -> Result<PathBuf> {
        match &self.dataset {
            DataSource::Path(path) => expand_home(path),
            DataSource::Hub(repo) => {
                let wanted = if self.version == Version::V2 { files::V2_FILE } else { files::ARCHIVE };
                let hub = Hub { settings: context.hub, progress: context.progress };
                let mut found = hub.dataset_files(repo, |name| name == wanted)?;
                let Some(file) = found.pop() else {
                    bail!("{repo} has no {wanted}, as LongBench's repository has it")
                };
                Ok(file)
            }
            other => bail!("{other} holds nothing of LongBench"),
        }
    }
}

fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The digest of all that prompts and scores depend on.
fn digest(requests: &[Request]) -> String {
    let parts = requests.iter().flat_map(|request| {
        let Request { name, cluster, prompt, references, classes, slices, .. } = request;
        let counts = format!("{} {} {}", references.len(), classes.len(), slices.len());
        let texts = [name, cluster, &prompt.document, &counts];
        texts.into_iter().chain(references).chain(classes).chain(slices).cloned().collect::<Vec<_>>()
    });
    digest_of(parts)
}

/// The reference that most rows of a subset have, the alphabetically first of equals; none where no two rows share one.
fn add_trivial(requests: &mut [Request]) {
    let mut counts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for request in &*requests {
        let different: BTreeSet<&String> = request.references.iter().collect();
        let of_subset = counts.entry(subset_of(request).to_owned()).or_default();
        different.into_iter().for_each(|answer| *of_subset.entry(answer.clone()).or_default() += 1);
    }
    for request in requests {
        let of_subset = counts.get(subset_of(request)).into_iter().flatten().rev();
        let commonest = of_subset.max_by_key(|(_, count)| **count).filter(|(_, count)| **count > 1);
        request.trivial = commonest.map(|(answer, _)| answer.clone()).unwrap_or_default();
    }
}

/// The name of a request's subset; empty in version 2.
fn subset_of(request: &Request) -> &str {
    request.slices.iter().find_map(|slice| slice.strip_prefix("subset:")).unwrap_or_default()
}

/// The score of an answer by its subset's measure, and that of the trivial answer.
fn score(text: &str, request: &Request) -> Vec<(&'static str, f64)> {
    let Some(subset) = Subset::of(subset_of(request)) else { return Vec::new() };
    let of = |answer: &str| subset.score(answer, &request.references, &request.classes);
    vec![("longbench", of(text)), ("longbench_trivial", of(&request.trivial))]
}
