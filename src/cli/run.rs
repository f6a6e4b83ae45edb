//! `run`: measures what a sweep still lacks, then draws the report.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;

use super::error;
use super::machine_args::{open, up_to};
use super::output::print_report;
use super::progress::{Mode, Progress, lock, write_event};
use super::report::{pages, say_where};
use super::signals::Interrupt;
use super::sweep_args::SweepArguments;
use super::sweep_notes;
use super::terminal;
use crate::format::counted;
use crate::ledger::{Current, Ledger, Row};
use crate::lm::source::HubSettings;
use crate::lm::{Device, DeviceChoice, machine_name};
use crate::metric::NOT_MEASURED;
use crate::paper;
use crate::report::{Options, WIDTH, Written, unmeasured, with_unique_names};
use crate::run::{self, Machine, MissingPath, Outcome, Prepared};

/// More than a machine has GPUs, or memory for models and caches side by side.
const MOST_JOBS: usize = 256;

/// Measure the cells of a sweep, then report; cells that are done are skipped
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    sweep: SweepArguments,
    /// Cells to measure at the same time: one per GPU, counting up from --device; on the CPU the jobs share the threads
    #[arg(long, env = "TOVA_BENCH_JOBS", default_value = "1", value_name = "N", value_parser = up_to(MOST_JOBS))]
    jobs: u64,
    /// Measure only, draw nothing
    #[arg(long)]
    no_report: bool,
    /// What to show on stderr meanwhile
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    progress: Mode,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let ended = measure(arguments);
    match ended {
        Err(error) if arguments.progress == Mode::Json => {
            let exit_code = error::code(&error);
            write_event("error", json!({ "message": format!("{error:#}"), "exit_code": exit_code }));
            Ok(exit_code)
        }
        ended => ended,
    }
}

fn measure(arguments: &Arguments) -> Result<u8> {
    let mode = arguments.progress;
    let sweep = arguments.sweep.sweep()?;
    let threads = arguments.sweep.machine.threads();
    let folder = arguments.sweep.results_folder(&sweep);
    let devices = devices(arguments.sweep.machine.device, arguments.jobs as usize, mode)?;
    // Checked before the results folder is made.
    let cells = arguments.sweep.cells(&sweep, mode)?;
    let hub = HubSettings::from_env()?;
    let ledger = Ledger::open(&folder)?;
    let name = machine_name(&devices[0], threads);
    let progress = Arc::new(Progress::new(mode));
    let prepared = run::prepare(&sweep, &cells, Some(&ledger), &hub, &*progress, &name)?;
    sweep_notes::without_template(&prepared).iter().for_each(|note| mode.note(note));
    if let Some((former, cells)) = ledger.set_manifest(prepared.manifest.clone())? {
        let (cells, folder) = (counted(cells, "cell"), folder.display());
        mode.note(&format!(
            "{folder} keeps {cells} of the sweep run here before (`{former}`) that this one does not have; its report and \
             rows.parquet are replaced by this one's, and `tova-bench report {folder} --all` shows all cells"
        ));
    }
    // Downloads do not look at the flag, so until here a signal ends the program at once.
    let interrupt = Interrupt::listen()?;
    let machine = Machine { devices, threads, stop: interrupt.stop.clone() };
    let shown = Arc::clone(&progress);
    interrupt.on_first(move || lock(&shown).stop())?;
    let outcome = run::run(&sweep.name, &prepared, &ledger, &machine, &|event| lock(&progress).show(&event));
    lock(&progress).bar.finish_and_clear();
    let outcome = outcome?;
    // The summary is printed even if drawing fails.
    let current = ledger.write_current()?;
    let exceptions = exceptions(&current.rows);
    let is_measured = current.rows.iter().all(|row| row.metric != NOT_MEASURED);
    let drawn = if arguments.no_report { Ok(None) } else { draw(current, &folder, mode) };
    let written = drawn.as_ref().ok().and_then(Option::as_ref);
    lock(&progress).finish(&outcome, prepared.in_other_shards, &folder, written.and_then(Written::page));
    exceptions.iter().for_each(|note| mode.note(note));
    drawn.with_context(|| {
        format!("the results are kept, but not drawn; `tova-bench report {}` draws them", folder.display())
    })?;
    if outcome.interrupted {
        return Ok(interrupt.exit_code(mode));
    }
    let code = code(&outcome, &prepared);
    Ok(if code == 0 && !is_measured { 4 } else { code })
}

/// Notes on samples that could not be measured, or only with more entries than asked for.
fn exceptions(rows: &[Row]) -> Vec<String> {
    let setting = |row: &Row| (row.model.clone(), row.task.clone(), row.dataset.clone());
    let of_setting = |rows: &[Row]| {
        let (model, task, dataset) = setting(&rows[0]);
        let notes = unmeasured(&rows.iter().collect::<Vec<_>>());
        notes.into_iter().map(|note| format!("{task} on {dataset} with {model}: {note}")).collect::<Vec<_>>()
    };
    rows.chunk_by(|a, b| setting(a) == setting(b)).flat_map(of_setting).collect()
}

/// 4 says that the cells that did not fail are measured; where there are none, a wrong path is a mistake in the sweep.
fn code(outcome: &Outcome, prepared: &Prepared) -> u8 {
    let is_path_wrong = || prepared.unavailable.iter().any(|unavailable| unavailable.error.is::<MissingPath>());
    match outcome.failed {
        0 => 0,
        _ if outcome.done + outcome.skipped + outcome.taken > 0 => 4,
        _ if is_path_wrong() => 2,
        _ => 1,
    }
}

/// A device for each job: GPUs counting up from the chosen one, or the CPU for all.
fn devices(choice: DeviceChoice, jobs: usize, mode: Mode) -> Result<Vec<Device>> {
    let first = open(choice, mode)?;
    let Some(gpu) = first.gpu() else { return Ok(vec![first; jobs]) };
    let others = (gpu + 1..gpu + jobs).map(|ordinal| {
        open(DeviceChoice::Cuda(ordinal), mode)
            .with_context(|| format!("--jobs {jobs} needs a GPU for each job\nhint: use no more jobs than GPUs"))
    });
    std::iter::once(Ok(first)).chain(others).collect()
}

/// Draws what is measured, and prints the tables.
fn draw(current: Current, folder: &Path, mode: Mode) -> Result<Option<Written>> {
    let Current { rows, unfinished, failed, contrasts, .. } = current;
    if rows.is_empty() {
        return Ok(None);
    }
    let rows = with_unique_names(rows);
    let pages = pages(folder, &rows)?;
    let (width, is_dimmed) = (terminal::columns(WIDTH), terminal::is_dimmed());
    let options =
        Options { unfinished, failed, contrasts, pages, width, is_dimmed, ..Options::everything(folder) };
    let written = paper::write_report(&rows, &options, &[])?;
    print_report(&written.terminal)?;
    if mode != Mode::Json {
        say_where(&written, folder);
    }
    Ok(Some(written))
}
