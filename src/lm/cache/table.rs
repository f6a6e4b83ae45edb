//! Vectors of a layer's heads, in one allocation. Heads may hold different numbers, and have room for different numbers.

use std::ops::Range;

use crate::vector;

/// A table of vectors for each head, with room for more. Lists that say something of heads may have one number for several adjacent ones.
#[derive(Clone, Debug)]
pub(in crate::lm) struct Table<T = f32> {
    pub data: Vec<T>,
    /// Where the vectors of each head begin, and where all end: (heads + 1)
    starts: Vec<usize>,
    /// Length of a vector: numbers, or bytes of one that is packed.
    pub dim: usize,
}

/// What a list says of one of `heads` heads.
fn of<T>(list: &[T], head: usize, heads: usize) -> &T {
    &list[head * list.len() / heads]
}

impl<T: Copy + Default> Table<T> {
    /// A table for so many heads with these rooms, in vectors.
    pub fn new(heads: usize, rooms: &[usize], dim: usize) -> Table<T> {
        let starts = starts(heads, rooms);
        Table { data: vec![T::default(); starts[heads] * dim], starts, dim }
    }

    /// The table of so many heads that hold equally many vectors: (heads, vectors, dim)
    pub fn full(data: Vec<T>, heads: usize, dim: usize) -> Table<T> {
        let starts = starts(heads, &[data.len() / (heads * dim)]);
        Table { data, starts, dim }
    }

    fn heads(&self) -> usize {
        self.starts.len() - 1
    }

    /// Vectors that a head has room for.
    pub fn capacity(&self, head: usize) -> usize {
        self.starts[head + 1] - self.starts[head]
    }

    /// A copy of the first vectors of every head, as many as are `held`, with other rooms.
    pub fn copy(&self, held: &[usize], rooms: &[usize]) -> Table<T> {
        let mut to = Table::new(self.heads(), rooms, self.dim);
        for head in 0..self.heads() {
            let length = of(held, head, self.heads()) * self.dim;
            to.head_mut(head)[..length].copy_from_slice(&self.head(head)[..length]);
        }
        to
    }

    /// A copy of the vectors `kept` of every head, counted from `start`, with other rooms: (groups)(vectors)
    pub fn copy_kept(&self, start: usize, kept: &[Vec<u32>], rooms: &[usize]) -> Table<T> {
        let (mut copy, dim) = (Table::new(self.heads(), rooms, self.dim), self.dim);
        for head in 0..self.heads() {
            let mut to = 0;
            for run in of(kept, head, self.heads()).chunk_by(|a, b| a + 1 == *b) {
                let (from, length) = ((start + run[0] as usize) * dim, run.len() * dim);
                copy.head_mut(head)[to..to + length].copy_from_slice(&self.head(head)[from..from + length]);
                to += length;
            }
        }
        copy
    }

    /// Gives heads other rooms without another allocation, where all of them fit; what is left over goes to the last head.
    pub fn rearrange(&mut self, held: &[usize], rooms: &[usize]) {
        let (heads, dim, all) = (self.heads(), self.dim, self.starts[self.heads()]);
        let mut new = starts(heads, rooms);
        new[heads] = all;
        let (old, data) = (&self.starts, &mut self.data);
        let mut shift = |head: usize| {
            let length = of(held, head, heads) * dim;
            data.copy_within(old[head] * dim..old[head] * dim + length, new[head] * dim);
        };
        // In this order no head is written over another that has not moved yet.
        (0..heads).filter(|head| new[*head] < old[*head]).for_each(&mut shift);
        (0..heads).rev().filter(|head| new[*head] > old[*head]).for_each(&mut shift);
        self.starts = new;
    }

    /// Makes room for `len` vectors in every head, at least doubling so that growing is cheap.
    pub fn reserve(&mut self, len: usize) {
        let capacity = self.capacity(0);
        if len > capacity {
            *self = self.copy(&[capacity], &[vector::padded(len.max(2 * capacity))]);
        }
    }

    /// The vectors of a head: (capacity, dim)
    pub fn head(&self, head: usize) -> &[T] {
        &self.data[self.starts[head] * self.dim..self.starts[head + 1] * self.dim]
    }

    pub fn head_mut(&mut self, head: usize) -> &mut [T] {
        &mut self.data[self.starts[head] * self.dim..self.starts[head + 1] * self.dim]
    }

    /// The vectors of a key-value head that has so many `rows` of this table.
    pub fn rows(&self, kv_head: usize, rows: usize) -> Range<usize> {
        self.starts[kv_head * rows] * self.dim..self.starts[(kv_head + 1) * rows] * self.dim
    }

    pub fn vector_mut(&mut self, head: usize, at: usize) -> &mut [T] {
        &mut self.data[(self.starts[head] + at) * self.dim..][..self.dim]
    }

    /// Keeps the vectors `kept` of every head, in order: (groups)(vectors)
    pub fn keep(&mut self, kept: &[Vec<u32>]) {
        let dim = self.dim;
        for head in 0..self.heads() {
            let kept = of(kept, head, self.heads());
            let vectors = self.head_mut(head);
            let mut to = 0;
            // Neighbours move together: after one eviction there are two runs.
            for run in kept.chunk_by(|a, b| a + 1 == *b) {
                let from = run[0] as usize;
                if from != to {
                    vectors.copy_within(from * dim..(from + run.len()) * dim, to * dim);
                }
                to += run.len();
            }
        }
    }
}

fn starts(heads: usize, rooms: &[usize]) -> Vec<usize> {
    let mut starts = vec![0];
    for head in 0..heads {
        starts.push(starts[head] + of(rooms, head, heads));
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_move_without_losing_anything() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..1000 {
            let heads = random.usize(1..6);
            let mut numbers = |most: usize| (0..heads).map(|_| random.usize(0..=most)).collect::<Vec<usize>>();
            let (held, spare, other) = (numbers(9), numbers(5), numbers(5));
            let rooms =
                |spare: &[usize]| held.iter().zip(spare).map(|(held, spare)| held + spare).collect::<Vec<_>>();
            let mut table = Table::new(heads, &rooms(&spare), 2);
            let value = |head: usize, at: usize| [(100 * head + at) as f32, 0.5];
            for (head, held) in held.iter().enumerate() {
                (0..*held).for_each(|at| table.vector_mut(head, at).copy_from_slice(&value(head, at)));
            }
            let check = |table: &Table| {
                for (head, held) in held.iter().enumerate() {
                    let all: Vec<f32> = (0..*held).flat_map(|at| value(head, at)).collect();
                    assert_eq!(table.head(head)[..2 * held], all);
                }
            };
            check(&table.copy(&held, &rooms(&other)));
            if other.iter().sum::<usize>() <= spare.iter().sum() {
                table.rearrange(&held, &rooms(&other));
                check(&table);
            }
        }
    }
}
