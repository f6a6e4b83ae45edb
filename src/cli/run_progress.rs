//! The events of a run on stderr: as text, or as lines of JSON.

use std::path::Path;

use indicatif::ProgressDrawTarget;
use serde_json::{Value, json};

use super::output::tell;
use super::progress::{Mode, Progress, write_event};
use crate::format::counted;
use crate::run::{Event, NamedCell, Outcome};

impl Progress {
    /// Shows an event of a run.
    pub(super) fn show(&mut self, event: &Event<'_>) {
        let (name, keys, line) = match event {
            Event::Started(started) => {
                self.started = *started;
                self.start(milliseconds(started.seconds), milliseconds(started.kept_seconds));
                let cells = counted(started.skipped, "cell");
                let skipped = (started.skipped > 0).then(|| format!("{cells} measured already, skipped"));
                let kept = (started.cells > 0 && started.kept > 0).then(|| self.kept());
                let lines: Vec<String> = skipped.into_iter().chain(kept).collect();
                let keys = json!({ "cells_skipped": started.skipped, "run": self.totals() });
                ("started", keys, lines.join("\n"))
            }
            Event::Loading(model) => ("loading", json!({ "model": model }), format!("loading {model}")),
            Event::Sample { cell, sample, tokens, seconds, samples_left, samples } => {
                self.measured.tokens += tokens;
                self.measured.samples += 1;
                self.measured.seconds += seconds;
                let summary = format!(
                    "{}/{} samples, {}/{} cells, {:.1} k tokens/s",
                    self.started.kept + self.measured.samples,
                    self.started.samples,
                    self.measured.cells,
                    self.started.cells,
                    self.measured.tokens as f64 / self.bar.elapsed().as_secs_f64() / 1e3
                );
                self.update(milliseconds(self.started.kept_seconds + self.measured.seconds), &summary);
                let keys = json!({
                    "cell": named(cell),
                    "sample": sample,
                    "tokens": tokens,
                    "samples_done": samples - samples_left,
                    "samples": samples,
                    "run": self.totals(),
                });
                ("sample", keys, String::new())
            }
            Event::CellDone(cell) => {
                self.measured.cells += 1;
                ("cell_done", json!({ "cell": named(cell), "run": self.totals() }), String::new())
            }
            // The error names the cell.
            Event::CellFailed { cell, error } => {
                let error = format!("{error:#}");
                ("cell_failed", json!({ "cell": named(cell), "error": error }), format!("failed: {error}"))
            }
            Event::CellsFailed { cells: cells @ [_, ..], error, .. } if self.mode == Mode::Json => {
                return cells.iter().for_each(|cell| self.show(&Event::CellFailed { cell, error }));
            }
            Event::CellsFailed { model, task, count, error, .. } => {
                let error = format!("{error:#}");
                let line = format!("failed: {} of {task} with {model}: {error}", counted(*count, "cell"));
                ("cells_failed", json!({ "model": model, "task": task, "cells": count, "error": error }), line)
            }
            Event::CellTaken(cell) => {
                let line = format!("{} is being measured by another process", cell.name.stem());
                ("cell_taken", json!({ "cell": named(cell) }), line)
            }
            Event::Warning(message) => ("warning", json!({ "message": message }), format!("warning: {message}")),
        };
        let is_quiet = self.mode == Mode::None && matches!(event, Event::Started(_) | Event::Loading(_));
        match self.mode {
            Mode::Json => write_event(name, keys),
            _ if line.is_empty() || is_quiet => {}
            _ => self.print(&line),
        }
    }

    /// Removes the bar at the first signal: a second one ends the program at once, so that nothing may be on the terminal.
    pub(super) fn stop(&mut self) {
        if self.has_bar() {
            self.bar.finish_and_clear();
            self.bar.set_draw_target(ProgressDrawTarget::hidden());
            self.mode = Mode::None;
            tell("stopping; another signal ends the program at once");
        }
    }

    /// Shows what became of a run; the page was written to `report`.
    pub(super) fn finish(&self, outcome: &Outcome, in_other_shards: usize, results: &Path, report: Option<&Path>) {
        let Outcome { done, skipped, failed, taken, interrupted, .. } = outcome;
        if self.mode == Mode::Json {
            let keys = json!({
                "interrupted": interrupted,
                "cells_measured": done,
                "cells_skipped": skipped,
                "cells_failed": failed,
                "cells_taken": taken,
                "cells_elsewhere": in_other_shards,
                "run": self.totals(),
                "results": results.display().to_string(),
                "report": report.map(|page| page.display().to_string()),
            });
            return write_event("finished", keys);
        }
        if *interrupted {
            tell(self.kept());
        }
        if !interrupted || done + skipped + failed > 0 {
            let more = [(*taken, "measured by another process"), (in_other_shards, "left to other shards")];
            let more =
                more.iter().filter(|(cells, _)| *cells > 0).map(|(cells, what)| format!(", {cells} {what}"));
            let more: String = more.collect();
            tell(format!("{done} cells measured, {skipped} were there already, {failed} failed{more}"));
        }
    }

    /// The state of all cells of the run together.
    fn totals(&self) -> Value {
        let rounded = |seconds: f64| (1e3 * seconds).round() / 1e3;
        json!({
            "samples_done": self.started.kept + self.measured.samples,
            "samples": self.started.samples,
            "cells_done": self.measured.cells,
            "cells": self.started.cells,
            "tokens": self.measured.tokens,
            "seconds": rounded(self.bar.elapsed().as_secs_f64()),
            "seconds_left": self.seconds_left().map(rounded),
        })
    }

    /// Says how many samples this run and earlier ones have measured.
    fn kept(&self) -> String {
        let (done, all) = (self.started.kept + self.measured.samples, self.started.samples);
        format!("kept: {done} of {all} samples ({} %)", 100 * done / all.max(1))
    }
}

/// A cell, in the words of its rows.
fn named(of: &NamedCell) -> Value {
    let cell = &of.cell;
    let size =
        cell.cache.relative.map_or_else(|| cell.cache.rule.size().into(), |size| Value::from(size.to_string()));
    json!({
        "id": of.name.id().to_string(),
        "model": cell.model.to_string(),
        "policy": cell.policy,
        "cache_size": size,
        "task": cell.task.name,
        "dataset": cell.task.dataset,
    })
}

fn milliseconds(seconds: f64) -> u64 {
    (1e3 * seconds) as u64
}
