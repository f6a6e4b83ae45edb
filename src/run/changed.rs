//! Models that are not what they were when cells of the same names were measured.
//!
//! Nothing is mixed up where that happens, as revisions are part of every id and every row; but somebody who replaced a
//! checkpoint by mistake wants to know before hours of work.

use std::collections::BTreeMap;

use anyhow::Result;

use super::prepare::{Group, Prepared};
use crate::ledger::{CellName, Ledger, Status};

/// What to tell a user about such models, one sentence each.
///
/// # Errors
/// A results folder that can't be read.
pub fn changed_models(prepared: &Prepared, ledger: &Ledger) -> Result<Vec<String>> {
    // Where one cell of a model and a task is known, the model is what it was.
    let is_new = |group: &&Group| group.cells.iter().all(|cell| cell.status == Status::Missing);
    let mut models: BTreeMap<(String, &str), Vec<&CellName>> = BTreeMap::new();
    for group in prepared.groups.iter().filter(is_new) {
        let names = models.entry((group.model.to_string(), &group.revision)).or_default();
        names.extend(group.cells.iter().map(|cell| &cell.name));
    }
    let mut told = Vec::new();
    for ((model, revision), names) in models {
        for (other, cells) in ledger.other_revisions(&names, &model, revision)? {
            let cells = if cells == 1 { "a cell".to_string() } else { format!("{cells} cells") };
            told.push(format!(
                "{model} has other files than when {cells} of these names in {} were measured: its revision was {other}, \
                 and is {revision}; those rows stay, and it is measured anew beside them",
                ledger.folder().display()
            ));
        }
    }
    Ok(told)
}
