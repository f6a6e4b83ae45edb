//! The keys and values of one layer's cache on a device, and what the device knows of its entries.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, ensure};

use super::arena::{Arena, Piece};
use super::device::{Buffer, Gpu, Kernel, launch_one};
use super::launch::TOKEN_THREADS;
use super::params::{Address, CopiedRows, Layer, Plain, Text, bytes_of, bytes_of_mut};
use crate::eviction::{CacheEntries, Heads, ScanRule, Scanned};
use crate::vector;

/// Table with some rows for each group or head, in which every entry is a column of as many bytes. Clones share their memory until
/// one of them is written to, so that copying a cache needs no device and cannot fail.
#[derive(Clone, Debug, Default)]
pub(in crate::lm) struct GpuTable {
    pub rows: usize,
    /// Bytes of an entry in a row.
    width: usize,
    stored: Option<Arc<Stored>>,
    /// First stored column that belongs to this table.
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

    /// Address of a table that shares its memory with no other and has room for `capacity` columns, of which it holds the first
    /// `held`; 0 without rows.
    pub fn own(&mut self, gpu: &dyn Gpu, held: usize, capacity: usize) -> Result<Address> {
        if self.rows == 0 {
            return Ok(0);
        }
        let fits = |stored: &mut Arc<Stored>| stored.capacity == capacity && Arc::get_mut(stored).is_some();
        if self.start > 0 || !self.stored.as_mut().is_some_and(fits) {
            let buffer = gpu.allocate(self.rows * self.width * capacity)?;
            if let Some(copy) = self.copy(held, buffer.address, capacity).filter(|_| held > 0) {
                copy_rows(gpu, &[copy])?;
            }
            self.stored = Some(Arc::new(Stored { buffer, capacity }));
            self.start = 0;
        }
        Ok(self.stored.as_ref().map_or(0, |stored| stored.buffer.address))
    }

    /// Table of the columns from `start` on.
    fn part(&self, start: usize) -> GpuTable {
        GpuTable { start: self.start + start, ..self.clone() }
    }

    /// A copy of the first `held` columns to another table; `None` if there is nothing to copy.
    fn copy(&self, held: usize, to: Address, capacity: usize) -> Option<CopiedRows> {
        let from = self.stored.as_ref()?;
        // Every number has whole words of 4 bytes.
        let words = self.width / 4;
        Some(CopiedRows {
            from: from.buffer.address + (self.start * self.width) as Address,
            to,
            from_pitch: from.capacity * words,
            to_pitch: capacity * words,
            width: held * words,
            rows: self.rows,
        })
    }

    /// The first `held` columns of each row on the host, `dim` numbers each: (rows, held, dim), 0 of an empty table.
    fn download(&self, gpu: &dyn Gpu, held: usize, dim: usize) -> Result<Vec<f32>> {
        let mut numbers = vec![0.0; self.rows * held * dim];
        for (row, numbers) in numbers.chunks_exact_mut((held * dim).max(1)).enumerate() {
            let Some(stored) = &self.stored else { break };
            let first = (row * stored.capacity + self.start) * self.width;
            gpu.download(stored.buffer.address + first as Address, bytes_of_mut(numbers))?;
        }
        Ok(numbers)
    }

    fn bytes(&self, capacity: usize) -> usize {
        self.rows * self.width * capacity
    }

    /// Writes lists; column `order[i]` of a row gets number i of its list.
    fn upload<T: Plain + Default>(
        &mut self,
        gpu: &dyn Gpu,
        capacity: usize,
        lists: &[Vec<T>],
        order: &[Vec<u32>],
    ) -> Result<()> {
        let mut table = vec![T::default(); lists.len() * capacity];
        for (index, (row, list)) in table.chunks_exact_mut(capacity.max(1)).zip(lists).enumerate() {
            for (at, number) in list.iter().enumerate() {
                row[order.get(index).map_or(at, |order| order[at] as usize)] = *number;
            }
        }
        let to = self.own(gpu, 0, capacity)?;
        gpu.upload(to, bytes_of(&table))
    }
}

/// Copies rows of some tables to others.
pub(in crate::lm) fn copy_rows(gpu: &dyn Gpu, copies: &[CopiedRows]) -> Result<()> {
    let rows = copies.iter().map(|copy| copy.rows).max().unwrap_or(0);
    launch_one(gpu, Kernel::Copy, (rows, TOKEN_THREADS, 0), Layer::default(), copies)
}

