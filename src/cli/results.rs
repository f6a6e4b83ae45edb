//! Rows of results folders, for the commands that read them.

use std::path::Path;

use anyhow::Result;

use crate::ledger::{Ledger, Row};

/// The rows of all complete cells; a note on stderr counts the others.
pub(super) fn complete_rows(folder: &Path) -> Result<Vec<Row>> {
    let ledger = Ledger::existing(folder)?;
    match ledger.incomplete()?.len() {
        0 => {}
        1 => eprintln!("note: {} has a cell that is unfinished or failed", folder.display()),
        count => eprintln!("note: {} has {count} cells that are unfinished or failed", folder.display()),
    }
    ledger.rows()
}
