//! The benchmarks in the program: the files of `configs/benchmarks/`.

use super::definition::Definition;
use super::file::TaskFile;
use crate::format::did_you_mean;
use crate::yaml::{self, ConfigError, Spanned};

include!(concat!(env!("OUT_DIR"), "/benchmarks.rs"));

/// The name and the text of every built-in file.
pub fn all() -> &'static [(&'static str, &'static str)] {
    FILES
}

/// The task of a built-in name.
///
/// # Errors
/// A name that is unknown.
pub fn read(task: &Spanned<String>) -> Result<Vec<Definition>, ConfigError> {
    let Some((name, text)) = FILES.iter().find(|(name, _)| *name == task.value) else {
        let near = did_you_mean(&task.value, FILES.iter().map(|(name, _)| *name));
        let hint = format!("{near}write a file ending in .yaml, or a name of `tova-bench list benchmarks`");
        return yaml::refuse(task.referenced, format!("there is no benchmark `{}`", task.value), hint);
    };
    let file = format!("{name}.yaml");
    let read = TaskFile::parse(text, &file)?;
    Ok(vec![Definition::check(&read, name).map_err(|error| read.named(error, &file))?])
}
