//! The rim: arguments in, text and exit codes out. Data goes to stdout, everything else to stderr.

mod args;
mod bars;
mod baseline;
mod compare;
mod doctor;
mod export;
mod failure;
mod fetch;
mod judge;
mod list;
mod merge;
mod progress;
mod report;
mod score;
mod sweeps;
mod worlds;
mod write;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::ledger::{Ledger, Row};
use crate::sweep;
use args::{Arguments, Command};
use failure::Usage;

/// Runs the program as it was called.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap's own help and version requests arrive here too.
            let code = if error.use_stderr() { 2 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match perform(&arguments.command) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn perform(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => return sweeps::run(arguments),
        Command::Plan(arguments) => return sweeps::plan(arguments),
        Command::Fetch(arguments) => return fetch::fetch(arguments),
        Command::Merge(arguments) => print(&merge::merge(arguments)?)?,
        Command::Report(arguments) => report::report(arguments)?,
        Command::Compare(arguments) => return compare::compare(arguments),
        Command::Baseline(arguments) => print(&baseline::baseline(arguments)?)?,
        Command::Judge(arguments) => return judge::judge(arguments),
        Command::Score(arguments) => print(&format!("{}\n", score::score(arguments)?))?,
        Command::Write(arguments) => print(&format!("{}\n", write::write(arguments)?))?,
        Command::Export(arguments) => print(&export::export(arguments)?)?,
        Command::List(arguments) => print(&list::list(arguments.what))?,
        Command::Schema => print(&sweep::json_schema()?)?,
        Command::Worlds(arguments) => worlds::write(arguments)?,
        Command::Doctor(arguments) => {
            let (text, code) = doctor::doctor(arguments)?;
            print(&text)?;
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Cores this process may use. A Slurm that does not bind tasks to their cores still says how many they have.
pub fn cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let granted = std::env::var("SLURM_CPUS_PER_TASK").ok().and_then(|text| text.trim().parse::<usize>().ok());
    granted.filter(|granted| *granted > 0).map_or(cores, |granted| granted.min(cores))
}

/// The threads to use where `--threads` was given or not.
fn threads(asked: Option<usize>) -> Result<usize> {
    match asked {
        Some(0) => Err(Usage::new("--threads 0 can do nothing", "leave it out to use every core").into()),
        Some(threads) => Ok(threads),
        None => Ok(cores()),
    }
}

/// Prints data; a reader that has gone away is no failure.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}

/// The rows of a results folder; a note says how many of its cells have none yet.
fn complete_rows(folder: &Path) -> Result<Vec<Row>> {
    let ledger = Ledger::existing(folder)?;
    let named = folder.display();
    match ledger.incomplete()?.len() {
        0 => {}
        1 => eprintln!("note: {named} has a cell that is unfinished or failed"),
        count => eprintln!("note: {named} has {count} cells that are unfinished or failed"),
    }
    ledger.rows()
}

fn fail(error: &anyhow::Error) -> ExitCode {
    // Hints belong at the end of the message, whichever cause carries them.
    let chain = format!("{error:#}");
    let (message, hints): (Vec<&str>, Vec<&str>) = chain.lines().partition(|line| !line.starts_with("hint:"));
    eprintln!("error: {}", message.join("\n"));
    for hint in hints {
        eprintln!("{hint}");
    }
    let usage = error.chain().any(|cause| cause.is::<Usage>() || cause.is::<crate::yaml::ConfigError>());
    ExitCode::from(if usage { 2 } else { 1 })
}
