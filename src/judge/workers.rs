//! Threads that ask the judge about the pairs of one cell, and write down every verdict before the next question.
//!
//! Knows which calls a journal lacks and when to give up. Which cells there are is decided in [`super::run`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail};

use super::client::{Answer, CallError, Client};
use super::pairing::{Pair, PairedCell, story};
use super::rows::{Call, rows, verdicts};
use super::verdict::{Verdict, verdict_in};
use super::{Event, Settings, prompt};
use crate::ledger::{Journal, is_disk_full};

/// How often a question is asked before its answers count as unreadable; with a reminder from the second time on.
const ATTEMPTS: usize = 3;
/// After this many failed calls in a row, each with all its retries, the judge counts as gone.
const GONE_AFTER: usize = 4;

/// What all cells of a run share.
pub(super) struct Workers<'a> {
    client: Client<'a>,
    pub(super) settings: &'a Settings,
    /// Set when the user wants the run to end.
    pub(super) stop: &'a AtomicBool,
    pub(super) observe: &'a (dyn Fn(Event<'_>) + Sync),
    fatal: Mutex<Option<anyhow::Error>>,
    /// Calls that failed since the last answer.
    failures: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicking thread leaves these values whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Workers<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        stop: &'a AtomicBool,
        observe: &'a (dyn Fn(Event<'_>) + Sync),
    ) -> Workers<'a> {
        let (fatal, failures) = (Mutex::new(None), AtomicUsize::new(0));
        Workers { client: Client::new(settings), settings, stop, observe, fatal, failures }
    }

    /// Asks what the journal lacks of the first `take` pairs, and completes the journal if no pair is left. Returns the
    /// pairs that failed, with why.
    ///
    /// # Errors
    /// What ends the run: a judge that is gone or refuses, a ledger that cannot be written.
    pub(super) fn judge(
        &self,
        cell: &PairedCell,
        take: usize,
        journal: &Journal,
    ) -> Result<BTreeMap<usize, String>> {
        let known = verdicts(&journal.rows()?, &cell.pairs[..take]);
        let open: Vec<_> = known.into_iter().enumerate().filter(|(_, known)| known.contains(&None)).collect();
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..self.settings.concurrency.min(open.len()) {
                scope.spawn(|| {
                    while let Some(&(index, known)) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                        match self.judge_pair(cell, index, known, journal) {
                            Ok(None) => {}
                            Ok(Some(why)) => drop(lock(&failed).insert(index, why)),
                            Err(error) => drop(lock(&self.fatal).get_or_insert(error)),
                        }
                    }
                });
            }
        });
        if let Some(error) = lock(&self.fatal).take() {
            return Err(error);
        }
        let all = 2 * cell.pairs.len() + cell.identical.len();
        if journal.done().len() == all {
            journal.complete(all)?;
        }
        Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_ending(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || lock(&self.fatal).is_some()
    }

    /// Asks for a pair's missing verdicts and writes each down; the second brings the pair's result. Returns why a call failed.
    fn judge_pair(
        &self,
        cell: &PairedCell,
        index: usize,
        mut known: [Option<Verdict>; 2],
        journal: &Journal,
    ) -> Result<Option<String>> {
        let pair = &cell.pairs[index];
        let mut failed = None;
        for place in [0, 1] {
            if known[place].is_some() {
                continue;
            }
            let call = match self.call(pair, place) {
                Ok(call) => call,
                Err(CallError::Interrupted) => break,
                Err(CallError::Fatal(message)) => bail!(message),
                Err(error) => {
                    (self.observe)(Event::Message(format!(
                        "failed: {}: {}: {error}",
                        cell.name.stem(),
                        pair.bounded.sample
                    )));
                    let is_transient = matches!(error, CallError::Transient { .. });
                    if is_transient && self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= GONE_AFTER {
                        bail!(
                            "{GONE_AFTER} calls in a row had no answer; the last: {error}\n\
                             hint: verdicts so far are kept; once the judge answers, run the same command again to continue"
                        );
                    }
                    failed = Some(error.to_string());
                    continue;
                }
            };
            self.failures.store(0, Ordering::Relaxed);
            known[place] = Some(call.verdict);
            let readable = call.verdict.is_some();
            let tokens = u64::from(call.answer.prompt_tokens) + u64::from(call.answer.new_tokens);
            let rows = rows(self.settings, cell, pair, call, known[1 - place]);
            journal.append(2 * index + place, rows).map_err(|error| {
                let full = is_disk_full(&error);
                error.context(if full { "the disk is full" } else { "cannot write the results" })
            })?;
            (self.observe)(Event::Judged { cell: &cell.head, readable, tokens });
        }
        Ok(failed)
    }

    /// Asks until an answer can be read, up to [`ATTEMPTS`] times.
    fn call(&self, pair: &Pair, place: usize) -> Result<Call, CallError> {
        let started = Instant::now();
        let mut shown = [story(&pair.bounded), &pair.full];
        shown.rotate_right(place);
        let mut call = Call { place, verdict: None, answer: Answer::default(), seconds: 0.0 };
        for attempt in 0..ATTEMPTS {
            let question = prompt::question(&pair.request, shown[0], shown[1], attempt > 0);
            let waiting = |cause: &str, wait| (self.observe)(Event::Waiting(cause, wait));
            let mut answer = self.client.ask(&question, &|| self.is_ending(), &waiting)?;
            // Unreadable answers cost tokens too.
            answer.prompt_tokens = answer.prompt_tokens.saturating_add(call.answer.prompt_tokens);
            answer.new_tokens = answer.new_tokens.saturating_add(call.answer.new_tokens);
            call.verdict = verdict_in(&answer.text, place);
            call.answer = answer;
            if call.verdict.is_some() {
                break;
            }
        }
        call.seconds = started.elapsed().as_secs_f64();
        Ok(call)
    }
}
