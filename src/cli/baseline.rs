//! `baseline`: results saved in one file, to be committed and compared with later.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::error::UsageError;
use super::output::print;
use crate::compare::Origin;
use crate::format::counted;
use crate::ledger::{Current, Ledger, Row, Wanted, write_rows};
use crate::report::Size;

/// The folder of baselines unless `--dir` names another.
pub(super) const FOLDER: &str = "results/baselines";

/// Save results as a baseline to compare with
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// Where saved baselines are
    #[arg(long, value_name = "DIR", default_value = FOLDER, global = true)]
    dir: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write all rows of a results folder to one file, sorted, to be committed
    Save {
        /// Its name: letters, digits, dots, dashes, underscores, plus signs
        name: String,
        /// Results folder
        results: PathBuf,
        /// Save even if cells are unfinished, and replace a baseline of this name
        #[arg(long)]
        force: bool,
    },
}

/// The file of a baseline; `None` if the name is not allowed.
pub(super) fn path(folder: &Path, name: &str) -> Option<PathBuf> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
    let is_name = (1..=64).contains(&name.len())
        && name.chars().all(allowed)
        && !name.starts_with(['.', '-'])
        && !name.ends_with(".parquet");
    is_name.then(|| folder.join(format!("{name}.parquet")))
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let Action::Save { name, results, force } = &arguments.action;
    let folder = &arguments.dir;
    let hint = "use up to 64 letters, digits, dots, dashes, underscores and plus signs, such as `pocket`";
    let file = path(folder, name)
        .ok_or_else(|| UsageError::new(format!("`{name}` cannot be a baseline's name"), hint))?;
    let Current { mut rows, incomplete, .. } = Ledger::existing(results)?.current(Wanted::Complete)?;
    if incomplete > 0 && !force {
        bail!(
            "{} is not complete and lacks {}\n\
             hint: run the sweep again to measure the rest, or save what is there with --force",
            results.display(),
            counted(incomplete, "cell")
        );
    }
    if rows.is_empty() {
        bail!("{} holds no complete cell\nhint: run its sweep first", results.display());
    }
    if file.is_file() && !force {
        bail!(
            "{} is there already\nhint: `tova-bench compare {name} {}` says what differs; --force replaces it",
            file.display(),
            results.display()
        );
    }
    rows.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    write_rows(&file, &rows)?;
    let Origin { cells, rows, .. } = Origin::of(name, &rows);
    print(&format!("{}: {cells} cells, {rows} rows\n", file.display()))
}

/// Puts equal rows into the same order, whatever files they came from. Variants of a policy are in the order of what they are called,
/// because reports show them, and colour them, in the order of rows; ids change with the engine.
fn sort_key(row: &Row) -> impl Ord + '_ {
    let series = [&row.task, &row.dataset, &row.model, &row.policy, &row.positions];
    (series, &row.schedule, Size::of(row), [&row.cell, &row.sample, &row.metric], &row.slice)
}
