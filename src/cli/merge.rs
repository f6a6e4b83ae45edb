//! `merge`: the results of several folders in one.

use anyhow::{Context, Result};

use super::args::MergeArguments;
use super::sweeps::cells_of;
use crate::ledger::Ledger;

pub(super) fn merge(arguments: &MergeArguments) -> Result<String> {
    // A slip in a name shall not leave half of the work behind it.
    let folders = arguments.results.iter().map(|folder| Ledger::existing(folder)).collect::<Result<Vec<_>>>()?;
    let out = Ledger::open(&arguments.out)?;
    let mut text = String::new();
    let mut unfinished = 0;
    for folder in &folders {
        let shown = folder.folder().display();
        let merged = out.merge(folder).with_context(|| format!("{shown} is not merged, or only in part"))?;
        text += &format!("{shown}: {} copied", cells_of(merged.copied));
        if merged.same > 0 {
            text += &format!(", {} there already", merged.same);
        }
        text += "\n";
        for name in &merged.different {
            eprintln!("note: {name} has other numbers in {shown}; those that were there first are kept");
        }
        unfinished += merged.unfinished;
    }
    if unfinished > 0 {
        eprintln!(
            "note: {} not complete; `tova-bench run SWEEP --results {}` continues",
            if unfinished == 1 { "1 cell is".into() } else { format!("{unfinished} cells are") },
            out.folder().display()
        );
    }
    Ok(text)
}
