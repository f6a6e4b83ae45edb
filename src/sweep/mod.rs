//! From a sweep file to its cells: every combination of its models, policies, cache sizes and tasks.
//!
//! Has the sweep file, the identity of cells and their selection. Nothing is loaded or run here; whether a model or a text
//! exists is found by `lm` and `task`.

mod cell;
mod check;
mod keys;
mod misplaced;
mod policies;
mod schema;
mod select;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

pub use cell::{Cell, ModelSpec, ResolvedCell};
pub use schema::json_schema;
pub use select::{SelectedCells, Selection, Shard};

use crate::eviction::{CacheRule, CacheSize, CacheSpec, DefinedPolicy, NamedPolicy};
use crate::ledger::Contrast;
use crate::task::TaskSpec;
use crate::yaml::{ConfigError, Location, parse_yaml, read_file, refuse};
use keys::DefineYaml;

/// A checked sweep: every combination of its parts is a valid cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// `name:`, or the file's stem.
    pub name: String,
    /// The folder of its file, if it has one. Paths do not start there.
    pub folder: PathBuf,
    pub models: Vec<ModelSpec>,
    /// In the order of the file, which is the order of legends.
    pub policies: Vec<NamedPolicy>,
    /// Ascending, shares after entries; or amounts of memory.
    pub cache_sizes: Vec<CacheSize>,
    pub tasks: Vec<TaskSpec>,
    pub seed: u64,
    /// Policies that its file defines and does not list.
    pub unlisted: Vec<String>,
    /// The comparisons that it plans, between policies as reports call them.
    pub contrasts: Vec<Contrast>,
}

/// The sweeps that need no file, by name.
pub const BUILT_IN: [(&str, &str); 2] = [
    ("pocket", include_str!("../../configs/builtin/pocket.yaml")),
    ("smoke", include_str!("../../configs/builtin/smoke.yaml")),
];

/// The policies that a file defines: a sweep, or its `define:` alone.
///
/// # Errors
/// A file without definitions, or the first thing wrong with them.
pub fn read_definitions(path: &Path) -> Result<Vec<DefinedPolicy>, ConfigError> {
    parse_definitions(&read_file(path)?, &path.display().to_string())
}

/// The policies that a text with a `define:` defines. Errors call the text `file`.
///
/// # Errors
/// A text without definitions, or the first thing wrong with them.
pub fn parse_definitions(text: &str, file: &str) -> Result<Vec<DefinedPolicy>, ConfigError> {
    let DefineYaml { define } = parse_yaml(text, file)?;
    let defined = if define.is_empty() {
        refuse(Location::UNKNOWN, "defines no policy", "write one under `define:`")
    } else {
        policies::definitions(define, None)
    };
    defined.map_err(|error| error.in_file(file))
}

impl Sweep {
    /// Reads and checks a sweep file, or one of [`BUILT_IN`] by its name, with policies of the program's own. Those that the
    /// sweep does not name come after its own.
    ///
    /// # Errors
    /// The first thing wrong with the file, with its line, its column and a hint, or a name that a policy cannot have.
    pub fn read(path: &Path, own: &[DefinedPolicy]) -> Result<Sweep, ConfigError> {
        // A built-in name wins over a file of that name: results must not depend on the current folder.
        match BUILT_IN.iter().find(|(built_in, _)| path.as_os_str() == *built_in) {
            Some((name, text)) => Sweep::parse_with(text, &format!("{name}.yaml"), own),
            None => Sweep::parse_with(&read_file(path)?, &path.display().to_string(), own),
        }
    }

    /// Checks the text of a sweep file. Errors call it `file`, which also names the sweep if the text does not.
    ///
    /// # Errors
    /// The first thing wrong with the text, with its line, its column and a hint.
    pub fn parse(text: &str, file: &str) -> Result<Sweep, ConfigError> {
        Sweep::parse_with(text, file, &[])
    }

    fn parse_with(text: &str, file: &str, own: &[DefinedPolicy]) -> Result<Sweep, ConfigError> {
        let shape = parse_yaml(text, file).map_err(misplaced::advised)?;
        check::check(shape, file, own).map_err(|error| error.in_file(file))
    }

    /// Lists the cells by model, then task, then policy, in the order of the file, then by ascending size. Cells with the same
    /// meaning and policy are one; under two names of a policy they are two, which share their numbers.
    pub fn expand(&self) -> Vec<Cell> {
        let mut seen = HashSet::new();
        let mut cells = Vec::new();
        for model in &self.models {
            for task in &self.tasks {
                for policy in &self.policies {
                    // `full` has one cell, whatever the sizes, and also when there are none.
                    let sizes = if policy.rule == CacheRule::Unbounded {
                        &[CacheSize::Entries(0)][..]
                    } else {
                        &self.cache_sizes
                    };
                    for &size in sizes {
                        let cell = self.cell(model, task, policy, size);
                        if seen.insert((cell.label(), model.to_string(), cell.spec())) {
                            cells.push(cell);
                        }
                    }
                }
            }
        }
        cells
    }

    /// Makes one cell, without the settings that cannot change its numbers.
    fn cell(&self, model: &ModelSpec, task: &TaskSpec, policy: &NamedPolicy, size: CacheSize) -> Cell {
        // A sample's own size is known with its tokens. Until then it is that of the longest.
        let (entries, relative) = match size {
            CacheSize::Entries(entries) => (entries, None),
            CacheSize::Share(share) => (share.of(task.longest_prompt()), Some(size)),
            CacheSize::Memory(_) => (task.length, Some(size)),
        };
        let rule = policy.rule.at(entries);
        // Where nothing is evicted, the three kinds of positions are the same, and windows bound their layers in any case.
        let options = rule.policy().map_or_else(|| policy.options.without_evictions(), |_| policy.options);
        let relative = relative.filter(|_| rule != CacheRule::Unbounded);
        let cache = CacheSpec { rule, relative, options, seed: self.seed };
        Cell { model: model.clone(), policy: policy.name.clone(), cache, task: task.for_cache(&cache) }
    }
}
