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

pub(super) use self::rows::IntegerRows;
use self::weights::Unpacked;
pub(super) use self::weights::{IntegerMatrix, Quantised, Width, of_floats};
use super::matrix::by_rows;

/// Columns of activations that share a scale.
const BLOCK: usize = 32;
/// Outputs side by side in a vector.
const PANEL: usize = 16;
/// Most rows of activations that are multiplied at once.
const MOST_ROWS: usize = 12;
/// Outputs per task of a thread.
const PART: usize = 128;

/// x W^T of several matrices for rows x (.., columns), on up to so many threads: (.., rows) each.
pub(super) fn multiply(x: &[f32], matrices: &[&IntegerMatrix], threads: usize) -> Vec<Vec<f32>> {
    let mut rows = Arc::new(IntegerRows::new(x, matrices[0]));
    let factors: Vec<_> = matrices.iter().map(|matrix| {
        if !rows.fit(matrix) {
            rows = Arc::new(IntegerRows::new(x, matrix));
        }
        (Arc::clone(&rows), *matrix)
    }).collect();
    let mut products: Vec<Vec<f32>> = factors.iter().map(|(x, matrix)| vec![0.0; matrix.rows * x.rows]).collect();
    if threads == 1 {
        for (y, (x, matrix)) in products.iter_mut().zip(&factors) {
            multiply_into(x, matrix, 0..matrix.rows, y);
        }
        return products;
    }
    // The threads share the parts of all matrices, because waking a thread takes as long as a small matrix.
    let parts = products.iter_mut().zip(&factors).flat_map(|(y, (x, matrix))| {
        y.chunks_mut(PART * x.rows).enumerate().map(move |(index, y)| (x, *matrix, index * PART, y))
    });
    let parts: Vec<_> = parts.collect();
    parts.into_par_iter().for_each(|(x, matrix, first, y)| {
        multiply_into(x, matrix, first..first + y.len() / x.rows, y);
    });
    for (y, (x, matrix)) in products.iter_mut().zip(&factors) {
        if x.rows > 1 {
            *y = by_rows(y, matrix.rows, PART);
        }
    }
    products
}

/// Some of the outputs, from the first one of a panel: (.., outputs)
pub(super) fn multiply_part(x: &IntegerRows, matrix: &IntegerMatrix, outputs: Range<usize>) -> Vec<f32> {
    let mut y = vec![0.0; x.rows * outputs.len()];
    multiply_into(x, matrix, outputs, &mut y);
    y
}

fn multiply_into(x: &IntegerRows, matrix: &IntegerMatrix, outputs: Range<usize>, y: &mut [f32]) {
    let (mut room, mut products) = (Unpacked::default(), [[0.0; PANEL]; MOST_ROWS]);
    for first in outputs.clone().step_by(PANEL) {
        let panel = matrix.panel(first / PANEL, &mut room);
        let width = PANEL.min(outputs.end - first);
        for (row, group) in x.groups() {
            x.kernel().multiply(panel, group, &mut products[..group.rows]);
            let y = y[row * outputs.len()..].chunks_exact_mut(outputs.len());
            for (y, products) in y.zip(&products[..group.rows]) {
                y[first - outputs.start..][..width].copy_from_slice(&products[..width]);
            }
        }
    }
}
