//! `run`: measures what a sweep still lacks, then draws the report.

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use clap::Args;

use super::machine_args::open;
use super::output::print;
use super::progress::{Downloads, Progress};
use super::report::say_where;
use super::signals::Interrupt;
use super::sweep_args::SweepArguments;
use crate::format::counted;
use crate::ledger::{Current, Ledger};
use crate::lm::source::HubSettings;
use crate::lm::{Device, DeviceChoice, machine_name};
use crate::paper;
use crate::report::{Options, distinct};
use crate::run::{self, Event, Machine, Outcome, Started};

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
    // Checked before the results folder is made.
    let selection = arguments.sweep.selection(&sweep)?;
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
    let progress = Mutex::new(RunProgress::new());
    let lock = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = run::run(&sweep.name, &prepared, &ledger, &machine, &|event| lock().show(&event));
    lock().progress.finish();
    let outcome = outcome?;
    // The summary is printed even if drawing fails.
    let current = ledger.write_current()?;
    let drawn = if arguments.no_report { Ok(()) } else { draw(current, &folder) };
    if outcome.interrupted {
        eprintln!("{}", lock().kept());
    }
    if !outcome.interrupted || outcome.done + outcome.skipped + outcome.failed > 0 {
        eprintln!("{}", summary(&outcome, prepared.elsewhere));
    }
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
    let first = open(choice)?;
    let Some(gpu) = first.gpu() else { return Ok(vec![first; jobs]) };
    let others = (gpu + 1..gpu + jobs).map(|ordinal| {
        open(DeviceChoice::Cuda(ordinal))
            .with_context(|| format!("--jobs {jobs} needs a GPU for each job\nhint: use no more jobs than GPUs"))
    });
    std::iter::once(Ok(first)).chain(others).collect()
}

fn draw(Current { rows, unfinished, .. }: Current, folder: &Path) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
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
    started: Started,
    /// Of this run.
    tokens: u64,
    samples: usize,
    seconds: f64,
    cells_done: usize,
}

impl RunProgress {
    fn new() -> RunProgress {
        let (progress, started) = (Progress::new(), Started::default());
        RunProgress { progress, started, tokens: 0, samples: 0, seconds: 0.0, cells_done: 0 }
    }

    /// What this run and earlier ones have measured.
    fn kept(&self) -> String {
        let Started { samples, kept, .. } = self.started;
        let kept = kept + self.samples;
        format!("kept: {kept} of {samples} samples ({} %)", 100 * kept / samples.max(1))
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Started(started) => {
                self.started = *started;
                if started.skipped > 0 {
                    self.progress
                        .print(&format!("{} measured already, skipped", counted(started.skipped, "cell")));
                }
                if started.cells > 0 && started.kept > 0 {
                    self.progress.print(&self.kept());
                }
                self.progress.start(milliseconds(started.seconds), milliseconds(started.kept_seconds));
            }
            Event::Loading(model) => self.progress.print(&format!("loading {model}")),
            Event::Sample { cell, sample, tokens, seconds, samples_left } => {
                self.tokens += tokens;
                self.samples += 1;
                self.seconds += seconds;
                let rate = self.tokens as f64 / self.progress.seconds() / 1e3;
                let samples = format!("{}/{} samples", self.started.kept + self.samples, self.started.samples);
                let cells = format!("{}/{} cells", self.cells_done, self.started.cells);
                let summary = format!("{samples}, {cells}, {rate:.1} k tokens/s");
                let size = cell.cell.size().map_or(String::new(), |size| format!(" {size}"));
                let details = format!("{}{size}: {sample}, {samples_left} samples left", cell.cell.policy);
                self.progress.update(milliseconds(self.started.kept_seconds + self.seconds), summary, details);
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

fn milliseconds(seconds: f64) -> u64 {
    (1e3 * seconds) as u64
}
