//! Estimates the run time of cells: the tokens that a task counts, at measured or nominal rates.

use anyhow::Result;

use super::machine::workers;
use super::prepare::{ModelTask, NamedCell, Prepared};
use super::rates::{CacheRates, Rates};
use crate::ledger::Status;
use crate::lm::{Device, Probe};
use crate::task::{Batch, CacheConfig, Prefill, TokenCost, sequences_that_fit};

/// Bytes of weights that are read and converted a second.
const LOADING: f64 = 5e9;

/// Seconds to write a cell's file.
const FILE: f64 = 5e-3;

/// The estimated seconds of a cell, in two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// The cell's own part.
    pub own: f64,
    /// The full-cache prefix. Cells that are measured together need only the longest of their prefixes.
    pub shared: f64,
}

impl Cost {
    /// What is left of a cell, without the samples in its journal.
    pub fn left(self, model_task: &ModelTask, cell: &NamedCell) -> Cost {
        let left = model_task.samples.len().saturating_sub(cell.samples_done());
        let share = left as f64 / model_task.samples.len().max(1) as f64;
        Cost { own: self.own * share, shared: self.shared * share }
    }
}

/// The seconds of each cell of a model and a task that are measured together: the longest prefix counts once, for the first
/// cells that need it.
pub fn one_after_another(costs: &[Cost]) -> Vec<f64> {
    let mut shared = 0.0_f64;
    let seconds = costs.iter().map(|cost| {
        let more = (cost.shared - shared).max(0.0);
        shared += more;
        cost.own + more
    });
    seconds.collect()
}

/// The costs on this machine of all cells, by model and task. Short pieces of work are timed for it, where anything is left
/// to do.
///
/// # Errors
/// Threads that cannot be started, errors of the device.
pub fn estimate(prepared: &Prepared, device: &Device, threads: usize) -> Result<Vec<Vec<Cost>>> {
    let mut found: Option<(&ModelTask, (usize, usize), Probe)> = None;
    let mut costs = Vec::new();
    for model_task in &prepared.model_tasks {
        if model_task.cells.iter().all(|cell| cell.status == Status::Done) {
            costs.push(vec![Cost::default(); model_task.cells.len()]);
            continue;
        }
        let (workers, each) = workers(model_task, threads, 1);
        let device = if model_task.task.is_timed() { device } else { &Device::Cpu };
        let is_known = found.as_ref().is_some_and(|(other, split, _)| {
            other.model == model_task.model
                && other.task.is_timed() == model_task.task.is_timed()
                && *split == (workers, each)
        });
        if !is_known {
            let files = &model_task.files;
            let bytes = files.held_bytes(model_task.model.dtype, device) / files.shape.parameters().max(1);
            found = Some((model_task, (workers, each), Probe::new(&files.shape, bytes, device, (workers, each))?));
        }
        let Some((.., probe)) = &found else { continue };
        let rates = Rates::measured(model_task, probe)?;
        // A single sample is measured by one worker.
        let parallel = workers.min(model_task.samples.batches().len()).max(1) as f64;
        let of_cell = |cell: &NamedCell| {
            let Cost { own, shared } = whole(model_task, cell, device, &rates);
            Cost { own: own / parallel, shared: shared / parallel }
        };
        costs.push(model_task.cells.iter().map(of_cell).collect());
    }
    Ok(costs)
}

/// The cost of all samples of a cell.
pub(super) fn whole(model_task: &ModelTask, cell: &NamedCell, device: &Device, rates: &Rates) -> Cost {
    let config = cell.cache_config();
    let tokens = Tokens { rates, cache: rates.of(cell), config };
    let mut cost = Cost { own: FILE, shared: 0.0 };
    for batch in model_task.samples.batches() {
        let samples: Vec<usize> = batch.clone().collect();
        let counts = model_task.samples.cost(&Batch { all: batch, samples: &samples, config });
        if model_task.task.is_timed() {
            cost.own += timed(&tokens, &counts, model_task, cell, device);
        } else {
            cost.own += tokens.own(&counts);
            cost.shared += tokens.shared(&counts);
        }
    }
    cost
}

