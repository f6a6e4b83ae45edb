//! Rows of activations as integers, in the order in which the kernel reads them.

use std::cell::Cell;
use std::mem;

use super::kernel::{Group, Kernel, SIZES};
use super::{BLOCK, IntegerMatrix};
use crate::vector;

/// Rows of activations (rows, columns) as integers, in groups that are multiplied together. The last group may have rows of zeros.
pub(in crate::lm) struct IntegerRows {
    pub rows: usize,
    pub(super) kernel: Kernel,
    /// Whether the weights that the rows are multiplied with have more than 8 bits.
    for_wide: bool,
    blocks: usize,
    /// First row and number of rows of each group.
    groups: Vec<(usize, usize)>,
    room: Room,
}

/// Memory of all groups, one after the other, as [`Group`] describes it.
#[derive(Default)]
struct Room {
    numbers: Vec<[i16; 2]>,
    scales: Vec<f32>,
    sums: Vec<f32>,
}

thread_local! {
    /// Memory of rows that are no longer needed: asking the system for it each time takes a tenth of a read.
    static FREE: Cell<Option<Room>> = const { Cell::new(None) };
}

impl Drop for IntegerRows {
    fn drop(&mut self) {
        FREE.set(Some(mem::take(&mut self.room)));
    }
}

impl IntegerRows {
    /// Quantises activations (rows, columns) for products with `weights`.
    pub fn new(x: &[f32], weights: &IntegerMatrix) -> IntegerRows {
        IntegerRows::with(Kernel::best(), x, weights)
    }

    pub(super) fn with(kernel: Kernel, x: &[f32], weights: &IntegerMatrix) -> IntegerRows {
        let (rows, blocks) = (x.len() / weights.columns, weights.columns.div_ceil(BLOCK));
        let groups = groups(rows, kernel.rows());
        let mut room = FREE.take().unwrap_or_default();
        room.numbers.clear();
        room.scales.clear();
        room.sums.clear();
        let mut own = IntegerRows { rows, kernel, for_wide: weights.is_wide(), blocks, groups, room };
        vector::best(Quantise { x, columns: weights.columns, to: &mut own });
        own
    }

    /// Whether the rows were quantised as products with `weights` need them.
    pub(super) fn fit(&self, weights: &IntegerMatrix) -> bool {
        self.for_wide == weights.is_wide()
    }

    pub(super) fn groups(&self) -> Vec<Group<'_>> {
        let group = |(first, rows): &(usize, usize)| {
            let of_blocks = first * self.blocks..(first + rows) * self.blocks;
            let numbers = of_blocks.start * BLOCK / 2..of_blocks.end * BLOCK / 2;
            let Room { numbers: all, scales, sums } = &self.room;
            let (scales, sums) = (&scales[of_blocks.clone()], &sums[of_blocks]);
            Group { rows: *rows, numbers: &all[numbers], scales, sums }
        };
        self.groups.iter().map(group).collect()
    }
}

/// First row and number of rows of each group: as many groups of `most` rows as there are, and the smallest one for the remaining
/// rows.
fn groups(rows: usize, most: usize) -> Vec<(usize, usize)> {
    let mut groups: Vec<_> = (0..rows / most).map(|index| (index * most, most)).collect();
    let rest = rows % most;
    if rest > 0 {
        let enough = SIZES.into_iter().rev().find(|size| *size >= rest);
        groups.push((rows - rest, enough.expect("groups have up to twelve rows")));
    }
    groups
}

struct Quantise<'a> {
    x: &'a [f32],
    columns: usize,
    to: &'a mut IntegerRows,
}

impl vector::PlainLoop for Quantise<'_> {
    #[inline(always)]
    fn run(self) {
        let IntegerRows { rows, for_wide, blocks, groups, room, .. } = self.to;
        let Room { numbers, scales, sums } = room;
        let mut integers = [[[0; 2]; BLOCK / 2]; SIZES[0]];
        for (first, size) in groups.iter().copied() {
            for block in 0..*blocks {
                for (row, integers) in (first..first + size).zip(&mut integers) {
                    let mut padded = [0.0; BLOCK];
                    let columns = block * BLOCK..self.columns.min((block + 1) * BLOCK);
                    let x = if row < *rows { &self.x[row * self.columns..][columns] } else { &[] };
                    let x = x.first_chunk().unwrap_or_else(|| {
                        padded[..x.len()].copy_from_slice(x);
                        &padded
                    });
                    let (scale, sum) = quantise(x, *for_wide, integers.as_flattened_mut());
                    scales.push(scale);
                    sums.push(sum);
                }
                for pair in 0..BLOCK / 2 {
                    numbers.extend(integers[..size].iter().map(|row| row[pair]));
                }
            }
        }
    }
}

/// Quantises a block to integers. Returns their scale, and the scale times their sum. A number that is not finite gives a scale
/// that is not.
#[inline(always)]
pub(super) fn quantise(x: &[f32; BLOCK], for_wide: bool, to: &mut [i16]) -> (f32, f32) {
    // As bits, NaN is larger than infinity, and that larger than all numbers.
    let mut largest = 0;
    for x in x {
        largest = largest.max(x.abs().to_bits());
    }
    let mut scale = f32::from_bits(largest) / LARGEST;
    if for_wide {
        scale = scale.max(sum_of_sizes(x) / LARGEST_SUM);
    }
    // Of numbers too small for this, nothing is left.
    let inverse = if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
    let mut sum = 0;
    for (to, x) in to.iter_mut().zip(x) {
        *to = rounded(x * inverse);
        sum += i32::from(*to);
    }
    (scale, scale * sum as f32)
}

/// Largest integer of an activation. [`LARGEST_SUM`] is the largest sum of their absolute values in a block: times 8191 it is below
/// 2^31, also where all are rounded up.
const LARGEST: f32 = 32767.0;
const LARGEST_SUM: f32 = (1 << 18) as f32;

/// Rounds a number between -2^15 and 2^15 to the nearest integer, halves to the even one. Adding 1.5 * 2^23 leaves it in the low
/// bits.
#[inline(always)]
pub(super) fn rounded(x: f32) -> i16 {
    (x + 12_582_912.0).to_bits() as i16
}

/// Sum of absolute values, in an order that all instruction sets share.
#[inline(always)]
fn sum_of_sizes(x: &[f32; BLOCK]) -> f32 {
    let mut sums = *x;
    for x in &mut sums {
        *x = x.abs();
    }
    let mut width = BLOCK / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}
