//! What a read needs beside its caches: buffers, and the time it takes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::store::Store;
use crate::eviction::{Eviction, Normaliser};

/// Buffers that are reused from block to block.
#[derive(Debug, Default)]
pub(in crate::lm) struct Scratch {
    /// Rotated and scaled queries: (heads, rows, head_dim)
    pub queries: Vec<f32>,
    /// Logits, then attention weights: (heads, rows, stride)
    pub logits: Vec<f32>,
    /// (heads, rows, head_dim)
    pub mixed: Vec<f32>,
    pub normaliser: Normaliser,
    /// Logits against every key ever read, one key-value head at a time: (heads of the group, rows, stride)
    pub all_logits: Vec<f32>,
    /// What layers without a cache attend to, of the tokens that are read now, by the layer whose cache it is.
    pub shared: BTreeMap<usize, Vec<SharedBlock>>,
    /// What has left the first layer of the tokens that are read now, where that decides for all layers.
    pub decided: Vec<Eviction>,
    /// Time so far.
    pub stats: ReadStats,
}

/// What the queries of a block attended to in one layer.
#[derive(Debug)]
pub(in crate::lm) struct SharedBlock {
    pub rows: usize,
    /// Columns of each key-value head, and the lanes of a row.
    pub columns: Vec<usize>,
    pub stride: usize,
    /// 0 for columns that a row attended to, -inf for others: (groups, rows, stride)
    pub masks: Vec<f32>,
    pub keys: Store,
    pub values: Store,
}

impl Clone for Scratch {
    /// Copies no buffers: they are allocated again when needed.
    fn clone(&self) -> Scratch {
        Scratch { stats: self.stats, ..Scratch::default() }
    }
}

/// Time spent on reads into a memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadStats {
    /// Softmax, scores and evictions. Where threads share a read, the mean over those that had anything to do.
    pub scan: Duration,
    /// Whole reads.
    pub total: Duration,
}
