//! LongBench and LongBench-E (Bai et al. 2024, arXiv 2308.14508), and LongBench v2 (Bai et al. 2025, arXiv 2412.15204).
//!
//! Prompts, limits and scores are those of THUDM/LongBench. A prompt is one text, which loses its middle if it is too long.

mod files;
mod rows;
mod settings;
mod subsets;
#[cfg(test)]
mod tests;
mod v2;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};

pub use self::settings::{LongBenchYaml, Version};
use self::subsets::Subset;
use super::data::{self, DataSource, digest_of};
use super::generation::{self, Request, Scorer};
use super::prepared::PreparedTask;
use super::spec::{PrepareContext, Task, TaskSpec};
use crate::lm::source::{Hub, expand_home};

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
        let scorer = if self.version == Version::V2 { v2::scorer() } else { Scorer::new(score) };
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
