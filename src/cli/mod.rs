//! The command line: arguments in, text and exit codes out. Data goes to stdout, everything else to stderr.
//!
//! A command is one file: its arguments with their help, and a function `run`; and one line in the list below.
//! Arguments that several commands share are in the files `*_args.rs`.

mod baseline;
mod compare;
mod completions;
mod doctor;
mod fetch;
mod judge;
mod list;
mod manual;
mod merge;
mod plan;
mod report;
mod run;
mod schema;
mod score;
mod show;
mod write;

mod error;
mod machine_args;
mod output;
mod progress;
mod results;
mod run_progress;
mod signals;
mod sweep_args;
mod sweep_notes;
mod terminal;
mod text_args;

use std::borrow::Cow;
use std::ffi::OsString;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::format::printable;
use output::tell;

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

/// The enum of commands that clap parses into, and the call of each one's `run`.
macro_rules! commands {
    ($($Command:ident => $file:ident),* $(,)?) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($Command($file::Arguments)),*
        }

        impl Command {
            fn run(&self) -> Result<u8> {
                match self {
                    $(Command::$Command(arguments) => $file::run(arguments)),*
                }
            }
        }
    };
}

// In the order of `--help`.
commands! {
    Run => run,
    Plan => plan,
    Fetch => fetch,
    Merge => merge,
    Report => report,
    Compare => compare,
    Baseline => baseline,
    Judge => judge,
    Score => score,
    Write => write,
    Show => show,
    List => list,
    Schema => schema,
    Completions => completions,
    Manual => manual,
    Doctor => doctor,
}

/// Runs the program with these arguments, its own name first. Returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    match Program::try_parse_from(arguments) {
        Ok(program) => program.command.run().unwrap_or_else(|error| error::show(&error)),
        Err(error) => {
            // Requests for help and for the version arrive here too, and whatever a shell made of `*`.
            match printable(&error.to_string()) {
                Cow::Borrowed(_) => drop(error.print()),
                Cow::Owned(text) => tell(text.trim_end()),
            }
            if error.use_stderr() { 2 } else { 0 }
        }
    }
}
