//! The events of a run on stderr: as text, or as lines of JSON.

use std::path::Path;

use super::cells::Cells;
use super::events::{Cell, Line, Totals, rounded};
use super::progress::{Mode, Progress};
use crate::format::counted;
use crate::run::{Event, Outcome, Started};

/// Shows the events of a run.
pub(super) struct RunProgress {
    mode: Mode,
    pub(super) progress: Progress,
    started: Started,
    /// Of this run.
    tokens: u64,
    samples: usize,
    seconds: f64,
    cells_done: usize,
    /// Those that have a line below the bar.
    cells: Cells,
}

impl RunProgress {
    pub(super) fn new(mode: Mode) -> RunProgress {
        let (progress, started) = (Progress::new(mode), Started::default());
        let cells = Cells::default();
        RunProgress { mode, progress, started, tokens: 0, samples: 0, seconds: 0.0, cells_done: 0, cells }
    }

    /// Shows an event.
    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Started(started) => {
                self.started = *started;
                self.progress.start(milliseconds(started.seconds), milliseconds(started.kept_seconds));
            }
            Event::Sample { tokens, seconds, .. } => {
                self.tokens += tokens;
                self.samples += 1;
                self.seconds += seconds;
                self.progress.advance(milliseconds(self.started.kept_seconds + self.seconds));
            }
            Event::CellDone(_) => self.cells_done += 1,
            _ => {}
        }
        if self.mode == Mode::Json { self.write(event) } else { self.say(event) }
    }

    /// The first signal came. A second one ends the program at once, so that nothing may be on the terminal.
    pub(super) fn stop(&mut self) {
        if self.progress.remove() {
            eprintln!("stopping; another signal ends the program at once");
        }
    }

    /// Shows what became of the run; the page was written to `report`.
    pub(super) fn finish(&self, outcome: &Outcome, elsewhere: usize, results: &Path, report: Option<&Path>) {
        if self.mode == Mode::Json {
            let Outcome { done, skipped, failed, taken, interrupted } = *outcome;
            let line = Line::Finished {
                interrupted,
                cells_measured: done,
                cells_skipped: skipped,
                cells_failed: failed,
                cells_taken: taken,
                cells_elsewhere: elsewhere,
                run: self.totals(),
                results: results.display().to_string(),
                report: report.map(|page| page.display().to_string()),
            };
            return line.write();
        }
        if outcome.interrupted {
            eprintln!("{}", self.kept());
        }
        if !outcome.interrupted || outcome.done + outcome.skipped + outcome.failed > 0 {
            eprintln!("{}", summary(outcome, elsewhere));
        }
    }

    fn say(&mut self, event: &Event<'_>) {
        let print = |line: &str| self.progress.print(line);
        match event {
            Event::Started(_) if self.mode == Mode::None => {}
            Event::Started(started) => {
                if started.skipped > 0 {
                    print(&format!("{} measured already, skipped", counted(started.skipped, "cell")));
                }
                if started.cells > 0 && started.kept > 0 {
                    print(&self.kept());
                }
            }
            Event::Loading(_) if self.mode == Mode::None => {}
            Event::Loading(model) => print(&format!("loading {model}")),
            Event::Sample { cell, tokens: moved, samples_left, samples: all, .. } => {
                let Totals { samples_done, samples, cells_done, cells, tokens, seconds, .. } = self.totals();
                let rate = tokens as f64 / seconds / 1e3;
                let summary =
                    format!("{samples_done}/{samples} samples, {cells_done}/{cells} cells, {rate:.1} k tokens/s");
                if self.progress.has_bar() {
                    self.cells.moved(cell, all - samples_left, *all, *moved, seconds);
                }
                self.progress.display(summary, &self.cells.lines());
            }
            Event::CellDone(cell) => self.cells.ended(cell, true),
            Event::CellFailed { cell, error } => {
                // The error names the cell.
                print(&format!("failed: {error:#}"));
                self.cells.ended(cell, false);
            }
            Event::CellsFailed { model, task, count, error, .. } => {
                print(&format!("failed: {} of {task} with {model}: {error:#}", counted(*count, "cell")));
            }
            Event::CellTaken(cell) => print(&format!("{} is being measured by another process", cell.name.stem())),
            Event::Warning(message) => print(&format!("warning: {message}")),
        }
    }

    fn write(&self, event: &Event<'_>) {
        let line = match event {
            Event::Started(started) => Line::Started { cells_skipped: started.skipped, run: self.totals() },
            Event::Loading(model) => Line::Loading { model },
            Event::Sample { cell, sample, tokens, samples_left, samples, .. } => Line::Sample {
                cell: Cell::of(cell),
                sample,
                tokens: *tokens,
                samples_done: samples - samples_left,
                samples: *samples,
                run: self.totals(),
            },
            Event::CellDone(cell) => Line::CellDone { cell: Cell::of(cell), run: self.totals() },
            Event::CellFailed { cell, error } => {
                Line::CellFailed { cell: Cell::of(cell), error: format!("{error:#}") }
            }
            Event::CellsFailed { model, task, count, cells: [], error } => {
                Line::CellsFailed { model, task, cells: *count, error: format!("{error:#}") }
            }
            Event::CellsFailed { cells, error, .. } => {
                for cell in *cells {
                    Line::CellFailed { cell: Cell::of(cell), error: format!("{error:#}") }.write();
                }
                return;
            }
            Event::CellTaken(cell) => Line::CellTaken { cell: Cell::of(cell) },
            Event::Warning(message) => Line::Warning { message },
        };
        line.write();
    }

    fn totals(&self) -> Totals {
        Totals {
            samples_done: self.started.kept + self.samples,
            samples: self.started.samples,
            cells_done: self.cells_done,
            cells: self.started.cells,
            tokens: self.tokens,
            seconds: rounded(self.progress.seconds()),
            seconds_left: self.progress.seconds_left().map(rounded),
        }
    }

    /// What this run and earlier ones have measured.
    fn kept(&self) -> String {
        let Totals { samples_done, samples, .. } = self.totals();
        format!("kept: {samples_done} of {samples} samples ({} %)", 100 * samples_done / samples.max(1))
    }
}

fn summary(outcome: &Outcome, elsewhere: usize) -> String {
    let Outcome { done, skipped, failed, taken, .. } = outcome;
    let mut text = format!("{done} cells measured, {skipped} were there already, {failed} failed");
    if *taken > 0 {
        text += &format!(", {taken} measured by another process");
    }
    if elsewhere > 0 {
        text += &format!(", {elsewhere} left to other shards");
    }
    text
}

fn milliseconds(seconds: f64) -> u64 {
    (1e3 * seconds) as u64
}
