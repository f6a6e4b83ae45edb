//! The events of a run, and its outcome.

use super::prepare::NamedCell;

/// What happens during a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// Work begins; `tokens` are to be read, over all cells.
    Started {
        tokens: u64,
        cells: usize,
        skipped: usize,
    },
    Loading(&'a str),
    /// A sample of a cell is measured and in its journal.
    Sample {
        cell: &'a NamedCell,
        sample: &'a str,
        tokens: u64,
        samples_left: usize,
    },
    CellDone(&'a NamedCell),
    CellFailed {
        cell: &'a str,
        error: &'a anyhow::Error,
    },
    /// Another process is measuring this cell.
    CellTaken(&'a NamedCell),
    Warning(String),
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
