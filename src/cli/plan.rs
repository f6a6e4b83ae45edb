//! `plan`: what `run` would do, without doing it.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::output::print;
use super::progress::Downloads;
use super::sweep_args::SweepArguments;
use crate::format::{Bytes, count, counted, duration};
use crate::ledger::{Ledger, Status};
use crate::lm::source::{HubError, HubSettings};
use crate::lm::{Device, machine_name, matrix_rate};
use crate::run::{self, ModelTask, Prepared, Unavailable, bytes_per_worker};

/// Show what `run` would do: cells done and to do, tokens, memory, time, downloads
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    sweep: SweepArguments,
    /// Fail (exit code 4) unless every cell is done
    #[arg(long)]
    check: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let sweep = arguments.sweep.sweep()?;
    let threads = arguments.sweep.machine.threads();
    let folder = arguments.sweep.results_folder(&sweep);
    let ledger = Ledger::existing(&folder).ok();
    let hub = HubSettings::from_env()?;
    let is_offline = hub.offline;
    // A plan fetches nothing.
    let hub = HubSettings { offline: true, ..hub };
    let selection = arguments.sweep.selection()?;
    // Only timed cells depend on the machine; other plans do not need the GPU to be there.
    let timed = sweep.tasks.iter().any(|task| task.is_timed());
    let device = if timed { arguments.sweep.machine.device.open()? } else { Device::Cpu };
    let name = machine_name(&device, threads);
    let prepared = run::prepare(&sweep, &selection, ledger.as_ref(), &hub, &Downloads::new(), &name)?;
    if let Some(ledger) = &ledger {
        for warning in run::changed_models(&prepared, ledger)? {
            eprintln!("warning: {warning}");
        }
    }
    let heading = format!("sweep {}, results in {}\n", sweep.name, folder.display());
    print(&(heading + &describe(&prepared, threads, &device, is_offline)))?;
    let mut cells = prepared.model_tasks.iter().flat_map(|model_task| &model_task.cells);
    let is_complete = prepared.unavailable.is_empty() && cells.all(|cell| cell.status == Status::Done);
    Ok(ExitCode::from(if arguments.check && !is_complete { 4 } else { 0 }))
}

fn describe(prepared: &Prepared, threads: usize, device: &Device, is_offline: bool) -> String {
    // Where the speed of products cannot be measured there is no estimate of it, but still a plan.
    let speed = matrix_rate(threads).unwrap_or(f64::INFINITY);
    let mut text = String::new();
    let mut seconds = 0.0;
    for model_task in &prepared.model_tasks {
        let cost = |cell: &_| run::cost(model_task, cell, device, speed);
        text += &describe_model_task(model_task, threads, &mut seconds, cost);
    }
    for unavailable in &prepared.unavailable {
        text += &describe_unavailable(unavailable, is_offline);
    }
    let cells = prepared.model_tasks.iter().flat_map(|model_task| &model_task.cells);
    let done = cells.clone().filter(|cell| cell.status == Status::Done).count();
    let all = cells.count();
    text += &match all - done {
        0 => format!("\n{}: {done} done, nothing to do\n", counted(all, "cell")),
        left => {
            let time = duration(seconds);
            let cells = counted(all, "cell");
            format!("\n{cells}: {done} done, {left} to do, about {time} with {threads} threads on this CPU\n")
        }
    };
    let unplanned: usize = prepared.unavailable.iter().map(|unavailable| unavailable.cells).sum();
    if unplanned > 0 {
        text += &format!("{} more cannot be planned, see above\n", counted(unplanned, "cell"));
    }
    if prepared.elsewhere > 0 {
        text += &format!("{} left to other shards\n", counted(prepared.elsewhere, "cell"));
    }
    text
}

/// A model and a task: a line about both, a table of the cells, a line about memory. Adds to the estimated seconds.
fn describe_model_task(
    model_task: &ModelTask,
    threads: usize,
    seconds: &mut f64,
    cost: impl Fn(&run::NamedCell) -> run::Cost,
) -> String {
    let shape = &model_task.files.shape;
    let mut text = format!(
        "\n{} ({} parameters, {} of weights), {} on {} ({}, {} tokens, BOS {})\n",
        model_task.model,
        count(shape.parameters()),
        Bytes(model_task.files.weight_bytes()),
        model_task.task.name,
        model_task.task.dataset,
        counted(model_task.samples.len(), "sample"),
        count(model_task.samples.total_work() as u64),
        if model_task.bos { "yes" } else { "no" },
    );
    let width = model_task.cells.iter().map(|cell| cell.cell.label().len()).max().unwrap_or(0).max(12);
    let line = |policy: &str, size: &str, state: &str, cache: &str, time: &str| {
        format!("  {policy:<width$} {size:>6}  {state:<28} {cache:>12} {time:>10}\n")
    };
    text += &line("policy", "size", "state", "cache", "time");
    let mut shared = 0.0_f64;
    for cell in &model_task.cells {
        let cost = cost(cell);
        // The unbounded cache's pass over a sample is shared by all cells.
        let own = cost.own + (cost.shared - shared).max(0.0);
        shared = shared.max(cost.shared);
        *seconds += own;
        let size = cell.cell.size().map_or("-".into(), |size| size.to_string());
        let cache = Bytes(shape.cache_bytes(model_task.task.cache_entries(cell.cell.rule))).to_string();
        let state = state(&cell.status, model_task.samples.len());
        text += &line(&cell.cell.label(), &size, &state, &cache, &duration(own));
    }
    for run::Alias { cell, of } in &model_task.aliases {
        let size = cell.size().map_or("-".into(), |size| size.to_string());
        text += &line(&cell.label(), &size, &format!("the same as {of}"), "", "");
    }
    text + &match model_task.task.granted_memory {
        Some(memory) => format!("  memory: {memory} for weights and caches, set by the task\n"),
        None => format!(
            "  memory: the weights, and up to {} for each text read in parallel (at most {threads})\n",
            Bytes(bytes_per_worker(model_task)),
        ),
    }
}

fn describe_unavailable(unavailable: &Unavailable, is_offline: bool) -> String {
    let Unavailable { model, task, cells, error } = unavailable;
    let needs_network = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref::<HubError>(), Some(HubError::Offline(_)))
    };
    let why = if !is_offline && error.chain().any(needs_network) {
        "not on this machine yet; `run` fetches what is missing from the hub".to_string()
    } else {
        format!("not usable: {error:#}")
    };
    format!("\n{} of {task} with {model}: {why}\n", counted(*cells, "cell"))
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
