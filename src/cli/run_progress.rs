//! The events of a run on stderr: as text, or as lines of JSON.

use std::path::Path;

use serde_json::{Value, json};

use super::events::{self, cell};
use super::output::tell;
use super::progress::{Mode, Progress};
use crate::format::counted;
use crate::run::{Event, Outcome, Started};

/// Shows the events of a run.
#[derive(Default)]
pub(super) struct RunProgress {
    mode: Mode,
    pub(super) progress: Progress,
    started: Started,
    /// Of this run.
    tokens: u64,
    samples: usize,
    seconds: f64,
    cells_done: usize,
}

impl RunProgress {
    pub(super) fn new(mode: Mode) -> RunProgress {
        RunProgress { mode, progress: Progress::new(mode), ..RunProgress::default() }
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
            }
            Event::CellDone(_) => self.cells_done += 1,
            _ => {}
        }
        if self.mode == Mode::Json { self.write(event) } else { self.say(event) }
    }

    /// The first signal came. A second one ends the program at once, so that nothing may be on the terminal.
    pub(super) fn stop(&mut self) {
        if self.progress.remove() {
            tell("stopping; another signal ends the program at once");
        }
    }

    /// Shows what became of the run; the page was written to `report`.
    pub(super) fn finish(&self, outcome: &Outcome, in_other_shards: usize, results: &Path, report: Option<&Path>) {
        if self.mode == Mode::Json {
            let keys = json!({
                "interrupted": outcome.interrupted,
                "cells_measured": outcome.done,
                "cells_skipped": outcome.skipped,
                "cells_failed": outcome.failed,
                "cells_taken": outcome.taken,
                "cells_elsewhere": in_other_shards,
                "run": self.totals(),
                "results": results.display().to_string(),
                "report": report.map(|page| page.display().to_string()),
            });
            return events::write("finished", keys);
        }
        if outcome.interrupted {
            tell(self.kept());
        }
        if !outcome.interrupted || outcome.done + outcome.skipped + outcome.failed > 0 {
            tell(summary(outcome, in_other_shards));
        }
    }

    fn say(&mut self, event: &Event<'_>) {
        let print = |line: &str| self.progress.print(line);
        match event {
            Event::Started(_) | Event::Loading(_) if self.mode == Mode::None => {}
            Event::Started(started) => {
                if started.skipped > 0 {
                    print(&format!("{} measured already, skipped", counted(started.skipped, "cell")));
                }
                if started.cells > 0 && started.kept > 0 {
                    print(&self.kept());
                }
            }
            Event::Loading(model) => print(&format!("loading {model}")),
            Event::Sample { .. } => {
                let summary = format!(
                    "{}/{} samples, {}/{} cells, {:.1} k tokens/s",
                    self.started.kept + self.samples,
                    self.started.samples,
                    self.cells_done,
                    self.started.cells,
                    self.tokens as f64 / self.progress.seconds() / 1e3
                );
                self.progress.update(self.milliseconds_done(), summary);
            }
            Event::CellDone(_) => {}
            // The error names the cell.
            Event::CellFailed { error, .. } => print(&format!("failed: {error:#}")),
            Event::CellsFailed { model, task, count, error, .. } => {
                print(&format!("failed: {} of {task} with {model}: {error:#}", counted(*count, "cell")));
            }
            Event::CellTaken(cell) => print(&format!("{} is being measured by another process", cell.name.stem())),
            Event::Warning(message) => print(&format!("warning: {message}")),
        }
    }

    fn write(&self, event: &Event<'_>) {
        let (name, keys) = match event {
            Event::Started(started) => {
                ("started", json!({ "cells_skipped": started.skipped, "run": self.totals() }))
            }
            Event::Loading(model) => ("loading", json!({ "model": model })),
            Event::Sample { cell: of, sample, tokens, samples_left, samples, .. } => {
                self.progress.bar.set_position(self.milliseconds_done());
                let keys = json!({
                    "cell": cell(of),
                    "sample": sample,
                    "tokens": tokens,
                    "samples_done": samples - samples_left,
                    "samples": samples,
                    "run": self.totals(),
                });
                ("sample", keys)
            }
            Event::CellDone(of) => ("cell_done", json!({ "cell": cell(of), "run": self.totals() })),
            Event::CellFailed { cell: of, error } => {
                ("cell_failed", json!({ "cell": cell(of), "error": format!("{error:#}") }))
            }
            Event::CellsFailed { model, task, count, cells: [], error } => {
                let error = format!("{error:#}");
                ("cells_failed", json!({ "model": model, "task": task, "cells": count, "error": error }))
            }
            Event::CellsFailed { cells, error, .. } => {
                return cells.iter().for_each(|cell| self.write(&Event::CellFailed { cell, error }));
            }
            Event::CellTaken(of) => ("cell_taken", json!({ "cell": cell(of) })),
            Event::Warning(message) => ("warning", json!({ "message": message })),
        };
        events::write(name, keys);
    }

    /// How far all cells of the run together are.
    fn totals(&self) -> Value {
        let rounded = |seconds: f64| (1e3 * seconds).round() / 1e3;
        json!({
            "samples_done": self.started.kept + self.samples,
            "samples": self.started.samples,
            "cells_done": self.cells_done,
            "cells": self.started.cells,
            "tokens": self.tokens,
            "seconds": rounded(self.progress.seconds()),
            "seconds_left": self.progress.seconds_left().map(rounded),
        })
    }

    fn milliseconds_done(&self) -> u64 {
        milliseconds(self.started.kept_seconds + self.seconds)
    }

    /// What this run and earlier ones have measured.
    fn kept(&self) -> String {
        let (done, all) = (self.started.kept + self.samples, self.started.samples);
        format!("kept: {done} of {all} samples ({} %)", 100 * done / all.max(1))
    }
}

fn summary(outcome: &Outcome, in_other_shards: usize) -> String {
    let Outcome { done, skipped, failed, taken, .. } = outcome;
    let mut text = format!("{done} cells measured, {skipped} were there already, {failed} failed");
    if *taken > 0 {
        text += &format!(", {taken} measured by another process");
    }
    if in_other_shards > 0 {
        text += &format!(", {in_other_shards} left to other shards");
    }
    text
}

fn milliseconds(seconds: f64) -> u64 {
    (1e3 * seconds) as u64
}
