//! Keys whose positions depend on evictions: `slot` (rank in the cache, StreamingLLM) and `squeezed` (gaps above
//! 10 become ln ln, arXiv 2401.06104, section 7.2).
//!
//! Only differences of positions matter to rotary products, so positions are counted from the newest end: an entry
//! keeps its coordinate until a later one is evicted, and then moves towards the newest by the amount the gap
//! shrank. (Window evicts the oldest, so hardly anything moves.) Moved keys are turned by the difference; every
//! few turns they are rotated again from the unrotated key, so that rounding errors do not accumulate.

use super::rope::Frequencies;
use crate::eviction::{BlockScan, Heads, Positions, Scope};
use crate::vector;

/// Turns after which keys are rotated from scratch.
const REFRESH: usize = 16;

/// Keys of one layer. The entries of a dimension are adjacent, so that turning a run of entries and multiplying by
/// a query both run over whole rows.
#[derive(Clone, Debug)]
pub(super) struct RerotatedKeys {
    /// Before rotation: (kv_heads, head_dim, capacity)
    raw: Vec<f32>,
    /// At their coordinates: (kv_heads, head_dim, capacity)
    turned: Vec<f32>,
    /// (groups)(entries)
    coordinates: Vec<Vec<f64>>,
    /// Turns since the group's keys were rotated from `raw`.
    turns: Vec<usize>,
    /// Columns before this one have been turned since.
    turned_before: Vec<usize>,
    heads: Heads,
    head_dim: usize,
    capacity: usize,
    scope: Scope,
    positions: Positions,
}

impl RerotatedKeys {
    pub fn new(heads: Heads, head_dim: usize, capacity: usize, scope: Scope, positions: Positions) -> Self {
        let room = heads.kv_heads * head_dim * capacity;
        let groups = heads.groups(scope);
        RerotatedKeys {
            raw: vec![0.0; room],
            turned: vec![0.0; room],
            coordinates: vec![Vec::new(); groups],
            turns: vec![0; groups],
            turned_before: vec![0; groups],
            heads,
            head_dim,
            capacity,
            scope,
            positions,
        }
    }

    /// A copy with another capacity; the first `held` columns are in use.
    pub fn with_room(&self, held: usize, capacity: usize) -> RerotatedKeys {
        let copy = |from: &[f32]| {
            let mut to = vec![0.0; self.heads.kv_heads * self.head_dim * capacity];
            for (to, from) in to.chunks_exact_mut(capacity).zip(from.chunks_exact(self.capacity)) {
                to[..held].copy_from_slice(&from[..held]);
            }
            to
        };
        RerotatedKeys {
            raw: copy(&self.raw),
            turned: copy(&self.turned),
            coordinates: self.coordinates.clone(),
            turns: self.turns.clone(),
            turned_before: self.turned_before.clone(),
            capacity,
            ..*self
        }
    }

    /// Number of floats of the keys.
    pub fn floats(&self) -> usize {
        self.raw.len() + self.turned.len()
    }

    /// Rotated keys of a head: (head_dim, capacity)
    pub fn of_head(&self, kv_head: usize) -> &[f32] {
        let size = self.head_dim * self.capacity;
        &self.turned[kv_head * size..][..size]
    }

    /// The group a key-value head belongs to.
    pub fn group_of(&self, kv_head: usize) -> usize {
        if self.coordinates.len() == 1 { 0 } else { kv_head }
    }

    fn kv_heads_of(&self, group: usize) -> std::ops::Range<usize> {
        match self.scope {
            Scope::Layer => 0..self.heads.kv_heads,
            Scope::Head => group..group + 1,
        }
    }

    /// Distance of neighbours that are `gap` tokens apart in the text.
    fn distance(&self, gap: u32) -> f64 {
        match self.positions {
            Positions::Slot => 1.0,
            Positions::Squeezed if gap > 10 => f64::from(gap).ln().ln(),
            Positions::Squeezed | Positions::Absolute => f64::from(gap),
        }
    }

