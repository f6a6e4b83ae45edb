//! Threads that ask the judge about the pairs of one cell, and write down every verdict before they take the next call.
//!
//! Knows which calls a journal lacks and when to give up. Which cells there are is decided in [`super::run`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow};

use super::client::{CallError, Client};
use super::pairing::PairedCell;
use super::rows::{Call, rows, verdicts};
use super::verdict::{Order, Verdict, choice_in};
use super::{Event, Settings, prompt, retry};
use crate::ledger::{Journal, is_disk_full};

/// How often a question is asked before its answers count as unreadable; with a reminder from the second time on.
const ATTEMPTS: usize = 3;
/// After this many failed calls in a row, each with all its retries, the judge counts as gone.
const GONE_AFTER: usize = 4;

/// What all cells of a run share.
pub(super) struct Workers<'a> {
    client: Client<'a>,
    settings: &'a Settings,
    /// Set when the user wants the run to end.
    pub(super) stop: &'a AtomicBool,
    pub(super) observe: &'a (dyn Fn(Event<'_>) + Sync),
    fatal: Mutex<Option<anyhow::Error>>,
    /// Calls that failed since the last answer.
    failures: AtomicUsize,
}

/// The state of one cell.
struct State<'a> {
    cell: &'a PairedCell,
    journal: &'a Journal,
    /// The known verdicts of every pair, by [`Order`].
    known: Mutex<Vec<[Option<Verdict>; 2]>>,
    failed: Mutex<BTreeMap<usize, String>>,
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
        let rows = journal.rows()?;
        let written = verdicts(&rows)?;
        let known = cell.pairs.iter().map(|pair| {
            Order::BOTH.map(|order| written.get(&(pair.bounded.sample.as_str(), order.slice())).copied())
        });
        let known: Vec<[Option<Verdict>; 2]> = known.collect();
        let calls: Vec<(usize, Order)> = (0..take)
            .flat_map(|pair| Order::BOTH.map(|order| (pair, order)))
            .filter(|&(pair, order)| known[pair][order as usize].is_none())
            .collect();
        let state = State { cell, journal, known: Mutex::new(known), failed: Mutex::new(BTreeMap::new()) };
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.settings.concurrency.min(calls.len()) {
                scope.spawn(|| {
                    while !self.is_ending()
                        && let Some(&(pair, order)) = calls.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        self.perform(&state, pair, order);
                    }
                });
            }
        });
        if let Some(error) = lock(&self.fatal).take() {
            return Err(error);
        }
        if lock(&state.known).iter().flatten().all(Option::is_some) {
            journal.complete(2 * cell.pairs.len())?;
        }
        Ok(state.failed.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_ending(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || lock(&self.fatal).is_some()
    }

    fn end(&self, error: anyhow::Error) {
        lock(&self.fatal).get_or_insert(error);
    }

    /// One call, from the question to its row.
    fn perform(&self, state: &State, pair: usize, order: Order) {
        let error = match self.call(state.cell, pair, order) {
            Ok(call) => {
                self.failures.store(0, Ordering::Relaxed);
                if let Err(error) = self.write_down(state, pair, &call) {
                    let full = is_disk_full(&error);
                    self.end(error.context(if full { "the disk is full" } else { "cannot write the results" }));
                }
                return;
            }
            Err(error) => error,
        };
        let gone = match &error {
            CallError::Interrupted => return,
            CallError::Fatal(message) => return self.end(anyhow!("{message}")),
            CallError::Pair(_) => false,
            CallError::Transient { .. } => self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= GONE_AFTER,
        };
        let (cell, sample) = (state.cell.name.stem(), &state.cell.pairs[pair].bounded.sample);
        (self.observe)(Event::Message(format!("failed: {cell}: {sample}: {error}")));
        if gone {
            self.end(anyhow!(
                "{GONE_AFTER} calls in a row had no answer; the last: {error}\n\
                 hint: verdicts so far are kept; once the judge answers, run the same command again to continue"
            ));
        }
        lock(&state.failed).insert(pair, error.to_string());
    }

    /// Asks until an answer can be read, up to [`ATTEMPTS`] times.
    fn call(&self, cell: &PairedCell, pair: usize, order: Order) -> Result<Call, CallError> {
        let started = Instant::now();
        let pair = &cell.pairs[pair];
        let (first, second) = match order {
            Order::First => (pair.story(), pair.full.as_str()),
            Order::Second => (pair.full.as_str(), pair.story()),
        };
        let mut call = Call::unreadable(order);
        for attempt in 0..ATTEMPTS {
            let question = prompt::question(&pair.request, first, second, attempt > 0);
            let waiting = |cause: &str, wait| (self.observe)(Event::Waiting(cause, wait));
            let retries = self.settings.retries;
            let answer = retry::ask(&self.client, &question, retries, &|| self.is_ending(), &waiting)?;
            // Unreadable answers cost tokens too.
            call.prompt_tokens = call.prompt_tokens.saturating_add(answer.prompt_tokens);
            call.new_tokens = call.new_tokens.saturating_add(answer.new_tokens);
            call.answer = answer.text;
            if let Some(choice) = choice_in(&call.answer) {
                call.verdict = Verdict::of(choice, order);
                break;
            }
        }
        call.seconds = started.elapsed().as_secs_f64();
        Ok(call)
    }

    /// Writes the rows of a call, and of its pair if both calls are answered, as one line of the journal.
    fn write_down(&self, state: &State, index: usize, call: &Call) -> Result<()> {
        // Locked until the line is written: of a pair's two calls that end at once, exactly one is the second.
        let mut known = lock(&state.known);
        let other = known[index][1 - call.order as usize];
        let rows = rows(self.settings, state.cell, &state.cell.pairs[index], call, other);
        state.journal.append(2 * index + call.order as usize, rows)?;
        known[index][call.order as usize] = Some(call.verdict);
        drop(known);
        (self.observe)(Event::Judged {
            cell: &state.cell.head,
            readable: call.verdict != Verdict::Unreadable,
            tokens: u64::from(call.prompt_tokens) + u64::from(call.new_tokens),
        });
        Ok(())
    }
}