/// Parts of tables that the host asks for, and the piece of the arena that each is copied to.
pub(in crate::lm) type Asked = Vec<Option<(CopiedRows, Piece)>>;

/// Everything that a layer's cache has on a device.
#[derive(Clone, Debug)]
pub(in crate::lm) struct GpuCache {
    heads: Heads,
    dim: usize,
    /// Number of columns that the tables have, or will have.
    pub(in crate::lm) capacity: usize,
    keys: GpuTable,
    values: GpuTable,
    /// Numbers that a formula remembers of each entry.
    kept: GpuTable,
    totals: GpuTable,
    /// Every key ever read and the capacity for them, if lost attention is measured.
    pub(in crate::lm) all_keys: Option<(GpuTable, usize)>,
    entries: Box<EntryTables>,
    newest: Newest,
    /// Columns of the host's entries, if they are in another order: (groups)(entries)
    order: Vec<Vec<u32>>,
    /// Columns to keep before the cache is used again, (groups)(columns), and the capacity that it has until then.
    keep: Option<(Vec<Vec<u32>>, usize)>,
    /// Where the entries of each key-value head end that it kept at the cut, if heads kept different numbers. Newer tokens are in columns
    /// behind all of them.
    ends: Vec<u32>,
    /// What is kept for its policy, if that will cut the prompt, or for others that will.
    cuts: Vec<CutTables>,
    /// The largest attention that a second reading has paid to each entry of a prompt.
    largest: GpuTable,
}

/// What is kept of a prompt for a policy that will cut it: numbers that its formula remembers, and the scores at the last row.
#[derive(Clone, Debug, Default)]
pub(in crate::lm) struct CutTables {
    kept: GpuTable,
    totals: GpuTable,
    newest: GpuTable,
    groups: usize,
}

impl CutTables {
    fn new(rule: Option<&ScanRule>) -> CutTables {
        let groups = rule.map_or(0, |rule| rule.groups);
        let table = |of: fn(&ScanRule) -> usize, width: usize| GpuTable::new(rule.map_or(0, of) * groups, width);
        let kept = table(|rule| rule.score.kept, size_of::<f32>());
        let totals = table(|rule| rule.score.totals, size_of::<f64>());
        CutTables { kept, totals, newest: GpuTable::default(), groups }
    }
}

/// Tables of numbers that the host's entries have too, with (groups) rows each.
#[derive(Clone, Debug, Default)]
struct EntryTables {
    positions: GpuTable,
    priorities: GpuTable,
    /// Attention that entries have received, for each scope that it is kept for.
    received: Vec<GpuTable>,
    /// Number of survivors of the last block, and how many of them moved.
    moved: GpuTable,
}

/// Side that has the newest entries, host or device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Newest {
    Host,
    Device,
    Same,
}

/// Moves within a cache, as the kernel `refill` gets them. (groups, 2, stride): the columns to fill and the columns that move
/// there; (groups, 2): survivors, and how many of them move.
pub(in crate::lm) struct Moves {
    pub columns: Vec<u32>,
    pub stride: usize,
    pub moved: Vec<u32>,
}

impl GpuCache {
    /// Makes an empty cache of a policy, or an unbounded one. With `all_keys` every key is kept besides, in room for that many
    /// tokens at first.
    pub fn new(
        heads: Heads,
        dim: usize,
        capacity: usize,
        rule: Option<&ScanRule>,
        all_keys: Option<usize>,
    ) -> GpuCache {
        let float = size_of::<f32>();
        let vectors = || GpuTable::new(heads.kv_heads, dim * float);
        let remembers = rule.filter(|rule| !rule.keeps_received && !rule.awaits_cut);
        let CutTables { kept, totals, .. } = CutTables::new(remembers);
        GpuCache {
            heads,
            dim,
            capacity,
            keys: vectors(),
            values: vectors(),
            kept,
            totals,
            all_keys: all_keys.map(|text| (vectors(), vector::padded(text))),
            entries: Box::default(),
            newest: Newest::Host,
            order: Vec::new(),
            keep: None,
            ends: Vec::new(),
            cuts: Vec::new(),
            largest: GpuTable::new(heads.kv_heads, float),
        }
    }

    /// Keeps what some policies need that will cut the prompt.
    #[must_use]
    pub fn with_cuts(self, rules: &[Option<ScanRule>]) -> GpuCache {
        GpuCache { cuts: rules.iter().map(|rule| CutTables::new(rule.as_ref())).collect(), ..self }
    }

