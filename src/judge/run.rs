//! The loop over cells of stories: threads that ask about the pairs that lack verdicts and write each pair down.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};

use super::answer::{Answer, End};
use super::client::{CallError, Client, THOUGHTS};
use super::endpoint::{Endpoint, Key};
use super::pairing::{Pair, PairedCell, pair, story};
use super::prompt;
use super::rows::{Call, Counts, rows};
use super::verdict::verdict_in;
use crate::ledger::{Journal, Ledger, Only, Opened, Row, Status, Wanted};

/// After this many failed calls in a row, each with all its retries, the judge counts as gone.
const GONE_AFTER: usize = 4;

/// Settings of a judge, and of how it is asked. Only the model's name is part of a verdict's identity.
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
    /// Times that a failed request is repeated.
    pub retries: u32,
    /// The longest that a request may take.
    pub timeout: Duration,
    /// The number of pairs to judge, from the first on; `None`: all.
    pub limit: Option<usize>,
    /// All must hold for the bounded cache's cell.
    pub only: Vec<Only>,
}

/// An event while judging.
#[derive(Debug)]
pub enum Event {
    /// Work begins; earlier runs judged `done` of the pairs.
    Started { pairs: usize, done: usize },
    /// A pair's verdicts are written down.
    Judged,
    /// Something the user should read.
    Message(String),
}

/// The end of judging: the verdicts of all cells that were judged, and what this run did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub counts: Counts,
    /// Pairs without a result yet.
    pub open: usize,
    /// Pairs that failed in this run.
    pub failed: usize,
    /// Cells without the full cache's stories.
    pub unpaired: usize,
    /// Cells that another process is judging.
    pub taken: usize,
    pub interrupted: bool,
}

/// Gets the verdicts that the ledger's stories still lack.
///
/// # Errors
/// A ledger without stories, or that cannot be read or written; a selection of nothing; a judge that refuses or does not
/// answer. Earlier verdicts are kept. Pairs that fail are counted, not returned.
pub fn judge(
    ledger: &Ledger,
    settings: &Settings,
    stop: &AtomicBool,
    observe: &(dyn Fn(Event) + Sync),
) -> Result<Outcome> {
    let pairing = pair(&ledger.current(Wanted::Complete)?.rows, &settings.only, &settings.model);
    ensure!(
        !pairing.cells.is_empty() || !pairing.unpaired.is_empty(),
        "{} holds no stories of bounded caches, or --only selects none\n\
         hint: the task `story` writes stories; only complete cells are judged",
        ledger.folder().display()
    );
    let mut outcome = Outcome { unpaired: pairing.unpaired.len(), ..Outcome::default() };
    for why in pairing.unpaired {
        observe(Event::Message(format!("warning: {why}")));
    }
    let (mut room, mut selected) = (settings.limit.unwrap_or(usize::MAX), Vec::new());
    for cell in &pairing.cells {
        let (identical, mut pairs): (Vec<usize>, Vec<usize>) =
            (0..cell.pairs.len()).partition(|at| cell.pairs[*at].is_identical());
        // A cell of identical stories has nothing to ask, but has ties.
        if room == 0 && !pairs.is_empty() {
            continue;
        }
        pairs.truncate(room);
        room -= pairs.len();
        pairs.extend(identical);
        selected.push((cell, pairs));
        if cell.unmatched > 0 {
            let (Row { model, policy, .. }, unmatched) = (&cell.head, cell.unmatched);
            let text = format!("warning: stories without a counterpart: {unmatched} of {model}, {policy}");
            observe(Event::Message(text));
        }
    }
    let statuses = ledger.statuses(selected.iter().map(|(cell, _)| &cell.name))?;
    let done = statuses.iter().zip(&selected).map(|(status, (_, pairs))| match status {
        Status::Done => pairs.len(),
        Status::Partial { samples } | Status::Failed { samples, .. } => {
            pairs.iter().filter(|pair| samples.contains(pair)).count()
        }
        Status::Missing => 0,
    });
    let (pairs, done) = (selected.iter().map(|(_, pairs)| pairs.len()).sum(), done.sum());
    observe(Event::Started { pairs, done });
    let (client, fatal, failures) = (Client::new(settings), Mutex::new(None), AtomicUsize::new(0));
    let judging = Judging { ledger, client, settings, stop, observe, fatal, failures };
    let mut all = Vec::new();
    for (cell, pairs) in selected {
        outcome.open += cell.pairs.len();
        all.extend(judging.cell(cell, &pairs, &mut outcome)?);
    }
    outcome.counts = Counts::of(&all);
    outcome.open -= outcome.counts.pairs + outcome.counts.unreadable;
    outcome.interrupted = stop.load(Ordering::Relaxed);
    Ok(outcome)
}

