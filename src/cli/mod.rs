//! The rim: arguments in, text and exit codes out. Data goes to stdout, everything else to stderr.

mod args;
mod bars;
mod baseline;
mod compare;
mod doctor;
mod export;
mod failure;
mod forecast;
mod judge;
mod list;
mod progress;
mod score;
mod sweeps;
mod worlds;
mod write;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Parser;

use crate::report::paper::{self, Exhibit, Unknown};
use crate::report::{self, Format, Options};
use crate::results::{Ledger, Row, choose};
use crate::sweep;
use args::{Arguments, Command, ReportArguments, ReportFormat};
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
        Command::Report(arguments) => report(arguments)?,
        Command::Compare(arguments) => return compare::compare(arguments),
        Command::Baseline(arguments) => print(&baseline::baseline(arguments)?)?,
        Command::Judge(arguments) => return judge::judge(arguments),
        Command::Score(arguments) => print(&format!("{}\n", score::score(arguments)?))?,
        Command::Write(arguments) => print(&format!("{}\n", write::write(arguments)?))?,
        Command::Export(arguments) => print(&export::export(arguments)?)?,
        Command::List(arguments) => print(&list::list(arguments.what))?,
        Command::Schema => print(&sweep::json_schema()?)?,
        Command::Worlds(arguments) => worlds::write(arguments)?,
        Command::Doctor(arguments) => print(&doctor::doctor(arguments)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn report(arguments: &ReportArguments) -> Result<()> {
    let exhibits = exhibits(&arguments.figure)?;
    let mut rows = Vec::new();
    for folder in &arguments.results {
        rows.append(&mut Ledger::existing(folder)?.rows()?);
    }
    let rows = choose(rows, &arguments.only).map_err(Usage::from_error)?;
    let out = arguments.out.as_ref().unwrap_or(&arguments.results[0]);
    if !exhibits.is_empty() {
        return redraw(arguments, &exhibits, &rows, out);
    }
    let formats = formats(arguments).unwrap_or_else(|| Format::USUAL.to_vec());
    let written = report::write(&rows, &Options { out: out.clone(), formats, within: arguments.within.clone() })?;
    print(&written.terminal)?;
    for file in &written.files {
        eprintln!("{}", file.display());
    }
    Ok(())
}

/// The formats that were asked for, if any were.
fn formats(arguments: &ReportArguments) -> Option<Vec<Format>> {
    let format = |asked: &ReportFormat| match asked {
        ReportFormat::Md => Format::Markdown,
        ReportFormat::Csv => Format::Csv,
        ReportFormat::Html => Format::Html,
        ReportFormat::Tex => Format::Latex,
        ReportFormat::Svg => Format::Svg,
        ReportFormat::Png => Format::Png,
        ReportFormat::Pdf => Format::Pdf,
    };
    (!arguments.format.is_empty()).then(|| arguments.format.iter().map(format).collect())
}

/// What `--figure` names, in the paper's order.
fn exhibits(asked: &[String]) -> Result<Vec<Exhibit>> {
    let mut exhibits = Vec::new();
    for text in asked {
        match text.trim() {
            "all" => exhibits.extend(Exhibit::ALL),
            _ => exhibits
                .push(Exhibit::parse(text).map_err(|error| Usage::new(error.to_string(), Unknown::hint()))?),
        }
    }
    exhibits.sort();
    exhibits.dedup();
    Ok(exhibits)
}

/// Figures and tables of the paper.
fn redraw(arguments: &ReportArguments, exhibits: &[Exhibit], rows: &[Row], out: &Path) -> Result<()> {
    let usual = [Format::Markdown, Format::Csv, Format::Svg, Format::Png, Format::Pdf];
    let options = paper::Options {
        out: out.to_owned(),
        formats: formats(arguments).unwrap_or_else(|| usual.to_vec()),
        columns: arguments.columns,
        beside_paper: arguments.paper,
    };
    let drawn = paper::draw(rows, exhibits, &options)?;
    print(&drawn.terminal)?;
    for file in &drawn.files {
        eprintln!("{}", file.display());
    }
    for note in &drawn.notes {
        eprintln!("note: {note}");
    }
    // Of everything, what rows do not have is no mistake; unless they have nothing.
    let all = exhibits.len() == Exhibit::ALL.len();
    if all && drawn.missing.len() < exhibits.len() {
        for missing in &drawn.missing {
            eprintln!("not drawn: {}", missing.replace("\nhint: ", "; "));
        }
        return Ok(());
    }
    if drawn.missing.is_empty() { Ok(()) } else { Err(anyhow!(drawn.missing.join("\n"))) }
}

/// Cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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

fn fail(error: &anyhow::Error) -> ExitCode {
    // Hints belong at the end of the message, whichever cause carries them.
    let chain = format!("{error:#}");
    let (message, hints): (Vec<&str>, Vec<&str>) = chain.lines().partition(|line| !line.starts_with("hint:"));
    eprintln!("error: {}", message.join("\n"));
    for hint in hints {
        eprintln!("{hint}");
    }
    let usage = error.chain().any(|cause| cause.is::<Usage>() || cause.is::<crate::sweep::ConfigError>());
    ExitCode::from(if usage { 2 } else { 1 })
}
