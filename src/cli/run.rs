//! `run`: measures what a sweep still lacks, then draws the report.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use clap::Args;

use super::output::print;
use super::progress::{Downloads, Progress};
use super::report::say_where;
use super::signals::Interrupt;
use super::sweep_args::SweepArguments;
use crate::format::counted;
use crate::ledger::{Current, Ledger, Wanted};
use crate::lm::source::HubSettings;
use crate::lm::{Device, DeviceChoice, DeviceLocation, machine_name};
use crate::paper;
use crate::report::{Options, distinct};
use crate::run::{self, Event, Machine, Outcome};

/// Measure the cells of a sweep, then report; cells that are done are skipped
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    sweep: SweepArguments,
    /// Cells to measure at the same time: one per GPU, counting up from --device; on the CPU the jobs share the threads
    #[arg(long, env = "TOVA_BENCH_JOBS", default_value = "1", value_name = "N")]
    jobs: NonZeroUsize,
    /// Measure only, draw nothing
    #[arg(long)]
    no_report: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let sweep = arguments.sweep.sweep()?;
    let threads = arguments.sweep.machine.threads();
    let folder = arguments.sweep.results_folder(&sweep);
    let devices = devices(arguments.sweep.machine.device, arguments.jobs.get())?;
    let selection = arguments.sweep.selection()?;
    // Checked before the results folder is made.
    selection.of(sweep.expand())?;
    let hub = HubSettings::from_env()?;
    let ledger = Ledger::open(&folder)?;
    let name = machine_name(&devices[0], threads);
    let prepared = run::prepare(&sweep, &selection, Some(&ledger), &hub, &Downloads::new(), &name)?;
    for warning in run::changed_models(&prepared, &ledger)? {
        eprintln!("warning: {warning}");
    }
    ledger.set_manifest(prepared.manifest.clone())?;
    // Downloads do not look at the flag, so until here a signal ends the program at once.
    let interrupt = Interrupt::listen()?;
    let machine = Machine { devices, threads, stop: interrupt.stop.clone() };
    let progress = Mutex::new(RunProgress { progress: Progress::new(), tokens: 0, cells: 0, cells_done: 0 });
    let lock = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = run::run(&sweep.name, &prepared, &ledger, &machine, &|event| lock().show(&event));
    lock().progress.finish();
    let outcome = outcome?;
    // The summary is printed even if drawing fails.
    ledger.write_current()?;
    let drawn = if arguments.no_report { Ok(()) } else { draw(&ledger) };
    eprintln!("{}", summary(&outcome, prepared.elsewhere));
    drawn.with_context(|| {
        format!("the results are kept, but not drawn; `tova-bench report {}` draws them", folder.display())
    })?;
    if outcome.interrupted {
        return Ok(interrupt.exit_code());
    }
    Ok(ExitCode::from(if outcome.failed > 0 { 4 } else { 0 }))
}

/// A device for each job: GPUs counting up from the chosen one, or the CPU for all.
fn devices(choice: DeviceChoice, jobs: usize) -> Result<Vec<Device>> {
    let first = choice.open()?;
    let DeviceLocation::Cuda { gpu_id } = first.location() else { return Ok(vec![first; jobs]) };
    let others = (gpu_id + 1..gpu_id + jobs).map(|ordinal| {
        DeviceChoice::Cuda(ordinal)
            .open()
            .with_context(|| format!("--jobs {jobs} needs a GPU for each job\nhint: use no more jobs than GPUs"))
    });
    std::iter::once(Ok(first)).chain(others).collect()
}

fn draw(ledger: &Ledger) -> Result<()> {
    let Current { rows, unfinished, .. } = ledger.current(Wanted::Measured)?;
    if rows.is_empty() {
        return Ok(());
    }
    let folder = ledger.folder();
    let written = paper::write_report(&distinct(rows), &Options { unfinished, ..Options::everything(folder) })?;
    print(&written.terminal)?;
    say_where(&written, folder);
    Ok(())
}

fn summary(outcome: &Outcome, elsewhere: usize) -> String {
    let Outcome { done, skipped, failed, taken, .. } = outcome;
    let mut text = format!("{done} cells measured, {skipped} were there already, {failed} failed");
    if *taken > 0 {
        text += &format!(", {taken} measured by another process");
    }
    if elsewhere > 0 {
        text += &format!(", {elsewhere} left to other shards");
    }
    text
}

/// Shows the events of a run on stderr.
struct RunProgress {
    progress: Progress,
    tokens: u64,
    cells: usize,
    cells_done: usize,
}

impl RunProgress {
    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Started { tokens, cells, skipped } => {
                if *skipped > 0 {
                    self.progress.print(&format!("{} measured already, skipped", counted(*skipped, "cell")));
                }
                self.cells = *cells;
                self.progress.start(*tokens, 0);
            }
            Event::Loading(model) => self.progress.print(&format!("loading {model}")),
            Event::Sample { cell, sample, tokens, samples_left } => {
                self.tokens += tokens;
                let rate = self.tokens as f64 / self.progress.seconds() / 1e3;
                let summary = format!("{}/{} cells, {rate:.1} k tokens/s", self.cells_done, self.cells);
                let size = cell.cell.size().map_or(String::new(), |size| format!(" {size}"));
                let details = format!("{}{size}: {sample}, {samples_left} samples left", cell.cell.policy);
                self.progress.update(self.tokens, summary, details);
            }
            Event::CellDone(_) => self.cells_done += 1,
            Event::CellFailed { cell, error } => self.progress.print(&format!("failed: {cell}: {error:#}")),
            Event::CellTaken(cell) => {
                self.progress.print(&format!("{} is being measured by another process", cell.name.stem()));
            }
            Event::Warning(message) => self.progress.print(&format!("warning: {message}")),
        }
    }
}
