//! The events of a run, and its outcome.

use super::prepare::{NamedCell, Prepared};
use crate::ledger::Status;

/// What happens during a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// Work begins.
    Started(Started),
    Loading(&'a str),
    /// A sample of a cell is measured and in its journal.
    Sample {
        cell: &'a NamedCell,
        sample: &'a str,
        tokens: u64,
        /// Estimated seconds on the nominal machine.
        seconds: f64,
        samples_left: usize,
        /// Samples of the whole cell.
        samples: usize,
    },
    CellDone(&'a NamedCell),
    CellFailed {
        cell: &'a NamedCell,
        error: &'a anyhow::Error,
    },
    /// All cells of a task fail for one reason: their model or texts cannot be had.
    CellsFailed {
        model: &'a str,
        task: &'a str,
        count: usize,
        /// None where texts or model are not known, because such cells have no id.
        cells: &'a [&'a NamedCell],
        error: &'a anyhow::Error,
    },
    /// Another process is measuring this cell.
    CellTaken(&'a NamedCell),
    Warning(String),
}

/// What is to be measured, and what earlier runs have measured of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Started {
    /// Cells that are not complete.
    pub cells: usize,
    /// Complete cells.
    pub skipped: usize,
    /// Samples of all cells, and those that are measured.
    pub samples: usize,
    pub kept: usize,
    /// The seconds of both on the nominal machine, in which progress is counted.
    pub seconds: f64,
    pub kept_seconds: f64,
}

impl Started {
    /// What is to be done, and what is done already.
    pub(super) fn of(prepared: &Prepared) -> Started {
        let mut started = Started::default();
        for model_task in &prepared.model_tasks {
            for cell in &model_task.cells {
                let ((kept, share), seconds) = (model_task.measured(cell), model_task.seconds(cell));
                started.samples += model_task.samples.len();
                started.kept += kept;
                started.seconds += seconds;
                started.kept_seconds += seconds * share;
                match cell.status {
                    Status::Done => started.skipped += 1,
                    _ => started.cells += 1,
                }
            }
        }
        started
    }
}

/// The outcome of a run, in cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub done: usize,
    pub skipped: usize,
    pub failed: usize,
    pub taken: usize,
    pub interrupted: bool,
}
