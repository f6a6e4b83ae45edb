//! Code that makes the rows of a task: readers of releases that are no plain rows, and generators.
//!
//! A task file names one as `rows` of its block `cache:`, alone or with its options, which a sweep may set too.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::definition::Definition;
use super::file::TaskFile;
use super::keys::Keys;
use super::rows::Rows;
use crate::format::did_you_mean;
use crate::task::canonical::Setting;
use crate::task::spec::{PrepareContext, TaskSpec};
use crate::yaml::{self, ConfigError};

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

/// What a task file and the keys of a sweep come to. Code that makes rows changes what it must.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Files that are measured together.
    pub definitions: Vec<Definition>,
    /// The data set as rows of results name it.
    pub dataset: String,
    /// Data in place of those that the files name.
    pub over: Option<String>,
    /// Only the first rows of each file.
    pub samples: Option<usize>,
    /// The lengths of prompt and answer that are measured, where there may be several; `None`: that of the task.
    pub lengths: Option<Vec<usize>>,
    /// What ids of cells and samples depend on.
    pub settings: Vec<Setting>,
    /// Which samples there are.
    pub selection: Vec<Setting>,
}

impl Chosen {
    /// Lets one code, which has no options, make the rows of every file.
    ///
    /// # Errors
    /// None.
    pub fn read_by(&mut self, reader: impl Reader) -> Result<(), ConfigError> {
        let reader: Arc<dyn Reader> = Arc::new(reader);
        self.definitions.iter_mut().for_each(|definition| definition.reader = Some(Arc::clone(&reader)));
        Ok(())
    }
}

/// Code that makes rows, as task files name it.
pub struct Maker {
    pub name: &'static str,
    /// The keys that it understands, beside those of every task.
    pub options: &'static [&'static str],
    /// Checks the options, and gives the files their readers.
    pub choose: fn(&Keys, &mut Chosen) -> Result<(), ConfigError>,
}

/// Every code that makes rows.
pub type Readers = &'static [Maker];

/// Lets the code that a file names make its rows, with the options of the keys over those of the file.
///
/// # Errors
/// A name that is unknown, options that the task does not have, or their values.
pub fn choose(readers: Readers, file: &TaskFile, keys: Keys, chosen: &mut Chosen) -> Result<(), ConfigError> {
    let rows = file.cache.as_ref().and_then(|cache| cache.rows.as_ref());
    let maker = rows.map(|rows| maker(readers, file, rows)).transpose()?;
    let known = maker.as_ref().map_or(&[][..], |(maker, _)| maker.options);
    if let Some((option, place)) = keys.options().into_iter().find(|(option, _)| !known.contains(option)) {
        // A short form has its task in its name.
        let task = keys.task.as_ref().map(|_| "task");
        let usual = ["dataset", "num_fewshot", "samples", "repeats", "length", "write"];
        let all = task.into_iter().chain(usual).chain(known.iter().copied());
        let hint = format!("its keys are {}", all.collect::<Vec<_>>().join(", "));
        let task = &chosen.definitions[0].task;
        return yaml::refuse(place, format!("`{option}` is not a key of the task `{task}`"), hint);
    }
    let Some((maker, options)) = maker else { return Ok(()) };
    let refuse = |message: String, hint: String| file.refuse("cache", message, hint);
    let name = maker.name;
    if let Some(option) = options.keys().find(|option| !known.contains(&option.as_str())) {
        let hint = format!("{}its options are {}", did_you_mean(option, known.iter().copied()), known.join(", "));
        return refuse(format!("the rows `{name}` have no option `{option}`"), hint);
    }
    let has_options = !options.is_empty();
    let of_file = Keys::deserialize(Value::Object(options)).or_else(|error| {
        file.refuse("cache", format!("the options of `{name}`: {error}"), "see docs/task-files.md")
    })?;
    (maker.choose)(&keys.over(of_file), chosen).or_else(|error| match error.place {
        // Values of the file are read without their places.
        None if has_options => refuse(error.message, error.hint),
        _ => Err(error),
    })
}

/// The code that a file names, and its options: `rows` is a name, or an object of it and its options.
fn maker(
    readers: Readers,
    file: &TaskFile,
    rows: &Value,
) -> Result<(&'static Maker, Map<String, Value>), ConfigError> {
    let refuse = |message: String, hint: String| file.refuse("cache", message, hint);
    let all = readers.iter().map(|maker| maker.name).collect::<Vec<_>>().join(", ");
    let (name, options) = match rows {
        Value::String(name) => (name.as_str(), Map::new()),
        Value::Object(one) if one.len() == 1 && one.values().all(Value::is_object) => one
            .iter()
            .map(|(name, options)| (name.as_str(), options.as_object().cloned().unwrap_or_default()))
            .next()
            .expect("there is one"),
        _ => return refuse("`rows` is a name, or a name with options".into(), format!("use one of {all}")),
    };
    match readers.iter().find(|maker| *maker.name == *name) {
        Some(maker) => Ok((maker, options)),
        None => {
            let near = did_you_mean(name, readers.iter().map(|maker| maker.name));
            refuse(format!("no code makes the rows `{name}`"), format!("{near}use one of {all}"))
        }
    }
}
