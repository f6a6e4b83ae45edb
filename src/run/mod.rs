//! Runs a sweep: loads each model once, measures what the ledger lacks, and appends every finished sample to a journal.
//!
//! Nothing is printed; an observer gets [`Event`]s. A failing cell never ends the sweep; a full disk and an interruption
//! do.

mod changed;
mod cost;
mod event;
mod machine;
mod models;
mod prepare;
mod rates;
mod rows;
mod schedule;
mod shards;
mod work;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

pub use changed::changed_models;
pub use cost::{Cost, estimate};
pub use event::{Event, Outcome};
pub use machine::{Machine, bytes_per_worker};
use models::Models;
pub use prepare::{ModelTask, NamedCell, Prepared, Unavailable, prepare};
use work::Work;

use crate::ledger::{Ledger, Status};

/// Measures what the ledger lacks: first the timed cells, one after the other with the whole machine, then the others with
/// all jobs side by side.
///
/// # Errors
/// A ledger that cannot be written (a full disk, say). Cells that fail are counted, not returned.
pub fn run(
    sweep: &str,
    prepared: &Prepared,
    ledger: &Ledger,
    machine: &Machine,
    observe: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for unavailable in &prepared.unavailable {
        outcome.failed += unavailable.cells;
        let name = format!("{} cells of {} with {}", unavailable.cells, unavailable.task, unavailable.model);
        observe(Event::CellFailed { cell: &name, error: &unavailable.error });
    }
    let all = prepared.model_tasks.iter().flat_map(|model_task| &model_task.cells);
    outcome.skipped = all.clone().filter(|cell| cell.status == Status::Done).count();
    let cells = all.count() - outcome.skipped;
    let tokens = prepared.model_tasks.iter().map(tokens_left).sum();
    observe(Event::Started { tokens, cells, skipped: outcome.skipped });
    let outcome = Mutex::new(outcome);
    let work = Work { sweep, prepared, ledger, models: Models::default(), outcome: &outcome, observe };
    work.measure(machine.jobs(1), true)?;
    work.measure(machine.jobs(machine.devices.len()), false)?;
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.interrupted = machine.stop.load(Ordering::Relaxed);
    Ok(outcome)
}

/// Tokens that the cells of a task have still to read.
fn tokens_left(model_task: &ModelTask) -> u64 {
    let tokens = model_task.samples.total_work() as u64;
    let samples = model_task.samples.len() as u64;
    let cells = model_task.cells.iter();
    cells.map(|cell| tokens * samples.saturating_sub(cell.samples_done() as u64) / samples).sum()
}
