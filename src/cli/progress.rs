//! Progress on stderr: a bar on a terminal, elsewhere a line now and then.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{events, terminal};
use crate::format::duration;

/// Without a terminal, the time between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

const TEMPLATE: &str = "{spinner} [{wide_bar}] {percent:>3} %  {prefix}{msg}";

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
        match self {
            Mode::Json => events::Line::Note { message }.write(),
            _ => eprintln!("note: {message}"),
        }
    }

    pub(super) fn warn(self, message: &str) {
        match self {
            Mode::Json => events::Line::Warning { message }.write(),
            _ => eprintln!("warning: {message}"),
        }
    }
}

pub(super) struct Progress {
    mode: Mode,
    /// Hidden without a terminal, and in every other mode.
    pub(super) bar: ProgressBar,
    pace: Pace,
    last_line: Instant,
}

impl Progress {
    /// Work of which nothing is known yet; [`Progress::start`] begins it.
    pub(super) fn new(mode: Mode) -> Progress {
        Progress { mode, bar: ProgressBar::hidden(), pace: Pace::default(), last_line: Instant::now() }
    }

    /// Work of which `before` was done before this process began.
    pub(super) fn start(&mut self, total: u64, before: u64) {
        *self = Progress { pace: Pace::from(0.0, before), ..Progress::new(self.mode) };
        self.bar.set_length(total);
        self.bar.set_position(before);
        if total > before && self.mode == Mode::Auto {
            let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a constant");
            self.bar = ProgressBar::with_draw_target(Some(total), terminal::stderr());
            self.bar.set_style(style.progress_chars("=> "));
            self.bar.set_position(before);
            if !self.bar.is_hidden() {
                self.bar.enable_steady_tick(Duration::from_millis(250));
            }
        }
    }

    /// `done` of the total, with a summary and lines that are shown on a terminal only.
    pub(super) fn update(&mut self, done: u64, summary: String, details: &[String]) {
        self.advance(done);
        self.display(summary, details);
    }

    /// Shows what was done so far.
    pub(super) fn display(&mut self, summary: String, details: &[String]) {
        let is_line_due = self.is_line_due();
        if self.bar.is_hidden() && !is_line_due {
            return;
        }
        let summary = match self.seconds_left() {
            Some(left) => format!("{summary}, {} left", duration(left)),
            None => summary,
        };
        if is_line_due {
            let (done, total) = (self.bar.position(), self.bar.length().unwrap_or_default());
            eprintln!("{:.0} %, {summary}", 100.0 * done as f64 / total.max(1) as f64);
        } else {
            self.bar.set_prefix(summary);
            self.bar.set_message(terminal::below(details));
        }
    }

    /// Notes that `done` of the total is done now, and shows nothing.
    pub(super) fn advance(&mut self, done: u64) {
        self.bar.set_position(done);
        self.pace.advance(self.seconds(), done);
    }

    /// Whether the time of the next line has come; if so, it is counted as printed.
    pub(super) fn is_line_due(&mut self) -> bool {
        let is_wanted = self.bar.is_hidden() && self.mode != Mode::None;
        let is_due = is_wanted && self.last_line.elapsed() >= BETWEEN_LINES;
        if is_due {
            self.last_line = Instant::now();
        }
        is_due
    }

    /// The seconds that the rest takes; `None` as long as that is not known well.
    pub(super) fn seconds_left(&self) -> Option<f64> {
        self.pace.seconds_left(self.bar.length().unwrap_or_default())
    }

    pub(super) fn seconds(&self) -> f64 {
        self.bar.elapsed().as_secs_f64()
    }

    /// Prints a line, above the bar if there is one.
    pub(super) fn print(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Whether lines below the bar are seen.
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
            self.finish();
            self.bar.set_draw_target(ProgressDrawTarget::hidden());
            self.mode = Mode::None;
        }
        had_bar
    }
}

/// Before this many seconds no time left is shown.
const FIRST: f64 = 2.0;

/// The two halves of the time must have had about the same speed, up to this factor.
const AGREEMENT: f64 = 1.25;

/// What was done after so many seconds, from the beginning on.
#[derive(Default)]
pub(super) struct Pace(Vec<(f64, u64)>);

impl Pace {
    pub(super) fn from(seconds: f64, done: u64) -> Pace {
        Pace(vec![(seconds, done)])
    }

    pub(super) fn advance(&mut self, seconds: f64, done: u64) {
        self.0.push((seconds, done));
    }

    /// The seconds from the first to the last point.
    pub(super) fn seconds(&self) -> f64 {
        let ends = self.0.first().zip(self.0.last());
        ends.map_or(0.0, |((begin, _), (now, _))| now - begin)
    }

    /// The seconds that the rest takes at the speed so far; `None` as long as that is not known well.
    pub(super) fn seconds_left(&self, total: u64) -> Option<f64> {
        let Pace(history) = self;
        let ((begin, before), (now, done)) = (*history.first()?, *history.last()?);
        let middle = history.partition_point(|(seconds, _)| *seconds < (begin + now) / 2.0);
        let (half, half_done) = *history.get(middle)?;
        let speed = |seconds: f64, work: u64| work as f64 / seconds;
        let first = speed(half - begin, half_done.saturating_sub(before));
        let second = speed(now - half, done.saturating_sub(half_done));
        let is_known = now - begin >= FIRST && first < AGREEMENT * second && second < AGREEMENT * first;
        is_known.then(|| total.saturating_sub(done) as f64 / speed(now - begin, done.saturating_sub(before)))
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
    }

    fn seconds_left(history: &[(f64, u64)], total: u64) -> Option<f64> {
        Pace(history.to_vec()).seconds_left(total)
    }

    #[test]
    fn the_time_left_is_shown_once_it_is_known() {
        let steady: Vec<(f64, u64)> =
            (0..=10).map(|second| (f64::from(second), 100 + 50 * second as u64)).collect();
        assert_eq!(seconds_left(&steady, 1100), Some(10.0));
        // Work of before does not count as speed.
        assert_eq!(seconds_left(&steady[..5], 1100), Some(16.0));
        // Too early, or nothing is done yet.
        assert_eq!(seconds_left(&steady[..2], 1100), None);
        assert_eq!(seconds_left(&steady[..1], 1100), None);
        assert_eq!(seconds_left(&[], 1100), None);
        // One measurement says nothing about the next.
        assert_eq!(seconds_left(&[(0.0, 0), (60.0, 50)], 100), None);
        // The second half is twice as fast as the first.
        let faster = [(0.0, 0), (5.0, 10), (10.0, 30)];
        assert_eq!(seconds_left(&faster, 100), None);
        assert_eq!(seconds_left(&[(0.0, 0), (5.0, 10), (10.0, 22)], 44), Some(10.0));
    }
}
