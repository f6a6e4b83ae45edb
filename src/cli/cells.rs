//! The cells in progress, a line each for a terminal.
//!
//! Cells of a model and task are measured side by side, so there may be dozens. The lines are of those that moved last, in the
//! order in which they began, so that lines change places rarely.

use super::progress::Pace;
use crate::format::{count, duration};
use crate::ledger::CellId;
use crate::run::NamedCell;

/// Most cells that have a line.
const MOST: usize = 8;

#[derive(Default)]
pub(super) struct Cells {
    moving: Vec<Moving>,
    /// Samples so far, which tell who moved last.
    moves: usize,
    last_done: Option<String>,
}

struct Moving {
    id: CellId,
    /// Policy and size.
    name: String,
    task: &'static str,
    samples_done: usize,
    samples: usize,
    /// After the first sample, with which the time begins.
    tokens: u64,
    pace: Pace,
    last_move: usize,
}

/// Policy and size of a cell.
fn name(cell: &NamedCell) -> String {
    let size = cell.cell.size().map_or(String::new(), |size| format!(" {size}"));
    format!("{}{size}", cell.cell.policy)
}

impl Cells {
    /// A sample of a cell was measured after so many seconds.
    pub(super) fn moved(
        &mut self,
        cell: &NamedCell,
        samples_done: usize,
        samples: usize,
        tokens: u64,
        seconds: f64,
    ) {
        let (id, moves) = (cell.name.id(), self.moves);
        self.moves += 1;
        match self.moving.iter_mut().find(|moving| moving.id == id) {
            Some(moving) => {
                moving.samples_done = samples_done;
                moving.tokens += tokens;
                moving.pace.advance(seconds, samples_done as u64);
                moving.last_move = moves;
            }
            None => self.moving.push(Moving {
                id,
                name: name(cell),
                task: cell.cell.task.name,
                samples_done,
                samples,
                tokens: 0,
                pace: Pace::from(seconds, samples_done as u64),
                last_move: moves,
            }),
        }
    }

    /// A cell is complete or failed.
    pub(super) fn ended(&mut self, cell: &NamedCell, is_done: bool) {
        self.moving.retain(|moving| moving.id != cell.name.id());
        if is_done {
            self.last_done = Some(name(cell));
        }
    }

    /// At most [`MOST`] cells, and a line on all others.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut shown: Vec<&Moving> = self.moving.iter().collect();
        shown.sort_by_key(|moving| std::cmp::Reverse(moving.last_move));
        shown.truncate(MOST);
        shown.sort_by_key(|moving| self.moving.iter().position(|other| other.id == moving.id));
        let width = |text: fn(&Moving) -> String| shown.iter().map(|m| text(m).chars().count()).max().unwrap_or(0);
        let samples = |moving: &Moving| format!("{}/{}", moving.samples_done, moving.samples);
        let widths = (width(|moving| moving.name.clone()), width(|moving| moving.task.to_owned()), width(samples));
        let line = |moving: &&Moving| {
            let (name, task, samples) = (&moving.name, moving.task, samples(moving));
            let left = moving.pace.seconds_left(moving.samples as u64);
            let speed = left.map_or(String::new(), |left| {
                let rate = moving.tokens as f64 / moving.pace.seconds();
                format!("  {} tokens/s, {} left", count(rate as u64), duration(left))
            });
            let (a, b, c) = widths;
            format!("  {name:<a$}  {task:<b$}  {samples:>c$} samples{speed}")
        };
        let mut lines: Vec<String> = shown.iter().map(line).collect();
        let others = self.moving.len() - shown.len();
        let more = (others > 0).then(|| format!("{others} more in progress"));
        let done = self.last_done.as_ref().map(|name| format!("done last: {name}"));
        let rest: Vec<String> = [more, done].into_iter().flatten().collect();
        if !rest.is_empty() {
            lines.push(format!("  {}", rest.join("; ")));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lm::source::HubSettings;
    use crate::run::prepare;
    use crate::sweep::{Selection, Sweep};

    #[test]
    fn the_cells_that_moved_last_have_lines() {
        let text = "models: [random-tiny]\npolicies: [window, tova]\ncache_sizes: [1, 2, 3, 4, 5]\n\
            tasks: [{perplexity: {dataset: random-words, length: 32, books: 2, chunks_per_book: 2}}]\n";
        let sweep = Sweep::parse(text, "a.yaml").unwrap();
        let hub = HubSettings::with_cache_dir("nowhere");
        let prepared = prepare(&sweep, &Selection::default(), None, &hub, &(), "").unwrap();
        let named = &prepared.model_tasks[0].cells;
        assert_eq!(named.len(), 10);
        let mut cells = Cells::default();
        assert!(cells.lines().is_empty());
        for cell in named {
            cells.moved(cell, 1, 100, 1000, 10.0);
        }
        let first = |cells: &Cells| -> Vec<String> {
            cells
                .lines()
                .iter()
                .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
                .collect()
        };
        let names: Vec<String> = named.iter().map(name).collect();
        assert_eq!(first(&cells)[..8], names[2..]);
        assert!(cells.lines()[8].contains("2 more"), "{:?}", cells.lines());
        // The first moves again, so the third was the longest without a move; the order stays.
        cells.moved(&named[0], 2, 100, 1000, 20.0);
        assert_eq!(first(&cells)[0], names[0]);
        assert_eq!(first(&cells)[1..8], names[3..]);
        // 1,000 tokens every 10 seconds, and 97 samples left.
        cells.moved(&named[0], 3, 100, 1000, 30.0);
        let line = &cells.lines()[0];
        assert!(line.contains("3/100 samples") && line.ends_with("100 tokens/s, 16 min left"), "{line}");
        for cell in &named[1..] {
            cells.ended(cell, true);
        }
        assert_eq!(first(&cells).len(), 2);
        assert!(cells.lines()[1].contains(&names[9]), "{:?}", cells.lines());
        cells.ended(&named[0], false);
        assert_eq!(cells.lines().len(), 1);
    }
}
