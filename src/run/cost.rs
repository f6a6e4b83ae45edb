//! Estimates the run time of cells: the tokens that a task counts, at measured or nominal rates.

use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::Result;

use super::machine::{MOST_SIDE_BY_SIDE, workers};
use super::prepare::{ModelTask, NamedCell, Prepared};
use super::rates::{CacheRates, Rates};
use crate::eviction::CacheRule;
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
    /// What is left of a cell, without the samples that are measured already.
    pub fn left(self, model_task: &ModelTask, cell: &NamedCell) -> Cost {
        let share = 1.0 - model_task.measured(cell).1;
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
        let machine = workers(model_task, &Device::CPU, threads, 1);
        let device = if model_task.task.is_timed() { device } else { &Device::CPU };
        let is_known = found.as_ref().is_some_and(|(other, split, _)| {
            other.model == model_task.model
                && other.task.is_timed() == model_task.task.is_timed()
                && *split == (machine.workers, machine.threads)
        });
        if !is_known {
            // Two models are not in memory at once.
            drop(found.take());
            let files = &model_task.files;
            let bytes = files.held_bytes(model_task.model.dtype, device) / files.shape.parameters().max(1);
            let split = (machine.workers, machine.threads);
            found = Some((model_task, split, Probe::new(&files.shape, bytes, device, split)?));
        }
        let Some((.., probe)) = &found else { continue };
        let rates = Rates::measured(model_task, probe)?;
        let written = share_written(model_task, &rates);
        // Workers measure the cells of a batch side by side once one of them has read its prefix. Batches are split where there
        // are too few.
        let parallel = |pieces: usize| machine.workers.min(pieces).max(1) as f64;
        let of_cell = |cell: &NamedCell| {
            let Cost { own, shared } = cost_of(model_task, cell, device, (&rates, written));
            let own = own / parallel(model_task.samples.len() * model_task.cells.len());
            Cost { own, shared: shared / parallel(model_task.samples.batches().len()) }
        };
        costs.push(model_task.cells.iter().map(of_cell).collect());
    }
    Ok(costs)
}

/// A few texts are written with the model itself, for about so many seconds, to see how long they become.
const WRITING: f64 = 0.15;

