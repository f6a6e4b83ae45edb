//! Products with weights in integers (`arithmetic: fast`).
//!
//! Weights are integers with scales for 16 or 32 columns: those of a quantised file as they are, bf16 and f16 rounded to 13 bits and a
//! sign. Activations become integers of 16 bits with a scale for each block of 32 columns. Products of integers are added up exactly
//! in 32 bits over a block, then scaled and added in f32, in the order of the columns. So a number has the same bits whatever
//! is computed beside it, and in every instruction set.
//!
//! Vectors run over 16 outputs, a panel: their integers stand side by side in memory, and no sum runs across a vector.

mod instructions;
mod kernel;
mod rows;
mod weights;

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use self::kernel::Output;
pub(in crate::lm) use self::rows::IntegerRows;
use self::weights::Unpacked;
pub(in crate::lm) use self::weights::{IntegerMatrix, Quantised, Width, of_floats};

/// Number of columns of activations that share a scale.
const BLOCK: usize = 32;
/// Number of outputs side by side in a vector.
const PANEL: usize = 16;
/// Bytes of activations that stay in the second cache while panel after panel is multiplied with them.
const CACHED: usize = 512 << 10;
/// Largest number of groups for which weights are not unpacked before they are multiplied.
const MOST_PACKED: usize = 2;
/// Number of rows that are worth a thread of their own, which then unpacks all weights.
const SHARE: usize = 24;
/// Number of outputs per task of a thread if there are fewer rows than [`SHARE`] for each: small enough for threads to end
/// together.
const PART: usize = 48;

/// Multiplies rows x (.., columns) with several matrices, on up to `threads` threads: x W^T (.., rows) each.
pub(in crate::lm) fn multiply(x: &[f32], matrices: &[&IntegerMatrix], threads: usize) -> Vec<Vec<f32>> {
    let rows = x.len() / matrices[0].columns;
    if threads > 1 && rows < threads * SHARE {
        multiply_by_outputs(x, matrices)
    } else {
        multiply_by_rows(x, matrices, threads)
    }
}

/// Multiplies by rows: each thread takes some rows, quantises them, and multiplies them with all matrices.
fn multiply_by_rows(x: &[f32], matrices: &[&IntegerMatrix], threads: usize) -> Vec<Vec<f32>> {
    let columns = matrices[0].columns;
    let rows = x.len() / columns;
    let parts = x.len().div_ceil(CACHED / size_of::<i16>()).next_multiple_of(threads);
    let part = rows.div_ceil(parts).max(1);
    let mut parts: Vec<_> = x.chunks(part * columns).map(|x| (x, Vec::new())).collect();
    let mut products: Vec<_> = matrices.iter().map(|matrix| Vec::with_capacity(rows * matrix.rows)).collect();
    for (product, matrix) in products.iter_mut().zip(matrices) {
        let product = &mut product.spare_capacity_mut()[..rows * matrix.rows];
        parts.iter_mut().zip(product.chunks_mut(part * matrix.rows)).for_each(|((_, to), part)| to.push(part));
    }
    let multiply = |room: &mut Unpacked, (x, to): (&[f32], Vec<&mut [MaybeUninit<f32>]>)| {
        let mut rows = IntegerRows::new(x, matrices[0]);
        for (matrix, to) in matrices.iter().zip(to) {
            if !rows.fit(matrix) {
                rows = IntegerRows::new(x, matrix);
            }
            multiply_to(to, room, &rows, matrix, 0..matrix.rows);
        }
    };
    if threads == 1 {
        let room = &mut Unpacked::default();
        parts.into_iter().for_each(|part| multiply(room, part));
    } else {
        parts.into_par_iter().for_each_init(Unpacked::default, multiply);
    }
    for (product, matrix) in products.iter_mut().zip(matrices) {
        // SAFETY: the parts have all rows, and each has written all outputs of its rows.
        #[expect(unsafe_code)]
        unsafe {
            product.set_len(rows * matrix.rows);
        }
    }
    products
}

/// Multiplies by outputs: each thread takes some outputs of all rows.
fn multiply_by_outputs(x: &[f32], matrices: &[&IntegerMatrix]) -> Vec<Vec<f32>> {
    let mut rows = Arc::new(IntegerRows::new(x, matrices[0]));
    let factors: Vec<_> = matrices
        .iter()
        .map(|matrix| {
            if !rows.fit(matrix) {
                rows = Arc::new(IntegerRows::new(x, matrix));
            }
            (Arc::clone(&rows), *matrix)
        })
        .collect();
    // The threads share the parts of all matrices, because waking a thread takes as long as a small matrix.
    let parts = factors.iter().flat_map(|(x, matrix)| {
        let first = (0..matrix.rows).step_by(PART);
        first.map(move |first| (x, *matrix, first..matrix.rows.min(first + PART)))
    });
    let parts: Vec<_> = parts.collect();
    let parts: Vec<_> = parts
        .into_par_iter()
        .map_init(Unpacked::default, |room, (x, matrix, part)| multiply_in(room, x, matrix, part))
        .collect();
    let mut parts = parts.as_slice();
    let whole = |(x, matrix): &(Arc<IntegerRows>, &IntegerMatrix)| {
        let (own, others) = parts.split_at(matrix.rows.div_ceil(PART));
        parts = others;
        let mut y = Vec::with_capacity(x.rows * matrix.rows);
        for row in 0..x.rows {
            for part in own {
                let width = part.len() / x.rows;
                y.extend_from_slice(&part[row * width..][..width]);
            }
        }
        y
    };
    factors.iter().map(whole).collect()
}

/// Multiplies rows with some of a matrix's outputs, from the first output of a panel: (.., outputs)
pub(in crate::lm) fn multiply_part(x: &IntegerRows, matrix: &IntegerMatrix, outputs: Range<usize>) -> Vec<f32> {
    multiply_in(&mut Unpacked::default(), x, matrix, outputs)
}

fn multiply_in(room: &mut Unpacked, x: &IntegerRows, matrix: &IntegerMatrix, outputs: Range<usize>) -> Vec<f32> {
    let all = x.rows * outputs.len();
    let mut y = Vec::with_capacity(all);
    multiply_to(&mut y.spare_capacity_mut()[..all], room, x, matrix, outputs);
    // SAFETY: all were written.
    #[expect(unsafe_code)]
    unsafe {
        y.set_len(all);
    }
    y
}

/// Writes all numbers of y (x.rows)(outputs).
fn multiply_to(
    y: &mut [MaybeUninit<f32>],
    room: &mut Unpacked,
    x: &IntegerRows,
    matrix: &IntegerMatrix,
    outputs: Range<usize>,
) {
    let stride = outputs.len();
    let (mut row, groups) = (0, x.groups());
    let many = groups.chunk_by(|group, next| group.rows == next.rows);
    for groups in many.flat_map(|many| many.chunks((CACHED / size_of_val(many[0].numbers)).max(1))) {
        for first in outputs.clone().step_by(PANEL) {
            let panel = first / PANEL;
            let panel =
                if groups.len() > MOST_PACKED { matrix.unpacked(panel, room) } else { matrix.panel(panel, room) };
            let y = &mut y[row * stride + first - outputs.start..];
            let mut to = Output { y, stride, outputs: PANEL.min(outputs.end - first) };
            x.kernel.multiply(&panel, groups, &mut to);
        }
        row += groups.len() * groups[0].rows;
    }
}

#[cfg(test)]
mod tests;
