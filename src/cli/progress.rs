//! Progress on stderr: a bar on a terminal, elsewhere a line now and then.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::format::{Bytes, duration};
use crate::lm::source::DownloadProgress;

/// Without a terminal, the time between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

const TEMPLATE: &str = "[{wide_bar}] {percent:>3} %  {prefix}  {eta} left\n{spinner} {wide_msg}";

pub(super) struct Progress {
    /// Hidden without a terminal.
    bar: ProgressBar,
    /// What was done before this process began.
    before: u64,
    last_line: Instant,
}

impl Progress {
    /// Work of which nothing is known yet; [`Progress::start`] begins it.
    pub(super) fn new() -> Progress {
        Progress { bar: ProgressBar::hidden(), before: 0, last_line: Instant::now() }
    }

    pub(super) fn start(&mut self, total: u64, before: u64) {
        *self = Progress { before, ..Progress::new() };
        if total > before {
            let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a constant");
            self.bar = ProgressBar::new(total).with_style(style.progress_chars("=> ")).with_position(before);
            self.bar.reset_eta();
            if !self.bar.is_hidden() {
                self.bar.enable_steady_tick(Duration::from_millis(250));
            }
        }
    }

    /// `done` of the total, with a summary; details are shown on a terminal only.
    pub(super) fn update(&mut self, done: u64, summary: String, details: String) {
        self.bar.set_position(done);
        if !self.bar.is_hidden() {
            self.bar.set_prefix(summary);
            self.bar.set_message(details);
        } else if self.last_line.elapsed() >= BETWEEN_LINES {
            self.last_line = Instant::now();
            let total = self.bar.length().unwrap_or(done);
            let rate = done.saturating_sub(self.before) as f64 / self.seconds();
            let left = duration(total.saturating_sub(done) as f64 / rate);
            eprintln!("{:.0} %, {summary}, {left} left", 100.0 * done as f64 / total.max(1) as f64);
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.bar.elapsed().as_secs_f64()
    }

    /// Prints a line, above the bar if there is one.
    pub(super) fn print(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Downloads, one file after the other, and what there is to say about them and the texts.
pub(super) struct Downloads {
    /// The name of the current file, and its progress.
    current: Mutex<(String, Progress)>,
    /// The notes so far. A text that several models read is noted once.
    notes: Mutex<HashSet<String>>,
}

impl Downloads {
    pub(super) fn new() -> Downloads {
        Downloads { current: Mutex::new((String::new(), Progress::new())), notes: Mutex::default() }
    }

    fn current(&self) -> MutexGuard<'_, (String, Progress)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DownloadProgress for Downloads {
    fn start(&self, name: &str, bytes: u64) {
        let (current, progress) = &mut *self.current();
        name.clone_into(current);
        progress.start(bytes, 0);
        if progress.bar.is_hidden() {
            eprintln!("fetching {name} ({})", Bytes(bytes));
        }
    }

    fn advance(&self, bytes: u64) {
        let (name, progress) = &mut *self.current();
        let done = progress.bar.position() + bytes;
        let total = Bytes(progress.bar.length().unwrap_or(done));
        progress.update(done, format!("{name}: {} of {total}", Bytes(done)), String::new());
    }

    fn finish(&self) {
        self.current().1.finish();
    }

    fn note(&self, message: &str) {
        if self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(message.to_owned()) {
            eprintln!("note: {message}");
        }
    }
}
