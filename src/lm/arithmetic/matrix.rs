//! A matrix of weights on the host, held in the type that its file has, and products with it.
//!
//! Rows are converted to the type of the product a few at a time: they are read from memory as they are stored, and multiplied from
//! cache. The result for a row of the left factor does not depend on the rows beside it, so splitting a text into reads never
//! changes a bit.

use std::ops::Range;

use anyhow::{Result, bail};
use candle_core::{CpuStorage, DType, Storage, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

use super::blocks::Blocks;
use super::integers::{Quantised, Width, of_floats};
use super::product::{Right, product_into};
use crate::vector;

/// Number of the matrix' rows that are multiplied at a time with many others: enough for the kernel, few enough for the second
/// cache. Rows that must be converted are taken as many at a time as make 1 MiB ([`CONVERTED`]), but at least [`LEAST_ROWS`].
const TILE: usize = 512;
const CONVERTED: usize = 1 << 18;
const LEAST_ROWS: usize = 128;

/// Number of the matrix' rows per task of a thread, if they are multiplied with few others.
const OUTPUTS: usize = 64;
/// Number of the matrix' rows that are multiplied at a time with few others, to stay in the first cache.
const AT_ONCE: usize = 8;
/// How many bytes ahead rows are asked for before they are needed; at most [`ROWS_AHEAD`] rows.
const AHEAD: usize = 16 << 10;
const ROWS_AHEAD: usize = 16;

/// Matrix (rows, columns) of weights.
#[derive(Debug)]
pub(in crate::lm) struct Matrix {
    pub rows: usize,
    pub columns: usize,
    numbers: Numbers,
}

#[derive(Debug)]
enum Numbers {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    Blocks(Blocks),
}

/// Type of numbers that products are computed in.
pub(in crate::lm) trait Number: Copy + Default + From<u8> + Send + Sync + 'static {
    const IS_F32: bool;
    /// Converts the numbers of a matrix to this type, into the buffer if they have another.
    fn converted<'a>(floats: &'a [f32], buffer: &'a mut Vec<Self>) -> &'a [Self];
}

impl Number for f32 {
    const IS_F32: bool = true;

    fn converted<'a>(floats: &'a [f32], _: &'a mut Vec<f32>) -> &'a [f32] {
        floats
    }
}

impl Number for f64 {
    const IS_F32: bool = false;

    fn converted<'a>(floats: &'a [f32], buffer: &'a mut Vec<f64>) -> &'a [f64] {
        buffer.resize(floats.len(), 0.0);
        vector::widen_f64(floats, buffer);
        buffer
    }
}

