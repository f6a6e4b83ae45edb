//! Benchmarks that a file describes, in the words of lm-evaluation-harness 0.4.13.
//!
//! `file` reads a task file, `definition` checks it, `rows` finds its data, `prompt` builds what the model reads, `filter` and
//! `metric` score what it answers, and `task` is the entry of a sweep. What the harness has no word for is in `cache`.

mod builtin;
mod cache;
mod definition;
mod file;
mod filter;
mod metric;
mod prompt;
mod python;
mod rolling;
mod rows;
mod splits;
mod task;
mod template;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use file::files_of;
pub use rolling::RollingText;
pub use task::BenchmarkYaml;

use crate::yaml::ConfigError;

/// The names of the built-in benchmarks, each with what its file says of it first.
pub fn builtin() -> impl Iterator<Item = (&'static str, &'static str)> {
    builtin::all().iter().map(|(name, text)| {
        let first = text.lines().next().unwrap_or_default();
        (*name, first.trim_start_matches(['#', ' ']))
    })
}

/// The metrics that a file may name, each with its output types and what it is.
pub fn metrics() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    metric::KINDS.iter().map(|(name, _, outputs, about)| {
        let names = definition::OutputType::NAMES.iter().filter(|(_, output)| outputs.contains(output));
        (*name, names.map(|(name, _)| *name).collect::<Vec<_>>().join(", "), *about)
    })
}

/// The names of a file's tasks.
///
/// # Errors
/// Why it cannot be measured here.
pub fn check(path: &Path) -> Result<Vec<String>, ConfigError> {
    Ok(definition::read(path)?.into_iter().map(|definition| definition.task).collect())
}
