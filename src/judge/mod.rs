//! Which of two stories is better: another model is asked, for every story that a bounded cache wrote, to compare
//! it with the one that the unbounded cache wrote from the same seed, as the paper did with GPT-4.
//!
//! Knows the stories in the ledger, OpenAI's chat completions, and verdicts; how a story came about and how
//! anything is shown is not known here. Each pair is asked about twice, with places swapped; a story wins only if
//! it is preferred both times. Identical stories are not asked about, and counted. An answer that cannot be read
//! is asked for again twice, with a reminder of its form; then the pair counts as unreadable, and as nothing else.
//!
//! # What a kill costs
//!
//! A cell of verdicts is named by the hash of both stories' cells and texts, the judge's name and the version of
//! the question. Every call is one line of the cell's journal, written as soon as its answer is there, and the
//! second call of a pair carries the pair's result in the same line. So, when a process is killed at any moment
//! and the command is run again: a call whose line was written is never asked again; no call is left out; every
//! call and every result is in the ledger once. Asked twice are at most the calls in flight at the kill, one per
//! thread. SIGINT and SIGTERM let the calls in flight end and write them down: then nothing that was answered is
//! asked again. (Within a call a request that failed, or whose answer could not be read, is repeated; and a power
//! cut may cost lines that the system had not brought to the disk yet.)

mod bench;
mod client;
mod endpoint;
mod interval;
mod key;
mod pair;
mod patience;
mod prompt;
mod rows;
mod table;
mod verdict;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

pub use endpoint::Endpoint;
pub use interval::{Share, wilson};
pub use key::Key;
pub use pair::JUDGE;
pub use prompt::PROMPT_VERSION;
pub use rows::Tally;
pub use table::table;

use crate::ledger::Only;
use crate::ledger::{Ledger, Row, Status, Unavailable};
use bench::Bench;
use client::Client;
use pair::{Contest, pair};

/// Who is asked, and how. Only the model's name is part of what a verdict means.
#[derive(Clone, Debug)]
pub struct Settings {
    pub endpoint: Endpoint,
    /// The judge's model, as its endpoint calls it.
    pub model: String,
    pub key: Option<Key>,
    /// The environment variable the key comes from, for hints.
    pub key_variable: String,
    /// Calls at the same time.
    pub concurrency: usize,
    /// How often a request that failed is made again.
    pub retries: u32,
    /// How long a request may take.
    pub timeout: Duration,
    /// Only the first pairs.
    pub limit: Option<usize>,
    /// All must hold of the judged cell.
    pub only: Vec<Only>,
}

/// What happens while judging.
#[derive(Debug)]
pub enum Event<'a> {
    /// Work begins.
    Started {
        pairs: usize,
        calls: usize,
        /// Calls that are written down from before.
        done: usize,
    },
    /// A verdict is written down.
    Judged {
        cell: &'a Row,
        readable: bool,
        tokens: u64,
    },
    /// A request failed and is made again.
    Waiting {
        cause: &'a str,
        wait: Duration,
    },
    /// A call failed for good; its pair stays open.
    Failed {
        cell: &'a str,
        sample: &'a str,
        error: &'a str,
    },
    CellDone,
    /// Another process judges this cell.
    Taken {
        cell: &'a str,
    },
    Warning(String),
}

/// What is known of one cell of stories.
#[derive(Clone, Debug)]
pub struct Standing {
    /// A row of the judged cell: model, policy, size and settings.
    pub head: Row,
    pub tally: Tally,
    /// Pairs of equal texts, which nobody was asked about.
    pub identical: usize,
    /// Pairs without a result yet.
    pub open: usize,
}

/// How judging ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub standings: Vec<Standing>,
    /// Pairs that failed this time.
    pub failed: usize,
    /// Cells without a counterpart.
    pub unpaired: usize,
    pub taken: usize,
    pub interrupted: bool,
}

/// A selection that no cell of stories answers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no story of a bounded cache is selected\nhint: leave `--only` out, or see what the results hold")]
pub struct NothingSelected;

