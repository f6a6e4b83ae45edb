//! Threads that read at the same time. What they ask for in a layer is launched together: the scan through a text takes one
//! multiprocessor of a GPU, or a few, so it costs about as much for many texts as for one.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use super::device::Buffer;
use super::launch::Call;

/// How long a call waits for those of other readers, at most. One that computes something on the host may take longer.
const PATIENCE: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Readers {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    /// Threads that will call for every layer.
    readers: usize,
    /// By the number of the call.
    waiting: BTreeMap<u64, Call>,
    launched: BTreeMap<u64, Result<(), String>>,
    count: u64,
    /// Memory of the last launch.
    table: Option<Buffer>,
}

/// While it lives, calls of other readers wait for this one's.
pub(in crate::lm) struct Reading<'a>(&'a Readers);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.lock().readers -= 1;
        self.0.changed.notify_all();
    }
}

impl Readers {
    pub fn enter(&self) -> Reading<'_> {
        self.lock().readers += 1;
        Reading(self)
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every reader has called, and lets the last one launch all calls.
    ///
    /// # Errors
    /// Those of `launch`, for all of its calls.
    pub fn launch(&self, call: Call, launch: impl Fn(Vec<Call>, &mut Option<Buffer>) -> Result<()>) -> Result<()> {
        let since = Instant::now();
        let mut calls = self.lock();
        let own = calls.count;
        calls.count += 1;
        calls.waiting.insert(own, call);
        loop {
            if let Some(result) = calls.launched.remove(&own) {
                return result.map_err(Error::msg);
            }
            // Only after a panic in the thread that launched it.
            anyhow::ensure!(calls.waiting.contains_key(&own), "another text's attention could not be launched");
            if calls.waiting.len() >= calls.readers || since.elapsed() >= PATIENCE {
                let (numbers, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut calls.waiting).into_iter().unzip();
                let result = launch(waiting, &mut calls.table).map_err(|error| format!("{error:#}"));
                calls.launched.extend(numbers.into_iter().map(|number| (number, result.clone())));
                self.changed.notify_all();
                continue;
            }
            let waited = self.changed.wait_timeout(calls, PATIENCE);
            (calls, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::params::Layer;
    use super::*;

    #[test]
    fn a_launch_that_fails_is_an_error_of_all_its_calls_and_of_no_later_one() {
        let readers = Readers::default();
        let call = || Call { layer: Layer::default(), texts: Vec::new() };
        let reading = [(); 3].map(|()| readers.enter());
        let errors = thread::scope(|scope| {
            let read = || readers.launch(call(), |_, _| anyhow::bail!("no memory")).unwrap_err().to_string();
            [(); 3].map(|()| scope.spawn(read)).map(|thread| thread.join().unwrap())
        });
        assert_eq!(errors, ["no memory"; 3]);
        drop(reading);
        readers.launch(call(), |_, _| Ok(())).unwrap();
    }
}
