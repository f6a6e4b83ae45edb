//! How a run looks while it runs: a bar for the sweep and one for the cell in hand, or a line now and then.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::progress::interactive;
use super::sweeps::cells_of;
use crate::run::Event;

/// Shows the events of a run on stderr.
pub struct Bars(Mutex<State>);

struct State {
    bars: Option<Drawn>,
    started: Instant,
    said: Instant,
    total: u64,
    read: u64,
    cells: usize,
    done: usize,
}

struct Drawn {
    all: MultiProgress,
    sweep: ProgressBar,
    cell: ProgressBar,
}

/// Without a terminal, a line at most this often.
const EVERY: Duration = Duration::from_secs(10);

impl Bars {
    pub fn new() -> Bars {
        let now = Instant::now();
        Bars(Mutex::new(State { bars: None, started: now, said: now, total: 0, read: 0, cells: 0, done: 0 }))
    }

    pub fn show(&self, event: &Event<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).show(event);
    }

    pub fn finish(&self) {
        if let Some(drawn) = self.0.lock().unwrap_or_else(PoisonError::into_inner).bars.take() {
            let _ = drawn.all.clear();
        }
    }
}

impl State {
    fn say(&self, line: &str) {
        match &self.bars {
            Some(drawn) => {
                let _ = drawn.all.println(line);
            }
            None => eprintln!("{line}"),
        }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Started { tokens, cells, skipped } => {
                (self.started, self.total, self.cells) = (Instant::now(), *tokens, *cells);
                if *skipped > 0 {
                    self.say(&format!("{} measured already, skipped", cells_of(*skipped)));
                }
                if *cells > 0 && interactive() {
                    self.bars = Some(Drawn::new(*tokens));
                }
            }
            Event::Loading { model } => self.say(&format!("loading {model}")),
            Event::Sample { cell, sample, tokens, samples_left, .. } => {
                self.read += tokens;
                let rate = self.read as f64 / self.started.elapsed().as_secs_f64();
                if let Some(drawn) = &self.bars {
                    drawn.sweep.set_position(self.read);
                    drawn.sweep.set_message(format!(
                        "{}/{} cells  {:.1} k tokens/s",
                        self.done,
                        self.cells,
                        rate / 1e3
                    ));
                    let size = cell.cell.size().map_or(String::new(), |size| format!(" {size}"));
                    drawn
                        .cell
                        .set_message(format!("{}{size}: {sample}, {samples_left} samples left", cell.cell.policy));
                    drawn.cell.tick();
                } else if self.said.elapsed() >= EVERY {
                    self.said = Instant::now();
                    let left = (self.total.saturating_sub(self.read)) as f64 / rate;
                    eprintln!(
                        "{:.0} % read, {}/{} cells, {:.1} k tokens/s, {left:.0} s left",
                        100.0 * self.read as f64 / self.total.max(1) as f64,
                        self.done,
                        self.cells,
                        rate / 1e3,
                    );
                }
            }
            Event::CellDone { .. } => self.done += 1,
            Event::CellFailed { cell, error } => self.say(&format!("failed: {cell}: {error:#}")),
            Event::CellTaken { cell } => {
                self.say(&format!("{} is being measured by another process", cell.name.stem()));
            }
            Event::Warning(message) => self.say(&format!("warning: {message}")),
        }
    }
}

impl Drawn {
    fn new(tokens: u64) -> Drawn {
        let style = |template: &str| {
            ProgressStyle::with_template(template).expect("the template is a constant").progress_chars("=> ")
        };
        let all = MultiProgress::new();
        let sweep = all.add(ProgressBar::new(tokens));
        sweep.set_style(style("[{wide_bar}] {percent:>3} %  {msg}  {eta} left"));
        let cell = all.add(ProgressBar::new_spinner());
        cell.set_style(style("{spinner} {wide_msg}"));
        sweep.enable_steady_tick(Duration::from_millis(250));
        Drawn { all, sweep, cell }
    }
}