/// Judges what the ledger's stories lack verdicts on.
///
/// # Errors
/// A ledger without stories or one that can't be read or written, a selection of nothing, a judge that refuses or
/// is gone. What was judged before is kept. Pairs that fail are counted, not returned.
pub fn judge(
    ledger: &Ledger,
    settings: &Settings,
    stop: &AtomicBool,
    observe: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Outcome> {
    let pairing = pair(&ledger.rows()?, &settings.only, &settings.model);
    if pairing.cells == 0 {
        bail!(
            "{} holds no stories\nhint: stories are written by the task `story`; only complete cells are judged",
            ledger.folder().display()
        );
    }
    if pairing.contests.is_empty() && pairing.unpaired.is_empty() {
        return Err(NothingSelected.into());
    }
    let mut outcome = Outcome { unpaired: pairing.unpaired.len(), ..Outcome::default() };
    for unpaired in &pairing.unpaired {
        observe(Event::Warning(format!("{} is not judged: {}", unpaired.what, unpaired.why)));
    }
    let client = Client::new(
        settings.endpoint.clone(),
        settings.model.clone(),
        settings.key.clone(),
        settings.key_variable.clone(),
        settings.timeout,
    );
    let bench = Bench::new(&client, settings, stop, observe);
    let selected = select(&pairing.contests, settings.limit);
    announce(ledger, &selected, observe)?;
    for (contest, take) in selected {
        let tally = one(ledger, &bench, contest, take, stop, observe, &mut outcome)?;
        let open = contest.pairs.len() - tally.pairs() - tally.unreadable;
        outcome.standings.push(Standing { head: contest.head.clone(), tally, identical: contest.identical, open });
    }
    outcome.interrupted = stop.load(Ordering::Relaxed);
    Ok(outcome)
}

/// The cells to look at, and how many pairs of each.
fn select(contests: &[Contest], limit: Option<usize>) -> Vec<(&Contest, usize)> {
    let mut room = limit.unwrap_or(usize::MAX);
    let mut selected = Vec::new();
    for contest in contests {
        let take = contest.pairs.len().min(room);
        room -= take;
        // Without pairs there is nothing to ask, but something to show.
        if take > 0 || contest.pairs.is_empty() {
            selected.push((contest, take));
        }
    }
    selected
}

/// Says what is to do.
fn announce(ledger: &Ledger, selected: &[(&Contest, usize)], observe: &(dyn Fn(Event<'_>) + Sync)) -> Result<()> {
    let (mut pairs, mut done) = (0, 0);
    for (contest, take) in selected {
        pairs += take;
        done += match ledger.status(&contest.name)? {
            Status::Done => 2 * take,
            Status::Partial { samples } | Status::Failed { samples, .. } => samples.min(2 * take),
            Status::Missing => 0,
        };
        if contest.alone > 0 {
            let Row { model, policy, .. } = &contest.head;
            let alone = contest.alone;
            observe(Event::Warning(format!("stories without a counterpart: {alone} of {model}, {policy}")));
        }
    }
    observe(Event::Started { pairs, calls: 2 * pairs, done });
    Ok(())
}

/// Judges one cell, or takes what is there.
fn one(
    ledger: &Ledger,
    bench: &Bench,
    contest: &Contest,
    take: usize,
    stop: &AtomicBool,
    observe: &(dyn Fn(Event<'_>) + Sync),
    outcome: &mut Outcome,
) -> Result<Tally> {
    // A run that ends begins no cell.
    let ended = stop.load(Ordering::Relaxed) && ledger.status(&contest.name)? == Status::Missing;
    if contest.pairs.is_empty() || ended {
        return Ok(Tally::default());
    }
    let journal = match ledger.journal(&contest.name) {
        Ok(journal) => journal,
        Err(error) => match error.downcast_ref::<Unavailable>() {
            Some(Unavailable::Complete(_)) => return Ok(Tally::of(&ledger.rows_of(&contest.name)?)),
            Some(Unavailable::Busy(_)) => {
                outcome.taken += 1;
                observe(Event::Taken { cell: contest.name.stem() });
                return Ok(Tally::default());
            }
            None => return Err(error),
        },
    };
    if !stop.load(Ordering::Relaxed) {
        let failed = bench.judge(contest, take, &journal)?;
        outcome.failed += failed.len();
        if let Some((&pair, why)) = failed.first_key_value() {
            let sample = &contest.pairs[pair].judged.sample;
            let error = anyhow!("{why}").context(format!("{} pairs failed, the first: {sample}", failed.len()));
            ledger.fail(&contest.name, &error)?;
        }
    }
    let rows = match ledger.status(&contest.name)? {
        Status::Done => ledger.rows_of(&contest.name)?,
        _ => journal.rows()?,
    };
    Ok(Tally::of(&rows))
}
