//! The state of the recurrent network: the keys and values that survive in every layer, and the tokens they belong
//! to.
//!
//! A bounded memory is allocated at its bound and never grows with the text. While a block of tokens is read it
//! holds the block too, afterwards exactly `size` entries per key-value head. Shrunk for generation it has room
//! for one entry more.

use std::time::Duration;

use super::attention::{Scratch, close_gaps};
use super::rerotation::RerotatedKeys;
use crate::eviction::{CacheEntries, Eviction, Heads, Positions, Scope, SizedPolicy};
use crate::vector;

/// Tokens whose logits are computed as one product. Larger blocks mean larger products with more evicted columns:
/// with 512 entries 64 and 128 were equally fast and 256 was 7 % slower; with 128 entries 64 was 4 % faster.
pub const BLOCK: usize = 128;

/// The state of the network after reading some tokens. A clone is independent, so several questions can follow a
/// document that is read once.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(super) layers: Vec<LayerCache>,
    pub(super) seen: usize,
    pub(super) scratch: Scratch,
    /// Products with weights are computed in f64.
    pub(super) compute_f64: bool,
    /// Share of each token's attention, mean over layers and heads, that evicted entries would have received. Only
    /// if it was asked for.
    pub(super) lost: Option<Vec<f32>>,
}

/// Everything one layer keeps.
#[derive(Clone, Debug)]
pub(super) struct LayerCache {
    pub entries: CacheEntries,
    pub keys: Keys,
    /// (kv_heads, capacity, head_dim)
    pub values: Vec<f32>,
    /// Room for entries.
    pub capacity: usize,
    /// Every key ever read, at its absolute position: only to measure the attention lost to eviction.
    pub all_keys: Option<Store>,
    /// Evictions since [`Memory::take_log`] was last called. Only if it was asked for.
    pub log: Option<Vec<Eviction>>,
}

#[derive(Clone, Debug)]
pub(super) enum Keys {
    /// Rotated once, by the token's position in the text: (kv_heads, capacity, head_dim)
    Absolute(Vec<f32>),
    /// Rotated again whenever an eviction changes their positions.
    Rerotated(RerotatedKeys),
}

/// A growing table of vectors per key-value head: (kv_heads, capacity, head_dim)
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub data: Vec<f32>,
    pub capacity: usize,
}

impl Store {
    /// Makes room for `entries`, at least doubling so that growing is cheap.
    pub fn reserve(&mut self, kv_heads: usize, head_dim: usize, entries: usize) {
        if entries > self.capacity {
            let capacity = vector::padded(entries.max(2 * self.capacity));
            self.data = resized(&self.data, (self.capacity, capacity), self.capacity, (kv_heads, head_dim));
            self.capacity = capacity;
        }
    }
}

/// A copy of the first `held` entries of a table (kv_heads, capacity, head_dim), with another capacity.
fn resized(
    from: &[f32],
    (old, new): (usize, usize),
    held: usize,
    (kv_heads, head_dim): (usize, usize),
) -> Vec<f32> {
    let mut to = vec![0.0; kv_heads * new * head_dim];
    for head in 0..kv_heads {
        to[head * new * head_dim..][..held * head_dim]
            .copy_from_slice(&from[head * old * head_dim..][..held * head_dim]);
    }
    to
}

/// Time and arithmetic spent on reads into a memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadStats {
    /// Softmax, scores and evictions.
    pub scan: Duration,
    /// Products of queries with keys and of attention with values.
    pub attention_products: Duration,
    /// The rest of attention: rotating, copying, closing gaps.
    pub attention_rest: Duration,
    /// Products with weights, norms and activations.
    pub dense: Duration,
    /// Whole reads.
    pub total: Duration,
    /// Floating-point operations (a multiplication and an addition are two) of the two kinds of products.
    pub attention_flops: u64,
    pub dense_flops: u64,
}

