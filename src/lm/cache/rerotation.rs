//! Keys whose positions depend on evictions: `slot` (rank in the cache, StreamingLLM) and `squeezed` (gaps above
//! 10 become ln ln, arXiv 2401.06104, section 7.2).
//!
//! Only differences of positions matter to rotary products, so positions are counted from the newest end: an entry
//! keeps its coordinate until a later one is evicted, and then moves towards the newest by the amount the gap
//! shrank. (Window evicts the oldest, so hardly anything moves.) Moved keys are rotated by the difference; every
//! few rotations they are rotated again from the unrotated key, so that rounding errors do not accumulate.

use super::rope::Frequencies;
use super::table::Table;
use crate::eviction::{BlockScan, Heads, Positions, Scope};
use crate::vector;

/// Rotations after which keys are rotated from scratch.
const REFRESH: usize = 16;

/// Keys of one layer. The entries of a dimension are adjacent, so that rotating a run of entries and multiplying by
/// a query both run over whole rows: tables of (kv_heads * head_dim, capacity).
#[derive(Clone, Debug)]
pub(in crate::lm) struct RerotatedKeys {
    /// Before rotation.
    raw: Table,
    /// At their coordinates.
    rotated: Table,
    groups: Vec<Group>,
    kv_heads: usize,
    head_dim: usize,
    positions: Positions,
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// (entries)
    coordinates: Vec<f64>,
    /// Rotations since the keys were rotated from the unrotated ones.
    rotations: usize,
    /// Columns before this one have been rotated since.
    rotated_before: usize,
}

impl RerotatedKeys {
    pub fn new(heads: Heads, head_dim: usize, rooms: &[usize], scope: Scope, positions: Positions) -> Self {
        let table = || Table::new(heads.kv_heads * head_dim, rooms, 1);
        let groups = vec![Group::default(); heads.groups(scope)];
        RerotatedKeys { raw: table(), rotated: table(), groups, kv_heads: heads.kv_heads, head_dim, positions }
    }

    /// Gives heads other rooms, as of [`Table::rearrange`].
    pub fn rearrange(&mut self, held: &[usize], rooms: &[usize]) {
        self.raw.rearrange(held, rooms);
        self.rotated.rearrange(held, rooms);
    }

    /// A copy with other rooms; the first columns of each key-value head are in use, as many as are `held`.
    pub fn copy(&self, held: &[usize], rooms: &[usize]) -> RerotatedKeys {
        RerotatedKeys {
            raw: self.raw.copy(held, rooms),
            rotated: self.rotated.copy(held, rooms),
            groups: self.groups.clone(),
            ..*self
        }
    }

    /// Number of floats of the keys.
    pub fn floats(&self) -> usize {
        self.raw.data.len() + self.rotated.data.len()
    }

    /// Rotated keys of a head, (head_dim, capacity), and the capacity.
    pub fn of_head(&self, kv_head: usize) -> (&[f32], usize) {
        (
            &self.rotated.data[self.rotated.rows(kv_head, self.head_dim)],
            self.rotated.capacity(kv_head * self.head_dim),
        )
    }

    /// The first rotated keys of a head: (columns, head_dim).
    pub fn vectors(&self, kv_head: usize, columns: usize) -> Vec<f32> {
        let (table, capacity) = self.of_head(kv_head);
        let of_column = |column: usize| (0..self.head_dim).map(move |row| table[row * capacity + column]);
        (0..columns).flat_map(of_column).collect()
    }

    /// The position that a column's key is rotated by.
    pub fn coordinate(&self, kv_head: usize, column: usize) -> f64 {
        self.groups[self.group_of(kv_head)].coordinates[column]
    }

    /// The group a key-value head belongs to.
    pub fn group_of(&self, kv_head: usize) -> usize {
        if self.groups.len() == 1 { 0 } else { kv_head }
    }

    fn kv_heads_of(&self, group: usize) -> std::ops::Range<usize> {
        if self.groups.len() == 1 { 0..self.kv_heads } else { group..group + 1 }
    }

    /// Distance of neighbours that are `gap` tokens apart in the text.
    fn distance(&self, gap: u32) -> f64 {
        match self.positions {
            Positions::Slot => 1.0,
            Positions::Squeezed if gap > 10 => f64::from(gap).ln().ln(),
            Positions::Squeezed | Positions::Absolute => f64::from(gap),
        }
    }

    /// Stores the key (kv_heads, head_dim) of a block's `row`, behind what was `held` by key-value heads before it. Returns its coordinate
    /// in every group.
    pub fn push(
        &mut self,
        held: &[usize],
        row: usize,
        key: &[f32],
        scan: &BlockScan<'_>,
        frequencies: &Frequencies,
    ) -> Vec<f64> {
        for group in 0..self.groups.len() {
            let column = held[self.kv_heads_of(group).start] + row;
            let coordinate = match scan.neighbours(group, column).0 {
                Some(last) => {
                    let gap = scan.position(group, column) - scan.position(group, last);
                    self.groups[group].coordinates[last] + self.distance(gap)
                }
                None => 0.0,
            };
            self.groups[group].coordinates.push(coordinate);
            let heads = self.kv_heads_of(group);
            for row in heads.start * self.head_dim..heads.end * self.head_dim {
                self.raw.vector_mut(row, column).copy_from_slice(&key[row..row + 1]);
            }
            self.rotate(group, column..column + 1, frequencies);
        }
        // The newest is the last.
        self.groups.iter().filter_map(|group| group.coordinates.last().copied()).collect()
    }

