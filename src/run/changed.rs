//! Warns of models whose files have changed since cells of the same names were measured.
//!
//! Results are never mixed up, because revisions are part of every id and row. But users who replaced a checkpoint by
//! mistake want to know before hours of work.

use std::collections::BTreeMap;

use anyhow::Result;

use super::prepare::{ModelTask, Prepared};
use crate::ledger::{CellName, Ledger, Status};

/// A warning for each such model.
///
/// # Errors
/// A results folder that can't be read.
pub fn changed_models(prepared: &Prepared, ledger: &Ledger) -> Result<Vec<String>> {
    // If any cell of a model and a task is known, the model has not changed.
    let is_new = |model_task: &&ModelTask| model_task.cells.iter().all(|cell| cell.status == Status::Missing);
    let mut models: BTreeMap<(String, &str), Vec<&CellName>> = BTreeMap::new();
    for model_task in prepared.model_tasks.iter().filter(is_new) {
        let names = models.entry((model_task.model.to_string(), &model_task.revision)).or_default();
        names.extend(model_task.cells.iter().map(|cell| &cell.name));
    }
    let mut warnings = Vec::new();
    for ((model, revision), names) in models {
        for (other, cells) in ledger.other_revisions(&names, &model, revision)? {
            let cells = if cells == 1 { "a cell".to_string() } else { format!("{cells} cells") };
            warnings.push(format!(
                "{model} has changed since {cells} of these names in {} were measured: its revision was {other} and is now \
                 {revision}; those rows are kept, and the new ones are added beside them",
                ledger.folder().display()
            ));
        }
    }
    Ok(warnings)
}