impl Matrix {
    /// Takes the numbers of a tensor (rows, columns) to the host.
    pub fn new(tensor: &Tensor) -> Result<Matrix> {
        let (rows, columns) = tensor.dims2()?;
        let (storage, layout) = tensor.storage_and_layout();
        let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
            bail!("a contiguous tensor on the host is needed");
        };
        let numbers = match storage {
            CpuStorage::F32(numbers) => Numbers::F32(numbers[start..end].to_vec()),
            CpuStorage::F16(numbers) => Numbers::F16(numbers[start..end].to_vec()),
            CpuStorage::BF16(numbers) => Numbers::Bf16(numbers[start..end].to_vec()),
            _ => bail!("weights of f32, bf16 or f16 are needed"),
        };
        Ok(Matrix { rows, columns, numbers })
    }

    /// Matrix of quantised numbers, row after row.
    pub fn of_blocks((rows, columns): (usize, usize), blocks: Blocks) -> Matrix {
        Matrix { rows, columns, numbers: Numbers::Blocks(blocks) }
    }

    /// Copy of a range of rows.
    pub fn part(&self, rows: Range<usize>) -> Matrix {
        let range = rows.start * self.columns..rows.end * self.columns;
        let numbers = match &self.numbers {
            Numbers::F32(numbers) => Numbers::F32(numbers[range].to_vec()),
            Numbers::F16(numbers) => Numbers::F16(numbers[range].to_vec()),
            Numbers::Bf16(numbers) => Numbers::Bf16(numbers[range].to_vec()),
            Numbers::Blocks(blocks) => Numbers::Blocks(blocks.part(range)),
        };
        Matrix { rows: rows.len(), columns: self.columns, numbers }
    }

    /// Bytes of the matrix in memory.
    pub fn bytes(&self) -> usize {
        let numbers = self.rows * self.columns;
        match &self.numbers {
            Numbers::F32(_) => numbers * DType::F32.size_in_bytes(),
            Numbers::F16(_) | Numbers::Bf16(_) => numbers * DType::BF16.size_in_bytes(),
            Numbers::Blocks(blocks) => blocks.bytes(),
        }
    }

    /// Range of rows in f32, in the buffer if they are stored otherwise.
    pub fn floats<'a>(&'a self, rows: Range<usize>, buffer: &'a mut Vec<f32>) -> &'a [f32] {
        let range = rows.start * self.columns..rows.end * self.columns;
        if let Numbers::F32(numbers) = &self.numbers {
            return &numbers[range];
        }
        buffer.resize(range.len(), 0.0);
        self.convert(rows, buffer);
        buffer
    }

    fn convert(&self, rows: Range<usize>, to: &mut [f32]) {
        let range = rows.start * self.columns..rows.end * self.columns;
        match &self.numbers {
            Numbers::F32(numbers) => to.copy_from_slice(&numbers[range]),
            Numbers::F16(numbers) => vector::widen_f16(&numbers[range], to),
            Numbers::Bf16(numbers) => vector::widen_bf16(&numbers[range], to),
            Numbers::Blocks(blocks) => blocks.floats(range, to),
        }
    }

    /// Range of rows in f32, in the buffer if they are stored otherwise. Also asks for later rows, so that they are read from
    /// memory while these are converted and multiplied.
    fn streamed<'a>(&'a self, rows: Range<usize>, buffer: &'a mut Vec<f32>) -> &'a [f32] {
        let ahead = (AHEAD * self.rows / self.bytes()).clamp(1, ROWS_AHEAD);
        let ask = |row: usize| self.prefetch((row + ahead).min(self.rows - 1));
        if matches!(self.numbers, Numbers::F32(_)) {
            rows.clone().for_each(ask);
            return self.floats(rows, buffer);
        }
        buffer.resize(rows.len() * self.columns, 0.0);
        for (row, to) in rows.zip(buffer.chunks_exact_mut(self.columns)) {
            ask(row);
            self.convert(row..row + 1, to);
        }
        buffer
    }

    fn prefetch(&self, row: usize) {
        let range = row * self.columns..(row + 1) * self.columns;
        match &self.numbers {
            Numbers::F32(numbers) => vector::prefetch(&numbers[range]),
            Numbers::F16(numbers) => vector::prefetch(&numbers[range]),
            Numbers::Bf16(numbers) => vector::prefetch(&numbers[range]),
            Numbers::Blocks(blocks) => vector::prefetch(blocks.bytes_of(range)),
        }
    }

    /// Number of bits that products in integers take of a weight; `None` if integers do not keep the numbers.
    pub fn integer_width(&self) -> Option<Width> {
        match &self.numbers {
            Numbers::F32(numbers) => {
                let is_bf16 = |number: &f32| number.to_bits() as u16 == 0;
                numbers.iter().all(is_bf16).then_some(Width::Sixteen)
            }
            Numbers::F16(_) | Numbers::Bf16(_) => Some(Width::Sixteen),
            Numbers::Blocks(blocks) => Some(blocks.width()),
        }
    }

    /// Row of the matrix for products in integers.
    pub fn quantised(&self, row: usize) -> Quantised {
        match &self.numbers {
            Numbers::Blocks(blocks) => blocks.quantised(row * self.columns..(row + 1) * self.columns),
            _ => of_floats(self.floats(row..row + 1, &mut Vec::new())),
        }
    }

    /// Multiplies many rows x (.., columns) with a range of the matrix' rows, on up to `threads` threads: x W^T (.., rows).
    pub fn multiply<T: Number>(&self, x: &[T], rows: Range<usize>, threads: usize) -> Vec<T> {
        let (asked, outputs) = (x.len() / self.columns, rows.len());
        let stored = matches!(self.numbers, Numbers::F32(_)) && T::IS_F32;
        let most = if stored { TILE } else { (CONVERTED / self.columns).clamp(LEAST_ROWS, TILE) } * threads;
        let tiles = outputs.div_ceil(most);
        // The kernels for very few rows, and those for two small sides, add in another order. Padding to the size where
        // the general kernel starts makes a row's result independent of the number of rows.
        let narrowest = outputs / tiles;
        let least =
            if narrowest <= 64 && self.columns > 512 { 65 } else { 8usize.max(257usize.div_ceil(narrowest)) };
        let mut padded = Vec::new();
        let x = if asked < least {
            padded.reserve(least * self.columns);
            padded.extend_from_slice(x);
            padded.resize(least * self.columns, T::default());
            &padded
        } else {
            x
        };
        let (mut floats, mut converted) = (Vec::new(), Vec::new());
        let count = asked.max(least);
        let mut y = Vec::with_capacity(count * outputs);
        for tile in 0..tiles {
            // Widths differ by one at most.
            let (from, to) = (tile * outputs / tiles, (tile + 1) * outputs / tiles);
            let weights = self.floats(rows.start + from..rows.start + to, &mut floats);
            let weights = Right::Transposed(T::converted(weights, &mut converted));
            let sides = (count, to - from, self.columns);
            let y = &mut y.spare_capacity_mut()[from..count * outputs];
            product_into(sides, (y, outputs), (x, self.columns), weights, threads);
        }
        // SAFETY: the tiles cover the columns of all rows, and the products have written all of these numbers.
        #[expect(unsafe_code)]
        unsafe {
            y.set_len(asked * outputs);
        }
        y
    }
}

