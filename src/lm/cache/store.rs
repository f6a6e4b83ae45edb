//! The keys or the values of a layer, in the format of its cache.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::kivi::KiviTable;
use super::table::Table;
use crate::eviction::{NumberFormat, VectorFormat};
use crate::lm::arithmetic::packing::{Packing, Part};
use crate::lm::arithmetic::product::{Right, product};
use crate::vector;

/// Vectors of a layer's heads, as they are stored.
#[derive(Clone, Debug)]
pub(in crate::lm) enum Store {
    /// As they are computed.
    Floats(Table),
    /// Each packed by itself.
    Packed(Table<u8>, Arc<Packing>),
    /// The newest in 16 bits, the others packed in groups.
    Kivi(KiviTable),
}

impl Store {
    /// A store for so many heads with these rooms, in vectors of `dim` numbers.
    pub fn new(format: VectorFormat, part: Part, heads: usize, rooms: &[usize], dim: usize) -> Store {
        match format.numbers {
            _ if dim == 0 => Store::Floats(Table::new(heads, rooms, 0)),
            NumberFormat::F32 => Store::Floats(Table::new(heads, rooms, dim)),
            NumberFormat::Kivi4 | NumberFormat::Kivi2 => {
                Store::Kivi(KiviTable::new(heads, dim, format.numbers.kivi_bits().unwrap_or(8), part))
            }
            _ => {
                let packing = Packing::of(format, dim, part);
                Store::Packed(Table::new(heads, rooms, packing.bytes()), packing)
            }
        }
    }

    /// Whether another store has the vectors: the values where keys are values too.
    pub fn is_empty(&self) -> bool {
        matches!(self, Store::Floats(table) if table.dim == 0)
    }

    /// Vectors that a head has room for; some tables always have.
    pub fn capacity(&self, head: usize) -> usize {
        match self {
            Store::Floats(table) => table.capacity(head),
            Store::Packed(table, _) => table.capacity(head),
            Store::Kivi(_) => usize::MAX,
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Store::Floats(table) => table.data.len() * size_of::<f32>(),
            Store::Packed(table, _) => table.data.len(),
            Store::Kivi(table) => table.bytes(),
        }
    }

    /// A copy of the first vectors of every head, as many as are `held`, with other rooms.
    pub fn copy(&self, held: &[usize], rooms: &[usize]) -> Store {
        match self {
            Store::Floats(table) => Store::Floats(table.copy(held, rooms)),
            Store::Packed(table, packing) => Store::Packed(table.copy(held, rooms), Arc::clone(packing)),
            Store::Kivi(table) => Store::Kivi(table.clone()),
        }
    }

    /// A copy of the vectors `kept` of every head, counted from `start`, with other rooms: (groups)(vectors). `None` of KIVI, whose
    /// vectors were stored in another way when there were fewer.
    pub fn copy_kept(&self, start: usize, kept: &[Vec<u32>], rooms: &[usize]) -> Option<Store> {
        Some(match self {
            Store::Floats(table) => Store::Floats(table.copy_kept(start, kept, rooms)),
            Store::Packed(table, packing) => {
                Store::Packed(table.copy_kept(start, kept, rooms), Arc::clone(packing))
            }
            Store::Kivi(_) => return None,
        })
    }

    pub fn rearrange(&mut self, held: &[usize], rooms: &[usize]) {
        match self {
            Store::Floats(table) => table.rearrange(held, rooms),
            Store::Packed(table, _) => table.rearrange(held, rooms),
            Store::Kivi(_) => {}
        }
    }

