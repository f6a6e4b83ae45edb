//! `run --progress json`: one JSON object a line on stderr for each event. `docs/progress.md` documents the keys.

use std::io::{Write as _, stderr};

use serde::Serialize;

use crate::run::NamedCell;

/// An event. Keys may be added; none is renamed or removed within a major version.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Line<'a> {
    Note {
        message: &'a str,
    },
    Warning {
        message: &'a str,
    },
    Download {
        file: &'a str,
        bytes_done: u64,
        bytes: u64,
    },
    Started {
        /// Complete before this run.
        cells_skipped: usize,
        run: Totals,
    },
    Serving {
        url: &'a str,
    },
    Loading {
        model: &'a str,
    },
    Sample {
        cell: Cell<'a>,
        sample: &'a str,
        /// Of this sample.
        tokens: u64,
        /// Of this cell.
        samples_done: usize,
        samples: usize,
        run: Totals,
    },
    CellDone {
        cell: Cell<'a>,
        run: Totals,
    },
    CellFailed {
        cell: Cell<'a>,
        error: String,
    },
    /// Cells that have no id, because their model or texts are missing.
    CellsFailed {
        model: &'a str,
        task: &'a str,
        cells: usize,
        error: String,
    },
    CellTaken {
        cell: Cell<'a>,
    },
    Finished {
        interrupted: bool,
        cells_measured: usize,
        cells_skipped: usize,
        cells_failed: usize,
        /// Measured by another process.
        cells_taken: usize,
        /// Left to other shards.
        cells_elsewhere: usize,
        run: Totals,
        results: String,
        /// The page, if it was drawn.
        report: Option<String>,
    },
    Error {
        message: String,
        exit_code: u8,
    },
}

/// A cell, in the words of its rows.
#[derive(Serialize)]
pub(super) struct Cell<'a> {
    id: String,
    model: String,
    policy: &'a str,
    /// Entries per layer and head; none for the full cache.
    cache_size: Option<usize>,
    task: &'a str,
    dataset: &'a str,
}

/// How far all cells of a run together are.
#[derive(Serialize)]
pub(super) struct Totals {
    /// With those of earlier runs.
    pub(super) samples_done: usize,
    pub(super) samples: usize,
    /// Of this run, as the three below.
    pub(super) cells_done: usize,
    pub(super) cells: usize,
    pub(super) tokens: u64,
    pub(super) seconds: f64,
    /// Estimated; none as long as the speed is not steady.
    pub(super) seconds_left: Option<f64>,
}

impl<'a> Cell<'a> {
    pub(super) fn of(named: &'a NamedCell) -> Cell<'a> {
        let cell = &named.cell;
        Cell {
            id: named.name.id().to_string(),
            model: cell.model.to_string(),
            policy: &cell.policy,
            cache_size: cell.size(),
            task: cell.task.name,
            dataset: &cell.task.dataset,
        }
    }
}

impl Line<'_> {
    /// Writes the line. A reader that has left does not end the run.
    pub(super) fn write(&self) {
        let text = serde_json::to_string(self).unwrap_or_default();
        let _ = stderr().lock().write_all(format!("{text}\n").as_bytes());
    }
}

/// Seconds to the millisecond.
pub(super) fn rounded(seconds: f64) -> f64 {
    (1e3 * seconds).round() / 1e3
}
