//! `run` and `plan`: from a sweep file to results, or to what they would take.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

use super::args::{PlanArguments, RunArguments, SweepArguments};
use super::bars::Bars;
use super::failure::Usage;
use super::progress::Downloads;
use super::{print, threads};
use crate::ledger::{Ledger, Row, Status};
use crate::lm::source::{HubError, HubSettings};
use crate::lm::{Device, DeviceChoice, DeviceLocation, machine_name, matrix_rate};
use crate::paper;
use crate::report::Options;
use crate::run::{self, Machine, Prepared, Speed, bytes_per_worker};
use crate::sweep::{Selection, Shard, Sweep};
use crate::task::TaskSpec;

/// The sweeps that need no file, by name; the first runs when none is named.
pub const BUILT_IN: [(&str, &str); 2] =
    [("pocket", include_str!("../../configs/pocket.yaml")), ("smoke", include_str!("../../configs/smoke.yaml"))];

/// Reads a sweep by its path or its name; the first of those built in where none is named.
pub(super) fn read_sweep(named: Option<&PathBuf>) -> Result<Sweep> {
    // A name alone is a built-in sweep, whatever lies in this folder: results must not depend on that.
    let is_named = |path: &PathBuf| BUILT_IN.iter().find(|(name, _)| path.as_os_str() == *name);
    let built_in = named.map_or(BUILT_IN.first(), is_named);
    Ok(match (built_in, named) {
        (None, Some(path)) => Sweep::read(path)?,
        (Some((name, text)), _) => Sweep::parse(text, &format!("{name}.yaml"))?,
        (None, None) => anyhow::bail!("no sweep is built in; name a file"),
    })
}

/// What the flags select, and in a Slurm array job the task's number where they say no share.
fn selection(arguments: &SweepArguments) -> Result<Selection> {
    let shard = match arguments.shard {
        Some(shard) => Some(shard),
        None => Shard::of_slurm(|name| std::env::var(name).ok()).map_err(Usage::from_error)?.inspect(|shard| {
            let task = std::env::var("SLURM_ARRAY_TASK_ID").unwrap_or_default();
            eprintln!(
                "share {shard} of the cells, as this is task {task} of a Slurm array job (--shard says otherwise)"
            );
        }),
    };
    Ok(Selection { only: arguments.only.clone(), limit: arguments.limit, shard })
}

/// A device for each job: cards from the chosen one on, or the CPU for all.
fn devices(choice: DeviceChoice, jobs: usize) -> Result<Vec<Device>> {
    let first = choice.open()?;
    let DeviceLocation::Cuda { gpu_id } = first.location() else { return Ok(vec![first; jobs]) };
    let others = (gpu_id + 1..gpu_id + jobs).map(|ordinal| {
        let hint =
            || format!("--jobs {jobs} takes a card for each job\nhint: ask for as many jobs as there are cards");
        DeviceChoice::Cuda(ordinal).open().with_context(hint)
    });
    std::iter::once(Ok(first)).chain(others).collect()
}

fn results_folder(arguments: &SweepArguments, sweep: &Sweep) -> PathBuf {
    arguments.results.clone().unwrap_or_else(|| PathBuf::from("results").join(&sweep.name))
}

pub fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let sweep = read_sweep(arguments.sweep.sweep.as_ref())?;
    let threads = threads(arguments.sweep.threads)?;
    let folder = results_folder(&arguments.sweep, &sweep);
    let devices = devices(arguments.sweep.device, arguments.jobs.get())?;
    let selection = selection(&arguments.sweep)?;
    // A slip in `--only` shall not make a folder.
    selection.of(sweep.expand()).map_err(Usage::from_error)?;
    let hub = HubSettings::from_env()?;
    let ledger = Ledger::open(&folder)?;
    let name = machine_name(&devices[0], threads);
    let prepared = run::prepare(&sweep, &selection, Some(&ledger), &hub, &Downloads::new(), &name)?;
    warn_of_changed_models(&prepared, &ledger)?;
    // Only now: nothing looks at the flag while files are fetched, and a signal there shall end the program.
    let (stop, signal) = listen()?;
    let machine = Machine { devices, threads, stop };
    let bars = Bars::new();
    let outcome = run::run(&sweep.name, &prepared, &ledger, &machine, &|event| bars.show(&event));
    bars.finish();
    let outcome = outcome?;
    // Whatever becomes of the drawing, what was measured is said.
    let drawn = ledger.rows().and_then(|rows| match arguments.no_report || rows.is_empty() {
        true => Ok(()),
        false => draw(&rows, &folder),
    });
    eprintln!(
        "{} cells measured, {} were there already, {} failed{}{}",
        outcome.done,
        outcome.skipped,
        outcome.failed,
        if outcome.taken > 0 { format!(", {} measured by another process", outcome.taken) } else { String::new() },
        if prepared.elsewhere > 0 {
            format!(", {} left to other shards", prepared.elsewhere)
        } else {
            String::new()
        },
    );
    drawn.with_context(|| {
        format!("what was measured is kept, but not drawn; `tova-bench report {}` draws it", folder.display())
    })?;
    if outcome.interrupted {
        return Ok(interrupted(&signal));
    }
    Ok(ExitCode::from(if outcome.failed > 0 { 4 } else { 0 }))
}