/// The part of the tokens that a task may write which its texts have, on average: models may end their texts earlier. The
/// first samples are written with the full cache, if that is a matter of moments; otherwise all tokens count.
fn share_written(model_task: &ModelTask, rates: &Rates) -> f64 {
    let (Some(generation), Some(cell)) = (&model_task.task.generation, model_task.cells.first()) else {
        return 1.0;
    };
    let samples = &model_task.samples;
    let batches = samples.batches();
    let config = CacheConfig { rule: CacheRule::Unbounded, ..cell.cache_config() };
    let Cost { own, shared } = whole(model_task, cell, &Device::CPU, rates);
    let each = own / samples.len() as f64 + shared / batches.len() as f64;
    if loading(model_task) + each > 2.0 * WRITING {
        return 1.0;
    }
    // If this model cannot be loaded, the run says so.
    let Ok(model) = model_task.files.load(model_task.model.dtype, &Device::CPU) else { return 1.0 };
    let started = Instant::now();
    let (mut written, mut most) = (0, 0);
    for all in batches.into_iter().take_while(|_| started.elapsed().as_secs_f64() < WRITING) {
        let Ok(prefix) = samples.read_prefix(&model, all.clone(), &[config]) else { break };
        let some: Vec<usize> = all.clone().collect();
        let batch = Batch { all, samples: &some, config, side_by_side: 1 };
        let _ = samples.measure(&model, &batch, prefix.as_ref(), &mut |_, result| {
            if let Ok(result) = result {
                written += result.new_tokens;
                most += generation.max_new_tokens;
            }
            if started.elapsed().as_secs_f64() < WRITING {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    }
    if most > 0 { written as f64 / most as f64 } else { 1.0 }
}

/// The cost of all samples of a cell, if texts are written to their full length.
pub(super) fn whole(model_task: &ModelTask, cell: &NamedCell, device: &Device, rates: &Rates) -> Cost {
    cost_of(model_task, cell, device, (rates, 1.0))
}

/// The cost of all samples of a cell, if texts have a part of the tokens they may have.
fn cost_of(model_task: &ModelTask, cell: &NamedCell, device: &Device, (rates, written): (&Rates, f64)) -> Cost {
    let config = cell.cache_config();
    let tokens = Tokens { rates, cache: rates.of(cell), config };
    let mut cost = Cost { own: FILE, shared: 0.0 };
    for batch in model_task.samples.batches() {
        let samples: Vec<usize> = batch.clone().collect();
        // The same on every machine, because shards depend on it.
        let side_by_side = MOST_SIDE_BY_SIDE;
        let mut counts = model_task.samples.cost(&Batch { all: batch, samples: &samples, config, side_by_side });
        if written < 1.0 {
            counts = counts.with_steps((written * counts.steps as f64).ceil() as usize);
        }
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
        let attention = if config.prefill == Prefill::OneShot { rates.full.attention } else { cache.attention };
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
        let full = self.rates.full;
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
        self.rates.step.at(texts as f64) + texts as f64 * self.cache.generating.at(entries)
    }

    /// Generated texts are read with their prompts, and scored.
    fn again(&self, tokens: &TokenCost) -> f64 {
        let texts = tokens.side_by_side;
        let scored = if tokens.read_again > 0 { texts * tokens.steps } else { 0 };
        self.full(texts, tokens.read_again) + self.scoring(texts, scored)
    }
}

/// Tokens that a thread scores in one product.
const SCORED_AT_ONCE: usize = 512;

/// A repeat of a timed task: one sequence, twice, then as many as fit.
fn timed(
    tokens: &Tokens<'_>,
    counts: &TokenCost,
    model_task: &ModelTask,
    cell: &NamedCell,
    device: &Device,
) -> f64 {
    let weights = model_task.files.held_bytes(model_task.model.dtype, device);
    let shape = &model_task.files.shape;
    let entries = model_task.task.cache_entries(cell.cell.rule, cell.cell.local_layers, shape);
    let cache = shape.cache_bytes_by_layer(&entries);
    // Without room for one sequence the cell fails, and takes no time.
    let granted = model_task.task.granted_memory;
    let Some(texts) = granted.and_then(|memory| sequences_that_fit(memory, weights, cache)) else { return 0.0 };
    let prompt = tokens.own(&TokenCost { steps: 0, ..*counts });
    let steps = tokens.step(1, counts.entries) + tokens.step(texts, counts.entries);
    (2 + texts) as f64 * prompt + counts.steps as f64 * steps
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::super::rates::Line;
    use super::*;
    use crate::lm::source::HubSettings;
    use crate::sweep::{Selection, Sweep};

    /// The costs of a sweep's cells, without writing their files.
    fn costs(sweep: &str, rates: &Rates) -> Vec<Cost> {
        let sweep = Sweep::parse(sweep, "a.yaml").unwrap();
        let hub = HubSettings::with_cache_dir("nowhere");
        let prepared = prepare(&sweep, &Selection::default(), None, &hub, &(), "").unwrap();
        let model_task = &prepared.model_tasks[0];
        let cost = |cell| whole(model_task, cell, &Device::CPU, rates);
        model_task.cells.iter().map(cost).map(|cost| Cost { own: cost.own - FILE, ..cost }).collect()
    }

    #[test]
    fn the_cells_of_a_text_by_hand() {
        let line = |start, slope| Line { start, slope };
        let cache = CacheRates { dense: line(1.0, 2.0), attention: line(0.0, 1.0), ..CacheRates::default() };
        let rates = Rates::of_all(cache, 16, line(3.0, 0.5), Line::default());
        let sweep = "models: [random-tiny]\npolicies: [full, truncate, tova]\ncache_sizes: [8, 32]\n\
            tasks: [{perplexity: {dataset: random-words, length: 32, books: 2, chunks_per_book: 1}}]\n";
        // 32 tokens in two segments, which attend to 16 entries on average. One block of 31 tokens is scored.
        let full = Cost { own: 3.0 + 15.5, shared: 2.0 + 64.0 + 32.0 * 16.0 };
        // Four pieces, each with its own beginning, and 4 entries on average.
        let truncate = Cost { own: 4.0 + 64.0 + 32.0 * 4.0 + 4.0 * 3.0 + 15.5, shared: 0.0 };
        // 8 tokens attend to 4 entries on average, and 24 to 8.
        let tova = Cost { own: 2.0 + 64.0 + 8.0 * 4.0 + 24.0 * 8.0 + 3.0 + 15.5, shared: 0.0 };
        // Caches as large as the text are the full cache.
        let expected = [full, truncate, full, tova, full].map(|cost| (2.0 * cost.own, 2.0 * cost.shared));
        let costs = costs(sweep, &rates);
        assert_eq!(costs.len(), expected.len());
        for (cost, (own, shared)) in costs.iter().zip(expected) {
            assert!(
                (cost.own - own).abs() < 1e-9 && (cost.shared - shared).abs() < 1e-9,
                "{cost:?} {own} {shared}"
            );
        }
    }

    #[test]
    fn texts_that_are_written_by_hand() {
        let line = |start, slope| Line { start, slope };
        let cache = CacheRates { generating: line(0.0, 0.25), ..CacheRates::default() };
        let rates = Rates::of_all(cache, 16, Line::default(), line(5.0, 1.0));
        let sweep = "models: [random-tiny]\npolicies: [full, tova]\ncache_sizes: [8]\n\
            tasks: [{needle: {dataset: random-words, lengths: [200], depths: [50], texts: 2, \
            write: {max_new_tokens: 10}}}]\n";
        let costs = costs(sweep, &rates);
        // A step takes 5 and 1 for its text, and a quarter for each entry: 8, or the prompt and half of the 10 tokens.
        assert!((costs[1].own - 2.0 * 10.0 * (6.0 + 2.0)).abs() < 1e-9, "{costs:?}");
        let entries = (costs[0].own / 2.0 / 10.0 - 6.0) * 4.0 - 5.0;
        assert!((150.0..=190.0).contains(&entries), "{entries}");
    }

    #[test]
    fn every_kind_of_cell_has_an_estimate() {
        let sweep = "models: [random-tiny]\npolicies: [full, window, h2o, knorm, tova@squeezed, random]\n\
            cache_sizes: [4, 40, 5000]\ntasks:\n\
            - perplexity: {dataset: random-words, length: 64, books: 2, chunks_per_book: 1}\n\
            - perplexity: {dataset: random-words, length: 96, books: 1, chunks_per_book: 1, compare_to_full: true}\n\
            - retention: {dataset: random-words, length: 64, books: 1, chunks_per_book: 1}\n\
            - needle: {dataset: random-words, lengths: [200], depths: [50], texts: 1, \
            write: {max_new_tokens: 4, prefill: stream}}\n\
            - story: {request: embedded, stories: 2, length: 512, write: {max_new_tokens: 4}}\n\
            - timing: {memory: 10 MB, length: 64, prompt: 16, repeats: 1}\n";
        let sweep = Sweep::parse(sweep, "a.yaml").unwrap();
        let hub = HubSettings::with_cache_dir("nowhere");
        let prepared = prepare(&sweep, &Selection::default(), None, &hub, &(), "").unwrap();
        assert!(prepared.unavailable.is_empty());
        let costs = estimate(&prepared, &Device::CPU, 2).unwrap();
        assert_eq!(costs.len(), prepared.model_tasks.len());
        for (model_task, costs) in prepared.model_tasks.iter().zip(&costs) {
            assert_eq!(costs.len(), model_task.cells.len());
            for (cell, cost) in model_task.cells.iter().zip(costs) {
                let all = cost.own + cost.shared;
                assert!(all.is_finite() && all >= FILE / 2.0 && cost.shared >= 0.0, "{cell:?}: {cost:?}");
            }
        }
    }

    #[test]
    fn a_prefix_counts_once() {
        let cost = |own, shared| Cost { own, shared };
        assert_eq!(one_after_another(&[cost(1.0, 2.0), cost(1.0, 5.0), cost(3.0, 4.0)]), [3.0, 4.0, 3.0]);
        assert!(one_after_another(&[]).is_empty());
    }
}
