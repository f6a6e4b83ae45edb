//! What a cell will take, before anything is measured: about as many seconds, and entries of its cache.
//!
//! Arithmetic over shapes and lengths; it loads nothing. It is right to a factor of two where a model is large, and
//! knows best how cells compare with each other, which is what shares are cut by.

use super::prepare::{Group, NamedCell};
use crate::eviction::{CacheRule, Positions};
use crate::lm::Device;
use crate::task::{Effort, TaskSpec, Timing};

/// How fast a machine is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Multiplications and additions a second in large products.
    pub products: f64,
    /// Bytes a second that decoding gets from memory.
    pub memory: f64,
}

impl Speed {
    /// Bytes a second that decoding gets from memory, about: what machines with a few cores have.
    const MEMORY: f64 = 15e9;

    /// A machine whose products were measured.
    pub fn with_products(products: f64) -> Speed {
        Speed { products, memory: Speed::MEMORY }
    }

    /// One of no particular machine. Shares of one sweep are cut on different machines, and must fit together.
    pub(super) const NOMINAL: Speed = Speed { products: 60e9, memory: Speed::MEMORY };
}

/// Products of a token are this much slower while texts are written than while they are read.
const FEW_ROWS: f64 = 1.5;

/// What attention costs beside its products, for each head and entry: softmax, scores, and the choice of who leaves.
const SCAN: f64 = 0.3e-9;

/// What a token costs beside products, for each layer and number of its state: rotation, norms, copies.
const REST: f64 = 4.0e-9;

/// A step of a text that is written costs at least this much for each layer.
const STEP: f64 = 3e-6;

/// Writing a cell's file down.
const FILE: f64 = 5e-3;

/// Entries of the cell's cache, per layer and key-value head. While its newest attends a bounded one holds one more.
pub fn entries(group: &Group, cell: &NamedCell) -> usize {
    let length = group.task.length();
    match cell.cell.rule {
        CacheRule::Unbounded => length,
        CacheRule::Truncate { size } | CacheRule::Evict { size, .. } => match group.task {
            TaskSpec::Timing(_) => size.saturating_add(1).min(length),
            _ => size.min(length),
        },
    }
}

/// Seconds of a cell, in two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// What the cell takes for itself.
    pub own: f64,
    /// What its share of the unbounded reading takes. Cells that are measured together need only the largest.
    pub shared: f64,
}

/// What a cell still takes: all of it, or what its journal lacks.
pub fn cost(group: &Group, cell: &NamedCell, device: &Device, speed: Speed) -> Cost {
    let left = group.samples.len().saturating_sub(cell.samples_done());
    share_of(whole(group, cell, device, speed), left as f64 / group.samples.len().max(1) as f64)
}

fn share_of(cost: Cost, share: f64) -> Cost {
    Cost { own: cost.own * share, shared: cost.shared * share }
}

/// What a cell takes from its first sample to its last.
pub(super) fn whole(group: &Group, cell: &NamedCell, device: &Device, speed: Speed) -> Cost {
    if let TaskSpec::Timing(timing) = &group.task {
        let repeats = group.samples.len() as f64;
        return Cost { own: FILE + repeats * decoding(timing, group, cell, device, speed), shared: 0.0 };
    }
    let reading = cell.reading();
    let token = Token { group, cell, speed };
    let mut cost = Cost { own: FILE, shared: 0.0 };
    for job in group.samples.jobs() {
        let wanted: Vec<usize> = job.clone().collect();
        let effort = group.samples.effort(job, &wanted, &reading);
        cost.own += token.own(&effort);
        cost.shared += token.shared(&effort);
    }
    cost
}

/// What opening a group's model takes, for whoever measures the first of its cells.
pub(super) fn opening(group: &Group, speed: Speed) -> f64 {
    let bytes = group.files.weight_bytes() as f64;
    // Weights are read, and on the CPU those of small models are widened.
    3.0 * bytes / speed.memory
}

/// What the tokens of a group cost.
struct Token<'a> {
    group: &'a Group,
    cell: &'a NamedCell,
    speed: Speed,
}

impl Token<'_> {
    fn own(&self, effort: &Effort) -> f64 {
        let reading = self.slowness() * effort.read as f64 * (self.body() + self.attention(effort.attended));
        let again = effort.read_again as f64;
        let again =
            again * (self.body() + self.head() + self.attention(again / 2.0 / effort.side_by_side.max(1) as f64));
        reading + effort.scored as f64 * self.head() + self.writing(effort) + again
    }

    fn shared(&self, effort: &Effort) -> f64 {
        effort.shared as f64 * (self.body() + self.attention(effort.shared as f64 / 2.0))
    }

    /// Products with the weights of the layers, and what else a state goes through.
    fn body(&self) -> f64 {
        let shape = &self.group.files.shape;
        let products = 2.0 * (shape.layers * shape.layer_weights()) as f64 / self.speed.products;
        products + REST * (shape.layers * shape.hidden) as f64
    }

    /// The product with the output matrix, and the softmax over it.
    fn head(&self) -> f64 {
        let shape = &self.group.files.shape;
        2.0 * (shape.vocab * shape.hidden) as f64 / self.speed.products + SCAN * shape.vocab as f64
    }

    fn attention(&self, entries: f64) -> f64 {
        let shape = &self.group.files.shape;
        let heads = (shape.layers * shape.heads.heads) as f64;
        heads * entries * (4.0 * shape.head_dim as f64 / self.speed.products + SCAN)
    }

    /// Texts written side by side: a step reads the weights or multiplies them, whichever takes longer.
    fn writing(&self, effort: &Effort) -> f64 {
        if effort.steps == 0 {
            return 0.0;
        }
        let shape = &self.group.files.shape;
        let batch = effort.side_by_side as f64;
        let weights = 4.0 * (shape.layers * shape.layer_weights() + shape.vocab * shape.hidden) as f64;
        let entries = match self.cell.cell.size() {
            Some(size) => effort.attended.min(size as f64),
            None => 2.0 * effort.attended,
        };
        let each = FEW_ROWS * (self.body() + self.head()) + self.attention(entries);
        effort.steps as f64 * ((weights / self.speed.memory).max(batch * each) + STEP * shape.layers as f64)
    }

    /// Rules whose logits come row by row, which compute in f64, or which read few tokens at a time are this much
    /// slower.
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

/// A repeat: one sequence, then as many as fit. A step reads the weights or multiplies them, whichever takes longer,
/// and reads every cache.
fn decoding(timing: &Timing, group: &Group, cell: &NamedCell, device: &Device, speed: Speed) -> f64 {
    let shape = &group.files.shape;
    let weights = group.files.held_bytes(group.model.dtype, device);
    let cache = shape.cache_bytes(entries(group, cell));
    // Without room for one the cell fails, and takes no time.
    let Ok(batch) = timing.batch(weights, cache) else { return 0.0 };
    let flops = 2.0 * (shape.layers * shape.layer_weights() + shape.vocab * shape.hidden) as f64;
    // A cache that grows is half full in the mean.
    let read = cache as f64 * if cell.cell.rule == CacheRule::Unbounded { 0.5 } else { 1.5 };
    let step = |batch: f64| {
        (weights as f64 / speed.memory).max(batch * flops / speed.products) + batch * read / speed.memory
    };
    timing.decoded() as f64 * (step(1.0) + step(batch as f64))
}