fn draw(rows: &[Row], folder: &Path) -> Result<()> {
    let written = paper::write_report(rows, &Options::everything(folder))?;
    print(&written.terminal)?;
    eprintln!("\nwritten to {}: report.html, report.md, tables as CSV and LaTeX, and figures/", folder.display());
    Ok(())
}

/// Says that a signal ended the work; the exit code tells which.
pub(super) fn interrupted(signal: &AtomicUsize) -> ExitCode {
    let signal = signal.load(Ordering::Relaxed);
    eprintln!("interrupted; run the same command again to continue");
    let signal = SIGNALS.into_iter().find(|number| *number as usize == signal).unwrap_or(SIGINT);
    ExitCode::from(128 + signal as u8)
}

/// From a keyboard, from whoever ends processes, and from schedulers that want the machine for somebody else.
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGUSR1];

/// These signals set the flag, and the number of the signal; a second one ends the program at once.
pub(super) fn listen() -> Result<(Arc<AtomicBool>, Arc<AtomicUsize>)> {
    let stop = Arc::new(AtomicBool::new(false));
    let signal = Arc::new(AtomicUsize::new(0));
    for number in SIGNALS {
        let registered = signal_hook::flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize))
            .and_then(|_| signal_hook::flag::register(number, Arc::clone(&stop)));
        registered.context("cannot listen to signals")?;
    }
    Ok((stop, signal))
}

fn warn_of_changed_models(prepared: &Prepared, ledger: &Ledger) -> Result<()> {
    for told in run::changed_models(prepared, ledger)? {
        eprintln!("warning: {told}");
    }
    Ok(())
}

fn selection_is_usage(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<crate::ledger::OnlyError>() {
        Ok(error) => Usage::from_error(error).into(),
        Err(error) => error,
    }
}

pub fn plan(arguments: &PlanArguments) -> Result<ExitCode> {
    let sweep = read_sweep(arguments.sweep.sweep.as_ref())?;
    let threads = threads(arguments.sweep.threads)?;
    let folder = results_folder(&arguments.sweep, &sweep);
    let ledger = Ledger::existing(&folder).ok();
    // A plan looks, but fetches nothing.
    let hub = HubSettings::from_env()?;
    let asked_offline = hub.offline;
    let hub = HubSettings { offline: true, ..hub };
    let selection = selection(&arguments.sweep)?;
    // Only cells that are timed mean a machine; nothing else needs the card to be there.
    let timed = sweep.tasks.iter().any(|task| matches!(task, TaskSpec::Timing(_)));
    let device = if timed { arguments.sweep.device.open()? } else { Device::Cpu };
    let name = machine_name(&device, threads);
    let prepared =
        run::prepare(&sweep, &selection, ledger.as_ref(), &hub, &(), &name).map_err(selection_is_usage)?;
    if let Some(ledger) = &ledger {
        warn_of_changed_models(&prepared, ledger)?;
    }
    print(&describe(&sweep, &prepared, (threads, &device), &folder, asked_offline))?;
    let mut cells = prepared.groups.iter().flat_map(|group| &group.cells);
    let is_complete = prepared.unavailable.is_empty() && cells.all(|cell| cell.status == Status::Done);
    Ok(ExitCode::from(if arguments.check && !is_complete { 4 } else { 0 }))
}

