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

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use self::kernel::Output;
pub(super) use self::rows::IntegerRows;
use self::weights::Unpacked;
pub(super) use self::weights::{IntegerMatrix, Quantised, Width, of_floats};

/// Columns of activations that share a scale.
const BLOCK: usize = 32;
/// Outputs side by side in a vector.
const PANEL: usize = 16;
/// Bytes of activations that stay in the second cache while panel after panel is multiplied with them.
const CACHED: usize = 256 << 10;
/// Outputs per task of a thread: small enough for threads to end together.
const PART: usize = 48;

/// x W^T of several matrices for rows x (.., columns), on up to so many threads: (.., rows) each.
pub(super) fn multiply(x: &[f32], matrices: &[&IntegerMatrix], threads: usize) -> Vec<Vec<f32>> {
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
    if threads == 1 {
        return factors.iter().map(|(x, matrix)| multiply_part(x, matrix, 0..matrix.rows)).collect();
    }
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

/// Some of the outputs, from the first one of a panel: (.., outputs)
pub(super) fn multiply_part(x: &IntegerRows, matrix: &IntegerMatrix, outputs: Range<usize>) -> Vec<f32> {
    multiply_in(&mut Unpacked::default(), x, matrix, outputs)
}

fn multiply_in(room: &mut Unpacked, x: &IntegerRows, matrix: &IntegerMatrix, outputs: Range<usize>) -> Vec<f32> {
    let stride = outputs.len();
    let mut y = Vec::with_capacity(x.rows * stride);
    let groups: Vec<_> = x.groups().collect();
    for groups in groups.chunks((CACHED / size_of_val(groups[0].1.numbers)).max(1)) {
        for first in outputs.clone().step_by(PANEL) {
            let panel = matrix.panel(first / PANEL, room);
            for (row, group) in groups {
                let rows = group.rows.min(x.rows - row);
                let y = &mut y.spare_capacity_mut()[row * stride + first - outputs.start..x.rows * stride];
                let mut to = Output { y, stride, rows, outputs: PANEL.min(outputs.end - first) };
                x.kernel().multiply(&panel, group, &mut to);
            }
        }
    }
    // SAFETY: the groups have all rows and the panels all outputs, and the kernel writes all of their products.
    #[expect(unsafe_code)]
    unsafe {
        y.set_len(x.rows * stride);
    }
    y
}

#[cfg(test)]
mod tests;
