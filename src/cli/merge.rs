//! `merge`: the results of several folders in one.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::output::{print, tell};
use crate::format::counted;
use crate::ledger::Ledger;

/// Merge the results of several folders, such as those of shards, into one
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The results folder to make, or to add to
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Results folders to merge; they are not changed
    #[arg(required = true, value_name = "RESULTS")]
    results: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    // All are opened first, so that a misspelt one does not leave half of the work done.
    let folders = arguments.results.iter().map(|folder| Ledger::existing(folder)).collect::<Result<Vec<_>>>()?;
    let out = Ledger::open(&arguments.out)?;
    let mut text = String::new();
    let mut unfinished = 0;
    for folder in &folders {
        let shown = folder.folder().display();
        let merged = out.merge(folder).with_context(|| format!("{shown} is not merged, or only in part"))?;
        text += &format!("{shown}: {} copied", counted(merged.copied, "cell"));
        if merged.kept > 0 {
            text += &format!(", {} there already", merged.kept);
        }
        text += "\n";
        unfinished += merged.unfinished;
    }
    out.write_current()?;
    if unfinished > 0 {
        let (cells, out) = (counted(unfinished, "cell"), out.folder().display());
        tell(format!("note: not complete: {cells}; `tova-bench run SWEEP --results {out}` continues"));
    }
    print(&text)
}
