//! Progress on stderr: a bar on a terminal, elsewhere a line now and then.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::output::tell;
use super::{events, terminal};
use crate::format::{duration, plain};

/// Without a terminal, the time between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Before this no time left is shown, because the first steps say little.
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

    fn tell(self, event: &str, message: &str) {
        match self {
            Mode::Json => events::write(event, json!({ "message": message })),
            _ => tell(format!("{event}: {message}")),
        }
    }
}

pub(super) struct Progress {
    mode: Mode,
    /// Hidden without a terminal, and in every other mode.
    pub(super) bar: ProgressBar,
    last_line: Instant,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new(Mode::Auto)
    }
}

impl Progress {
    /// Work of which nothing is known yet; [`Progress::start`] begins it.
    pub(super) fn new(mode: Mode) -> Progress {
        Progress { mode, bar: ProgressBar::hidden(), last_line: Instant::now() }
    }

    /// Work of which `before` was done before this process began.
    pub(super) fn start(&mut self, total: u64, before: u64) {
        let is_shown = total > before && self.mode == Mode::Auto;
        let target = if is_shown { terminal::stderr() } else { ProgressDrawTarget::hidden() };
        let style =
            ProgressStyle::with_template(TEMPLATE).expect("the template is a constant").progress_chars("=> ");
        *self = Progress::new(self.mode);
        self.bar = ProgressBar::with_draw_target(Some(total), target).with_style(style).with_position(before);
        self.bar.reset_eta();
        if self.has_bar() {
            self.bar.enable_steady_tick(Duration::from_millis(250));
        }
    }

    /// `done` of the total, with a summary.
    pub(super) fn update(&mut self, done: u64, summary: String) {
        self.bar.set_position(done);
        let is_line_due = self.is_line_due();
        if !self.has_bar() && !is_line_due {
            return;
        }
        let left = self.seconds_left().map_or(String::new(), |left| format!(", {} left", duration(left)));
        if is_line_due {
            let total = self.bar.length().unwrap_or_default();
            tell(format!("{:.0} %, {summary}{left}", 100.0 * done as f64 / total.max(1) as f64));
        } else {
            self.bar.set_message(plain(&(summary + &left)));
        }
    }

    /// Whether the time of the next line has come; if so, it is counted as printed.
    pub(super) fn is_line_due(&mut self) -> bool {
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

    pub(super) fn seconds(&self) -> f64 {
        self.bar.elapsed().as_secs_f64()
    }

    /// Prints a line, above the bar if there is one.
    pub(super) fn print(&self, line: &str) {
        self.bar.suspend(|| tell(line));
    }

    pub(super) fn has_bar(&self) -> bool {
        !self.bar.is_hidden()
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Removes the bar for good, because the program may be ended at any time; returns whether there was one.
    pub(super) fn remove(&mut self) -> bool {
        let had_bar = self.has_bar();
        if had_bar {
            self.bar.finish_and_clear();
            self.bar.set_draw_target(ProgressDrawTarget::hidden());
            self.mode = Mode::None;
        }
        had_bar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_begins_with_what_was_done_before() {
        let mut progress = Progress::new(Mode::Auto);
        progress.start(100, 40);
        assert_eq!((progress.bar.position(), progress.bar.length()), (40, Some(100)));
        assert_eq!(progress.seconds_left(), None);
    }
}
