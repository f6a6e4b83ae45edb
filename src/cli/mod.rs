//! The command line: arguments in, text and exit codes out. Data goes to stdout, everything else to stderr.
//!
//! A command is one file: its arguments with their help, and a function `run`, which returns the text to print, or prints
//! by itself and returns the exit code. Arguments that several commands share are in the files `*_args.rs`.

mod baseline;
mod compare;
mod doctor;
mod export;
mod fetch;
mod judge;
mod list;
mod merge;
mod plan;
mod report;
mod run;
mod score;
mod worlds;
mod write;

mod error;
mod machine_args;
mod output;
mod progress;
mod results;
mod signals;
mod sweep_args;
mod text_args;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// How small can a transformer's key-value cache be?
///
/// Reads a sweep over models, cache policies and cache sizes, measures every cell exactly, writes Parquet rows and draws
/// curves. Running the same command again continues where it stopped.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 `compare` found a regression or\n\
missing results, 4 some cells failed (the others are measured),\n\
130, 138 or 143 interrupted by SIGINT, SIGUSR1 or SIGTERM (run again to continue)."
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

// In the order of `--help`.
#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Plan(plan::Arguments),
    Fetch(fetch::Arguments),
    Merge(merge::Arguments),
    Report(report::Arguments),
    Compare(compare::Arguments),
    Baseline(baseline::Arguments),
    Judge(judge::Arguments),
    Score(score::Arguments),
    Write(write::Arguments),
    Export(export::Arguments),
    List(list::Arguments),
    /// Print the JSON Schema of sweep files, for completion and checks in editors
    ///
    /// Save it beside a sweep, `tova-bench schema > sweep.schema.json`, and begin the sweep with the line
    /// `# yaml-language-server: $schema=sweep.schema.json`.
    Schema,
    Worlds(worlds::Arguments),
    Doctor(doctor::Arguments),
}

impl Command {
    fn run(&self) -> Result<ExitCode> {
        let answer = match self {
            Command::Run(arguments) => return run::run(arguments),
            Command::Plan(arguments) => return plan::run(arguments),
            Command::Fetch(arguments) => return fetch::run(arguments),
            Command::Report(arguments) => return report::run(arguments),
            Command::Compare(arguments) => return compare::run(arguments),
            Command::Judge(arguments) => return judge::run(arguments),
            Command::Doctor(arguments) => return doctor::run(arguments),
            Command::Merge(arguments) => merge::run(arguments)?,
            Command::Baseline(arguments) => baseline::run(arguments)?,
            Command::Score(arguments) => score::run(arguments)?,
            Command::Write(arguments) => write::run(arguments)?,
            Command::Export(arguments) => export::run(arguments)?,
            Command::List(arguments) => list::run(arguments)?,
            Command::Worlds(arguments) => worlds::run(arguments)?,
            Command::Schema => crate::sweep::json_schema()?,
        };
        output::print(&answer)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    match Program::try_parse() {
        Ok(program) => program.command.run().unwrap_or_else(|error| error::show(&error)),
        Err(error) => {
            // Requests for help and for the version arrive here too.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { 2 } else { 0 })
        }
    }
}
