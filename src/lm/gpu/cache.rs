//! The keys and values of one layer's cache on a device.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;

use super::device::{Buffer, Gpu, Rows};
use super::params::{Address, Text, bytes_of};
use crate::eviction::{Heads, Positions, ScanRule};
use crate::vector;

/// Rows of as many bytes for each entry. Clones share their memory until one of them is written to, so that copying a cache
/// needs no device and cannot fail.
#[derive(Clone, Debug)]
pub(super) struct GpuTable {
    pub rows: usize,
    /// Bytes of an entry in a row.
    width: usize,
    stored: Option<Arc<Stored>>,
    /// The first column of the stored ones that is its own.
    start: usize,
}

#[derive(Debug)]
struct Stored {
    buffer: Buffer,
    capacity: usize,
}

impl GpuTable {
    pub fn new(rows: usize, width: usize) -> GpuTable {
        GpuTable { rows, width, stored: None, start: 0 }
    }

    /// The address of a table of its own with this capacity, which holds the first `held` columns.
    pub fn own(&mut self, gpu: &dyn Gpu, held: usize, capacity: usize) -> Result<Address> {
        let fits = |stored: &mut Arc<Stored>| stored.capacity == capacity && Arc::get_mut(stored).is_some();
        if self.start > 0 || !self.stored.as_mut().is_some_and(fits) {
            let buffer = gpu.allocate(self.rows * self.width * capacity)?;
            if let Some(from) = self.stored.as_ref().filter(|_| held > 0) {
                let address = from.buffer.address + (self.start * self.width) as Address;
                let from = Rows { address, pitch: from.capacity * self.width };
                let to = Rows { address: buffer.address, pitch: capacity * self.width };
                gpu.copy(from, to, held * self.width, self.rows)?;
            }
            self.stored = Some(Arc::new(Stored { buffer, capacity }));
            self.start = 0;
        }
        Ok(self.stored.as_ref().map_or(0, |stored| stored.buffer.address))
    }

    /// A table of some of its columns.
    fn part(&self, start: usize) -> GpuTable {
        GpuTable { start: self.start + start, ..self.clone() }
    }

    fn bytes(&self, capacity: usize) -> usize {
        self.rows * self.width * capacity
    }
}

/// Everything that a layer's cache has on a device.
#[derive(Clone, Debug)]
pub(in crate::lm) struct GpuCache {
    heads: Heads,
    dim: usize,
    /// Columns that its tables have, or will have.
    pub(in crate::lm) capacity: usize,
    pub(super) keys: GpuTable,
    pub(super) values: GpuTable,
    pub(super) rotated: Option<RotatedTables>,
    /// What a formula remembers.
    pub(super) kept: GpuTable,
    pub(super) totals: GpuTable,
    /// Every key ever read, where lost attention is measured, and its capacity.
    pub(super) all_keys: Option<(GpuTable, usize)>,
    /// Columns to keep before it is used again, (groups)(columns), and the capacity that it has until then.
    pub(super) keep: Option<(Vec<Vec<u32>>, usize)>,
}

/// Where positions depend on evictions.
#[derive(Clone, Debug)]
pub(super) struct RotatedTables {
    pub positions: Positions,
    pub raw_keys: GpuTable,
    pub coordinates: GpuTable,
    pub rotations: GpuTable,
}

