//! Errors of cells whose sweep names a path where nothing is.

use std::path::{Path, PathBuf};

use anyhow::Error;

use crate::lm::source::{HubError, ModelSource, expand_home};
use crate::sweep::{ModelSpec, Sweep};
use crate::task::{DataSource, TaskSpec};

/// An error of cells that name a path where nothing is.
#[derive(Debug, thiserror::Error)]
#[error("{error:#}{hint}")]
pub struct MissingPath {
    error: Error,
    /// A line where there is something beside the sweep's file.
    hint: String,
}

impl MissingPath {
    /// The error with which a model and a task cannot be prepared, which is this one if a path of theirs leads nowhere.
    pub(super) fn or(error: Error, sweep: &Sweep, model: &ModelSpec, task: &TaskSpec) -> Error {
        if error.chain().any(|cause| cause.is::<HubError>()) {
            return error;
        }
        let is_missing = |path: &String| expand_home(path).is_ok_and(|path| !path.exists());
        let Some(path) = paths(model, task).into_iter().find(is_missing) else { return error };
        let beside: PathBuf = sweep.folder.join(&path).components().collect();
        let hint = match !path.starts_with('~') && Path::new(&path).is_relative() && beside.exists() {
            true => format!(
                "\nhint: paths of a sweep start at the working directory, not at its file: run it in {}, or write {}",
                sweep.folder.display(),
                beside.display()
            ),
            false => String::new(),
        };
        MissingPath { error, hint }.into()
    }
}

/// The paths that a model and a task name.
fn paths(model: &ModelSpec, task: &TaskSpec) -> Vec<String> {
    let of_model = [Some(&model.source), model.tokenizer.as_ref()].into_iter().flatten();
    let of_model = of_model.filter_map(|source| match source {
        ModelSource::Folder(path) | ModelSource::File(path) => Some(path.clone()),
        _ => None,
    });
    // A task with several files names them together.
    let of_task = task.dataset.split(", ").filter_map(|dataset| match dataset.parse() {
        Ok(DataSource::Path(path)) => Some(path),
        _ => None,
    });
    of_model.chain(of_task).collect()
}
