//! Code that makes the rows of a task: readers of releases that are no plain rows, and generators.
//!
//! A task file names one as `rows` of its block `cache:`, alone or with its options.

use std::fmt;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::definition::Definition;
use super::file::TaskFile;
use super::rows::Rows;
use crate::format::did_you_mean;
use crate::task::spec::{PrepareContext, TaskSpec};
use crate::yaml::ConfigError;

/// What makes rows.
pub trait Reader: fmt::Debug + Send + Sync + 'static {
    /// The rows of a split.
    ///
    /// # Errors
    /// A data set that is missing or cannot be read; file and row are named.
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows>;
}

/// Which rows are asked for.
pub struct Asked<'a> {
    /// A word such as `embedded`, a file, a folder, or a data set of the hub: `dataset_path` of the task, or what the sweep has
    /// in its place.
    pub dataset: &'a str,
    pub split: &'a str,
    /// The task's file, where rows depend on how long its prompts are.
    pub definition: &'a Definition,
    /// The task in the sweep: tokens of prompt and answer, and how answers are written.
    pub spec: &'a TaskSpec,
    pub context: &'a PrepareContext<'a>,
}

/// Readers by their names in task files, each made of its options; null: none are written.
pub type Readers = &'static [(&'static str, fn(Value) -> Result<Arc<dyn Reader>>)];

/// A reader that has no options.
pub fn without(options: Value, reader: impl Reader) -> Result<Arc<dyn Reader>> {
    ensure!(options.is_null(), "it has none; write its name alone");
    Ok(Arc::new(reader))
}

/// The reader that a file names: its name, or an object of it and its options.
///
/// # Errors
/// A name or options that are unknown.
pub fn reader(readers: Readers, file: &TaskFile, rows: &Value) -> Result<Arc<dyn Reader>, ConfigError> {
    let refuse = |message: String, hint: String| file.refuse("cache", message, hint);
    let names = || readers.iter().map(|(name, _)| *name);
    let all = names().collect::<Vec<_>>().join(", ");
    let (name, options) = match rows {
        Value::String(name) => (name, Value::Null),
        Value::Object(one) if one.len() == 1 => {
            one.iter().map(|(name, options)| (name, options.clone())).next().expect("there is one")
        }
        _ => return refuse("`rows` is a name, or a name with options".into(), format!("use one of {all}")),
    };
    let Some((_, new)) = readers.iter().find(|(known, _)| known == name) else {
        let near = did_you_mean(name, names());
        return refuse(format!("no code makes the rows `{name}`"), format!("{near}use one of {all}"));
    };
    new(options)
        .or_else(|error| refuse(format!("the options of `{name}`: {error:#}"), "see docs/task-files.md".into()))
}
