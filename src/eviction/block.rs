//! What a layer gives its cache of a block: the tokens that join, the attention of each row, and the vectors of the columns.

use std::borrow::Cow;

use super::settings::{Heads, Scope};
use crate::vector;

/// The tokens that join the cache in a block, for scores that look at keys and values: (rows, kv_heads, dim) each, unrotated.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewEntries<'a> {
    pub keys: &'a [f32],
    pub values: &'a [f32],
    pub dim: usize,
    /// L2 norms of the keys (rows, kv_heads) before they were rounded to f32, if the policy compares them.
    pub norms: Option<&'a [f64]>,
    /// L1 norms of the values times the output weights, mean over the query heads of each key-value head (rows, kv_heads), and the
    /// texts of the tokens (rows); empty where no score has them ([`CacheEntries::wants`]).
    pub projected_norms: &'a [f32],
    /// Queries before rotation (rows, heads, dim), the states that the projections read (rows, hidden), and the tokens' ids (rows), for
    /// functions; the states are empty where there is none.
    pub queries: &'a [f32],
    pub hidden: &'a [f32],
    pub token_ids: &'a [u32],
    pub token_texts: &'a [std::sync::Arc<str>],
    /// Logits of the layer's attention sinks (heads), which take part in every softmax and have no value; empty where it has none.
    pub sinks: &'a [f32],
    /// Whether the read ends with this block. The end of a prompt is that of a read.
    pub ends_read: bool,
}

/// What scores ask for that costs something to know of new entries.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub hidden: bool,
    pub projected_norms: bool,
    pub token_texts: bool,
    /// Keys or values themselves, when they join.
    pub vectors: bool,
    /// Bounds of pages of so many tokens.
    pub pages: Vec<usize>,
}

/// Queries of some rows of a block, for scores that look at the last rows of a prompt only.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// Rotated and scaled: (heads, rows, dim)
    pub rotated: &'a [f32],
    /// Before rotation: (rows, heads, dim)
    pub plain: &'a [f32],
    /// What logits of each row are multiplied by.
    pub scales: &'a [f32],
    /// Logits of the layer's attention sinks (heads), or empty.
    pub sinks: &'a [f32],
}

impl NewEntries<'_> {
    /// One of (rows, kv_heads, dim) vectors.
    pub(super) fn of<'a>(&self, vectors: &'a [f32], vector: usize) -> &'a [f32] {
        &vectors[vector * self.dim..][..self.dim]
    }
}

/// Keys and values of a block's columns, and the queries of its rows, for scores that look at them. The `mask` is 0 for columns that
/// are in the cache.
pub trait Vectors {
    /// The keys of a head as they are rotated now: (columns, dim). Where positions depend on evictions, the oldest in the cache has
    /// position 0.
    fn keys(&self, kv_head: usize, mask: &[f32]) -> Cow<'_, [f32]>;

    /// The values of the first columns of a head: (columns, dim)
    fn values(&self, kv_head: usize, columns: usize) -> Cow<'_, [f32]>;

    /// Dimensions of a head.
    fn dim(&self) -> usize;

    /// The query of a row before its rotation.
    fn query(&self, row: usize, head: usize) -> &[f32];

    /// What the logits of the query at a position are multiplied by.
    fn scale(&self, position: usize) -> f32;

    /// Cosines and sines by which pairs of dimensions are rotated at some positions: (positions, pairs) each.
    fn angles(&self, positions: &[f64]) -> [Vec<f32>; 2];

    /// The mean of the rotations by the next `positions` after that of the newest of [`keys`](Self::keys), the token `step` of the text.
    fn mean_rotation(&self, kv_head: usize, mask: &[f32], step: usize, positions: usize) -> MeanRotation;

    /// The logits of queries of a key-value head, rotated and scaled, (heads, rows, dim), against its first columns: (heads, rows, stride)
    fn logits(&self, kv_head: usize, queries: &[f32], columns: usize, logits: (&mut [f32], usize));

    /// The most that the logit of a row's query could be for a key within the bounds of each column's page of `tokens` tokens, which no
    /// entry has left.
    fn page_bounds(&self, row: usize, head: usize, tokens: usize, out: &mut [f32]);

    /// The L2 distance of each value from a query head's output, which is the sum of `scale * weights` times values.
    fn output_shift(&self, head: usize, weights: &[f32], scale: f32, out: &mut [f32]);

    /// The cosine of each key with the mean of the normalised keys whose `mask` is 0.
    fn key_similarity(&self, kv_head: usize, mask: &[f32], out: &mut [f32]);
}

/// The mean of rotations of a head, by pairs of dimensions: cosines and sines. Further dimensions are not rotated.
pub struct MeanRotation {
    pub cos: Vec<f64>,
    pub sin: Vec<f64>,
}

/// One row's attention weights, not yet divided by their sums.
pub(super) struct Attention<'a> {
    /// (heads, rows, stride)
    pub(super) logits: &'a [f32],
    /// (heads, rows)
    pub(super) sums: &'a [f32],
    pub(super) heads: Heads,
    pub(super) rows: usize,
    pub(super) row: usize,
    pub(super) stride: usize,
    /// Whole lanes that hold the columns up to that of the row: (groups)
    pub(super) widths: &'a [usize],
    /// Whether it is the last row of a read.
    pub(super) ends_read: bool,
}

impl Attention<'_> {
    /// The weights of a head, and what makes them sum to 1.
    pub(super) fn of_head(&self, head: usize) -> (&[f32], f32) {
        let at = head * self.rows + self.row;
        let width = self.widths[head * self.widths.len() / self.heads.heads];
        (&self.logits[at * self.stride..][..width], 1.0 / self.sums[at])
    }

    /// The attention of a group's query heads to some columns: (heads of the group, columns)
    pub(super) fn by_head(&self, scope: Scope, group: usize, columns: &[usize]) -> Vec<f32> {
        let of_head = |head: usize| {
            let (weights, scale) = self.of_head(head);
            columns.iter().map(move |column| weights[*column] * scale)
        };
        self.heads.of_group(scope, group).flat_map(of_head).collect()
    }

    /// Adds a group's attention, summed over its query heads, to `onto` (columns).
    pub(super) fn add_to(&self, onto: &mut [f32], scope: Scope, group: usize) {
        for head in self.heads.of_group(scope, group) {
            let (weights, scale) = self.of_head(head);
            let columns = weights.len().min(onto.len());
            vector::add_scaled(&mut onto[..columns], &weights[..columns], scale);
        }
    }
}

/// The sum of a softmax, of exponentials of logits less `max`, with that of a sink. A sink that outweighs everything leaves nothing.
fn with_sink(sum: f32, max: f32, sink: Option<&f32>) -> f32 {
    sink.map_or(sum, |sink| sum + (sink - max).exp())
}

/// Makes unnormalised attention weights of a row's logits, as far as the `mask` reaches, and 0 of the others. Returns the maximum and the
/// sum of the softmax, with the layer's `sink` if it has one.
pub(super) fn weigh(logits: &mut [f32], mask: &[f32], sink: Option<&f32>) -> (f32, f32) {
    let (max, sum) = vector::softmax_row(&mut logits[..mask.len()], mask);
    logits[mask.len()..].fill(0.0);
    (max, with_sink(sum, max, sink))
}
