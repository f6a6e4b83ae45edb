//! The benchmarks in the program: the files of `configs/benchmarks/`.

use std::path::{Path, PathBuf};

use super::definition::{Definition, Named, of_group};
use super::file::TaskFile;
use crate::format::did_you_mean;
use crate::yaml::{self, ConfigError, Location, Spanned};

include!(concat!(env!("OUT_DIR"), "/benchmarks.rs"));

/// The name and the text of every built-in file. A name that begins with `_` is only included by others.
pub fn all() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    FILES.iter().filter(|(name, _)| !name.starts_with('_'))
}

/// The task of a built-in file that is not a group, without the code that makes its rows.
///
/// # Errors
/// A name that is unknown.
pub fn one(name: &str) -> Result<Definition, ConfigError> {
    Definition::check(&file(&Spanned { value: name.to_owned(), referenced: Location::UNKNOWN })?, name)
}

/// The tasks of a built-in name: one, or those of a group.
///
/// # Errors
/// A name that is unknown.
pub fn read(task: &Spanned<String>) -> Result<Vec<Named>, ConfigError> {
    let file = file(task)?;
    if let Some(tasks) = file.group() {
        let names = tasks.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned));
        let of_name = |value: String| read(&Spanned { value, referenced: task.referenced });
        let tasks = names.map(of_name).collect::<Result<Vec<_>, _>>()?.concat();
        return Ok(of_group(file, tasks));
    }
    let definition = Definition::check(&file, &task.value)?;
    Ok(vec![(file, vec![definition])])
}

fn file(task: &Spanned<String>) -> Result<TaskFile, ConfigError> {
    if !all().any(|(name, _)| *name == task.value) {
        let near = did_you_mean(&task.value, all().map(|(name, _)| *name));
        let hint = format!("{near}write a file ending in .yaml, or a name of `tova-bench list benchmarks`");
        return yaml::refuse(task.referenced, format!("there is no benchmark `{}`", task.value), hint);
    }
    let path = |name: &str| PathBuf::from(format!("{name}.yaml"));
    let text = |file: &Path| {
        let (_, text) = FILES.iter().find(|(name, _)| path(name) == file)?;
        Some(Ok((*text).to_owned()))
    };
    TaskFile::read_by(&text, &path(&task.value))
}
