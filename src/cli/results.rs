//! Rows of results folders, for the commands that read them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use super::machine_args::cores;
use super::output::tell;
use crate::format::counted;
use crate::ledger::{Current, Ledger, Manifest, Row, Wanted, read_rows};
use crate::lm::source::HubSettings;
use crate::lm::{Device, machine_name};
use crate::run;
use crate::sweep::{Selection, Sweep};

/// Flags that say which cells of a results folder are read.
#[derive(Clone, Debug, Args)]
pub(super) struct CellArguments {
    /// Everything: every table in the terminal, and the cells of the folder that the sweep run last does not have
    #[arg(long)]
    pub(super) all: bool,
    /// The cells of this sweep, instead of the one that was run last in the folder; its models and texts must be on this
    /// machine
    #[arg(long, value_name = "SWEEP", conflicts_with = "all")]
    sweep: Option<PathBuf>,
}

impl CellArguments {
    /// The rows of a folder, or of a file of rows. Notes on stderr say what is left out.
    pub(super) fn read(&self, folder: &Path, wanted: Wanted) -> Result<Current> {
        // A saved baseline has one sweep's rows.
        if folder.is_file() {
            return Ok(Current { rows: read_rows(folder)?, ..Current::default() });
        }
        let ledger = Ledger::existing(folder)?;
        let current = match &self.sweep {
            Some(sweep) => ledger.rows_of_sweep(&manifest(sweep)?, wanted),
            None => ledger.current(if self.all { Wanted::All } else { wanted }),
        }?;
        note(folder, &current, "; --all takes them in");
        Ok(current)
    }
}

/// The rows of a folder's complete cells, for commands without a choice.
pub(super) fn complete_rows(folder: &Path) -> Result<Vec<Row>> {
    let current = Ledger::existing(folder)?.current(Wanted::Complete)?;
    note(folder, &current, "");
    Ok(current.rows)
}

fn note(folder: &Path, current: &Current, hint: &str) {
    let folder = folder.display();
    if current.others > 0 {
        tell(format!(
            "note: {folder} also has {} of other sweeps or definitions{hint}",
            counted(current.others, "cell")
        ));
    }
    if current.incomplete > 0 {
        tell(format!("note: {folder} lacks {} of its sweep", counted(current.incomplete, "cell")));
    }
}

/// The cells of a sweep that is not run.
fn manifest(sweep: &Path) -> Result<Manifest> {
    let sweep = Sweep::read(sweep, &[])?;
    let cells = Selection::default().of(&sweep)?;
    let hub = HubSettings { offline: true, ..HubSettings::from_env()? };
    let machine = machine_name(&Device::CPU, cores());
    let prepared = run::prepare(&sweep, &cells, None, &hub, &(), &machine)?;
    if let Some(unavailable) = prepared.unavailable.into_iter().next() {
        let what = format!("the cells of {} with {} are not known", unavailable.task, unavailable.model);
        return Err(unavailable.error).context(what);
    }
    Ok(prepared.manifest)
}