    /// What is kept for each policy that will cut the prompt.
    pub fn cuts(&self) -> &[CutTables] {
        &self.cuts
    }

    /// Goes on from what was kept of the first `held` tokens for a policy that will cut them, or has, so that the columns `kept` of
    /// every group are left.
    #[must_use]
    pub fn cut(self, own: Option<CutTables>, held: usize, kept: Option<Vec<Vec<u32>>>) -> GpuCache {
        let mut cache = GpuCache { cuts: own.into_iter().collect(), ..self };
        if let Some(kept) = kept {
            cache.keep_columns(kept, vector::padded(held));
        }
        cache
    }

    /// Forgets what was kept for policies that have cut the prompt. If it was cut itself, it goes on with that.
    pub fn end_cuts(&mut self, is_awaited: bool, goes_on: bool) {
        if !is_awaited && let Some(CutTables { kept, totals, .. }) = self.cuts.drain(..).next().filter(|_| goes_on)
        {
            (self.kept, self.totals) = (kept, totals);
        }
    }

    /// Addresses of what is kept for each policy that will cut the prompt: remembered numbers (f32 and f64), and new tables of `stride`
    /// columns for the scores at the last row.
    pub fn own_cuts(&mut self, gpu: &dyn Gpu, held: usize, stride: usize) -> Result<Vec<[Address; 3]>> {
        let capacity = self.capacity;
        let own = self.cuts.iter_mut().map(|CutTables { kept, totals, newest, groups }| {
            *newest = GpuTable::new(*groups, size_of::<f32>());
            Ok([kept.own(gpu, held, capacity)?, totals.own(gpu, held, capacity)?, newest.own(gpu, 0, stride)?])
        });
        own.collect()
    }

    /// Copies some columns of an unbounded cache to a cache for another policy (`rule`) with another capacity.
    pub fn part(
        &self,
        columns: Range<usize>,
        capacity: usize,
        rule: Option<&ScanRule>,
        all_keys: Option<usize>,
    ) -> GpuCache {
        let empty = GpuCache::new(self.heads, self.dim, capacity, rule, all_keys);
        GpuCache {
            keys: self.keys.part(columns.start),
            values: self.values.part(columns.start),
            all_keys: all_keys.map(|text| (self.keys.clone(), vector::padded(text.max(columns.end)))),
            ..empty
        }
    }

    /// Address of the largest attention that a second reading has paid to each entry, 0 where it has read nothing yet.
    pub fn own_largest(&mut self, gpu: &dyn Gpu, held: usize) -> Result<Address> {
        if self.largest.stored.is_none() {
            self.largest.upload(gpu, self.capacity, &vec![vec![0.0_f32; held]; self.heads.kv_heads], &[])?;
        }
        self.largest.own(gpu, held, self.capacity)
    }

    /// The largest attention that a second reading has paid to the first `held` entries: (kv_heads, entries)
    ///
    /// # Errors
    ///
    /// Errors of the device.
    pub fn largest(&self, gpu: &dyn Gpu, held: usize) -> Result<Vec<f32>> {
        self.largest.download(gpu, held, 1)
    }

    /// Keys and values of the first `held` columns, on the host: (kv_heads, held, dim) each
    ///
    /// # Errors
    ///
    /// Errors of the device.
    pub fn download(&self, gpu: &dyn Gpu, held: usize) -> Result<[Vec<f32>; 2]> {
        Ok([self.keys.download(gpu, held, self.dim)?, self.values.download(gpu, held, self.dim)?])
    }

    /// Makes room for `columns`. An unbounded cache that gets more tokens than were announced at least doubles its room.
    pub fn reserve(&mut self, columns: usize, is_bounded: bool) {
        if columns > self.capacity {
            self.capacity = vector::padded(if is_bounded { columns } else { columns.max(2 * self.capacity) });
        }
    }

