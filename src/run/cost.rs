//! Estimates the run time of cells from shapes and lengths alone.
//!
//! Estimates are right within a factor of two for large models. They are best at comparing cells with each other, which
//! is what balances shards.

use super::prepare::{ModelTask, NamedCell};
use crate::eviction::{CacheRule, Positions};
use crate::lm::Device;
use crate::task::{Batch, TokenCost, sequences_that_fit};

/// The multiplications and additions a second of no particular machine, in large products. The shards of one sweep are
/// computed on different machines, and must fit together.
pub(super) const NOMINAL_SPEED: f64 = 60e9;

/// Bytes a second that decoding gets from memory, typical of machines with a few cores.
const MEMORY: f64 = 15e9;

/// Products for one token are this much slower while generating than while reading.
const FEW_ROWS: f64 = 1.5;

/// Seconds of attention beside its products, for each head and entry: softmax, scores and evictions.
const SCAN: f64 = 0.3e-9;

/// Seconds of a token beside its products, for each layer and number of its state: rotation, norms, copies.
const REST: f64 = 4.0e-9;

/// The least seconds of a generation step, for each layer.
const STEP: f64 = 3e-6;

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

/// The remaining cost of a cell, without the samples in its journal, at `speed` multiplications and additions a second.
pub fn cost(model_task: &ModelTask, cell: &NamedCell, device: &Device, speed: f64) -> Cost {
    let left = model_task.samples.len().saturating_sub(cell.samples_done());
    let share = left as f64 / model_task.samples.len().max(1) as f64;
    let Cost { own, shared } = whole(model_task, cell, device, speed);
    Cost { own: own * share, shared: shared * share }
}

/// The cost of all samples of a cell.
pub(super) fn whole(model_task: &ModelTask, cell: &NamedCell, device: &Device, speed: f64) -> Cost {
    let config = cell.cache_config();
    let token = Token { model_task, cell, speed };
    let mut cost = Cost { own: FILE, shared: 0.0 };
    for batch in model_task.samples.batches() {
        let samples: Vec<usize> = batch.clone().collect();
        let tokens = model_task.samples.cost(&Batch { all: batch, samples: &samples, config });
        if model_task.task.is_timed() {
            cost.own += timed(&tokens, model_task, cell, device, speed);
        } else {
            cost.own += token.own(&tokens);
            cost.shared += token.shared(&tokens);
        }
    }
    cost
}

/// The seconds of loading a task's model, which its first cell takes.
pub(super) fn loading(model_task: &ModelTask) -> f64 {
    let bytes = model_task.files.weight_bytes() as f64;
    // Weights are read, and on the CPU those of small models are converted to f32.
    3.0 * bytes / MEMORY
}

/// The cost of tokens in seconds.
struct Token<'a> {
    model_task: &'a ModelTask,
    cell: &'a NamedCell,
    speed: f64,
}

impl Token<'_> {
    fn own(&self, tokens: &TokenCost) -> f64 {
        let reading = self.slowness() * tokens.read as f64 * (self.body() + self.attention(tokens.attended));
        let again = tokens.read_again as f64;
        let again =
            again * (self.body() + self.head() + self.attention(again / 2.0 / tokens.side_by_side.max(1) as f64));
        reading + tokens.scored as f64 * self.head() + self.writing(tokens) + again
    }

    fn shared(&self, tokens: &TokenCost) -> f64 {
        tokens.shared as f64 * (self.body() + self.attention(tokens.shared as f64 / 2.0))
    }

    /// The layers without attention.
    fn body(&self) -> f64 {
        let shape = &self.model_task.files.shape;
        let products = 2.0 * (shape.layers * shape.layer_weights()) as f64 / self.speed;
        products + REST * (shape.layers * shape.hidden) as f64
    }

    /// The product with the output matrix, and the softmax over it.
    fn head(&self) -> f64 {
        let shape = &self.model_task.files.shape;
        2.0 * (shape.vocab * shape.hidden) as f64 / self.speed + SCAN * shape.vocab as f64
    }

    fn attention(&self, entries: f64) -> f64 {
        let shape = &self.model_task.files.shape;
        let heads = (shape.layers * shape.heads.heads) as f64;
        heads * entries * (4.0 * shape.head_dim as f64 / self.speed + SCAN)
    }

    /// Texts generated side by side: a step reads the weights or multiplies them, whichever takes longer.
    fn writing(&self, tokens: &TokenCost) -> f64 {
        if tokens.steps == 0 {
            return 0.0;
        }
        let shape = &self.model_task.files.shape;
        let batch = tokens.side_by_side as f64;
        let weights = 4.0 * (shape.layers * shape.layer_weights() + shape.vocab * shape.hidden) as f64;
        let entries = match self.cell.cell.size() {
            Some(size) => tokens.attended.min(size as f64),
            None => 2.0 * tokens.attended,
        };
        let each = FEW_ROWS * (self.body() + self.head()) + self.attention(entries);
        tokens.steps as f64 * ((weights / MEMORY).max(batch * each) + STEP * shape.layers as f64)
    }

    /// The factor for policies that compute logits row by row or in f64, or that read few tokens at a time.
    fn slowness(&self) -> f64 {
        let cell = &self.cell.cell;
        match cell.rule {
            CacheRule::Truncate { size } => 1.0 + 32.0 / size.max(1) as f64,
            CacheRule::Evict { policy, .. } if policy.score.compares_norms() => 4.0,
            CacheRule::Evict { .. } if cell.positions != Positions::Absolute => 2.0,
            _ => 1.0,
        }
    }
}

/// A repeat of a timed task: one sequence, then as many as fit. A step reads the weights or multiplies them, whichever
/// takes longer, and reads every cache.
fn timed(tokens: &TokenCost, model_task: &ModelTask, cell: &NamedCell, device: &Device, speed: f64) -> f64 {
    let shape = &model_task.files.shape;
    let weights = model_task.files.held_bytes(model_task.model.dtype, device);
    let cache = shape.cache_bytes(model_task.task.cache_entries(cell.cell.rule));
    // Without room for one sequence the cell fails, and takes no time.
    let granted = model_task.task.granted_memory;
    let Some(batch) = granted.and_then(|memory| sequences_that_fit(memory, weights, cache)) else { return 0.0 };
    let flops = 2.0 * (shape.layers * shape.layer_weights() + shape.vocab * shape.hidden) as f64;
    // A growing cache is half full on average.
    let read = cache as f64 * if cell.cell.rule == CacheRule::Unbounded { 0.5 } else { 1.5 };
    let step = |batch: f64| (weights as f64 / MEMORY).max(batch * flops / speed) + batch * read / MEMORY;
    tokens.steps as f64 * (step(1.0) + step(batch as f64))
}
