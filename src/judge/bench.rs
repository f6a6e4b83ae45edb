//! The work on one cell of verdicts: threads take calls, ask, and write every verdict down before the next.
//!
//! Knows which calls a journal lacks, and when it makes no sense to go on. Which cells there are is not known
//! here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow};

use super::client::{CallError, Client};
use super::pair::Contest;
use super::rows::{Call, Witness, opinions};
use super::verdict::{Opinion, Shown, choice_in};
use super::{Event, Settings, patience, prompt};
use crate::ledger::{Journal, is_disk_full};

/// How often a question is put before its answers count as unreadable; all but the first time with a reminder.
const READINGS: usize = 3;
/// So many calls in a row without an answer, each after all its retries, and the judge counts as gone.
const GONE_AFTER: usize = 4;

/// What judging needs, whatever the cell.
pub(super) struct Bench<'a> {
    client: &'a Client,
    settings: &'a Settings,
    /// The user wants the run to end.
    stop: &'a AtomicBool,
    observe: &'a (dyn Fn(Event<'_>) + Sync),
    /// Why the run cannot go on.
    fatal: Mutex<Option<anyhow::Error>>,
    halted: AtomicBool,
    /// Calls that failed since the last answer.
    silent: AtomicUsize,
}

/// A cell in work.
struct Work<'a> {
    contest: &'a Contest,
    journal: &'a Journal,
    /// For every pair, the opinions known, by [`Shown`].
    known: Mutex<Vec<[Option<Opinion>; 2]>>,
    failed: Mutex<BTreeMap<usize, String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked here left whole values only.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        client: &'a Client,
        settings: &'a Settings,
        stop: &'a AtomicBool,
        observe: &'a (dyn Fn(Event<'_>) + Sync),
    ) -> Bench<'a> {
        Bench {
            client,
            settings,
            stop,
            observe,
            fatal: Mutex::new(None),
            halted: AtomicBool::new(false),
            silent: AtomicUsize::new(0),
        }
    }

    /// Asks what the journal lacks of the first `take` pairs, and completes it if nothing is left of all pairs.
    /// The pairs that failed come back, with why.
    ///
    /// # Errors
    /// What ends the run: a judge that is gone or refuses, a ledger that can't be written.
    pub(super) fn judge(
        &self,
        contest: &Contest,
        take: usize,
        journal: &Journal,
    ) -> Result<BTreeMap<usize, String>> {
        let rows = journal.rows()?;
        let written = opinions(&rows)?;
        let known = contest.pairs.iter().map(|pair| {
            Shown::BOTH.map(|shown| written.get(&(pair.judged.sample.as_str(), shown.group())).copied())
        });
        let known: Vec<[Option<Opinion>; 2]> = known.collect();
        let jobs: Vec<(usize, Shown)> = (0..take)
            .flat_map(|pair| Shown::BOTH.map(|shown| (pair, shown)))
            .filter(|&(pair, shown)| known[pair][shown as usize].is_none())
            .collect();
        let work = Work { contest, journal, known: Mutex::new(known), failed: Mutex::new(BTreeMap::new()) };
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.settings.concurrency.min(jobs.len()) {
                scope.spawn(|| {
                    while !self.ended()
                        && let Some(&(pair, shown)) = jobs.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        self.perform(&work, pair, shown);
                    }
                });
            }
        });
        if let Some(error) = lock(&self.fatal).take() {
            return Err(error);
        }
        if lock(&work.known).iter().flatten().all(Option::is_some) {
            journal.complete(2 * contest.pairs.len())?;
            (self.observe)(Event::CellDone);
        }
        Ok(work.failed.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn ended(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.halted.load(Ordering::Relaxed)
    }

    fn end(&self, error: anyhow::Error) {
        lock(&self.fatal).get_or_insert(error);
        self.halted.store(true, Ordering::Relaxed);
    }

    /// One call, from the question to its row.
    fn perform(&self, work: &Work, pair: usize, shown: Shown) {
        let error = match self.call(work.contest, pair, shown) {
            Ok(call) => {
                self.silent.store(0, Ordering::Relaxed);
                if let Err(error) = self.write_down(work, pair, &call) {
                    let hint =
                        if is_disk_full(&error) { "the disk is full" } else { "the results cannot be written" };
                    self.end(error.context(hint));
                }
                return;
            }
            Err(error) => error,
        };
        let gone = match &error {
            CallError::Interrupted => return,
            CallError::Final(message) => return self.end(anyhow!("{message}")),
            CallError::Question(_) => false,
            CallError::Passing { .. } => self.silent.fetch_add(1, Ordering::Relaxed) + 1 >= GONE_AFTER,
        };
        let sample = &work.contest.pairs[pair].judged.sample;
        (self.observe)(Event::Failed { cell: work.contest.name.stem(), sample, error: &error.to_string() });
        if gone {
            self.end(anyhow!(
                "{GONE_AFTER} calls in a row had no answer; the last: {error}\n\
                 hint: what was judged is kept; once the judge answers, the same command goes on where it stopped"
            ));
        }
        lock(&work.failed).insert(pair, error.to_string());
    }

    /// Asks until an answer can be read, or none is likely to be.
    fn call(&self, contest: &Contest, pair: usize, shown: Shown) -> Result<Call, CallError> {
        let started = Instant::now();
        let pair = &contest.pairs[pair];
        let (first, second) = match shown {
            Shown::First => (pair.text(), pair.full.as_str()),
            Shown::Second => (pair.full.as_str(), pair.text()),
        };
        let mut call = Call {
            shown,
            opinion: Opinion::Unreadable,
            answer: String::new(),
            prompt_tokens: 0,
            new_tokens: 0,
            seconds: 0.0,
        };
        for reading in 0..READINGS {
            let question = prompt::question(&pair.request, first, second, reading > 0);
            let waits = |cause: &str, wait| (self.observe)(Event::Waiting { cause, wait });
            let answer = patience::ask(self.client, &question, self.settings.retries, &|| self.ended(), &waits)?;
            // All answers are paid for, also those that nobody understood.
            call.prompt_tokens = call.prompt_tokens.saturating_add(answer.prompt_tokens);
            call.new_tokens = call.new_tokens.saturating_add(answer.new_tokens);
            call.answer = answer.text;
            if let Some(choice) = choice_in(&call.answer) {
                call.opinion = Opinion::of(choice, shown);
                break;
            }
        }
        call.seconds = started.elapsed().as_secs_f64();
        Ok(call)
    }

    /// The verdict's rows, and those of its pair if it was the second one, go into the journal as one line.
    fn write_down(&self, work: &Work, index: usize, call: &Call) -> Result<()> {
        let witness = Witness { judge: &self.settings.model, host: self.client.host() };
        // Held until the line is written: of two calls of a pair that end at once, exactly one is the second.
        let mut known = lock(&work.known);
        let other = known[index][1 - call.shown as usize];
        let rows = witness.rows(work.contest, &work.contest.pairs[index], call, other);
        work.journal.append(2 * index + call.shown as usize, rows)?;
        known[index][call.shown as usize] = Some(call.opinion);
        drop(known);
        (self.observe)(Event::Judged {
            cell: &work.contest.head,
            readable: call.opinion != Opinion::Unreadable,
            tokens: u64::from(call.prompt_tokens) + u64::from(call.new_tokens),
        });
        Ok(())
    }
}
