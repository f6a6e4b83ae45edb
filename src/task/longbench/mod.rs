//! LongBench and LongBench-E (Bai et al. 2024, arXiv 2308.14508), and LongBench v2 (Bai et al. 2025, arXiv 2412.15204).
//!
//! Prompts, limits and measures are in `configs/benchmarks/longbench*.yaml`. Here is what finds and reads the published files.

mod files;
mod settings;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, ensure};

use self::settings::Version;
pub(super) use self::settings::{OPTIONS, choose};
use super::benchmark::{Asked, Reader, Rows};
use super::data::path_of;

/// All subsets that can be measured, in LongBench's order.
const SUBSETS: &str = "narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique gov_report qmsum multi_news trec triviaqa samsum \
     passage_count passage_retrieval_en lcc repobench-p";

/// Subsets that LongBench-E does not have.
const NOT_IN_E: [&str; 3] = ["narrativeqa", "musique", "qmsum"];

/// The rows of a subset of LongBench, which `dataset_name` names; with `_e` behind it, those of LongBench-E.
#[derive(Debug)]
pub struct Subset {
    /// Whether it has no rows where its file is not there.
    pub is_optional: bool,
}

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
        let path = path_of(&asked.dataset.parse()?, files::ARCHIVE, asked.context.hub)?;
        let file = files::file_name(name, version);
        if self.is_optional && files::find(&path, &file)?.is_none() {
            return Ok(Rows::default());
        }
        let (text, file) = files::read(&path, &file)
            .with_context(|| format!("the subset {name} is not there; get it, or remove it from `subsets`"))?;
        files::rows(name, &text, &file, version == Version::E)
    }
}

/// The rows of LongBench v2.
#[derive(Debug)]
pub struct V2;

impl Reader for V2 {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        let path = path_of(&asked.dataset.parse()?, files::V2_FILE, asked.context.hub)?;
        let mut rows = Rows::default();
        let path = if path.is_dir() { path.join(files::V2_FILE) } else { path };
        rows.read_file(&path, &asked.definition.columns())?;
        Ok(rows)
    }
}
