//! Rows of activations as integers, in the order in which the kernel reads them.

use super::kernel::{Group, Kernel, SIZES};
use super::{BLOCK, IntegerMatrix};
use crate::vector;

/// Rows (rows, columns), in groups that are multiplied together. The last group may have rows of zeros.
pub(in crate::lm) struct IntegerRows {
    pub rows: usize,
    kernel: Kernel,
    /// Whether the weights that they are multiplied with have more than 8 bits.
    for_wide: bool,
    blocks: usize,
    /// First row and number of rows of each group.
    groups: Vec<(usize, usize)>,
    /// As of [`Group`], one after the other.
    numbers: Vec<[i16; 2]>,
    scales: Vec<f32>,
    sums: Vec<f32>,
}

impl IntegerRows {
    /// Activations (rows, columns) for products with such weights.
    pub fn new(x: &[f32], weights: &IntegerMatrix) -> IntegerRows {
        IntegerRows::with(Kernel::best(), x, weights)
    }

    pub(super) fn with(kernel: Kernel, x: &[f32], weights: &IntegerMatrix) -> IntegerRows {
        let (rows, blocks) = (x.len() / weights.columns, weights.columns.div_ceil(BLOCK));
        let groups = groups(rows, kernel.rows());
        let padded = groups.last().map_or(0, |(first, rows)| first + rows);
        let mut own = IntegerRows {
            rows,
            kernel,
            for_wide: weights.is_wide(),
            blocks,
            groups,
            numbers: vec![[0; 2]; padded * blocks * BLOCK / 2],
            scales: vec![0.0; padded * blocks],
            sums: vec![0.0; padded * blocks],
        };
        vector::best(Quantise { x, columns: weights.columns, to: &mut own });
        own
    }

    /// Whether they are as products with these weights need them.
    pub(super) fn fit(&self, weights: &IntegerMatrix) -> bool {
        self.for_wide == weights.is_wide()
    }

    pub(super) fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The groups, with their first rows.
    pub(super) fn groups(&self) -> impl Iterator<Item = (usize, Group<'_>)> {
        self.groups.iter().map(|(first, rows)| {
            let of_blocks = first * self.blocks..(first + rows) * self.blocks;
            let numbers = of_blocks.start * BLOCK / 2..of_blocks.end * BLOCK / 2;
            let (numbers, scales) = (&self.numbers[numbers], &self.scales[of_blocks.clone()]);
            (*first, Group { rows: *rows, numbers, scales, sums: &self.sums[of_blocks] })
        })
    }
}

/// As many groups of the most rows as there are, and the smallest one for the rest.
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
        let IntegerRows { rows, for_wide, blocks, groups, numbers, scales, sums, .. } = self.to;
        for (first, size) in groups.iter().copied() {
            let start = first * *blocks;
            for row in first..(first + size).min(*rows) {
                let x = &self.x[row * self.columns..][..self.columns];
                for (block, x) in x.chunks(BLOCK).enumerate() {
                    let mut padded = [0.0; BLOCK];
                    padded[..x.len()].copy_from_slice(x);
                    let (integers, scale, sum) = quantised(&padded, *for_wide);
                    let at = start + block * size + row - first;
                    scales[at] = scale;
                    sums[at] = sum;
                    let to = &mut numbers[(start + block * size) * BLOCK / 2..][..size * BLOCK / 2];
                    for (to, pair) in to.chunks_exact_mut(size).zip(integers.as_chunks::<2>().0) {
                        to[row - first] = *pair;
                    }
                }
            }
        }
    }
}

/// A block as integers, their scale, and the scale times their sum. What is not finite gives a scale that is not.
#[inline(always)]
pub(super) fn quantised(x: &[f32; BLOCK], for_wide: bool) -> ([i16; BLOCK], f32, f32) {
    // As bits, NaN is larger than infinity, and that larger than all numbers.
    let largest = f32::from_bits(x.iter().fold(0, |largest, x| largest.max(x.abs().to_bits())));
    let mut scale = largest / LARGEST;
    if for_wide {
        scale = scale.max(sum_of_sizes(x) / LARGEST_SUM);
    }
    // Of numbers too small for this, nothing is left.
    let inverse = if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
    let integers = x.map(|x| rounded(x * inverse));
    let sum: i32 = integers.iter().map(|integer| i32::from(*integer)).sum();
    (integers, scale, scale * sum as f32)
}

/// The largest integer of an activation, and the largest sum of their sizes in a block: times 8191 it is below 2^31, also where all are
/// rounded up.
const LARGEST: f32 = 32767.0;
const LARGEST_SUM: f32 = (1 << 18) as f32;

/// The nearest integer of a number between -2^15 and 2^15, an even one of two. Adding 1.5 * 2^23 leaves it in the low bits.
#[inline(always)]
pub(super) fn rounded(x: f32) -> i16 {
    (x + 12_582_912.0).to_bits() as i16
}

/// The sum of absolute values, in an order that is the same in all instruction sets.
#[inline(always)]
fn sum_of_sizes(x: &[f32; BLOCK]) -> f32 {
    let mut sums = x.map(f32::abs);
    let mut width = BLOCK / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}
