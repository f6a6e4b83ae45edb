//! `baseline`: results saved in one file, to be committed and compared with later.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};

use super::error::UsageError;
use super::output::{print, tell};
use crate::compare::Origin;
use crate::format::counted;
use crate::ledger::{Current, Ledger, Row, Text, Wanted, read_rows, write_rows};
use crate::report::{Size, escape, order};

/// Where baselines are unless `--dir` says otherwise.
pub(super) const FOLDER: &str = "results/baselines";

/// Save results as a baseline to compare with, or show one
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
    Save(SaveArguments),
    /// Show what a saved baseline holds
    Show {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
struct SaveArguments {
    /// Its name: letters, digits, dots, dashes, underscores, plus signs
    name: String,
    /// Results folder [default: that of the sweep that was run last, below `results`]
    results: Option<PathBuf>,
    /// Save even if cells are unfinished, and replace a baseline of the same engine version
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    print(&match &arguments.action {
        Action::Save(what) => save(what, &arguments.dir)?,
        Action::Show { name } => show(name, &arguments.dir)?,
    })
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

fn checked_path(folder: &Path, name: &str) -> Result<PathBuf> {
    let hint = "use up to 64 letters, digits, dots, dashes, underscores and plus signs, such as `pocket`";
    Ok(path(folder, name).ok_or_else(|| UsageError::new(format!("`{name}` cannot be a baseline's name"), hint))?)
}

/// The error for a name that no baseline has.
pub(super) fn unknown(message: impl Display) -> anyhow::Error {
    UsageError::new(message, "saved baselines are the .parquet files in `--dir`, results/baselines by default")
        .into()
}

fn save(arguments: &SaveArguments, folder: &Path) -> Result<String> {
    let SaveArguments { name, results, force } = arguments;
    let file = checked_path(folder, name)?;
    let results = &match results {
        Some(results) => results.clone(),
        None => last_run()?,
    };
    let Current { mut rows, incomplete, .. } = Ledger::existing(results)?.current(Wanted::Complete)?;
    if incomplete > 0 && !force {
        bail!(
            "{} is not complete and lacks {}\n\
             hint: run the sweep again to measure the rest, or save what is there with --force",
            results.display(),
            counted(incomplete, "cell")
        );
    }
    let Some(engine) = rows.iter().map(|row| row.engine).max() else {
        bail!("{} holds no complete cell\nhint: run its sweep first", results.display())
    };
    rows.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    if file.is_file() && !force {
        let before = read_rows(&file).map_err(|error| anyhow!("{error:#}\nhint: --force replaces it"))?;
        let was = before.iter().map(|row| row.engine).max().unwrap_or(0);
        if without_volatile(&before) == without_volatile(&rows) {
            return Ok(format!("{} holds these numbers already\n", file.display()));
        }
        if was >= engine {
            bail!(
                "{} holds other numbers of engine {was}, and these are of engine {engine}\n\
                 hint: `tova-bench compare {name} {} --exact` shows what differs; if numbers were meant to change, raise the engine \
                 version and measure again; --force replaces the baseline anyway",
                file.display(),
                results.display()
            );
        }
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    write_rows(&file, &rows)?;
    let Origin { cells, rows, .. } = Origin::of(name, &rows);
    Ok(format!("{}: {cells} cells, {rows} rows, engine {engine}\n", file.display()))
}

/// The folder below `results` in which a sweep was run last.
fn last_run() -> Result<PathBuf> {
    let folders = std::fs::read_dir("results").into_iter().flatten().flatten().map(|entry| entry.path());
    let ended = |folder: &PathBuf| folder.join("rows.parquet").metadata().and_then(|file| file.modified()).ok();
    let last = folders.filter_map(|folder| Some((ended(&folder)?, folder))).max();
    let (_, folder) = last.ok_or_else(|| {
        UsageError::new(
            "there is no results folder below `results`",
            "name the folder to save: `baseline save NAME RESULTS`",
        )
    })?;
    tell(format!("note: {} was run last", folder.display()));
    Ok(folder)
}

/// Puts the same rows into the same order, whatever files they came from. Variants of a policy are in the order of what they are called,
/// because reports show them, and colour them, in the order of rows; ids change with the engine.
fn sort_key(row: &Row) -> impl Ord + '_ {
    let series = [&row.task, &row.dataset, &row.model, &row.policy, &row.positions];
    (series, &row.schedule, Size::of(row), [&row.cell, &row.sample, &row.metric], &row.slice)
}

/// The rows without what differs between two runs of the same thing.
fn without_volatile(rows: &[Row]) -> Vec<String> {
    let plain = |row: &Row| Row { seconds: 0.0, date: Text::new(), commit: None, ..row.clone() };
    // As text, since NaN differs from itself.
    rows.iter().map(|row| format!("{:?}", plain(row))).collect()
}

fn show(name: &str, folder: &Path) -> Result<String> {
    let file = checked_path(folder, name)?;
    if !file.is_file() {
        return Err(unknown(format!("there is no baseline `{name}` in {}", folder.display())));
    }
    let rows = read_rows(&file)?;
    let Origin { cells, engines, devices, dates, .. } = Origin::of(name, &rows);
    let day = |date: Text| date.split('T').next().unwrap_or_default().to_owned();
    let measured: BTreeSet<String> = dates.into_iter().flat_map(|(first, last)| [day(first), day(last)]).collect();
    let policies: BTreeSet<Cow<'_, str>> = rows.iter().map(Row::variant).collect();
    let mut policies = Vec::from_iter(policies);
    policies.sort_by(|a, b| order::of(a).cmp(&order::of(b)));
    let sizes: BTreeSet<Size> = rows.iter().filter_map(Size::of).collect();
    let metrics: BTreeSet<&str> = rows.iter().map(|row| row.metric.as_str()).collect();
    Ok(format!(
        "{name}: {cells} cells, {} rows\nengine {}, measured {} on {}\npolicies     {}\ncache sizes  {}\nmetrics      {}\n",
        rows.len(),
        joined(engines, " "),
        joined(measured, " to "),
        joined(devices, "; "),
        joined(policies, " "),
        joined(sizes, " "),
        joined(metrics, " ")
    ))
}

fn joined<T: ToString>(values: impl IntoIterator<Item = T>, separator: &str) -> String {
    escape::plain(&values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(separator))
}