/// Settings of a new memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryPlan<'a> {
    /// `None`: unbounded.
    pub policy: Option<SizedPolicy>,
    pub positions: Positions,
    /// Seeds [`Score::Random`](crate::eviction::Score::Random).
    pub seed: u64,
    /// Unbounded only: scopes whose accumulated attention forks will need, and the lengths at which they will
    /// start.
    pub fork_scopes: &'a [Scope],
    pub fork_points: &'a [usize],
    /// Unbounded only: tokens to make room for; more are no error.
    pub expect: usize,
    /// Measure the attention mass that evicted entries would have received (absolute positions).
    pub measure_loss: bool,
    /// Evict nothing until [`LanguageModel::cut`](super::LanguageModel::cut): for one-shot prompts (absolute
    /// positions).
    pub one_shot: bool,
    /// Record evictions for [`Memory::take_log`].
    pub log: bool,
}

impl MemoryPlan<'_> {
    /// The unbounded cache.
    pub fn unbounded() -> MemoryPlan<'static> {
        MemoryPlan::default()
    }

    /// A cache bounded by a policy.
    pub fn bounded(policy: SizedPolicy) -> MemoryPlan<'static> {
        MemoryPlan { policy: Some(policy), ..MemoryPlan::unbounded() }
    }
}

impl Memory {
    pub(super) fn new(layers: usize, heads: Heads, head_dim: usize, plan: &MemoryPlan<'_>) -> Memory {
        let layer = |index: usize| {
            // Every layer draws differently.
            let salt = plan.seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(index as u64);
            let (entries, capacity) = match plan.policy {
                None => (
                    CacheEntries::unbounded(heads, plan.fork_scopes, plan.fork_points, salt),
                    vector::padded(plan.expect),
                ),
                Some(policy) if plan.one_shot => (
                    CacheEntries::one_shot(heads, policy, salt),
                    vector::padded(plan.expect.max(policy.size()) + BLOCK),
                ),
                Some(policy) => {
                    (CacheEntries::bounded(heads, policy, salt), vector::padded(policy.size() + BLOCK))
                }
            };
            let room = heads.kv_heads * capacity * head_dim;
            // Without evictions, rank and position are the same.
            let keys = match (plan.positions, plan.policy) {
                (Positions::Absolute, _) | (_, None) => Keys::Absolute(vec![0.0; room]),
                (positions, Some(policy)) => {
                    Keys::Rerotated(RerotatedKeys::new(heads, head_dim, capacity, policy.scope(), positions))
                }
            };
            LayerCache {
                entries,
                keys,
                values: vec![0.0; room],
                capacity,
                all_keys: plan.measure_loss.then(Store::default),
                log: plan.log.then(Vec::new),
            }
        };
        Memory {
            layers: (0..layers).map(layer).collect(),
            seen: 0,
            scratch: Scratch::default(),
            compute_f64: plan.policy.is_some_and(|policy| policy.score().compares_norms()),
            lost: plan.measure_loss.then(Vec::new),
        }
    }

    /// A bounded memory that has read the first `len` tokens of this unbounded one. Nothing is evicted by then, so
    /// it equals one that was bounded from the start. `None` as for [`CacheEntries::fork`].
    pub(super) fn fork(
        &self,
        len: usize,
        policy: SizedPolicy,
        heads: Heads,
        head_dim: usize,
        measure_loss: bool,
    ) -> Option<Memory> {
        let capacity = vector::padded(policy.size() + BLOCK);
        let layers = self.layers.iter().map(|layer| {
            let Keys::Absolute(keys) = &layer.keys else { return None };
            let copy = |from: &[f32], capacity: usize| {
                resized(from, (layer.capacity, capacity), len, (heads.kv_heads, head_dim))
            };
            let room = vector::padded(len);
            Some(LayerCache {
                entries: layer.entries.fork(len, policy)?,
                keys: Keys::Absolute(copy(keys, capacity)),
                values: copy(&layer.values, capacity),
                capacity,
                all_keys: measure_loss.then(|| Store { data: copy(keys, room), capacity: room }),
                log: None,
            })
        });
        Some(Memory {
            layers: layers.collect::<Option<Vec<_>>>()?,
            seen: len,
            scratch: Scratch::default(),
            compute_f64: policy.score().compares_norms(),
            lost: measure_loss.then(|| vec![0.0; len]),
        })
    }

