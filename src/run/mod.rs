//! Runs a sweep: loads each model once, measures what the ledger lacks, and appends every finished sample to a journal.
//!
//! Nothing is printed; an observer gets [`Event`]s. A failing cell never ends the sweep; a full disk, an interruption and a GPU
//! that fails at everything do.

mod cost;
mod event;
mod machine;
mod missing;
mod models;
mod prepare;
mod rows;
mod schedule;
mod shards;
#[cfg(test)]
mod tests;
mod work;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

pub use cost::{Cost, estimate, estimate_on_h200};
pub use event::{Event, Outcome, Started};
pub use machine::{H200_BYTES, Machine, bytes_per_worker, texts_on_card};
pub use missing::MissingPath;
use models::Models;
pub use prepare::{Alias, ModelTask, NamedCell, Prepared, Unavailable, prepare};
use work::Work;

use crate::ledger::Ledger;
use crate::lm::Device;

/// Measures what the ledger lacks: first the timed cells, one after the other with the whole machine, then the others with
/// all jobs side by side.
///
/// # Errors
/// A ledger that cannot be written (a full disk, say), threads that cannot be started, an error of a GPU after which all its calls
/// fail. Cells that fail are counted, not returned.
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
        let Unavailable { model, task, cells: count, error } = unavailable;
        observe(Event::CellsFailed { model, task, count: *count, cells: &[], error });
    }
    let started = Started::of(prepared);
    outcome.skipped = started.skipped;
    observe(Event::Started(started));
    if machine.devices.iter().any(Device::has_attention) {
        for model_task in &prepared.model_tasks {
            model_task.on_host().into_iter().for_each(|line| observe(Event::Warning(line)));
        }
    }
    let outcome = Mutex::new(outcome);
    let work = Work { sweep, prepared, ledger, models: Models::default(), outcome: &outcome, observe };
    work.measure(machine.jobs(1), true)?;
    work.measure(machine.jobs(machine.devices.len()), false)?;
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.interrupted = machine.stop.load(Ordering::Relaxed);
    Ok(outcome)
}
