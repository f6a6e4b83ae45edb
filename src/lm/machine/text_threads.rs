//! A thread pool that works on one text at a time.
//!
//! Threads that take parts of a text wait for each other (`parts`). In a pool with other work a thread can take on a part while it
//! waits for a piece of that work, which may wait for that part in turn; then both wait for ever. So parts are shared only among
//! the threads of this pool, which has no other work.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Largest number of threads that are started; each takes memory of its own.
pub const MOST_THREADS: usize = 1024;

thread_local! {
    /// Whether this thread belongs to a [`TextThreads`].
    static IS_OF_TEXT: Cell<bool> = const { Cell::new(false) };
}

/// Checks a number of threads that are to be started.
///
/// # Errors
///
/// None, or more than [`MOST_THREADS`].
pub fn checked_threads(threads: usize) -> Result<usize> {
    ensure!((1..=MOST_THREADS).contains(&threads), "threads are from 1 to {MOST_THREADS}, not {threads}");
    Ok(threads)
}

/// Thread pool for one text at a time.
#[derive(Debug)]
pub struct TextThreads {
    pool: ThreadPool,
    turn: Mutex<()>,
}

impl TextThreads {
    /// Starts `threads` threads.
    ///
    /// # Errors
    ///
    /// A number that [`checked_threads`] refuses, or threads that cannot be started.
    pub fn new(threads: usize) -> Result<TextThreads> {
        let threads = checked_threads(threads)?;
        let pool =
            ThreadPoolBuilder::new().num_threads(threads).start_handler(|_| IS_OF_TEXT.set(true)).build()?;
        Ok(TextThreads { pool, turn: Mutex::default() })
    }

    /// Runs work in the pool, after the work that other threads have asked for. `work` must not call `install` again, and reads its
    /// texts one after the other.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        // Taken outside the pool, whose threads never wait for it.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.pool.install(work)
    }

    pub fn current_num_threads(&self) -> usize {
        self.pool.current_num_threads()
    }
}

/// Whether this thread and the others of its pool work on one text at a time.
pub(in crate::lm) fn are_here() -> bool {
    IS_OF_TEXT.get()
}