/// The seconds of loading a task's model, which its first cell takes.
pub(super) fn loading(model_task: &ModelTask) -> f64 {
    model_task.files.weight_bytes() as f64 / LOADING
}

/// The cost of tokens in seconds.
struct Tokens<'a> {
    rates: &'a Rates,
    cache: CacheRates,
    config: CacheConfig,
}

impl Tokens<'_> {
    fn own(&self, tokens: &TokenCost) -> f64 {
        let Tokens { rates, cache, config } = self;
        // A prompt that is read whole is cut only then.
        let attention = if config.prefill == Prefill::OneShot { rates.full().attention } else { cache.attention };
        let attention = attention.at(tokens.attended) + rates.losing * tokens.lost_of;
        let reading = self.dense(cache, tokens.reads, tokens.read) + tokens.read as f64 * attention;
        let comparing =
            if config.compare && tokens.read > 0 { rates.comparing * tokens.scored as f64 } else { 0.0 };
        let scoring = self.scoring(tokens.reads, tokens.scored) + comparing;
        let steps = tokens.steps as f64;
        reading + scoring + steps * self.step(tokens.side_by_side, tokens.entries) + self.again(tokens)
    }

    fn shared(&self, tokens: &TokenCost) -> f64 {
        self.full(1, tokens.shared)
    }

    /// Texts that are read with the full cache.
    fn full(&self, texts: usize, tokens: usize) -> f64 {
        let full = self.rates.full();
        let attended = tokens as f64 / 2.0 / texts.max(1) as f64;
        self.dense(&full, texts, tokens) + tokens as f64 * full.attention.at(attended)
    }

    /// Some reads without their attention.
    fn dense(&self, cache: &CacheRates, reads: usize, tokens: usize) -> f64 {
        let segments = reads.max(tokens.div_ceil(self.rates.segment));
        if tokens == 0 { 0.0 } else { cache.dense.start * segments as f64 + cache.dense.slope * tokens as f64 }
    }

    fn scoring(&self, reads: usize, tokens: usize) -> f64 {
        let blocks = reads.max(tokens.div_ceil(SCORED_AT_ONCE));
        if tokens == 0 {
            0.0
        } else {
            self.rates.scoring.start * blocks as f64 + self.rates.scoring.slope * tokens as f64
        }
    }

    /// A token of each of some texts that are generated side by side.
    fn step(&self, texts: usize, entries: f64) -> f64 {
        self.rates.step.at(texts as f64) + texts as f64 * self.cache.generating.at(entries).max(0.0)
    }

    /// Generated texts are read with their prompts, and scored.
    fn again(&self, tokens: &TokenCost) -> f64 {
        let texts = tokens.side_by_side;
        let scored = if tokens.read_again > 0 { texts * tokens.steps } else { 0 };
        self.full(texts, tokens.read_again) + self.scoring(texts, scored)
    }
}

/// Tokens that are scored in one product.
const SCORED_AT_ONCE: usize = 256;

/// A repeat of a timed task: one sequence, twice, then as many as fit.
fn timed(
    tokens: &Tokens<'_>,
    counts: &TokenCost,
    model_task: &ModelTask,
    cell: &NamedCell,
    device: &Device,
) -> f64 {
    let weights = model_task.files.held_bytes(model_task.model.dtype, device);
    let cache = model_task.files.shape.cache_bytes(model_task.task.cache_entries(cell.cell.rule));
    // Without room for one sequence the cell fails, and takes no time.
    let granted = model_task.task.granted_memory;
    let Some(texts) = granted.and_then(|memory| sequences_that_fit(memory, weights, cache)) else { return 0.0 };
    let prompt = tokens.own(&TokenCost { steps: 0, ..*counts });
    let steps = tokens.step(1, counts.entries) + tokens.step(texts, counts.entries);
    (2 + texts) as f64 * prompt + counts.steps as f64 * steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_counts_once() {
        let cost = |own, shared| Cost { own, shared };
        assert_eq!(one_after_another(&[cost(1.0, 2.0), cost(1.0, 5.0), cost(3.0, 4.0)]), [3.0, 4.0, 3.0]);
        assert!(one_after_another(&[]).is_empty());
    }
}