/// Multiplies a few rows x (.., columns) with several matrices: x W^T (.., rows) each. Every weight is read once.
pub(in crate::lm) fn multiply_few(x: &[f32], matrices: &[&Matrix]) -> Vec<Vec<f32>> {
    let count = x.len() / matrices[0].columns;
    // (rows / OUTPUTS)(.., OUTPUTS) each, the last one narrower
    let mut all: Vec<Vec<f32>> = matrices.iter().map(|matrix| vec![0.0; matrix.rows * count]).collect();
    let tiles = all.iter_mut().zip(matrices).flat_map(|(tiles, matrix)| {
        tiles.chunks_mut(OUTPUTS * count).enumerate().map(move |(index, tile)| (*matrix, index * OUTPUTS, tile))
    });
    // The threads share the tiles of all matrices, because waking a thread takes as long as a small matrix.
    let tiles: Vec<_> = tiles.collect();
    tiles.into_par_iter().for_each_init(Vec::new, |buffer, (matrix, first, tile)| {
        let outputs = tile.len() / count;
        for at in (0..outputs).step_by(AT_ONCE) {
            let rows = first + at..first + outputs.min(at + AT_ONCE);
            vector::row_products(x, matrix.columns, matrix.streamed(rows, buffer), &mut tile[at..], outputs);
        }
    });
    if count > 1 {
        for (tiles, matrix) in all.iter_mut().zip(matrices) {
            *tiles = by_rows(tiles, matrix.rows);
        }
    }
    all
}

/// Joins tiles (rows / OUTPUTS)(.., OUTPUTS) to one matrix (.., rows).
fn by_rows(tiles: &[f32], rows: usize) -> Vec<f32> {
    let count = tiles.len() / rows;
    let mut y = vec![0.0; tiles.len()];
    y.par_chunks_mut(rows).enumerate().for_each(|(row, y)| {
        for (y, tile) in y.chunks_mut(OUTPUTS).zip(tiles.chunks(OUTPUTS * count)) {
            y.copy_from_slice(&tile[row * y.len()..][..y.len()]);
        }
    });
    y
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn random(rows: usize, columns: usize) -> Tensor {
        Tensor::rand(-1f32, 1.0, (rows, columns), &Device::Cpu).unwrap()
    }

    fn floats(tensor: &Tensor) -> Vec<f32> {
        tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    /// Padding is there for this: the bits of a row do not depend on the number of rows, nor on the threads.
    #[test]
    fn rows_are_independent_of_each_other() {
        fn check<T: Number + PartialEq + std::fmt::Debug>(matrix: &Matrix, x: &[T]) {
            let (all, wide) = (0..matrix.rows, matrix.rows);
            let whole = matrix.multiply(x, all.clone(), 1);
            for rows in [1, 2, 3, 7, 8, 33, 64, 65, 74, 128, 256] {
                let from = 330 - rows;
                for threads in [1, 2] {
                    let part = matrix.multiply(&x[from * matrix.columns..], all.clone(), threads);
                    assert_eq!(part, whole[from * wide..], "{rows} rows, {wide} x {}", matrix.columns);
                }
            }
        }
        let sides =
            [(16, 8), (48, 24), (64, 16), (64, 64), (128, 384), (768, 64), (1024, 32), (2000, 90), (256, 4096)];
        for (input, out) in sides {
            let x = floats(&random(330, input));
            for dtype in [DType::F32, DType::BF16] {
                let matrix = Matrix::new(&random(out, input).to_dtype(dtype).unwrap()).unwrap();
                check(&matrix, &x);
                check(&matrix, &x.iter().copied().map(f64::from).collect::<Vec<_>>());
            }
        }
    }

    /// Products with numbers stored in another type equal those with the numbers in f32, bit for bit.
    #[test]
    fn products_do_not_depend_on_the_type_of_the_numbers() {
        let x = floats(&random(9, 70));
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let stored = random(150, 70).to_dtype(dtype).unwrap();
            let wide = Matrix::new(&stored.to_dtype(DType::F32).unwrap()).unwrap();
            let stored = Matrix::new(&stored).unwrap();
            let few = |matrix: &Matrix, x: &[f32]| multiply_few(x, &[matrix]).remove(0);
            let [of_many, of_few] = [stored.multiply(&x, 0..150, 1), few(&stored, &x)];
            assert_eq!(of_many, wide.multiply(&x, 0..150, 1), "{dtype:?}");
            assert_eq!(of_few, few(&wide, &x), "{dtype:?}");
            assert!(of_many.iter().zip(&of_few).all(|(a, b)| (a - b).abs() < 1e-5), "{dtype:?}");
            let part = stored.multiply(&x, 30..100, 1);
            for (part, whole) in part.chunks_exact(70).zip(of_many.chunks_exact(150)) {
                assert_eq!(part, &whole[30..100], "{dtype:?}");
            }
            let [first, second] = [0..40, 40..150].map(|rows| stored.part(rows));
            let both = multiply_few(&x, &[&first, &second]);
            for (row, whole) in of_few.chunks_exact(150).enumerate() {
                assert_eq!(both[0][row * 40..][..40], whole[..40]);
                assert_eq!(both[1][row * 110..][..110], whole[40..]);
            }
        }
    }
}