    /// Keeps the columns `kept` of every group, in order.
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        self.keep_columns(kept.to_vec(), self.capacity);
    }

    fn keep_columns(&mut self, kept: Vec<Vec<u32>>, capacity: usize) {
        let ends = kept.iter().map(|kept| kept.len() as u32);
        self.ends =
            if ends.clone().all(|end| end as usize == kept[0].len()) { Vec::new() } else { ends.collect() };
        self.keep = Some((kept, capacity));
    }

    /// Where the entries of each key-value head end that it kept at the cut, and the column where newer tokens begin; empty if heads kept
    /// as many.
    pub(in crate::lm) fn unequal_ends(&self) -> (&[u32], u32) {
        (&self.ends, self.ends.iter().copied().max().unwrap_or(0))
    }

    /// Takes the moves that [`keep`](Self::keep) left to do, and a text with the addresses of the tables; `None` if there are none.
    pub(in crate::lm) fn take_kept(&mut self, gpu: &dyn Gpu, seen: usize) -> Result<Option<(Text, Moves)>> {
        let Some((kept, capacity)) = self.keep.take() else { return Ok(None) };
        let of_group = |(group, kept): (usize, &Vec<u32>)| -> Vec<u32> {
            let order = self.order.get(group);
            kept.iter().map(|at| order.map_or(*at, |order| order[*at as usize])).collect()
        };
        let mut order: Vec<Vec<u32>> = kept.iter().enumerate().map(of_group).collect();
        let held = order.iter().flatten().max().map_or(0, |last| *last as usize + 1);
        let stride = order.iter().map(Vec::len).max().unwrap_or(0);
        let (mut columns, mut moved) = (Vec::new(), Vec::new());
        for order in &mut order {
            let count = order.len() as u32;
            let mut is_free = vec![true; order.len()];
            order.iter().filter(|column| **column < count).for_each(|column| is_free[*column as usize] = false);
            let free: Vec<u32> = (0..count).filter(|column| is_free[*column as usize]).collect();
            let mut next = free.iter();
            let behind = order.iter_mut().filter(|column| **column >= count);
            let from: Vec<u32> =
                behind.zip(&mut next).map(|(column, to)| std::mem::replace(column, *to)).collect();
            moved.extend([count, free.len() as u32]);
            for mut list in [free, from] {
                list.resize(stride, 0);
                columns.extend(list);
            }
        }
        self.order = order;
        self.newest = Newest::Host;
        let lists = |table: &GpuTable| (table.rows / kept.len()) as i32;
        let (kept_lists, total_lists) = (lists(&self.kept), lists(&self.totals));
        let text = Text { kept_lists, total_lists, ..self.own(gpu, (held, capacity), seen, 0)? };
        Ok(Some((text, Moves { columns, stride, moved })))
    }

    /// Text with the addresses of the cache's tables, which from now on share their memory with no other and have `capacity`
    /// columns, of which `held` are in use.
    pub(in crate::lm) fn own(
        &mut self,
        gpu: &dyn Gpu,
        (held, capacity): (usize, usize),
        seen: usize,
        rows: usize,
    ) -> Result<Text> {
        let mut text = Text {
            keys: self.keys.own(gpu, held, capacity)?,
            values: self.values.own(gpu, held, capacity)?,
            kept: self.kept.own(gpu, held, capacity)?,
            totals: self.totals.own(gpu, held, capacity)?,
            capacity: capacity as i32,
            ..Text::default()
        };
        if let Some((table, room)) = &mut self.all_keys {
            if seen + rows > *room {
                *room = vector::padded((seen + rows).max(2 * *room));
            }
            text.all_keys = table.own(gpu, seen, *room)?;
            text.all_capacity = *room as i32;
        }
        Ok(text)
    }

    /// Addresses of what the device knows of the entries, uploaded if it does not know them: positions, priorities, (groups, 2) of
    /// [`Text::moved`], and attention received.
    pub(in crate::lm) fn own_entries(
        &mut self,
        gpu: &dyn Gpu,
        entries: &CacheEntries,
        rule: Option<&ScanRule>,
        has_priorities: bool,
    ) -> Result<([Address; 3], Vec<Address>)> {
        let (held, capacity, float) = (entries.longest(), self.capacity, size_of::<f32>());
        let tables = &mut self.entries;
        let others = entries.received_groups().count() != tables.received.len()
            || rule.is_some() && tables.positions.rows == 0;
        // It knows no less than the host where it has other tables: a read has ended, or forks were saved.
        if self.newest == Newest::Host || others {
            let scanned = entries.scanned();
            let table = |rows: usize, width: usize| GpuTable::new(if rule.is_some() { rows } else { 0 }, width);
            let groups = scanned.positions.len();
            **tables = EntryTables {
                positions: table(groups, float),
                priorities: table(if has_priorities { groups } else { 0 }, size_of::<f64>()),
                received: scanned.received.iter().map(|sums| GpuTable::new(sums.len(), float)).collect(),
                moved: table(groups, 2 * float),
            };
            if held > 0 {
                if rule.is_some() {
                    tables.positions.upload(gpu, capacity, &scanned.positions, &self.order)?;
                    tables.priorities.upload(gpu, capacity, &scanned.priorities, &self.order)?;
                }
                for (table, sums) in tables.received.iter_mut().zip(&scanned.received) {
                    table.upload(gpu, capacity, sums, &self.order)?;
                }
            }
            self.newest = Newest::Same;
        }
        let addresses = [
            tables.positions.own(gpu, held, capacity)?,
            tables.priorities.own(gpu, held, capacity)?,
            tables.moved.own(gpu, 1, 1)?,
        ];
        let received = tables.received.iter_mut().map(|table| table.own(gpu, held, capacity));
        Ok((addresses, received.collect::<Result<_>>()?))
    }

    /// Whether its columns are in the order of the text, as long as nothing was scanned or moved.
    pub(in crate::lm) fn is_in_order(&self) -> bool {
        self.entries.positions.rows == 0 && self.order.is_empty() && self.keep.is_none()
    }

    /// Forgets the first columns.
    pub(in crate::lm) fn forget_first(&mut self, columns: usize) {
        (self.keys, self.values) = (self.keys.part(columns), self.values.part(columns));
    }

    /// Notes that the device has read tokens, so that its entries are newer than the host's.
    pub(in crate::lm) fn scanned(&mut self) {
        self.newest = Newest::Device;
    }

    /// Asks for what the device knows of the entries, of which each group has `held`; `None` if the host knows it too.
    pub(in crate::lm) fn ask(&self, held: usize, arena: &mut Arena) -> Option<Asked> {
        let EntryTables { positions, priorities, received, moved } = &*self.entries;
        let tables = [(moved, 1), (positions, held), (priorities, held)].into_iter();
        let mut copy = |(table, held): (&GpuTable, usize)| {
            let copy = table.copy(held, 0, held).filter(|_| held > 0)?;
            Some((copy, arena.result::<u8>(table.bytes(held))))
        };
        let newest = self.cuts.iter().map(|cut| &cut.newest);
        let tables = tables.chain(received.iter().chain(newest).map(|table| (table, held)));
        (self.newest == Newest::Device).then(|| tables.map(&mut copy).collect())
    }

    /// Applies to the host's entries what the device has decided and `asked` has brought.
    ///
    /// # Errors
    ///
    /// Other numbers of entries than expected.
    pub(in crate::lm) fn settle(
        &mut self,
        asked: &Asked,
        arena: &Arena,
        entries: &mut CacheEntries,
    ) -> Result<()> {
        let held = entries.longest();
        let counts = lists::<[u32; 2]>(asked, 0, arena, 1);
        ensure!(
            counts.iter().flatten().all(|[count, _]| *count as usize == held),
            "the device kept {counts:?} entries of a cache, and {held} were expected; please report this"
        );
        let positions = lists::<u32>(asked, 1, arena, held);
        let sorted = |positions: &Vec<u32>| {
            let mut order: Vec<u32> = (0..held as u32).collect();
            order.sort_by_key(|column| positions[*column as usize]);
            order
        };
        self.order = positions.iter().map(sorted).collect();
        let rest = (3..asked.len()).map(|table| self.in_order(lists(asked, table, arena, held)));
        let mut received: Vec<_> = rest.collect();
        let newest = received.split_off(self.entries.received.len());
        entries.take_scanned(Scanned {
            positions: self.in_order(positions),
            priorities: self.in_order(lists(asked, 2, arena, held)),
            received,
            newest,
        });
        self.newest = Newest::Same;
        Ok(())
    }

    /// Puts lists of the groups' columns into the order of the host's entries.
    fn in_order<T: Copy>(&self, lists: Vec<Vec<T>>) -> Vec<Vec<T>> {
        let of_group = |(group, list): (usize, Vec<T>)| match self.order.get(group) {
            Some(order) => order.iter().map(|column| list[*column as usize]).collect(),
            None => list,
        };
        lists.into_iter().enumerate().map(of_group).collect()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        (self.keys.bytes(self.capacity) + self.values.bytes(self.capacity)) as u64
    }
}

/// What was asked for of one of the tables: (rows)(held), and nothing of a table without rows.
fn lists<T: Plain + Default>(asked: &Asked, table: usize, arena: &Arena, held: usize) -> Vec<Vec<T>> {
    let numbers = asked[table].as_ref().map_or(Vec::new(), |(_, piece)| arena.values::<T>(*piece));
    numbers.chunks_exact(held.max(1)).map(<[T]>::to_vec).collect()
}
