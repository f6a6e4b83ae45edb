//! The loop over cells of stories: which pairs still lack verdicts, and what all verdicts of a cell add up to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use super::endpoint::{Endpoint, Key};
use super::pairing::{PairedCell, pair};
use super::rows::{Counts, lacking, of_identical};
use super::workers::Workers;
use crate::ledger::{Ledger, Only, Opened, Row, Status, Wanted};

/// Which judge, and how to ask it. Only the model's name is part of a verdict's identity.
#[derive(Clone, Debug)]
pub struct Settings {
    pub endpoint: Endpoint,
    /// The judge's model, as its endpoint names it.
    pub model: String,
    pub key: Option<Key>,
    /// The environment variable the key comes from, for hints.
    pub key_variable: String,
    /// Calls at the same time.
    pub concurrency: usize,
    /// How often a failed request is repeated.
    pub retries: u32,
    /// How long a request may take.
    pub timeout: Duration,
    /// Only the first pairs.
    pub limit: Option<usize>,
    /// All must hold for the bounded cache's cell.
    pub only: Vec<Only>,
}

/// What happens while judging.
#[derive(Debug)]
pub enum Event<'a> {
    /// Work begins; `done` of the two calls of each pair were answered by earlier runs.
    Started { pairs: usize, done: usize },
    /// A verdict on a story of this cell is written down.
    Judged { cell: &'a Row, readable: bool, tokens: u64 },
    /// A request failed and will be repeated after this wait.
    Waiting(&'a str, Duration),
    /// Something the user should read.
    Message(String),
}

/// What is known about one cell of stories.
#[derive(Clone, Debug)]
pub struct CellSummary {
    /// A row of the cell: model, policy, size and settings.
    pub head: Row,
    pub counts: Counts,
    /// Pairs without a result yet.
    pub open: usize,
}

/// How judging ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub cells: Vec<CellSummary>,
    /// Pairs that failed in this run.
    pub failed: usize,
    /// Cells without the full cache's stories.
    pub unpaired: usize,
    /// Cells that another process is judging.
    pub taken: usize,
    pub interrupted: bool,
}

/// A selection without any cell of stories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no story of a bounded cache is selected\nhint: leave out `--only`, or check what the results hold")]
pub struct NothingSelected;

/// Gets the verdicts that the ledger's stories still lack.
///
/// # Errors
/// A ledger without stories, or that cannot be read or written; a selection of nothing; a judge that refuses or does not
/// answer. Earlier verdicts are kept. Pairs that fail are counted, not returned.
pub fn judge(
    ledger: &Ledger,
    settings: &Settings,
    stop: &AtomicBool,
    observe: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Outcome> {
    let pairing = pair(&ledger.current(Wanted::Complete)?.rows, &settings.only, &settings.model);
    if pairing.story_cells == 0 {
        bail!(
            "{} holds no stories\nhint: the task `story` writes stories; only complete cells are judged",
            ledger.folder().display()
        );
    }
    if pairing.cells.is_empty() && pairing.unpaired.is_empty() {
        return Err(NothingSelected.into());
    }
    let mut outcome = Outcome { unpaired: pairing.unpaired.len(), ..Outcome::default() };
    for why in pairing.unpaired {
        observe(Event::Message(format!("warning: {why}")));
    }
    let workers = Workers::new(settings, stop, observe);
    let (mut room, mut selected, mut done) = (settings.limit.unwrap_or(usize::MAX), Vec::new(), 0);
    for cell in &pairing.cells {
        let take = cell.pairs.len().min(room);
        room -= take;
        // A cell of identical stories has nothing to ask, but has ties.
        if take == 0 && !cell.pairs.is_empty() {
            continue;
        }
        selected.push((cell, take));
        done += match ledger.status(&cell.name)? {
            Status::Done => 2 * take,
            Status::Partial { samples } | Status::Failed { samples, .. } => samples.range(..2 * take).count(),
            Status::Missing => 0,
        };
        if cell.unmatched > 0 {
            let (Row { model, policy, .. }, unmatched) = (&cell.head, cell.unmatched);
            let text = format!("warning: stories without a counterpart: {unmatched} of {model}, {policy}");
            observe(Event::Message(text));
        }
    }
    observe(Event::Started { pairs: selected.iter().map(|(_, take)| take).sum(), done });
    for (cell, take) in selected {
        let counts = judge_cell(ledger, &workers, cell, take, &mut outcome)?;
        let open = cell.pairs.len() + counts.identical - counts.pairs() - counts.unreadable;
        outcome.cells.push(CellSummary { head: cell.head.clone(), counts, open });
    }
    outcome.interrupted = stop.load(Ordering::Relaxed);
    Ok(outcome)
}

/// Judges `take` pairs of a cell, and counts all verdicts it has then.
fn judge_cell(
    ledger: &Ledger,
    workers: &Workers,
    cell: &PairedCell,
    take: usize,
    outcome: &mut Outcome,
) -> Result<Counts> {
    let stopped = || workers.stop.load(Ordering::Relaxed);
    if stopped() && ledger.status(&cell.name)? == Status::Missing {
        return Ok(Counts::default());
    }
    let of_identical = |row| of_identical(workers.settings, cell, row);
    let journal = match ledger.journal(&cell.name)? {
        Opened::Journal(journal) => journal,
        Opened::Complete => {
            let mut rows = ledger.rows_of(&cell.name)?;
            // Earlier versions left identical stories out.
            let ties: Vec<Row> = lacking(cell, &rows).into_iter().flat_map(|(_, row)| of_identical(row)).collect();
            if !ties.is_empty() {
                rows.extend(ties);
                ledger.replace(&cell.name, &rows)?;
            }
            return Ok(Counts::of(&rows));
        }
        Opened::Busy => {
            outcome.taken += 1;
            (workers.observe)(Event::Message(format!("{} is being judged by another process", cell.name.stem())));
            return Ok(Counts::default());
        }
    };
    if !stopped() {
        for (at, row) in lacking(cell, &journal.rows()?) {
            journal.append(2 * cell.pairs.len() + at, of_identical(row))?;
        }
        let failed = workers.judge(cell, take, &journal)?;
        outcome.failed += failed.len();
        if let Some((&pair, why)) = failed.first_key_value() {
            let sample = &cell.pairs[pair].bounded.sample;
            let error = anyhow!("{why}").context(format!("{} pairs failed, the first: {sample}", failed.len()));
            ledger.fail(&cell.name, &error)?;
        }
    }
    let rows = match ledger.status(&cell.name)? {
        Status::Done => ledger.rows_of(&cell.name)?,
        _ => journal.rows()?,
    };
    Ok(Counts::of(&rows))
}
