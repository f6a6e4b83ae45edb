//! Keys and values of a block's columns, and queries of its rows, as scores see them.

use std::borrow::Cow;

use super::attention_shape::AttentionShape;
use super::rerotation::RerotatedKeys;
use super::rope::{Angles, Frequencies, rotate_head};
use super::store::Store;
use crate::eviction::Vectors;
use crate::eviction::formula::MeanRotation;
use crate::vector;

/// The cached entries and the block's own, one layer.
pub(in crate::lm) struct BlockVectors<'a> {
    pub shape: &'a AttentionShape<'a>,
    pub keys: CachedKeys<'a>,
    pub values: &'a Store,
    /// Queries of the block before rotation: (rows, heads, dim)
    pub queries: &'a [f32],
    pub frequencies: &'a Frequencies,
    /// Bounds of pages, of each length that a score asks for.
    pub pages: &'a [PageBounds],
}

/// What scores know of the keys in pages of `tokens` consecutive tokens, in a cache from which none leaves.
pub(in crate::lm) struct PageBounds {
    tokens: usize,
    /// The least and the largest number that the keys of each column's page have in each dimension, up to that column:
    /// (kv_heads)(columns, dim)
    least: Vec<Vec<f32>>,
    largest: Vec<Vec<f32>>,
    /// Rotated and scaled queries of the block: (heads, rows, dim)
    queries: Vec<f32>,
}

impl PageBounds {
    pub fn new(tokens: usize, keys: &Store, columns: &[usize], dim: usize, queries: &[f32]) -> PageBounds {
        let running = |choose: fn(f32, f32) -> f32| -> Vec<Vec<f32>> {
            let of_head = |(head, columns): (usize, &usize)| {
                let mut bounds = keys.vectors(head, *columns, dim).into_owned();
                for column in (0..*columns).filter(|column| column % tokens > 0) {
                    let (before, own) = bounds[(column - 1) * dim..].split_at_mut(dim);
                    own.iter_mut().zip(before).for_each(|(own, before)| *own = choose(*own, *before));
                }
                bounds
            };
            columns.iter().enumerate().map(of_head).collect()
        };
        PageBounds { tokens, least: running(f32::min), largest: running(f32::max), queries: queries.to_vec() }
    }
}

