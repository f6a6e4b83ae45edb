//! Work that threads ask for at the same time and one of them does for all.
//!
//! What texts ask for in a layer is launched together: the scan through a text takes one multiprocessor of a GPU, or a few, so it costs
//! about as much for many texts as for one. Texts are written together: a step reads every weight once, for however many.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, ensure};

/// Collects calls of several threads, of which one does the work; each call has a result.
#[derive(Debug)]
pub(in crate::lm) struct Batcher<C, R> {
    calls: Mutex<Calls<C, R>>,
    changed: Condvar,
    /// Longest time that a call waits for those of other members. A member that computes something on the host may take longer.
    patience: Duration,
}

#[derive(Debug)]
struct Calls<C, R> {
    /// Number of threads that will call again.
    members: usize,
    /// Waiting calls, by their number.
    waiting: BTreeMap<u64, C>,
    done: BTreeMap<u64, Result<R, String>>,
    count: u64,
}

/// Membership of a thread: while it lives, calls of other members wait for this thread's call.
pub(in crate::lm) struct Member<'a, C, R>(&'a Batcher<C, R>);

impl<C, R> Drop for Member<'_, C, R> {
    fn drop(&mut self) {
        self.0.lock().members -= 1;
        self.0.changed.notify_all();
    }
}

impl<C, R> Batcher<C, R> {
    pub fn new(patience: Duration) -> Batcher<C, R> {
        let calls = Calls { members: 0, waiting: BTreeMap::new(), done: BTreeMap::new(), count: 0 };
        Batcher { calls: Mutex::new(calls), changed: Condvar::new(), patience }
    }

    pub fn enter(&self) -> Member<'_, C, R> {
        self.lock().members += 1;
        Member(self)
    }

    fn lock(&self) -> MutexGuard<'_, Calls<C, R>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every member has called, and lets the last one do the work of all calls. `work` returns a result for each call.
    ///
    /// # Errors
    ///
    /// Those of `work`, for all of its calls.
    pub fn call(&self, call: C, work: impl Fn(Vec<C>) -> Result<Vec<R>>) -> Result<R> {
        let since = Instant::now();
        let mut calls = self.lock();
        let own = calls.count;
        calls.count += 1;
        calls.waiting.insert(own, call);
        loop {
            if let Some(result) = calls.done.remove(&own) {
                return result.map_err(Error::msg);
            }
            // Only after a panic in the thread that did it.
            ensure!(calls.waiting.contains_key(&own), "what other texts asked for together could not be done");
            if calls.waiting.len() >= calls.members || since.elapsed() >= self.patience {
                let (numbers, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut calls.waiting).into_iter().unzip();
                match work(waiting) {
                    Ok(results) => calls.done.extend(numbers.into_iter().zip(results.into_iter().map(Ok))),
                    Err(error) => {
                        let error = format!("{error:#}");
                        calls.done.extend(numbers.into_iter().map(|number| (number, Err(error.clone()))));
                    }
                }
                self.changed.notify_all();
                continue;
            }
            let waited = self.changed.wait_timeout(calls, self.patience.saturating_sub(since.elapsed()));
            (calls, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use anyhow::bail;

    use super::*;

    #[test]
    fn work_that_fails_is_an_error_of_all_its_calls_and_of_no_later_one() {
        let batcher = Batcher::<u32, u32>::new(Duration::from_secs(60));
        let members = [(); 3].map(|()| batcher.enter());
        let all = |work: &(dyn Fn(Vec<u32>) -> Result<Vec<u32>> + Sync)| {
            thread::scope(|scope| {
                let call = |number| batcher.call(number, work).map_err(|error| error.to_string());
                [0, 1, 2].map(|number| scope.spawn(move || call(number))).map(|thread| thread.join().unwrap())
            })
        };
        assert_eq!(all(&|_| bail!("no memory")), [(); 3].map(|()| Err("no memory".to_owned())));
        // One thread does the work of all.
        let together = |numbers: Vec<u32>| {
            assert_eq!(numbers.len(), 3);
            Ok(numbers.into_iter().map(|number| number + 10).collect())
        };
        assert_eq!(all(&together), [Ok(10), Ok(11), Ok(12)]);
        drop(members);
        assert_eq!(batcher.call(7, Ok).unwrap(), 7);
    }
}
