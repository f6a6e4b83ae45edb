//! Work without the interpreter, which Ctrl-C and exceptions of callbacks end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use pyo3::prelude::*;

use crate::errors::exception;

/// Ends the work of all models after the current layer.
static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The first exception that a callback raised.
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

/// One piece of work at a time, because all share the flag.
static TURN: Mutex<()> = Mutex::new(());

pub fn stop() -> Arc<AtomicBool> {
    Arc::clone(&STOP)
}

/// Remembers what a callback raised, and ends the work.
pub fn raise(error: PyErr) {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    STOP.store(true, Ordering::Relaxed);
}

/// Does some work in a thread of its own, without the interpreter, and looks for signals meanwhile.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let (outcome, signal) = py.detach(|| {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        STOP.store(false, Ordering::Relaxed);
        RAISED.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (sender, receiver) = channel();
        let mut signal = None;
        let outcome = std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let outcome = work();
                let _ = sender.send(());
                outcome
            });
            // A worker that panics sends nothing, and its sender is dropped.
            while receiver.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = Python::attach(|py| py.check_signals()) {
                    STOP.store(true, Ordering::Relaxed);
                    signal.get_or_insert(error);
                }
            }
            worker.join()
        });
        (outcome, signal)
    });
    if let Some(error) = signal.or_else(|| RAISED.lock().unwrap_or_else(PoisonError::into_inner).take()) {
        return Err(error);
    }
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(|error| exception(&error))
}
