//! What one layer keeps: its entries, and their keys and values, on the host, where keys may be rotated again, or on a GPU.

use super::plan::{MemoryPlan, salt};
use super::rerotation::RerotatedKeys;
use super::rope::Frequencies;
use super::store::Store;
use super::table::Table;
use crate::eviction::{CacheEntries, CacheFormat, Eviction, Kept, Positions, SizedPolicy, VectorFormat};
use crate::lm::arithmetic::packing::Part;
use crate::lm::gpu::cache::{CutTables, GpuCache};
use crate::lm::shape::caches::BLOCK;
use crate::lm::shape::config::ModelShape;
use crate::vector;

/// Everything one layer keeps.
#[derive(Clone, Debug)]
pub(in crate::lm) struct LayerCache {
    pub entries: CacheEntries,
    pub tables: Tables,
    /// Evictions since [`Memory::take_log`](super::memory::Memory::take_log) was last called. Only if it was asked for.
    pub log: Option<Vec<Eviction>>,
    /// Whether the text will be longer than the model's usual positions reach.
    pub is_long: bool,
}

impl LayerCache {
    /// Makes the cache of model layer `index`, which is number `at` of those that own one, under the layer's part of the plan's policy.
    /// The policies of `cuts`, each with its seed, may cut it after the prompt.
    pub fn new(
        shape: &ModelShape,
        plan: &MemoryPlan<'_>,
        (at, index): (usize, usize),
        (policy, cuts): (Option<SizedPolicy>, Vec<(SizedPolicy, u64)>),
        on_gpu: bool,
    ) -> Self {
        let (heads, head_dim) = (shape.heads_of(index), shape.head_dim_of(index));
        let salt = salt(plan.seed, at);
        let window = shape.attention[index].window;
        let (entries, rooms) = match policy {
            None => {
                // Where a policy leaves a layer to its window, that is its bound.
                let rooms = vec![if plan.policy.is_some() { usize::MAX } else { plan.expect }];
                let entries = CacheEntries::unbounded(heads, plan.fork_scopes, plan.fork_points).of_layer(at);
                let own = cuts.into_iter().map(|(policy, seed)| (policy, self::salt(seed, at)));
                (entries.with_cuts(&own.collect::<Vec<_>>()), rooms)
            }
            Some(policy) => {
                let most = |own: SizedPolicy| match own.size {
                    // Nothing leaves this head.
                    usize::MAX => plan.expect,
                    size if own.awaits_prompt() || own.selects() => plan.expect.max(size),
                    size => size.saturating_add(own.schedule.buffer()),
                };
                let rooms = policy.of_heads(heads.kv_heads).map(|own| most(own).saturating_add(BLOCK));
                (CacheEntries::bounded(heads, policy, salt), rooms.collect())
            }
        };
        let entries = entries
            .of_layer(at)
            .with_window(window, plan.forks)
            .chunked(shape.attention[index].is_chunked)
            .recording(plan.record);
        let entries = match plan.future {
            Some(future) => entries.with_future(future[at].clone()),
            None => entries,
        };
        // KIVI packs keys some time after their first use, which then give other logits.
        let mut entries = match plan.options.format.kivi_bits() {
            Some(_) => entries,
            None => entries.with_last_rows(),
        };
        let in_window = window.filter(|_| !plan.forks).map_or(usize::MAX, |window| window.saturating_add(BLOCK));
        let rooms: Vec<usize> = rooms.into_iter().map(|room| vector::padded(room.min(in_window))).collect();
        // Without evictions, rank and position are the same.
        let positions = if policy.is_some() { plan.options.positions } else { Positions::Absolute };
        // On a device, keys are not placed anew after an eviction, and they stay in f32.
        let on_gpu = on_gpu && positions == Positions::Absolute && !plan.options.format.is_rounded();
        let tables = if on_gpu && entries.can_be_scanned_on_device() {
            let (rule, cuts) = (entries.scan_rule(), entries.cut_rules());
            let all_keys = plan.measure_loss.then_some(plan.text);
            entries = entries.scored_on_device();
            Tables::Gpu(GpuCache::new(heads, head_dim, largest(&rooms), rule.as_ref(), all_keys).with_cuts(&cuts))
        } else {
            let CacheFormat { keys, values } = plan.options.format;
            let store = |format: VectorFormat, part: Part, dim: usize| {
                Store::new(format, part, heads.kv_heads, &rooms, dim)
            };
            let keys = match (positions, policy) {
                (Positions::Absolute, _) | (_, None) => Keys::Absolute(store(keys, Part::Key, head_dim)),
                (positions, Some(policy)) => {
                    Keys::Rerotated(RerotatedKeys::new(heads, head_dim, &rooms, policy.scope, positions))
                }
            };
            let room = [vector::padded(plan.text)];
            let all_keys = plan.measure_loss.then(|| Table::new(heads.kv_heads, &room, head_dim));
            // Latent vectors are keys and values.
            let in_keys = shape.latent.is_some() && positions == Positions::Absolute;
            let values = store(values, Part::Value, if in_keys { 0 } else { head_dim });
            Tables::Host(HostTables { keys, values, all_keys })
        };
        LayerCache { entries, tables, log: plan.log.then(Vec::new), is_long: plan.is_long(shape) }
    }

