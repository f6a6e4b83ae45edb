//! Keys or values as KIVI stores them (arXiv 2402.02750, section 3): the newest in 16 bits, and those that have left these packed in groups
//! of 32 entries, keys with a scale and a minimum for each channel of the group, values for each 32 numbers of an entry.
//!
//! An entry that is evicted leaves its group; the others stay as they are, and the group's scales go with the last of them.

use std::ops::Range;

use half::f16;

use crate::eviction::{GROUP, RESIDUAL};
use crate::lm::arithmetic::packing::{Part, bits};

/// A list of vectors for each head.
#[derive(Clone, Debug)]
pub(in crate::lm) struct KiviTable {
    heads: Vec<Head>,
    dim: usize,
    /// Bits of an integer.
    width: usize,
    part: Part,
}

/// Vectors of a head, in the order of the cache.
#[derive(Clone, Debug, Default)]
struct Head {
    /// Integers of the packed vectors: (packed, dim * width / 8)
    integers: Vec<u8>,
    /// The set of scales that each packed vector has, ascending: (packed)
    set_of: Vec<u32>,
    /// Scale and minimum of each channel, or of each block of a vector: (sets, pairs, 2)
    sets: Vec<f16>,
    /// The newest: (recent, dim)
    recent: Vec<f16>,
}

impl KiviTable {
    pub fn new(heads: usize, dim: usize, width: usize, part: Part) -> KiviTable {
        KiviTable { heads: vec![Head::default(); heads], dim, width, part }
    }

    fn packed_bytes(&self) -> usize {
        self.dim * self.width / 8
    }

    /// Numbers of a set of scales.
    fn set_len(&self) -> usize {
        if self.part == Part::Key { 2 * self.dim } else { 2 * self.dim / GROUP }
    }

    pub fn bytes(&self) -> usize {
        let of_head = |head: &Head| head.integers.len() + 2 * (head.recent.len() + head.sets.len());
        self.heads.iter().map(of_head).sum()
    }

    /// Vectors that can be added to every head before some must be packed: at least one.
    pub fn until_packed(&self) -> usize {
        let recent = self.heads.iter().map(|head| head.recent.len() / self.dim).max().unwrap_or(0);
        RESIDUAL + GROUP - recent
    }

    /// Adds vectors (rows, heads, dim) to the newest.
    pub fn put(&mut self, vectors: &[f32]) {
        let heads = self.heads.len();
        for (at, vector) in vectors.chunks_exact(self.dim).enumerate() {
            self.heads[at % heads].recent.extend(vector.iter().map(|x| f16::from_f32(*x)));
        }
    }

    /// Packs the oldest of the newest where there are too many. Call it between two tokens, when all that leaves has left.
    pub fn pack(&mut self) {
        let (dim, width, part) = (self.dim, self.width, self.part);
        for head in &mut self.heads {
            while head.recent.len() >= (RESIDUAL + GROUP) * dim {
                let rest = head.recent.split_off(GROUP * dim);
                let group: Vec<f32> = head.recent.iter().map(|x| x.to_f32()).collect();
                head.recent = rest;
                head.add(&group, (dim, width, part));
            }
        }
    }

    /// Keeps the vectors `kept` of every head, in order: (groups)(vectors)
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        let (bytes, heads, dim, set_len) = (self.packed_bytes(), self.heads.len(), self.dim, self.set_len());
        for (at, head) in self.heads.iter_mut().enumerate() {
            let packed = head.set_of.len();
            let (mut left, mut last, mut sets) = (Head::default(), None, 0);
            for &column in &kept[at * kept.len() / heads] {
                let column = column as usize;
                let Some(recent) = column.checked_sub(packed) else {
                    left.integers.extend(&head.integers[column * bytes..][..bytes]);
                    let set = head.set_of[column];
                    if last != Some(set) {
                        (last, sets) = (Some(set), sets + 1);
                        left.sets.extend(&head.sets[set as usize * set_len..][..set_len]);
                    }
                    left.set_of.push(sets - 1);
                    continue;
                };
                left.recent.extend(&head.recent[recent * dim..][..dim]);
            }
            *head = left;
        }
    }

    /// Unpacks a range of columns of a head: `(columns, dim)`.
    pub fn unpack(&self, head: usize, columns: Range<usize>, to: &mut [f32]) {
        let (head, bytes, dim, set_len) = (&self.heads[head], self.packed_bytes(), self.dim, self.set_len());
        for (column, to) in columns.zip(to.chunks_exact_mut(dim)) {
            match column.checked_sub(head.set_of.len()) {
                Some(recent) => {
                    to.iter_mut().zip(&head.recent[recent * dim..]).for_each(|(to, x)| *to = x.to_f32());
                }
                None => {
                    let set = &head.sets[head.set_of[column] as usize * set_len..][..set_len];
                    let each = 2 * dim / set_len;
                    let integers = bits::unpack(&head.integers[column * bytes..][..bytes], self.width);
                    for (at, (to, integer)) in to.iter_mut().zip(integers).enumerate() {
                        let pair = &set[at / each * 2..];
                        *to = f32::from(integer) * pair[0].to_f32() + pair[1].to_f32();
                    }
                }
            }
        }
    }
}

impl Head {
    /// Packs a group of vectors (GROUP, dim).
    fn add(&mut self, group: &[f32], (dim, width, part): (usize, usize, Part)) {
        // Indices of the numbers that share a pair: of a channel over the group, or of a block of one vector.
        let shared: Vec<Vec<usize>> = match part {
            Part::Key => (0..dim).map(|channel| (0..GROUP).map(|row| row * dim + channel).collect()).collect(),
            Part::Value => (0..dim).map(|block| (block * GROUP..(block + 1) * GROUP).collect()).collect(),
        };
        let most = ((1 << width) - 1) as f32;
        let (mut integers, mut pairs) = (vec![0_u8; group.len()], Vec::new());
        for indices in shared {
            let numbers = || indices.iter().map(|at| group[*at]);
            let least = numbers().fold(f32::INFINITY, f32::min);
            let scale = f16::from_f32((numbers().fold(f32::NEG_INFINITY, f32::max) - least) / most);
            let least = f16::from_f32(least);
            for at in &indices {
                let steps = (group[*at] - least.to_f32()) / scale.to_f32();
                // Where all numbers are equal, the minimum is all of them.
                integers[*at] = steps.round_ties_even().clamp(0.0, most) as u8;
            }
            pairs.extend([scale, least]);
        }
        self.integers.extend(bits::pack(integers.into_iter(), width));
        self.sets.extend(pairs);
        let first = self.set_of.last().map_or(0, |last| last + 1);
        match part {
            Part::Key => self.set_of.extend([first; GROUP]),
            Part::Value => self.set_of.extend(first..first + GROUP as u32),
        }
    }
}