    /// Ends a one-shot prompt ([`MemoryPlan::one_shot`]): cuts every layer to its policy's size by the attention
    /// of the prompt's last token, and frees the room of the others. `heads` and `head_dim` are the network's.
    pub(super) fn cut(&mut self, heads: Heads, head_dim: usize) {
        for layer in &mut self.layers {
            let kept = layer.entries.cut();
            let (old, new) = (layer.capacity, vector::padded(layer.entries.limit() + BLOCK));
            let Keys::Absolute(keys) = &mut layer.keys else {
                unreachable!("one-shot prompts are read with absolute positions only");
            };
            for table in [keys, &mut layer.values] {
                if let Some(kept) = &kept {
                    close_gaps(table, kept, heads.kv_heads, old, head_dim);
                }
                *table = resized(table, (old, new), layer.entries.len(), (heads.kv_heads, head_dim));
            }
            layer.capacity = new;
        }
    }

    /// Keeps room for `more` tokens read one at a time: a bounded memory holds one entry beyond its size between
    /// attention and eviction. Reading more, or a block at once, makes room again. `heads` and `head_dim` are the
    /// network's.
    pub(super) fn shrink_to_fit(&mut self, more: usize, heads: Heads, head_dim: usize) {
        let room = |layer: &LayerCache| {
            let all = layer.entries.len() + more;
            all.min(layer.entries.limit().saturating_add(1)).max(layer.entries.len())
        };
        // Frees the tables of a block.
        self.scratch = self.scratch.clone();
        if self.layers.iter().any(|layer| layer.capacity != room(layer)) {
            // All layers are copied before any is dropped. Freed one by one, they would fragment the heap.
            let layers = self.layers.iter().map(|layer| layer.with_room(room(layer), heads.kv_heads, head_dim));
            self.layers = layers.collect();
        }
    }

    /// Tokens read so far.
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// Positions of the surviving tokens: (layers)(decision groups)(entries).
    pub fn survivors(&self) -> Vec<Vec<&[u32]>> {
        self.layers.iter().map(|layer| layer.entries.survivors()).collect()
    }

    /// Bytes that keys and values occupy now.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    /// Time and arithmetic of all reads so far.
    pub fn stats(&self) -> ReadStats {
        self.scratch.stats
    }

    /// Evictions since the last call, by layer, in order; empty without [`MemoryPlan::log`]. When reading a long
    /// text, take the log every few reads to keep it short.
    pub fn take_log(&mut self) -> Vec<Vec<Eviction>> {
        self.layers.iter_mut().map(|layer| layer.log.as_mut().map(std::mem::take).unwrap_or_default()).collect()
    }

    /// Lost attention of every token read, if it is measured.
    pub fn lost(&self) -> Option<&[f32]> {
        self.lost.as_deref()
    }
}

impl LayerCache {
    fn bytes(&self) -> u64 {
        let keys = match &self.keys {
            Keys::Absolute(keys) => keys.len(),
            Keys::Rerotated(keys) => keys.floats(),
        };
        ((keys + self.values.len()) * size_of::<f32>()) as u64
    }

    /// A copy with another capacity, at least the number of entries.
    fn with_room(&self, capacity: usize, kv_heads: usize, head_dim: usize) -> LayerCache {
        let held = self.entries.len();
        let copy = |from: &[f32]| resized(from, (self.capacity, capacity), held, (kv_heads, head_dim));
        LayerCache {
            entries: self.entries.clone(),
            keys: match &self.keys {
                Keys::Absolute(keys) => Keys::Absolute(copy(keys)),
                Keys::Rerotated(keys) => Keys::Rerotated(keys.with_room(held, capacity)),
            },
            values: copy(&self.values),
            capacity,
            all_keys: self.all_keys.clone(),
            log: self.log.clone(),
        }
    }

    /// Makes room for `entries`. A bounded cache that reads blocks has it from the start.
    pub fn reserve(&mut self, kv_heads: usize, head_dim: usize, entries: usize) {
        if entries <= self.capacity {
            return;
        }
        let Keys::Absolute(keys) = &mut self.keys else {
            // Bounded: there is a largest block, and no reason to double.
            *self = self.with_room(vector::padded(entries), kv_heads, head_dim);
            return;
        };
        let (old, new) = (self.capacity, vector::padded(entries.max(2 * self.capacity)));
        for table in [keys, &mut self.values] {
            *table = resized(table, (old, new), old, (kv_heads, head_dim));
        }
        self.capacity = new;
    }
}