    /// A copy with other rooms, at least for the entries of each key-value head.
    pub fn with_rooms(&self, rooms: &[usize]) -> LayerCache {
        LayerCache {
            entries: self.entries.clone(),
            tables: self.tables.copy(&self.entries.lens(), rooms),
            log: self.log.clone(),
            is_long: self.is_long,
        }
    }

    /// What a GPU keeps for policies that will cut the prompt.
    pub fn cut_tables(&self) -> Vec<CutTables> {
        if let Tables::Gpu(cache) = &self.tables { cache.cuts().to_vec() } else { Vec::new() }
    }

    /// Keeps the columns `kept` of every group, in order.
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        match &mut self.tables {
            Tables::Host(tables) => tables.keep(kept),
            Tables::Gpu(cache) => cache.keep(kept),
        }
    }

    /// Keeps the columns `kept` of every group, where not all stay, with the rooms that the key-value heads need now. Keys whose positions
    /// depend on evictions are placed anew, at the layer's `frequencies`.
    pub(in crate::lm) fn take_kept(&mut self, kept: Option<Kept>, frequencies: &Frequencies, rooms: &[usize]) {
        if let Some(kept) = kept {
            self.keep(&kept);
            if let Tables::Host(HostTables { keys: Keys::Rerotated(keys), .. }) = &mut self.tables {
                for (group, positions) in self.entries.survivors().into_iter().enumerate() {
                    keys.place(group, positions.iter().copied().enumerate(), frequencies);
                }
            }
        }
        self.resize(rooms);
    }

    /// Changes the rooms, one table after the other.
    fn resize(&mut self, rooms: &[usize]) {
        let held = self.entries.lens();
        match &mut self.tables {
            Tables::Host(tables) => tables.resize(&held, rooms),
            Tables::Gpu(cache) => cache.capacity = largest(rooms),
        }
    }
}

/// The room of every head of a cache on a GPU, whose tables have rows of one length.
pub(super) fn largest(rooms: &[usize]) -> usize {
    rooms.iter().copied().max().unwrap_or(0)
}

/// A layer's keys and values.
#[derive(Clone, Debug)]
pub(in crate::lm) enum Tables {
    Host(HostTables),
    Gpu(GpuCache),
}

#[derive(Clone, Debug)]
pub(in crate::lm) struct HostTables {
    pub keys: Keys,
    /// Values; of length 0 where the keys hold them.
    pub values: Store,
    /// Every key ever read, at its absolute position: only to measure the attention lost to eviction.
    pub all_keys: Option<Table>,
}

#[derive(Clone, Debug)]
pub(in crate::lm) enum Keys {
    /// Rotated once, by the token's position in the text.
    Absolute(Store),
    /// Rotated again whenever an eviction changes their positions.
    Rerotated(RerotatedKeys),
}

/// Rooms for what heads hold, of `all` that there is: what they hold, and an equal part of the rest.
pub(super) fn shared(held: &[usize], all: usize) -> Vec<usize> {
    let spare = all.saturating_sub(held.iter().sum()) / held.len();
    held.iter().map(|held| held + spare).collect()
}