    /// Keeps the vectors `kept` of every head, in order: (groups)(vectors)
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        match self {
            Store::Floats(table) => table.keep(kept),
            Store::Packed(table, _) => table.keep(kept),
            Store::Kivi(table) => table.keep(kept),
        }
    }

    /// Stores vectors (rows, heads, dim), those of a head from its column `at` on.
    pub fn put(&mut self, at: &[usize], vectors: &[f32]) {
        let heads = at.len();
        match self {
            Store::Floats(table) => {
                for (row, vectors) in vectors.chunks_exact(heads * table.dim).enumerate() {
                    for (head, vector) in vectors.chunks_exact(table.dim).enumerate() {
                        table.vector_mut(head, at[head] + row).copy_from_slice(vector);
                    }
                }
            }
            Store::Packed(table, packing) => {
                let mut turned = vectors.to_vec();
                packing.turn(&mut turned);
                for (row, vectors) in packing.pack(&turned).chunks_exact(heads * table.dim).enumerate() {
                    for (head, vector) in vectors.chunks_exact(table.dim).enumerate() {
                        table.vector_mut(head, at[head] + row).copy_from_slice(vector);
                    }
                }
            }
            Store::Kivi(table) => table.put(vectors),
        }
    }

    /// Stores the vectors of a table, one room each, as [`put`](Self::put).
    pub fn put_by_head(&mut self, at: &[usize], vectors: &Table) {
        let (heads, rows) = (at.len(), vectors.capacity(0));
        let of_row =
            |row: usize| (0..heads).flat_map(move |head| &vectors.head(head)[row * vectors.dim..][..vectors.dim]);
        self.put(at, &(0..rows).flat_map(of_row).copied().collect::<Vec<_>>());
    }

    /// Unpacks the first `columns` of a head in parts that stay in the processor's cache, and hands on each with its first column.
    pub fn each_tile(&self, head: usize, columns: usize, dim: usize, mut with: impl FnMut(usize, &[f32])) {
        const FLOATS: usize = 1 << 13;
        let most = (FLOATS / dim).max(1);
        let mut tile = vec![0.0; most.min(columns) * dim];
        for first in (0..columns).step_by(most) {
            let end = (first + most).min(columns);
            let tile = &mut tile[..(end - first) * dim];
            self.unpack(head, first..end, tile);
            with(first, tile);
        }
    }

    /// Logits of some queries, turned as the vectors are, against the first `columns` of a head: (queries, stride), 0 beyond the last column.
    pub fn logits(
        &self,
        head: usize,
        columns: usize,
        queries: (&[f32], usize),
        (logits, stride): (&mut [f32], usize),
    ) {
        let (queries, dim) = queries;
        let rows = queries.len() / dim;
        let width = match self {
            Store::Floats(keys) => {
                // Whole lanes, unless the cache was shrunk to fit its entries.
                let width = vector::padded(columns).min(keys.capacity(head));
                let keys = Right::Transposed(keys.head(head));
                product((rows, width, dim), (logits, stride), (queries, dim), keys);
                width
            }
            _ => {
                self.each_tile(head, columns, dim, |first, keys| {
                    let sides = (rows, keys.len() / dim, dim);
                    product(sides, (&mut logits[first..], stride), (queries, dim), Right::Transposed(keys));
                });
                columns
            }
        };
        // Columns beyond the last of each row are masked, but must be numbers.
        logits.chunks_exact_mut(stride).for_each(|row| row[width..].fill(0.0));
    }

    /// Unpacks a range of columns of a head, turned as they are stored: `(columns, dim)`.
    pub fn unpack(&self, head: usize, columns: Range<usize>, to: &mut [f32]) {
        match self {
            Store::Floats(table) => {
                to.copy_from_slice(&table.head(head)[columns.start * table.dim..columns.end * table.dim]);
            }
            Store::Packed(table, packing) => {
                packing.unpack(&table.head(head)[columns.start * table.dim..columns.end * table.dim], to);
            }
            Store::Kivi(table) => table.unpack(head, columns, to),
        }
    }

    /// The first vectors of a head, not turned: `(columns, dim)`.
    pub fn vectors(&self, head: usize, columns: usize, dim: usize) -> Cow<'_, [f32]> {
        if let Store::Floats(table) = self {
            return Cow::Borrowed(&table.head(head)[..columns * dim]);
        }
        let mut vectors = vec![0.0; columns * dim];
        self.unpack(head, 0..columns, &mut vectors);
        self.turn_back(&mut vectors);
        Cow::Owned(vectors)
    }

    /// Turns vectors as those are that are stored.
    pub fn turn(&self, vectors: &mut [f32]) {
        if let Store::Packed(_, packing) = self {
            packing.turn(vectors);
        }
    }

    /// Turns sums of stored vectors back.
    pub fn turn_back(&self, vectors: &mut [f32]) {
        if let Store::Packed(_, packing) = self {
            packing.turn_back(vectors);
        }
    }
}

/// The values of a cache: the keys, where these hold them.
pub(in crate::lm) fn values_of<'s>(keys: &'s Store, values: &'s Store) -> &'s Store {
    if values.is_empty() { keys } else { values }
}
