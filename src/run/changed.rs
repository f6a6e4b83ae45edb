//! Warns of models whose files have changed since cells of the same names were measured.
//!
//! Results are never mixed up, because revisions are part of every id and row. But users who replaced a checkpoint by
//! mistake want to know before hours of work.

use std::collections::BTreeSet;

use anyhow::Result;

use super::prepare::{ModelTask, Prepared};
use crate::ledger::{Ledger, Status};

/// A warning for each such model.
///
/// # Errors
/// A results folder that can't be read.
pub fn changed_models(prepared: &Prepared, ledger: &Ledger) -> Result<Vec<String>> {
    // If any cell of a model and a task is known, the model has not changed.
    let is_new = |model_task: &&ModelTask| model_task.cells.iter().all(|cell| cell.status == Status::Missing);
    let new: Vec<&ModelTask> = prepared.model_tasks.iter().filter(is_new).collect();
    let names: Vec<_> = new.iter().flat_map(|model_task| model_task.cells.iter().map(|cell| &cell.name)).collect();
    let measured = ledger.namesakes(&names)?;
    let models: BTreeSet<_> =
        new.iter().map(|model_task| (model_task.model.to_string(), &model_task.revision)).collect();
    let mut warnings = Vec::new();
    for (model, revision) in models {
        for ((_, other), cells) in measured.iter().filter(|((m, other), _)| *m == model && **other != **revision) {
            let cells = if *cells == 1 { "a cell".to_string() } else { format!("{cells} cells") };
            warnings.push(format!(
                "{model} has changed since {cells} of these names in {} were measured: its revision was {other} and is now \
                 {revision}; those rows are kept, and the new ones are added beside them",
                ledger.folder().display()
            ));
        }
    }
    Ok(warnings)
}