/// Keys as they are rotated at this step.
pub(in crate::lm) enum CachedKeys<'a> {
    Absolute(&'a Store),
    Rerotated(&'a RerotatedKeys),
}

/// The column of the oldest entry in the cache.
fn oldest(mask: &[f32]) -> usize {
    mask.iter().position(|mask| *mask == 0.0).unwrap_or(0)
}

impl Vectors for BlockVectors<'_> {
    fn keys(&self, kv_head: usize, mask: &[f32]) -> Cow<'_, [f32]> {
        match self.keys {
            CachedKeys::Absolute(keys) => keys.vectors(kv_head, mask.len(), self.shape.head_dim),
            CachedKeys::Rerotated(keys) => {
                let (dim, vectors) = (self.shape.head_dim, keys.vectors(kv_head, mask.len()));
                let back = self.frequencies.rotation(-keys.coordinate(kv_head, oldest(mask)));
                let mut turned = vec![0.0; vectors.len()];
                for (from, to) in vectors.chunks_exact(dim).zip(turned.chunks_exact_mut(dim)) {
                    rotate_head(from, back.row(0), 1.0, to);
                }
                Cow::Owned(turned)
            }
        }
    }

    fn values(&self, kv_head: usize, entries: usize) -> Cow<'_, [f32]> {
        self.values.vectors(kv_head, entries, self.shape.head_dim)
    }

    fn dim(&self) -> usize {
        self.shape.head_dim
    }

    fn query(&self, row: usize, head: usize) -> &[f32] {
        let AttentionShape { heads, head_dim, .. } = *self.shape;
        &self.queries[(row * heads.heads + head) * head_dim..][..head_dim]
    }

    fn scale(&self, position: usize) -> f32 {
        self.shape.query_scale(position)
    }

    fn angles(&self, positions: &[f64]) -> [Vec<f32>; 2] {
        let Angles { cos, sin, .. } = self.frequencies.angles(positions.iter().copied());
        [cos, sin]
    }

    fn mean_rotation(&self, kv_head: usize, mask: &[f32], step: usize, positions: usize) -> MeanRotation {
        let newest = match self.keys {
            CachedKeys::Absolute(_) => step as f64,
            CachedKeys::Rerotated(keys) => {
                keys.coordinate(kv_head, mask.len() - 1) - keys.coordinate(kv_head, oldest(mask))
            }
        };
        self.frequencies.mean_rotation(newest, positions)
    }

    fn logits(&self, kv_head: usize, queries: &[f32], columns: usize, (logits, stride): (&mut [f32], usize)) {
        let dim = self.shape.head_dim;
        match self.keys {
            CachedKeys::Absolute(keys) => keys.logits(kv_head, columns, (queries, dim), (logits, stride)),
            CachedKeys::Rerotated(keys) => {
                let (table, capacity) = keys.of_head(kv_head);
                let width = vector::padded(columns).min(capacity);
                for (query, logits) in queries.chunks_exact(dim).zip(logits.chunks_exact_mut(stride)) {
                    vector::combine(query, table, capacity, &mut logits[..width]);
                    logits[width..].fill(0.0);
                }
            }
        }
        self.shape.cap(logits);
    }

    fn page_bounds(&self, row: usize, head: usize, tokens: usize, out: &mut [f32]) {
        let Some(pages) = self.pages.iter().find(|pages| pages.tokens == tokens) else {
            return out.fill(f32::NAN);
        };
        let AttentionShape { heads, head_dim: dim, .. } = *self.shape;
        let (rows, kv_head) = (pages.queries.len() / (heads.heads * dim), head / heads.per_kv_head());
        let query = &pages.queries[(head * rows + row) * dim..][..dim];
        // Where the query is negative, the least number of the keys gives the most.
        let positive: Vec<f32> = query.iter().map(|x| x.max(0.0)).collect();
        let negative: Vec<f32> = query.iter().map(|x| x.min(0.0)).collect();
        for (page, out) in out.chunks_mut(tokens).enumerate() {
            let last = (page * tokens + out.len() - 1) * dim;
            let [least, largest] = [&pages.least, &pages.largest].map(|bounds| &bounds[kv_head][last..][..dim]);
            out.fill(vector::dot(&positive, largest) + vector::dot(&negative, least));
        }
    }

    fn output_shift(&self, head: usize, weights: &[f32], scale: f32, out: &mut [f32]) {
        let dim = self.shape.head_dim;
        let values = &*self.values(head / self.shape.heads.per_kv_head(), weights.len());
        let mut output = vec![0.0; dim];
        vector::combine(weights, values, dim, &mut output);
        output.iter_mut().for_each(|x| *x *= scale);
        for (shift, value) in out.iter_mut().zip(values.chunks_exact(dim)) {
            *shift = vector::squared_distance(&output, value).sqrt();
        }
    }

    fn key_similarity(&self, kv_head: usize, mask: &[f32], out: &mut [f32]) {
        let dim = self.shape.head_dim;
        let keys = match self.keys {
            CachedKeys::Absolute(keys) => keys.vectors(kv_head, out.len(), dim),
            CachedKeys::Rerotated(keys) => Cow::Owned(keys.vectors(kv_head, out.len())),
        };
        let norm = |key: &[f32]| vector::dot(key, key).sqrt();
        let mut mean = vec![0.0; dim];
        for ((key, mask), similarity) in keys.chunks_exact(dim).zip(mask).zip(out.iter_mut()) {
            *similarity = norm(key);
            if *mask == 0.0 {
                vector::add_scaled(&mut mean, key, 1.0 / *similarity);
            }
        }
        // Of the sum, which has the direction of the mean.
        let length = norm(&mean);
        for (similarity, key) in out.iter_mut().zip(keys.chunks_exact(dim)) {
            *similarity = vector::dot(key, &mean) / (*similarity * length);
        }
    }
}
