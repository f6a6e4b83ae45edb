//! Progress on stderr: a bar on a terminal, elsewhere a line now and then, or one JSON object for each event.
//!
//! `docs/progress.md` documents the keys of the objects. Keys may be added; none is renamed or removed within a major version.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::output::tell;
use super::terminal;
use crate::format::{Bytes, duration, plain};
use crate::lm::source::DownloadProgress;
use crate::run::Started;

/// The time between two lines where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// The time until time left is shown: the first steps say little.
const FIRST: Duration = Duration::from_secs(2);

const TEMPLATE: &str = "{spinner} [{wide_bar}] {percent:>3} %  {msg}";

/// How a command shows its progress on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// A bar on a terminal, lines elsewhere
    #[default]
    Auto,
    /// A line every 10 seconds
    Lines,
    /// One JSON object a line for each event; nothing else is on stderr
    Json,
    /// Only warnings, failures and the summary
    None,
}

impl Mode {
    pub(super) fn note(self, message: &str) {
        self.tell("note", message);
    }

    pub(super) fn warn(self, message: &str) {
        self.tell("warning", message);
    }

    fn tell(self, name: &str, message: &str) {
        match self {
            Mode::Json => write_event(name, json!({ "message": message })),
            _ => tell(format!("{name}: {message}")),
        }
    }
}

/// Writes an event as JSON.
pub(super) fn write_event(name: &str, mut keys: Value) {
    keys["event"] = name.into();
    tell(keys);
}

/// The progress of one command: of downloads, one file after the other, and then of its work.
pub(super) struct Progress {
    pub(super) mode: Mode,
    /// Hidden without a terminal, and in every other mode than `Auto`.
    pub(super) bar: ProgressBar,
    last_line: Instant,
    /// The file that is downloaded.
    file: String,
    /// The notes so far. A text that several models read is noted once.
    notes: HashSet<String>,
    /// The work of a run.
    pub(super) started: Started,
    /// The samples that this run has measured.
    pub(super) measured: Measured,
}

/// Totals of the samples that a run measured.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) tokens: u64,
    pub(super) samples: usize,
    /// Estimated seconds on the nominal machine.
    pub(super) seconds: f64,
    pub(super) cells: usize,
}

/// Locks what threads share. A panicking thread leaves progress whole.
pub(super) fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Progress {
    /// Work of which nothing is known yet; [`Progress::start`] begins it.
    pub(super) fn new(mode: Mode) -> Mutex<Progress> {
        Mutex::new(Progress {
            mode,
            bar: ProgressBar::hidden(),
            last_line: Instant::now(),
            file: String::new(),
            notes: HashSet::new(),
            started: Started::default(),
            measured: Measured::default(),
        })
    }

    /// Begins work of `total`, of which `before` was done before this process began.
    pub(super) fn start(&mut self, total: u64, before: u64) {
        let is_shown = total > before && self.mode == Mode::Auto;
        let target = if is_shown { terminal::stderr() } else { ProgressDrawTarget::hidden() };
        let style =
            ProgressStyle::with_template(TEMPLATE).expect("the template is a constant").progress_chars("=> ");
        self.bar = ProgressBar::with_draw_target(Some(total), target).with_style(style).with_position(before);
        self.bar.reset_eta();
        self.last_line = Instant::now();
        if self.has_bar() {
            self.bar.enable_steady_tick(Duration::from_millis(250));
        }
    }

    /// Shows that `done` of the total is done, with a summary.
    pub(super) fn update(&mut self, done: u64, summary: &str) {
        self.bar.set_position(done);
        let is_line_due = self.mode != Mode::Json && self.is_line_due();
        if !self.has_bar() && !is_line_due {
            return;
        }
        let left = self.seconds_left().map_or(String::new(), |left| format!(", {} left", duration(left)));
        if is_line_due {
            let total = self.bar.length().unwrap_or_default();
            tell(format!("{:.0} %, {summary}{left}", 100.0 * done as f64 / total.max(1) as f64));
        } else {
            self.bar.set_message(plain(&format!("{summary}{left}")));
        }
    }

    /// Whether the time of the next line has come; if so, it is counted as printed.
    fn is_line_due(&mut self) -> bool {
        let is_wanted = !self.has_bar() && self.mode != Mode::None;
        let is_due = is_wanted && self.last_line.elapsed() >= BETWEEN_LINES;
        if is_due {
            self.last_line = Instant::now();
        }
        is_due
    }

    /// The seconds that the rest takes; `None` as long as that is not known.
    pub(super) fn seconds_left(&self) -> Option<f64> {
        let left = self.bar.eta().as_secs_f64();
        (self.bar.elapsed() >= FIRST && left > 0.0).then_some(left)
    }

    /// Prints a line, above the bar if there is one.
    pub(super) fn print(&self, line: &str) {
        self.bar.suspend(|| tell(line));
    }

    pub(super) fn has_bar(&self) -> bool {
        !self.bar.is_hidden()
    }
}

impl DownloadProgress for Mutex<Progress> {
    fn start(&self, name: &str, bytes: u64) {
        let mut progress = lock(self);
        name.clone_into(&mut progress.file);
        progress.start(bytes, 0);
        match progress.mode {
            Mode::Json => write_download(name, 0, bytes),
            Mode::None => {}
            _ if !progress.has_bar() => tell(format!("fetching {name} ({})", Bytes(bytes))),
            _ => {}
        }
    }

    fn advance(&self, bytes: u64) {
        let mut progress = lock(self);
        let done = progress.bar.position() + bytes;
        let total = progress.bar.length().unwrap_or(done);
        let summary = format!("{}: {} of {}", progress.file, Bytes(done), Bytes(total));
        progress.update(done, &summary);
        if progress.mode == Mode::Json && (progress.is_line_due() || done == total) {
            write_download(&progress.file, done, total);
        }
    }

    fn finish(&self) {
        lock(self).bar.finish_and_clear();
    }

    fn note(&self, message: &str) {
        let mut progress = lock(self);
        if progress.notes.insert(message.to_owned()) {
            progress.mode.note(message);
        }
    }
}

fn write_download(file: &str, bytes_done: u64, bytes: u64) {
    write_event("download", json!({ "file": file, "bytes_done": bytes_done, "bytes": bytes }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_begins_with_what_was_done_before() {
        let progress = Progress::new(Mode::Auto);
        let mut progress = lock(&progress);
        progress.start(100, 40);
        assert_eq!((progress.bar.position(), progress.bar.length()), (40, Some(100)));
        assert_eq!(progress.seconds_left(), None);
    }
}