    /// Rotates a run of columns from their unrotated keys.
    fn rotate(&mut self, group: usize, columns: std::ops::Range<usize>, frequencies: &Frequencies) {
        let pairs = frequencies.pairs.len();
        let angles = frequencies.angles(self.groups[group].coordinates[columns.clone()].iter().copied());
        for kv_head in self.kv_heads_of(group) {
            let (rows, capacity) =
                (self.raw.rows(kv_head, self.head_dim), self.raw.capacity(kv_head * self.head_dim));
            let raw = &self.raw.data[rows.clone()];
            let rotated = &mut self.rotated.data[rows];
            for (i, column) in columns.clone().enumerate() {
                let (cos, sin) = angles.row(i);
                for j in 0..pairs {
                    let (at, pair) = (j * capacity + column, (j + pairs) * capacity + column);
                    let (a, b) = (raw[at], raw[pair]);
                    rotated[at] = a * cos[j] - b * sin[j];
                    rotated[pair] = b * cos[j] + a * sin[j];
                }
                for row in 2 * pairs..self.head_dim {
                    rotated[row * capacity + column] = raw[row * capacity + column];
                }
            }
        }
    }

    /// Gives the entries of a group the distances that they have now, the newest at its coordinate: after several have left at
    /// once. `entries` are their columns and positions in the text, ascending.
    pub fn place(
        &mut self,
        group: usize,
        entries: impl DoubleEndedIterator<Item = (usize, u32)>,
        frequencies: &Frequencies,
    ) {
        let mut columns = 0;
        let mut next: Option<(u32, f64)> = None;
        for (column, position) in entries.rev() {
            columns = columns.max(column + 1);
            let own = &mut self.groups[group].coordinates[column];
            let coordinate = next.map_or(*own, |(next, coordinate)| coordinate - self.distance(next - position));
            self.groups[group].coordinates[column] = coordinate;
            next = Some((position, coordinate));
        }
        (self.groups[group].rotations, self.groups[group].rotated_before) = (0, 0);
        self.rotate(group, 0..columns, frequencies);
    }

    /// After a step: moves every entry before an evicted one towards the newest by the amount the gap shrank.
    pub fn close_gaps(&mut self, scan: &BlockScan<'_>, frequencies: &Frequencies) {
        let mut groups: Vec<usize> = scan.victims.iter().map(|(group, _)| *group).collect();
        groups.sort_unstable();
        if groups.windows(2).any(|pair| pair[0] == pair[1]) {
            for group in 0..self.groups.len() {
                let living = scan.living(group).map(|column| (column, scan.position(group, column)));
                self.place(group, living, frequencies);
            }
            return;
        }
        for &(group, victim) in &scan.victims {
            let (Some(before), Some(after)) = scan.neighbours(group, victim) else { continue };
            let [left, gone, right] = [before, victim, after].map(|column| scan.position(group, column));
            let shrink = self.distance(gone - left) + self.distance(right - gone) - self.distance(right - left);
            if shrink == 0.0 {
                continue;
            }
            let Group { coordinates, rotations, rotated_before } = &mut self.groups[group];
            coordinates[..victim].iter_mut().for_each(|coordinate| *coordinate += shrink);
            *rotations += 1;
            *rotated_before = victim.max(*rotated_before);
            if *rotations == REFRESH {
                // Under Window only the first entries are rotated.
                let columns = 0..std::mem::take(rotated_before);
                *rotations = 0;
                self.rotate(group, columns, frequencies);
                continue;
            }
            let pairs = frequencies.pairs.len();
            let angles = frequencies.rotation(shrink);
            let (cos, sin) = angles.row(0);
            for kv_head in self.kv_heads_of(group) {
                let capacity = self.rotated.capacity(kv_head * self.head_dim);
                let rows = self.rotated.rows(kv_head, self.head_dim);
                let (a, b) = self.rotated.data[rows].split_at_mut(pairs * capacity);
                for j in 0..pairs {
                    let row = j * capacity..j * capacity + victim;
                    vector::rotate(&mut a[row.clone()], &mut b[row], cos[j], sin[j]);
                }
            }
        }
    }

    /// Keeps the columns `kept` of every group, in order.
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        for (group, kept) in kept.iter().enumerate() {
            let Group { coordinates, rotated_before, .. } = &mut self.groups[group];
            *coordinates = kept.iter().map(|column| coordinates[*column as usize]).collect();
            *rotated_before = kept.partition_point(|column| (*column as usize) < *rotated_before);
        }
        self.raw.keep(kept);
        self.rotated.keep(kept);
    }
}
