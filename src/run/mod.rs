//! The loop: open each model once, measure what the ledger lacks, write every finished sample down.
//!
//! Knows cells and where their rows go; it prints nothing, but tells an observer what happens. A failing cell never
//! ends the sweep; a full disk and an interruption do.

mod changed;
mod cost;
mod event;
mod machine;
mod models;
mod prepare;
mod rows;
mod schedule;
mod shares;
mod work;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

pub use changed::changed_models;
pub use cost::{Cost, Speed, cost, entries};
pub use event::{Event, Outcome};
use machine::Job;
pub use machine::{Machine, bytes_per_worker};
use models::Models;
pub use prepare::{Group, NamedCell, Prepared, Unavailable, prepare};
use work::Work;

use crate::ledger::{Ledger, Status};

/// Measures what the ledger lacks: first what is timed, with the whole machine and one after the other, then the rest
/// with all jobs side by side.
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
    let groups = prepared.groups.iter();
    outcome.skipped = groups.clone().flat_map(|g| &g.cells).filter(|cell| cell.status == Status::Done).count();
    let (tokens, cells) = groups.clone().fold((0, 0), |(tokens, cells), group| {
        (tokens + left(group), cells + group.cells.iter().filter(|cell| cell.status != Status::Done).count())
    });
    observe(Event::Started { tokens, cells, skipped: outcome.skipped });
    let outcome = Mutex::new(outcome);
    let work = Work { sweep, prepared, ledger, models: Models::default(), outcome: &outcome, observe };
    work.measure(&machine.whole()?, |group, _| group.is_timed())?;
    let jobs: Vec<Job<'_>> = machine.parts().collect();
    match jobs.as_slice() {
        [job] => work.measure(job, |group, _| !group.is_timed())?,
        jobs => work.measure_side_by_side(jobs)?,
    }
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.interrupted = machine.stop.load(Ordering::Relaxed);
    Ok(outcome)
}

/// Tokens a group still has to read, over its cells.
fn left(group: &Group) -> u64 {
    let tokens = group.samples.longest_and_all().1 as u64;
    let samples = group.samples.len() as u64;
    let cells = group.cells.iter();
    cells.map(|cell| tokens * samples.saturating_sub(cell.samples_done() as u64) / samples).sum()
}
