//! What the recurrent network remembers: for every layer the keys and values that survive, and who they are.
//!
//! A bounded memory is allocated at its bound and never grows with the text. While a block of tokens is read it
//! holds the block too; afterwards exactly `size` entries per key-value head. Settled to be written from, it has room
//! for one entry more and nothing else.

use std::time::Duration;

use super::attention::Scratch;
use super::rerotation::RerotatedKeys;
use crate::eviction::{CacheEntries, Eviction, Heads, Positions, Scope, SizedPolicy};
use crate::vector;

/// Tokens whose logits are computed as one product. Larger blocks mean larger products and more dead columns in them:
/// for 512 entries 64 and 128 were measured alike and 256 seven per cent slower, for 128 entries 64 four per cent faster.
pub const BLOCK: usize = 128;

/// The state of the network after reading some tokens. A clone goes its own way: a document read once can be asked
/// several questions.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(super) layers: Vec<LayerCache>,
    pub(super) seen: usize,
    pub(super) scratch: Scratch,
    /// Products add up in f64 before they are rounded to f32.
    pub(super) compute_f64: bool,
    /// Share of each token's attention, mean over layers and heads, that entries no longer there would have
    /// received; collected on request only.
    pub(super) lost: Option<Vec<f32>>,
}

/// Everything one layer keeps.
#[derive(Clone, Debug)]
pub(super) struct LayerCache {
    pub entries: CacheEntries,
    pub keys: Keys,
    /// (kv_heads, capacity, head_dim)
    pub values: Vec<f32>,
    /// Entries there is room for.
    pub capacity: usize,
    /// Every key ever read, at its absolute position: only to measure what eviction lost.
    pub all_keys: Option<Store>,
    /// Who left since [`Memory::take_log`] was last called; collected on request only.
    pub log: Option<Vec<Eviction>>,
}

#[derive(Clone, Debug)]
pub(super) enum Keys {
    /// Rotated once, at the token's position in the text: (kv_heads, capacity, head_dim)
    Absolute(Vec<f32>),
    /// Rotated anew whenever an eviction moves them.
    Rerotated(RerotatedKeys),
}

/// A growing table of vectors per key-value head: (kv_heads, capacity, head_dim)
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub data: Vec<f32>,
    pub capacity: usize,
}

impl Store {
    /// Makes room for `entries` of `kv_heads` x `dim`, at least doubling so that growing costs little.
    pub fn reserve(&mut self, kv_heads: usize, dim: usize, entries: usize) {
        if entries <= self.capacity {
            return;
        }
        let capacity = vector::padded(entries.max(2 * self.capacity));
        let mut data = vec![0.0; kv_heads * capacity * dim];
        for head in 0..kv_heads {
            let old = &self.data[head * self.capacity * dim..][..self.capacity * dim];
            data[head * capacity * dim..][..old.len()].copy_from_slice(old);
        }
        *self = Store { data, capacity };
    }
}

/// Time and arithmetic of the reads into a memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadStats {
    /// Softmax, scores and evictions.
    pub scan: Duration,
    /// Products of queries with keys and of attention with values.
    pub attention_products: Duration,
    /// Everything in attention that is neither: rotating, copying, closing gaps.
    pub attention_rest: Duration,
    /// Products with weights, norms and activations.
    pub dense: Duration,
    /// Whole reads.
    pub total: Duration,
    /// Floating-point operations (a multiplication and an addition are two) of the two kinds of products.
    pub attention_flops: u64,
    pub dense_flops: u64,
}

/// What a new memory is to be.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPlan<'a> {
    /// `None`: unbounded.
    pub policy: Option<SizedPolicy>,
    pub positions: Positions,
    /// Seeds [`Score::Random`](crate::eviction::Score::Random).
    pub seed: u64,
    /// Unbounded only: scopes whose accumulated attention later forks will need, and where they will start.
    pub fork_scopes: &'a [Scope],
    pub fork_points: &'a [usize],
    /// Unbounded only: tokens to make room for at once; more are no error.
    pub expect: usize,
    /// Measure the attention mass that evicted entries would have received (absolute positions).
    pub measure_loss: bool,
    /// Nobody leaves until [`Memory::cut`]: a prompt read in one shot (absolute positions).
    pub one_shot: bool,
    /// Note who leaves, for [`Memory::take_log`].
    pub log: bool,
}

impl MemoryPlan<'_> {
    /// The unbounded cache.
    pub fn unbounded() -> MemoryPlan<'static> {
        MemoryPlan {
            policy: None,
            positions: Positions::Absolute,
            seed: 0,
            fork_scopes: &[],
            fork_points: &[],
            expect: 0,
            measure_loss: false,
            one_shot: false,
            log: false,
        }
    }

    /// A cache bounded by a policy.
    pub fn bounded(policy: SizedPolicy) -> MemoryPlan<'static> {
        MemoryPlan { policy: Some(policy), ..MemoryPlan::unbounded() }
    }
}

