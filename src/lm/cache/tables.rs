//! The keys and values of a layer: on the host, where keys may be rotated again, or on a GPU.

use super::rerotation::RerotatedKeys;
use super::table::Table;
use crate::lm::gpu::cache::GpuCache;
use crate::vector;

/// A layer's keys and values.
#[derive(Clone, Debug)]
pub(in crate::lm) enum Tables {
    Host(HostTables),
    Gpu(GpuCache),
}

#[derive(Clone, Debug)]
pub(in crate::lm) struct HostTables {
    pub keys: Keys,
    /// Of length 0 where the keys hold them.
    pub values: Table,
    /// Every key ever read, at its absolute position: only to measure the attention lost to eviction.
    pub all_keys: Option<Table>,
}

#[derive(Clone, Debug)]
pub(in crate::lm) enum Keys {
    /// Rotated once, by the token's position in the text.
    Absolute(Table),
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
                copy.capacity = rooms[0];
                Tables::Gpu(copy)
            }
        }
    }
}

impl HostTables {
    pub fn bytes(&self) -> u64 {
        let keys = match &self.keys {
            Keys::Absolute(keys) => keys.data.len(),
            Keys::Rerotated(keys) => keys.floats(),
        };
        ((keys + self.values.data.len()) * size_of::<f32>()) as u64
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
