//! LongBench and LongBench-E (Bai et al. 2024, arXiv 2308.14508), and LongBench v2 (Bai et al. 2025, arXiv 2412.15204).
//!
//! Prompts, limits and measures are in `configs/benchmarks/longbench*.yaml`. Here is what finds and reads the published files.

mod files;
mod rows;
mod settings;
#[cfg(test)]
mod tests;
mod v2;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub use self::settings::{LongBenchYaml, Version};
pub use self::v2::letter;
use super::benchmark::{Asked, Benchmark, Definition, Reader, Rows, without_options};
use super::data::DataSource;
use super::prepared::PreparedTask;
use super::spec::{PrepareContext, Task, TaskSpec};

/// All subsets that can be measured, in LongBench's order: the name, and whether LongBench-E has it too.
const SUBSETS: [(&str, bool); 16] = [
    ("narrativeqa", false),
    ("qasper", true),
    ("multifieldqa_en", true),
    ("hotpotqa", true),
    ("2wikimqa", true),
    ("musique", false),
    ("gov_report", true),
    ("qmsum", false),
    ("multi_news", true),
    ("trec", true),
    ("triviaqa", true),
    ("samsum", true),
    ("passage_count", true),
    ("passage_retrieval_en", true),
    ("lcc", true),
    ("repobench-p", true),
];

/// Makes the rows of a subset of LongBench, which `dataset_name` names; with `_e` behind it, those of LongBench-E.
///
/// # Errors
/// Options: there are none.
pub fn reader(options: &Value) -> Result<Arc<dyn Reader>> {
    without_options(options)?;
    Ok(Arc::new(Subset))
}

/// Makes the rows of LongBench v2.
///
/// # Errors
/// Options: there are none.
pub fn reader_v2(options: &Value) -> Result<Arc<dyn Reader>> {
    without_options(options)?;
    Ok(Arc::new(V2))
}

/// The rows of a subset.
#[derive(Debug)]
struct Subset;

impl Reader for Subset {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        let name = asked.definition.dataset.name.as_deref().unwrap_or_default();
        let (name, version) = name.strip_suffix("_e").map_or((name, Version::V1), |name| (name, Version::E));
        let known: Vec<&str> = version.subsets().collect();
        ensure!(
            known.contains(&name),
            "`dataset_name` is one of {}, with _e behind it for LongBench-E",
            known.join(", ")
        );
        let path = files::path(&asked.dataset.parse()?, files::ARCHIVE, asked.context)?;
        let (text, file) = files::read(&path, &files::file_name(name, version))
            .with_context(|| format!("the subset {name} is not there; get it, or remove it from `subsets`"))?;
        rows::rows(name, &text, &file, version == Version::E)
    }
}

/// The rows of LongBench v2.
#[derive(Debug)]
struct V2;

impl Reader for V2 {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        let path = files::path(&asked.dataset.parse()?, files::V2_FILE, asked.context)?;
        let mut rows = Rows::default();
        rows.read_file(&if path.is_dir() { path.join(files::V2_FILE) } else { path }, None)?;
        Ok(rows)
    }
}

/// LongBench or LongBench-E: those of the subsets asked for that the data set has.
#[derive(Debug)]
struct Subsets {
    dataset: DataSource,
    version: Version,
    /// The subset and the file of each.
    subsets: Vec<(&'static str, Arc<Definition>)>,
    /// Whether the sweep names them, so that each must be there.
    are_named: bool,
    /// Only the first rows of each.
    samples: Option<usize>,
}

impl Task for Subsets {
    fn prepare(&self, spec: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let path = files::path(&self.dataset, files::ARCHIVE, context)?;
        let mut definitions = Vec::new();
        for (subset, definition) in &self.subsets {
            if self.are_named || files::find(&path, &files::file_name(subset, self.version))?.is_some() {
                definitions.push(definition.clone());
            }
        }
        ensure!(
            !definitions.is_empty(),
            "{} has none of LongBench's files, such as {}, and no {} of them",
            path.display(),
            files::file_name("qasper", self.version),
            files::ARCHIVE
        );
        let over = Some(self.dataset.to_string());
        Benchmark { definitions, over, samples: self.samples }.prepare(spec, context)
    }
}
