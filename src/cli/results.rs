//! Rows of results folders, for the commands that read them.

use std::path::Path;

use anyhow::Result;

use crate::format::counted;
use crate::ledger::{Ledger, Row};

/// The rows of all complete cells; a note on stderr counts the others.
pub(super) fn complete_rows(folder: &Path) -> Result<Vec<Row>> {
    let ledger = Ledger::existing(folder)?;
    let named = folder.display();
    match ledger.incomplete()?.len() {
        0 => {}
        1 => eprintln!("note: {named} has a cell that is unfinished or failed"),
        count => eprintln!("note: {named} has {} that are unfinished or failed", counted(count, "cell")),
    }
    ledger.rows()
}