    /// Stores a new token's key (kv_heads, head_dim) as column `column`. Returns its coordinate in every group.
    pub fn push(
        &mut self,
        column: usize,
        key: &[f32],
        scan: &BlockScan<'_>,
        frequencies: &Frequencies,
    ) -> Vec<f64> {
        for group in 0..self.coordinates.len() {
            let coordinate = match scan.neighbours(group, column).0 {
                Some(last) => {
                    let gap = scan.position(group, column) - scan.position(group, last);
                    self.coordinates[group][last] + self.distance(gap)
                }
                None => 0.0,
            };
            self.coordinates[group].push(coordinate);
            for kv_head in self.kv_heads_of(group) {
                for d in 0..self.head_dim {
                    self.raw[(kv_head * self.head_dim + d) * self.capacity + column] =
                        key[kv_head * self.head_dim + d];
                }
            }
            self.rotate(group, column..column + 1, frequencies);
        }
        self.coordinates.iter().map(|coordinates| coordinates[column]).collect()
    }

    /// Rotates a run of columns from their unrotated keys.
    fn rotate(&mut self, group: usize, columns: std::ops::Range<usize>, frequencies: &Frequencies) {
        let half = self.head_dim / 2;
        let angles = frequencies.angles(self.coordinates[group][columns.clone()].iter().copied());
        for kv_head in self.kv_heads_of(group) {
            let base = kv_head * self.head_dim * self.capacity;
            for (i, column) in columns.clone().enumerate() {
                let (cos, sin) = angles.row(i);
                for j in 0..half {
                    let (at, pair) =
                        (base + j * self.capacity + column, base + (j + half) * self.capacity + column);
                    let (a, b) = (self.raw[at], self.raw[pair]);
                    self.turned[at] = a * cos[j] - b * sin[j];
                    self.turned[pair] = b * cos[j] + a * sin[j];
                }
            }
        }
    }

    /// After a step: moves every entry before an evicted one towards the newest by the amount the gap shrank.
    pub fn close_gaps(&mut self, scan: &BlockScan<'_>, frequencies: &Frequencies) {
        for (group, &victim) in scan.victims().iter().enumerate() {
            let (Some(before), Some(after)) = scan.neighbours(group, victim) else { continue };
            let [left, gone, right] = [before, victim, after].map(|column| scan.position(group, column));
            let shrink = self.distance(gone - left) + self.distance(right - gone) - self.distance(right - left);
            if shrink == 0.0 {
                continue;
            }
            for coordinate in &mut self.coordinates[group][..victim] {
                *coordinate += shrink;
            }
            self.turns[group] += 1;
            self.turned_before[group] = self.turned_before[group].max(victim);
            if self.turns[group] == REFRESH {
                // Under Window only the first entries are turned.
                let columns = 0..std::mem::take(&mut self.turned_before[group]);
                self.turns[group] = 0;
                self.rotate(group, columns, frequencies);
                continue;
            }
            let half = self.head_dim / 2;
            let angles = frequencies.angles(std::iter::once(shrink));
            let (cos, sin) = angles.row(0);
            for kv_head in self.kv_heads_of(group) {
                let size = self.head_dim * self.capacity;
                let (a, b) = self.turned[kv_head * size..][..size].split_at_mut(half * self.capacity);
                for j in 0..half {
                    let row = j * self.capacity..j * self.capacity + victim;
                    vector::rotate(&mut a[row.clone()], &mut b[row], cos[j], sin[j]);
                }
            }
        }
    }

    /// Keeps the columns `kept` of every group, in order.
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        for (group, kept) in kept.iter().enumerate() {
            let coordinates = &mut self.coordinates[group];
            for (to, &from) in kept.iter().enumerate() {
                coordinates[to] = coordinates[from as usize];
            }
            coordinates.truncate(kept.len());
            self.turned_before[group] =
                kept.partition_point(|column| (*column as usize) < self.turned_before[group]);
            for kv_head in self.kv_heads_of(group) {
                for d in 0..self.head_dim {
                    let row = (kv_head * self.head_dim + d) * self.capacity;
                    for (to, &from) in kept.iter().enumerate() {
                        self.raw[row + to] = self.raw[row + from as usize];
                        self.turned[row + to] = self.turned[row + from as usize];
                    }
                }
            }
        }
    }
}
