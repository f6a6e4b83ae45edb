//! Progress on stderr: a bar on a terminal, elsewhere a line now and then.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::format::{Bytes, duration};
use crate::lm::source::DownloadProgress;

/// Without a terminal, the time between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

const TEMPLATE: &str = "[{wide_bar}] {percent:>3} %  {prefix}  {eta} left\n{spinner} {wide_msg}";

fn is_interactive() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

pub(super) struct Progress {
    bar: Option<ProgressBar>,
    total: u64,
    /// What was done before this process began.
    before: u64,
    started: Instant,
    last_line: Instant,
}

impl Progress {
    /// Work of which nothing is known yet; [`Progress::start`] begins it.
    pub(super) fn new() -> Progress {
        let now = Instant::now();
        Progress { bar: None, total: 0, before: 0, started: now, last_line: now }
    }

    pub(super) fn start(&mut self, total: u64, before: u64) {
        *self = Progress { total, before, ..Progress::new() };
        if total > before && is_interactive() {
            let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a constant");
            let bar = ProgressBar::new(total).with_style(style.progress_chars("=> ")).with_position(before);
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_millis(250));
            self.bar = Some(bar);
        }
    }

    /// `done` of the total, with a summary; details are shown on a terminal only.
    pub(super) fn update(&mut self, done: u64, summary: String, details: String) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_prefix(summary);
            bar.set_message(details);
        } else if self.last_line.elapsed() >= BETWEEN_LINES {
            self.last_line = Instant::now();
            let rate = done.saturating_sub(self.before) as f64 / self.seconds();
            let left = duration(self.total.saturating_sub(done) as f64 / rate);
            eprintln!("{:.0} %, {summary}, {left} left", 100.0 * done as f64 / self.total.max(1) as f64);
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Prints a line, above the bar if there is one.
    pub(super) fn print(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Downloads, one file after the other.
pub(super) struct Downloads(Mutex<Option<Download>>);

struct Download {
    name: String,
    bytes: u64,
    done: u64,
    progress: Progress,
}

impl Downloads {
    pub(super) fn new() -> Downloads {
        Downloads(Mutex::new(None))
    }

    fn with(&self, change: impl FnOnce(&mut Option<Download>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl DownloadProgress for Downloads {
    fn start(&self, name: &str, bytes: u64) {
        let mut progress = Progress::new();
        progress.start(bytes, 0);
        if progress.bar.is_none() {
            eprintln!("fetching {name} ({})", Bytes(bytes));
        }
        self.with(|slot| *slot = Some(Download { name: name.into(), bytes, done: 0, progress }));
    }

    fn advance(&self, bytes: u64) {
        self.with(|slot| {
            let Some(Download { name, bytes: total, done, progress }) = slot else { return };
            *done += bytes;
            progress.update(*done, format!("{name}: {} of {}", Bytes(*done), Bytes(*total)), String::new());
        });
    }

    fn finish(&self) {
        self.with(|slot| {
            if let Some(mut download) = slot.take() {
                download.progress.finish();
            }
        });
    }

    fn note(&self, message: &str) {
        eprintln!("note: {message}");
    }
}