impl Memory {
    pub(super) fn new(layers: usize, heads: Heads, head_dim: usize, plan: &MemoryPlan<'_>) -> Memory {
        let layer = |index: usize| {
            let salt = salt(plan.seed, index);
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
            // Unbounded, nobody leaves, so rank and position are the same thing.
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

    /// A bounded memory that has read the first `len` tokens of this unbounded one. Nothing is lost by then, so it
    /// equals one that was bounded from the start. `None` where [`CacheEntries::fork`] says so.
    pub(super) fn fork(
        &self,
        len: usize,
        policy: SizedPolicy,
        heads: Heads,
        head_dim: usize,
        measure_loss: bool,
    ) -> Option<Memory> {
        let capacity = vector::padded(policy.size() + BLOCK);
        let copy = |from: &[f32], from_capacity: usize, capacity: usize| {
            let mut to = vec![0.0; heads.kv_heads * capacity * head_dim];
            for head in 0..heads.kv_heads {
                to[head * capacity * head_dim..][..len * head_dim]
                    .copy_from_slice(&from[head * from_capacity * head_dim..][..len * head_dim]);
            }
            to
        };
        let layers = self.layers.iter().map(|layer| {
            let Keys::Absolute(keys) = &layer.keys else { return None };
            let room = vector::padded(len);
            let all_keys = || Store { data: copy(keys, layer.capacity, room), capacity: room };
            Some(LayerCache {
                entries: layer.entries.fork(len, policy)?,
                keys: Keys::Absolute(copy(keys, layer.capacity, capacity)),
                values: copy(&layer.values, layer.capacity, capacity),
                capacity,
                all_keys: measure_loss.then(all_keys),
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

    /// Ends the one shot in which a prompt was read ([`MemoryPlan::one_shot`]): every layer is cut down to its
    /// policy's size, by the prompt's last token, and the room of the others is given back. Shapes are the network's.
    pub(super) fn cut(&mut self, heads: Heads, head_dim: usize) {
        for layer in &mut self.layers {
            let kept = layer.entries.cut();
            let capacity = vector::padded(layer.entries.limit() + BLOCK);
            let Keys::Absolute(keys) = &mut layer.keys else {
                unreachable!("a prompt is read in one shot with absolute positions only");
            };
            let group = |kv_head: usize| layer.entries.group_of(kv_head);
            let copy = |from: &[f32]| {
                let mut to = vec![0.0; heads.kv_heads * capacity * head_dim];
                for kv_head in 0..heads.kv_heads {
                    let from = &from[kv_head * layer.capacity * head_dim..][..layer.capacity * head_dim];
                    let to = &mut to[kv_head * capacity * head_dim..][..capacity * head_dim];
                    match &kept {
                        Some(kept) => {
                            for (to, &at) in to.chunks_exact_mut(head_dim).zip(&kept[group(kv_head)]) {
                                to.copy_from_slice(&from[at as usize * head_dim..][..head_dim]);
                            }
                        }
                        None => {
                            let held = layer.entries.len() * head_dim;
                            to[..held].copy_from_slice(&from[..held]);
                        }
                    }
                }
                to
            };
            *keys = copy(keys);
            layer.values = copy(&layer.values);
            layer.capacity = capacity;
        }
    }

    /// Keeps room for `more` tokens read one at a time, and no more: a bounded memory holds one entry beyond its size,
    /// while its newest attends and before somebody leaves. Reading more, or a block at once, makes room again. Shapes
    /// are the network's.
    pub(super) fn shrink_to_fit(&mut self, more: usize, heads: Heads, head_dim: usize) {
        let room = |layer: &LayerCache| {
            let all = layer.entries.len() + more;
            all.min(layer.entries.limit().saturating_add(1)).max(layer.entries.len())
        };
        // The tables of a block go too.
        self.scratch = self.scratch.clone();
        if self.layers.iter().any(|layer| layer.capacity != room(layer)) {
            // All layers are copied before any is dropped: freed one by one, they would leave holes that nothing fits.
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

    /// Where time went, and how much was computed.
    pub fn stats(&self) -> ReadStats {
        self.scratch.stats
    }

    /// Who left since the last call, layer by layer in the order of their steps; nobody where no log was asked for.
    /// Whoever reads a long text takes it after every few reads, so that it stays short.
    pub fn take_log(&mut self) -> Vec<Vec<Eviction>> {
        self.layers.iter_mut().map(|layer| layer.log.as_mut().map(std::mem::take).unwrap_or_default()).collect()
    }

    /// Lost attention mass of every token read, if it is measured.
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

    /// A copy with another capacity, which holds all there is.
    fn with_room(&self, capacity: usize, kv_heads: usize, head_dim: usize) -> LayerCache {
        let held = self.entries.len();
        let copy = |from: &[f32]| {
            let mut to = vec![0.0; kv_heads * capacity * head_dim];
            for kv_head in 0..kv_heads {
                to[kv_head * capacity * head_dim..][..held * head_dim]
                    .copy_from_slice(&from[kv_head * self.capacity * head_dim..][..held * head_dim]);
            }
            to
        };
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

    /// Makes room for `entries`; a bounded cache that reads blocks has it from the start.
    pub fn reserve(&mut self, kv_heads: usize, head_dim: usize, entries: usize) {
        if entries <= self.capacity {
            return;
        }
        if let Keys::Rerotated(_) = self.keys {
            // Bounded, so that there is a largest block and no reason to double.
            *self = self.with_room(vector::padded(entries), kv_heads, head_dim);
            return;
        }
        let Keys::Absolute(keys) = &mut self.keys else { return };
        let grow = |data: &mut Vec<f32>| {
            let mut store = Store { data: std::mem::take(data), capacity: self.capacity };
            store.reserve(kv_heads, head_dim, entries);
            *data = store.data;
            store.capacity
        };
        grow(keys);
        self.capacity = grow(&mut self.values);
    }
}

/// Tells layers apart under one seed.
fn salt(seed: u64, layer: usize) -> u64 {
    seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(layer as u64)
}
