//! What a cell will take, before anything is measured: about as many seconds, and entries of its cache.
//!
//! Arithmetic over shapes and lengths; it loads nothing, and is right to a factor of two at best.

use crate::eviction::CacheRule;
use crate::lm::Device;
use crate::run::{Group, NamedCell};
use crate::task::{TaskSpec, Timing};

/// Bytes a second that decoding gets from memory, about: what machines with a few cores have.
const MEMORY_RATE: f64 = 15e9;

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

/// Seconds a cell still takes at a rate of products.
pub fn seconds(group: &Group, cell: &NamedCell, device: &Device, rate: f64) -> f64 {
    let left = group.samples.len().saturating_sub(cell.samples_done()) as f64;
    left * match &group.task {
        TaskSpec::Timing(timing) => decoding(timing, group, cell, device, rate),
        _ => reading(group, cell, rate),
    }
}

/// Multiplications and additions with weights for a token.
fn weight_flops(group: &Group) -> f64 {
    let shape = &group.files.shape;
    2.0 * (shape.parameters() as f64 - if shape.tied { 0.0 } else { (shape.vocab * shape.hidden) as f64 })
}

/// A repeat: one sequence, then as many as fit. A step reads the weights or multiplies them, whichever takes longer,
/// and reads every cache.
fn decoding(timing: &Timing, group: &Group, cell: &NamedCell, device: &Device, rate: f64) -> f64 {
    let weights = group.files.held_bytes(group.model.dtype, device);
    let cache = group.files.shape.cache_bytes(entries(group, cell));
    // Without room for one the cell fails, and takes no time.
    let Ok(batch) = timing.batch(weights, cache) else { return 0.0 };
    // A cache that grows is half full in the mean.
    let read = cache as f64 * if cell.cell.rule == CacheRule::Unbounded { 0.5 } else { 1.5 };
    let step = |batch: f64| {
        (weights as f64 / MEMORY_RATE).max(batch * weight_flops(group) / rate) + batch * read / MEMORY_RATE
    };
    timing.decoded() as f64 * (step(1.0) + step(batch as f64))
}

/// A sample: its arithmetic at the rate of products, and a third more for the rest.
fn reading(group: &Group, cell: &NamedCell, rate: f64) -> f64 {
    let shape = &group.files.shape;
    let (_, all) = group.samples.longest_and_all();
    let tokens = all as f64 / group.samples.len() as f64;
    let size = cell.cell.size().map_or(f64::INFINITY, |size| size as f64).min(tokens);
    // What a cell shares with the unbounded reading is counted there.
    let own = match cell.cell.rule {
        CacheRule::Unbounded => tokens,
        _ if size >= tokens => 0.0,
        CacheRule::Truncate { .. } => tokens,
        CacheRule::Evict { .. } => tokens - (size / 128.0).floor() * 128.0,
    };
    let columns = match cell.cell.rule {
        CacheRule::Evict { .. } => size + 64.0,
        _ => size / 2.0,
    };
    let attention = 4.0 * (shape.layers * shape.heads.heads * shape.head_dim) as f64 * columns;
    1.33 * own * (weight_flops(group) + attention) / rate
}
