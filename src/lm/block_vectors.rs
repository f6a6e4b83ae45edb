//! Keys and values of a block's columns, as scores see them.

use super::memory::Table;
use super::rerotation::RerotatedKeys;
use crate::eviction::Vectors;
use crate::vector;

/// The cached entries and the block's own, one layer.
pub(super) struct BlockVectors<'a> {
    pub keys: CachedKeys<'a>,
    /// (kv_heads, capacity, dim)
    pub values: &'a Table,
    /// Query heads of a key-value head.
    pub per_kv: usize,
}

/// Keys as they are rotated at this step.
pub(super) enum CachedKeys<'a> {
    Absolute(&'a Table),
    Rerotated(&'a RerotatedKeys),
}

impl Vectors for BlockVectors<'_> {
    fn output_shift(&self, head: usize, weights: &[f32], scale: f32, out: &mut [f32]) {
        let (values, dim) = (self.values.head(head / self.per_kv), self.values.dim());
        let mut output = vec![0.0; dim];
        vector::combine(weights, values, dim, &mut output);
        output.iter_mut().for_each(|x| *x *= scale);
        for (shift, value) in out.iter_mut().zip(values.chunks_exact(dim)) {
            *shift = vector::squared_distance(&output, value).sqrt();
        }
    }

    fn key_similarity(&self, kv_head: usize, mask: &[f32], out: &mut [f32]) {
        let mut transposed = Vec::new();
        let (keys, dim): (&[f32], usize) = match self.keys {
            CachedKeys::Absolute(keys) => (keys.head(kv_head), keys.dim()),
            CachedKeys::Rerotated(keys) => {
                let (table, capacity) = keys.of_head(kv_head);
                let dim = table.len() / capacity;
                transposed.extend(
                    (0..out.len()).flat_map(|column| (0..dim).map(move |row| table[row * capacity + column])),
                );
                (&transposed, dim)
            }
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
