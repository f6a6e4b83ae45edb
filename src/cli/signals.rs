//! Signals that end the work early but in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::output::tell;
use super::progress::Mode;

/// Ctrl-C, `kill`, and what Slurm sends before a pre-emption or time limit.
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGUSR1];

/// The flag that the first signal sets; the second signal ends the program at once.
pub(super) struct Interrupt {
    pub(super) stop: Arc<AtomicBool>,
    /// The number of the signal.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    pub(super) fn listen() -> Result<Interrupt> {
        let interrupt = Interrupt { stop: Arc::default(), signal: Arc::default() };
        for number in SIGNALS {
            flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&interrupt.stop))
                .and_then(|_| flag::register_usize(number, Arc::clone(&interrupt.signal), number as usize))
                .and_then(|_| flag::register(number, Arc::clone(&interrupt.stop)))
                .context("cannot listen to signals")?;
        }
        Ok(interrupt)
    }

    /// Calls `tell` at the first signal, from a thread of its own.
    pub(super) fn on_first(&self, tell: impl FnOnce() + Send + 'static) -> Result<()> {
        let mut signals = Signals::new(SIGNALS).context("cannot listen to signals")?;
        thread::spawn(move || {
            if signals.forever().next().is_some() {
                tell();
            }
        });
        Ok(())
    }

    /// Says that the work was interrupted; the exit code names the signal, as in a shell.
    pub(super) fn exit_code(&self, mode: Mode) -> u8 {
        // The last object of a stream says so too.
        if mode != Mode::Json {
            tell("interrupted; run the same command again to continue");
        }
        128 + self.signal.load(Ordering::Relaxed) as u8
    }
}
