//! The last rows of a prompt. Where a score looks at no others, their queries are kept while the prompt is read, and its scores are computed
//! from these when it is cut.

use std::collections::VecDeque;

use super::block::{NewEntries, Queries};
use super::entries::{Bounded, CacheEntries};
use super::settings::Heads;

/// Queries of the last tokens read, by the blocks in which they were.
#[derive(Clone, Debug)]
pub(super) struct LastRows {
    /// Rows that the scores need.
    horizon: usize,
    pub blocks: VecDeque<Block>,
    /// Logits of the layer's attention sinks: (heads), or empty.
    pub sinks: Vec<f32>,
}

/// The last rows of a block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// All rows of the block, and those that are kept.
    pub rows: usize,
    pub kept: usize,
    /// Rotated and scaled: (heads, kept, dim)
    queries: Vec<f32>,
}

impl Block {
    fn new(queries: &[f32], rows: usize, horizon: usize, heads: Heads) -> Block {
        let (kept, width) = (rows.min(horizon), queries.len() / heads.heads);
        let of_head = |queries: &[f32]| queries[width / rows * (rows - kept)..].to_vec();
        Block { rows, kept, queries: queries.chunks_exact(width).flat_map(of_head).collect() }
    }

    /// The queries of a key-value head, with zeros for rows that are not kept: (heads, rows, dim). Bits of a product may depend on the number
    /// of its rows.
    pub fn of_kv_head(&self, kv_head: usize, heads: Heads) -> Vec<f32> {
        let (per_kv, width) = (heads.per_kv_head(), self.queries.len() / heads.heads);
        let dim = width / self.kept;
        let mut queries = vec![0.0; per_kv * self.rows * dim];
        let own = self.queries[kv_head * per_kv * width..].chunks_exact(width);
        for (to, from) in queries.chunks_exact_mut(self.rows * dim).zip(own) {
            to[(self.rows - self.kept) * dim..].copy_from_slice(from);
        }
        queries
    }
}

impl LastRows {
    pub fn new(horizon: usize) -> LastRows {
        LastRows { horizon, blocks: VecDeque::new(), sinks: Vec::new() }
    }

    /// Takes the queries of a block, and forgets what is too old.
    pub fn add(&mut self, queries: &Queries<'_>, heads: Heads) {
        self.blocks.push_back(Block::new(queries.rotated, queries.scales.len(), self.horizon, heads));
        while self.rows() - self.blocks[0].kept >= self.horizon {
            self.blocks.pop_front();
        }
        self.sinks = queries.sinks.to_vec();
    }

    pub fn rows(&self) -> usize {
        self.blocks.iter().map(|block| block.kept).sum()
    }
}

impl CacheEntries {
    /// Takes queries of the newest of the next `rows` tokens, for scores that are computed when the prompt is cut.
    pub fn keep_queries(&mut self, rows: usize, queries: &Queries<'_>) {
        let (heads, first) = (self.heads, self.seen + rows - queries.scales.len());
        for Bounded { last_rows, scorer, divider, .. } in self.each_bounded() {
            let Some(last) = last_rows else { continue };
            last.add(queries, heads);
            let dim = queries.plain.len() / (heads.heads * queries.scales.len());
            for scorer in [scorer, divider].into_iter().flatten() {
                for (row, scale) in queries.scales.iter().enumerate() {
                    let of_head = |head: usize| &queries.plain[(row * heads.heads + head) * dim..][..dim];
                    scorer.take_query(first + row, *scale, of_head);
                }
            }
        }
    }

    /// Takes what is known of the next `rows` tokens that are read elsewhere, for scores that are computed when the prompt is cut.
    pub fn join_elsewhere(&mut self, rows: usize, new: &NewEntries<'_>) {
        let seen = self.seen;
        let caches = self.each_bounded().filter(|bounded| bounded.last_rows.is_some());
        caches.flat_map(Bounded::scorers).for_each(|scorer| scorer.join(seen, rows, new));
    }

    /// How many of the last queries of a read its scores ask for, of all texts that are cut: 0 where none are kept.
    pub fn wanted_queries(&mut self) -> usize {
        let wanted = |bounded: &mut Bounded| {
            let horizon = bounded.last_rows.as_ref()?.horizon;
            Some(if bounded.scorers().any(|scorer| scorer.expects()) { usize::MAX } else { horizon })
        };
        self.each_bounded().filter_map(wanted).max().unwrap_or(0)
    }
}