/// State that all cells of a run share.
struct Judging<'a> {
    ledger: &'a Ledger,
    client: Client<'a>,
    settings: &'a Settings,
    /// True when the user wants the run to end.
    stop: &'a AtomicBool,
    observe: &'a (dyn Fn(Event) + Sync),
    /// The reason why the run cannot go on.
    fatal: Mutex<Option<String>>,
    /// Calls that failed since the last answer.
    failures: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicking thread leaves these values whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Judging<'_> {
    fn is_ending(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || lock(&self.fatal).is_some()
    }

    fn tell(&self, message: String) {
        (self.observe)(Event::Message(message));
    }

    /// Judges pairs of a cell; returns the rows of all verdicts it has then.
    ///
    /// # Errors
    /// What ends the run: a judge that is gone or refuses, a ledger that cannot be written.
    fn cell(&self, cell: &PairedCell, pairs: &[usize], outcome: &mut Outcome) -> Result<Vec<Row>> {
        let journal = match self.ledger.journal(&cell.name)? {
            Opened::Journal(journal) => journal,
            Opened::Complete => return self.ledger.rows_of(&cell.name),
            Opened::Busy => {
                outcome.taken += 1;
                self.tell(format!("{} is being judged by another process", cell.name.stem()));
                return Ok(Vec::new());
            }
        };
        let done = journal.done();
        let open: Vec<usize> = pairs.iter().copied().filter(|pair| !done.contains(pair)).collect();
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.settings.concurrency.min(open.len()) {
                scope.spawn(|| {
                    while let Some(&at) = open.get(next.fetch_add(1, Ordering::Relaxed))
                        && !self.is_ending()
                    {
                        if let Err(error) = self.pair(cell, at, &journal) {
                            self.record(cell, at, error, &failed);
                        }
                    }
                });
            }
        });
        if let Some(message) = lock(&self.fatal).take() {
            bail!(message);
        }
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.failed += failed.len();
        if let Some((&at, why)) = failed.first_key_value() {
            let sample = &cell.pairs[at].bounded.sample;
            let error = anyhow!("{why}").context(format!("{} pairs failed, the first: {sample}", failed.len()));
            self.ledger.fail(&cell.name, &error)?;
        }
        let rows = journal.rows()?;
        if journal.done().len() == cell.pairs.len() {
            journal.complete(cell.pairs.len())?;
        }
        Ok(rows)
    }

    /// Asks about a pair in both orders, unless its stories are identical, and writes it down.
    fn pair(&self, cell: &PairedCell, at: usize, journal: &Journal) -> Result<(), CallError> {
        let pair = &cell.pairs[at];
        let places = if pair.is_identical() { 0..0 } else { 0..2 };
        let calls = places.map(|place| self.call(pair, place)).collect::<Result<Vec<Call>, CallError>>()?;
        let written = journal.append(at, rows(self.settings, cell, pair, calls));
        written.map_err(|error| CallError::Fatal(format!("{error:#}")))?;
        (self.observe)(Event::Judged);
        Ok(())
    }

    /// Notes a pair that failed, and whether the run ends with it.
    fn record(&self, cell: &PairedCell, at: usize, error: CallError, failed: &Mutex<BTreeMap<usize, String>>) {
        let end = |message: String| {
            lock(&self.fatal).get_or_insert(message);
        };
        match error {
            CallError::Interrupted => {}
            CallError::Fatal(message) => end(message),
            error => {
                self.tell(format!("failed: {}: {}: {error}", cell.name.stem(), cell.pairs[at].bounded.sample));
                let is_transient = matches!(error, CallError::Transient { .. });
                if is_transient && self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= GONE_AFTER {
                    end(format!(
                        "{GONE_AFTER} calls in a row had no answer; the last: {error}\n\
                         hint: verdicts so far are kept; once the judge answers, run the same command again to continue"
                    ));
                }
                lock(failed).insert(at, error.to_string());
            }
        }
    }

    /// Asks, with the bounded cache's story first (0) or second (1). Where no verdict can be read, asks once more: with a reminder of the
    /// form, or, where the answer was cut off, with room for thoughts. An answer that would be the same again is not paid for twice.
    fn call(&self, pair: &Pair, place: usize) -> Result<Call, CallError> {
        let started = Instant::now();
        let mut shown = [story(&pair.bounded), &pair.full];
        shown.rotate_right(place);
        let mut call = Call { verdict: None, answer: Answer::default(), seconds: 0.0 };
        let mut reminded = false;
        loop {
            let question = prompt::question(&pair.request, shown[0], shown[1], reminded);
            let mut answer = self.client.ask(&question, &|| self.is_ending(), &|text| self.tell(text))?;
            self.failures.store(0, Ordering::Relaxed);
            // Unreadable answers cost tokens too.
            answer.prompt_tokens = answer.prompt_tokens.saturating_add(call.answer.prompt_tokens);
            answer.new_tokens = answer.new_tokens.saturating_add(call.answer.new_tokens);
            call.verdict = verdict_in(&answer.text, place);
            call.answer = answer;
            match call.answer.end {
                _ if call.verdict.is_some() => break,
                End::Cut if call.answer.limit < THOUGHTS => self.client.allow_thoughts(),
                End::Whole if !reminded => reminded = true,
                _ => {
                    let why = call.answer.why_unreadable();
                    self.tell(format!("unreadable: {}: {why}", pair.bounded.sample));
                    if call.answer.text.is_empty() {
                        call.answer.text = format!("[{why}]");
                    }
                    break;
                }
            }
        }
        call.seconds = started.elapsed().as_secs_f64();
        Ok(call)
    }
}