impl GpuCache {
    /// An empty cache of a policy, or an unbounded one. With `all_keys`, every key is kept besides, in room for as many tokens at first.
    pub fn new(
        heads: Heads,
        dim: usize,
        capacity: usize,
        rule: Option<&ScanRule>,
        positions: Positions,
        all_keys: Option<usize>,
    ) -> GpuCache {
        let float = size_of::<f32>();
        let vectors = || GpuTable::new(heads.kv_heads, dim * float);
        let groups = rule.map_or(1, |rule| rule.groups);
        let remembers = rule.filter(|rule| !rule.keeps_received);
        let lists = |of: fn(&ScanRule) -> usize| remembers.map_or(0, of) * groups;
        let (kept, totals) = (lists(|rule| rule.score.kept), lists(|rule| rule.score.totals));
        let rotated = rule.filter(|_| positions != Positions::Absolute).map(|_| RotatedTables {
            positions,
            raw_keys: GpuTable::new(heads.kv_heads * dim, float),
            coordinates: GpuTable::new(groups, size_of::<f64>()),
            rotations: GpuTable::new(groups, 2 * size_of::<i32>()),
        });
        GpuCache {
            heads,
            dim,
            capacity,
            keys: if rotated.is_some() { GpuTable::new(heads.kv_heads * dim, float) } else { vectors() },
            values: vectors(),
            rotated,
            kept: GpuTable::new(kept, float),
            totals: GpuTable::new(totals, size_of::<f64>()),
            all_keys: all_keys.map(|text| (vectors(), vector::padded(text))),
            keep: None,
        }
    }

    /// A cache of some of its columns, for another policy (`rule`) and with another capacity. Only of an unbounded one.
    pub fn part(
        &self,
        columns: Range<usize>,
        capacity: usize,
        rule: Option<&ScanRule>,
        all_keys: Option<usize>,
    ) -> GpuCache {
        let empty = GpuCache::new(self.heads, self.dim, capacity, rule, Positions::Absolute, all_keys);
        GpuCache {
            keys: self.keys.part(columns.start),
            values: self.values.part(columns.start),
            all_keys: all_keys.map(|text| (self.keys.clone(), vector::padded(text.max(columns.end)))),
            ..empty
        }
    }

    /// Makes room for `columns`; an unbounded cache grows to twice its room at least, if it has more tokens than were announced.
    pub fn reserve(&mut self, columns: usize, is_bounded: bool) {
        if columns > self.capacity {
            self.capacity = vector::padded(if is_bounded { columns } else { columns.max(2 * self.capacity) });
        }
    }

    /// Keeps the columns `kept` of every group, in order.
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        self.keep = Some((kept.to_vec(), self.capacity));
    }

    /// A text with the addresses of its tables, which are its own from now on and have `capacity` columns, of which `held` are in use.
    pub(super) fn own(
        &mut self,
        gpu: &dyn Gpu,
        (held, capacity): (usize, usize),
        seen: usize,
        rows: usize,
    ) -> Result<Text> {
        let mut text = Text {
            keys: self.keys.own(gpu, held, capacity)?,
            values: self.values.own(gpu, held, capacity)?,
            capacity: capacity as i32,
            kept_stride: capacity as i32,
            ..Text::default()
        };
        if let Some(rotated) = &mut self.rotated {
            text.raw_keys = rotated.raw_keys.own(gpu, held, capacity)?;
            text.coordinates = rotated.coordinates.own(gpu, held, capacity)?;
            text.rotations = rotated.rotations.own(gpu, 1, 1)?;
            text.positions_kind = match rotated.positions {
                Positions::Absolute => 0,
                Positions::Slot => 1,
                Positions::Squeezed => 2,
            };
            if seen == 0 {
                gpu.upload(text.rotations, bytes_of(&vec![0_i32; 2 * rotated.rotations.rows]))?;
            }
        }
        if self.kept.rows > 0 {
            text.kept = self.kept.own(gpu, held, capacity)?;
        }
        if self.totals.rows > 0 {
            text.totals = self.totals.own(gpu, held, capacity)?;
        }
        if let Some((table, room)) = &mut self.all_keys {
            if seen + rows > *room {
                *room = vector::padded((seen + rows).max(2 * *room));
            }
            text.all_keys = table.own(gpu, seen, *room)?;
            text.all_capacity = *room as i32;
        }
        Ok(text)
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        let raw = self.rotated.as_ref().map_or(0, |rotated| rotated.raw_keys.bytes(self.capacity));
        (self.keys.bytes(self.capacity) + self.values.bytes(self.capacity) + raw) as u64
    }
}