impl Tables {
    pub fn bytes(&self) -> u64 {
        match self {
            Tables::Host(tables) => tables.bytes(),
            Tables::Gpu(cache) => cache.bytes(),
        }
    }

    /// The rooms of so many key-value heads.
    pub fn capacities(&self, kv_heads: usize) -> Vec<usize> {
        match self {
            Tables::Host(tables) => (0..kv_heads).map(|kv_head| tables.values.capacity(kv_head)).collect(),
            Tables::Gpu(cache) => vec![cache.capacity; kv_heads],
        }
    }

    /// A copy of the first columns of each key-value head, as many as are `held`, with other rooms.
    pub fn copy(&self, held: &[usize], rooms: &[usize]) -> Tables {
        match self {
            Tables::Host(HostTables { keys, values, all_keys }) => Tables::Host(HostTables {
                keys: keys.copy(held, rooms),
                values: values.copy(held, rooms),
                all_keys: all_keys.clone(),
            }),
            Tables::Gpu(cache) => {
                let mut copy = cache.clone();
                copy.capacity = largest(rooms);
                Tables::Gpu(copy)
            }
        }
    }
}

impl HostTables {
    pub fn bytes(&self) -> u64 {
        let keys = match &self.keys {
            Keys::Absolute(keys) => keys.bytes(),
            Keys::Rerotated(keys) => keys.floats() * size_of::<f32>(),
        };
        (keys + self.values.bytes()) as u64
    }

    pub fn resize(&mut self, held: &[usize], rooms: &[usize]) {
        self.keys = self.keys.copy(held, rooms);
        self.values = self.values.copy(held, rooms);
    }

    /// Makes room for `rows` more entries in each key-value head, of which so many are `held`. A bounded cache that reads blocks has it from
    /// the start, but heads that share their entries may have to share their room in another way.
    pub fn reserve(&mut self, held: &[usize], rows: usize) {
        let capacities: Vec<usize> = (0..held.len()).map(|kv_head| self.values.capacity(kv_head)).collect();
        let needed: Vec<usize> = held.iter().map(|held| held + rows).collect();
        if needed.iter().zip(&capacities).all(|(needed, capacity)| needed <= capacity) {
            return;
        }
        let all = capacities.iter().sum();
        if needed.iter().sum::<usize>() <= all {
            let rooms = shared(held, all);
            self.values.rearrange(held, &rooms);
            match &mut self.keys {
                Keys::Absolute(keys) => keys.rearrange(held, &rooms),
                Keys::Rerotated(keys) => keys.rearrange(held, &rooms),
            }
            return;
        }
        let room = |(needed, capacity): (&usize, usize)| match self.keys {
            _ if *needed <= capacity => capacity,
            Keys::Absolute(_) => vector::padded((*needed).max(2 * capacity)),
            // Bounded: there is a largest block, and no reason to double.
            Keys::Rerotated(_) => vector::padded(*needed),
        };
        let rooms: Vec<usize> = needed.iter().zip(capacities).map(room).collect();
        self.resize(held, &rooms);
    }

    /// Tokens that can be read before some of the newest entries must be packed, where that is done for groups of them.
    pub fn until_packed(&self) -> usize {
        if let Store::Kivi(values) = &self.values { values.until_packed() } else { usize::MAX }
    }

    /// Packs the oldest of the newest entries, where there are too many. Call it between two tokens, when all that leaves has left.
    pub fn pack(&mut self) {
        if let (Keys::Absolute(Store::Kivi(keys)), Store::Kivi(values)) = (&mut self.keys, &mut self.values) {
            keys.pack();
            values.pack();
        }
    }

    /// Keeps the columns `kept` of every group, in order.
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        match &mut self.keys {
            Keys::Absolute(keys) => keys.keep(kept),
            Keys::Rerotated(keys) => keys.keep(kept),
        }
        self.values.keep(kept);
    }
}

impl Keys {
    pub fn copy(&self, held: &[usize], rooms: &[usize]) -> Keys {
        match self {
            Keys::Absolute(keys) => Keys::Absolute(keys.copy(held, rooms)),
            Keys::Rerotated(keys) => Keys::Rerotated(keys.copy(held, rooms)),
        }
    }
}