fn describe(
    sweep: &Sweep,
    prepared: &Prepared,
    (threads, device): (usize, &Device),
    folder: &Path,
    asked_offline: bool,
) -> String {
    let mut text = format!("sweep {}, results in {}\n", sweep.name, folder.display());
    // Without the yardstick there is no estimate, but still a plan.
    let speed = Speed::with_products(matrix_rate(threads).unwrap_or(f64::INFINITY));
    let mut total = 0.0;
    for group in &prepared.groups {
        let (_, tokens) = group.samples.longest_and_all();
        let shape = &group.files.shape;
        text += &format!(
            "\n{} ({} parameters, {} of weights), {} on {} ({} samples, {} tokens, BOS {})\n",
            group.model,
            count(shape.parameters()),
            bytes(group.files.weight_bytes()),
            group.task.name(),
            group.task.dataset(),
            group.samples.len(),
            count(tokens as u64),
            if group.bos { "yes" } else { "no" },
        );
        let width = group.cells.iter().map(|cell| cell.cell.label().len()).max().unwrap_or(0).max(12);
        text +=
            &format!("  {:<width$} {:>6}  {:<28} {:>12} {:>10}\n", "policy", "size", "state", "cache", "about");
        let mut shared = 0.0_f64;
        for cell in &group.cells {
            let cost = run::cost(group, cell, device, speed);
            // One reading of the unbounded cache serves all.
            let seconds = cost.own + (cost.shared - shared).max(0.0);
            shared = shared.max(cost.shared);
            total += seconds;
            text += &format!(
                "  {:<width$} {:>6}  {:<28} {:>12} {:>10}\n",
                cell.cell.label(),
                cell.cell.size().map_or("-".into(), |size| size.to_string()),
                state(&cell.status, group.samples.len()),
                bytes(shape.cache_bytes(run::entries(group, cell))),
                duration(seconds),
            );
        }
        text += &match &group.task {
            TaskSpec::Timing(timing) => {
                format!("  memory: {} for weights and caches, as the task grants\n", timing.memory)
            }
            _ => format!(
                "  memory: the weights, and at most {} for each text read at the same time ({threads} at most)\n",
                bytes(bytes_per_worker(group)),
            ),
        };
    }
    for unavailable in &prepared.unavailable {
        let offline = |cause: &(dyn std::error::Error + 'static)| {
            matches!(cause.downcast_ref::<HubError>(), Some(HubError::Offline { .. }))
        };
        let why = if !asked_offline && unavailable.error.chain().any(offline) {
            "not on this machine yet; `run` fetches what is missing from the hub".to_string()
        } else {
            format!("not usable: {:#}", unavailable.error)
        };
        text +=
            &format!("\n{} cells of {} with {}: {why}\n", unavailable.cells, unavailable.task, unavailable.model);
    }
    let cells = prepared.groups.iter().flat_map(|group| &group.cells);
    let done = cells.clone().filter(|cell| cell.status == Status::Done).count();
    let all = cells.count();
    let about = match all - done {
        0 => String::from("nothing"),
        left => format!("{left} to do, about {} with {threads} threads on this CPU", duration(total)),
    };
    text += &format!("\n{}: {done} done, {about}{}\n", cells_of(all), if all == done { " to do" } else { "" });
    let unplanned: usize = prepared.unavailable.iter().map(|unavailable| unavailable.cells).sum();
    if unplanned > 0 {
        text += &format!("{unplanned} cells more are not planned, see above\n");
    }
    if prepared.elsewhere > 0 {
        text += &format!("{} cells are left to other shards\n", prepared.elsewhere);
    }
    text
}

fn state(status: &Status, samples: usize) -> String {
    match status {
        Status::Done => "done".into(),
        Status::Missing => "to do".into(),
        Status::Partial { samples: done } => format!("{done} of {samples} samples done"),
        Status::Failed { message, .. } => {
            let first = message.lines().next().unwrap_or_default();
            format!("failed: {}", first.chars().take(60).collect::<String>())
        }
    }
}

pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..10_000_000 => format!("{:.1} k", n as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.1} G", n as f64 / 1e9),
    }
}

/// `1 cell`, `2 cells`.
pub fn cells_of(n: usize) -> String {
    if n == 1 { "1 cell".into() } else { format!("{n} cells") }
}

pub fn bytes(n: u64) -> String {
    let n = n as f64;
    match n {
        _ if n < 1e6 => format!("{:.1} kB", n / 1e3),
        _ if n < 1e9 => format!("{:.1} MB", n / 1e6),
        _ => format!("{:.1} GB", n / 1e9),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1.0 => "< 1 s".into(),
        _ if seconds < 120.0 => format!("{seconds:.0} s"),
        _ if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}
