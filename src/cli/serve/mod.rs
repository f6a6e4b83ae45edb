//! A report that is served while results still come, and drawn again when they changed.
//!
//! One thread takes requests, which each have another for their answers; one looks at the results folder. A report that cannot
//! be drawn is said once; it ends nothing.

mod http;
mod listener;

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::json;

pub(super) use http::Address;
use http::{Asked, Content};
use listener::Answer;

use super::events;
use super::progress::Mode;
use crate::ledger::State;
use crate::report::Written;

/// Between two looks at the results folder.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Least time between two drawings. A drawing that took long is followed by [`REST`] times its own time.
const BETWEEN_DRAWINGS: Duration = Duration::from_secs(3);
const REST: u32 = 10;

/// An open page asks for the version every 2 seconds, so one that asked within this time is still open.
const OPEN: Duration = Duration::from_secs(5);
const LAST_LOOK: Duration = Duration::from_millis(2500);

/// What a site shows.
pub(super) struct Source {
    /// The state of the results.
    pub(super) state: Box<dyn Fn() -> Result<Vec<State>> + Send>,
    /// Draws them; nothing if nothing is measured.
    pub(super) draw: Box<dyn FnMut() -> Result<Option<Written>> + Send>,
    /// Says why they cannot be drawn.
    pub(super) warn: Box<dyn Fn(&str) + Send>,
    /// The state that was drawn last.
    pub(super) drawn: Option<Vec<State>>,
}

/// A report that is served.
pub(super) struct Site {
    shared: Arc<Shared>,
    drawing: Option<JoinHandle<()>>,
}

struct Shared {
    content: Mutex<Content>,
    /// When a page last asked whether it is the newest.
    last_asked: Mutex<Option<Instant>>,
    is_paused: AtomicBool,
    is_over: AtomicBool,
}

impl Site {
    /// Serves what is `written`, and draws the source when it changes. Says where on stderr.
    ///
    /// # Errors
    /// An address that is taken or not allowed; a page that cannot be read.
    pub(super) fn open(address: Address, source: Source, written: Option<&Written>, mode: Mode) -> Result<Site> {
        let bound = TcpListener::bind(address.0).and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (own, listener) = bound.map_err(|error| {
            anyhow!(
                "cannot listen on {}: {error}\nhint: `--serve` without an address takes a free port",
                address.0
            )
        })?;
        let url = format!("http://{own}/");
        let shared = Arc::new(Shared {
            content: Mutex::new(Content::empty()),
            last_asked: Mutex::new(None),
            is_paused: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        if let Some(written) = written {
            shared.publish(written)?;
        }
        let (answers, draws) = (Arc::clone(&shared), Arc::clone(&shared));
        thread::spawn(move || listener::serve(&listener, move |request| answers.answer(request)));
        let drawing = thread::spawn(move || draws.watch(source));
        match mode {
            Mode::Json => events::write("serving", json!({ "url": url })),
            _ => eprintln!("the report is served at {url}"),
        }
        Ok(Site { shared, drawing: Some(drawing) })
    }

    /// Whether drawing waits, so that it takes no time from what is measured.
    pub(super) fn pause(&self, is_paused: bool) {
        self.shared.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Ends the drawing.
    pub(super) fn settle(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.drawing.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }

    /// Ends the site. Pages that are open get the last report before.
    pub(super) fn close(mut self, written: Option<&Written>) {
        self.settle();
        if written.is_some_and(|written| self.shared.publish(written).is_ok()) {
            let is_open = |asked: Instant| asked.elapsed() < OPEN;
            if lock(&self.shared.last_asked).is_some_and(is_open) {
                thread::sleep(LAST_LOOK);
            }
        }
    }

    /// Waits for ever: a signal ends the program.
    pub(super) fn stay(self) -> ! {
        loop {
            thread::park();
        }
    }
}

impl Drop for Site {
    /// Clients are not waited for: the listener ends with the program.
    fn drop(&mut self) {
        self.settle();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn publish(&self, written: &Written) -> Result<()> {
        let page = written.page().context("the report has no page")?;
        let content = Content::of(page, &written.files).with_context(|| page.display().to_string())?;
        *lock(&self.content) = content;
        Ok(())
    }

    fn answer(&self, request: &httparse::Request<'_, '_>) -> Answer {
        // Files are opened without the lock: what is slow for a client must not keep the next report waiting.
        let asked = lock(&self.content).asked(request);
        if matches!(asked, Asked::Version(_)) {
            *lock(&self.last_asked) = Some(Instant::now());
        }
        asked.answer()
    }

    fn watch(&self, mut source: Source) {
        let (mut rest, mut has_failed) = (Duration::ZERO, false);
        let mut last = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            if !self.is_paused.load(Ordering::Relaxed) && last.elapsed() >= rest {
                let begun = Instant::now();
                let drawn = self.draw(&mut source);
                rest = match drawn {
                    Ok(false) => Duration::ZERO,
                    _ => BETWEEN_DRAWINGS.max(REST * begun.elapsed()),
                };
                if let (Err(error), false) = (&drawn, has_failed) {
                    (source.warn)(&format!(
                        "the served report stays as it was, because it cannot be drawn: {error:#}"
                    ));
                }
                has_failed |= drawn.is_err();
                last = Instant::now();
            }
            thread::park_timeout(BETWEEN_LOOKS);
        }
    }

    /// Draws the results if they have changed; returns whether they had.
    fn draw(&self, source: &mut Source) -> Result<bool> {
        // Before drawing, so that what comes meanwhile is drawn the next time.
        let state = (source.state)()?;
        if source.drawn.as_ref() == Some(&state) {
            return Ok(false);
        }
        source.drawn = Some(state);
        if let Some(written) = (source.draw)()? {
            self.publish(&written)?;
        }
        Ok(true)
    }
}
