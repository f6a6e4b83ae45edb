//! Products in integers against their definition, in every instruction set of the processor.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use proptest::prelude::*;

use super::super::blocks::Blocks;
use super::super::matrix::Matrix;
use super::super::stored_type::StoredType;
use super::kernel::Kernel;
use super::*;

const STORED: [GgmlDType; 7] = [
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q4K,
    GgmlDType::Q6K,
];

fn numbers(count: usize, scale: f32, rng: &mut fastrand::Rng) -> Vec<f32> {
    (0..count).map(|_| (rng.f32() - 0.5) * scale * 10f32.powf(2.0 * rng.f32())).collect()
}

/// Draws a matrix of a stored type.
fn matrix(rows: usize, columns: usize, stored: Option<GgmlDType>, rng: &mut fastrand::Rng) -> Matrix {
    let tensor = Tensor::from_vec(numbers(rows * columns, 0.2, rng), (rows, columns), &Device::Cpu).unwrap();
    match stored {
        None => Matrix::new(&tensor.to_dtype(DType::BF16).unwrap()).unwrap(),
        Some(stored) => {
            let bytes = QTensor::quantize(&tensor, stored).unwrap().data().unwrap().into_owned();
            Matrix::of_blocks((rows, columns), Blocks::new(StoredType::Ggml(stored), bytes).unwrap())
        }
    }
}

fn products(kernel: Kernel, x: &[f32], matrix: &IntegerMatrix) -> Vec<f32> {
    multiply_part(&IntegerRows::with(kernel, x, matrix), matrix, 0..matrix.rows)
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

/// Computes products by their definition: blocks of 32 columns as integers, whose products are added up in 64 bits.
fn by_definition(x: &[f32], matrix: &Matrix) -> Vec<f32> {
    let is_wide = matrix.integer_width() == Some(Width::Sixteen);
    let mut y = Vec::new();
    for x in x.chunks_exact(matrix.columns) {
        for row in 0..matrix.rows {
            let Quantised { integers, scales, offsets } = matrix.quantised(row);
            let per_scale = integers.len().next_multiple_of(BLOCK.min(integers.len())).div_ceil(scales.len());
            let mut total = 0.0_f32;
            for (block, x) in x.chunks(BLOCK).enumerate() {
                let largest = x.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
                let mut scale = largest / 32767.0;
                if is_wide {
                    // Halves are added to halves, as the order of additions is part of the definition.
                    let mut sizes = [0.0; BLOCK];
                    sizes.iter_mut().zip(x).for_each(|(size, x)| *size = x.abs());
                    let mut count = BLOCK;
                    while count > 1 {
                        count /= 2;
                        (0..count).for_each(|lane| sizes[lane] += sizes[lane + count]);
                    }
                    scale = scale.max(sizes[0] / 262_144.0);
                }
                let inverse = if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
                let x: Vec<i64> = x.iter().map(|x| (x * inverse).round_ties_even() as i64).collect();
                let first = block * BLOCK;
                let part = |columns: Range<usize>| -> i64 {
                    columns.map(|column| i64::from(integers[column]) * x[column - first]).sum()
                };
                for start in (first..first + x.len()).step_by(per_scale) {
                    let sum = part(start..(start + per_scale).min(first + x.len()));
                    assert!(i32::try_from(sum).is_ok(), "a sum of {sum}");
                    total = (sum as f32 * scales[start / per_scale]).mul_add(scale, total);
                }
                if let Some(offset) = offsets.get(first / per_scale) {
                    total = offset.mul_add(scale * x.iter().sum::<i64>() as f32, total);
                }
            }
            y.push(total);
        }
    }
    y
}

/// Compares bit for bit, in all instruction sets of this processor and without any.
#[test]
fn products_are_those_of_the_definition() {
    let mut rng = fastrand::Rng::with_seed(3);
    assert!(Kernel::all().len() > 1 || !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")));
    for stored in STORED.into_iter().map(Some).chain([None]) {
        let wide = stored.is_some_and(|stored| stored.block_size() == 256);
        for (rows, columns) in [(16, 256), (37, 512), (64, if wide { 256 } else { 96 })] {
            let matrix = matrix(rows, columns, stored, &mut rng);
            let integers = IntegerMatrix::new(&matrix).unwrap();
            for count in [1, 2, 3, 5, 8, 12, 13, 31] {
                let x = numbers(count * columns, 3.0, &mut rng);
                let expected = bits(&by_definition(&x, &matrix));
                for kernel in Kernel::all() {
                    assert_eq!(
                        bits(&products(kernel, &x, &integers)),
                        expected,
                        "{stored:?} {rows} {columns} {count}"
                    );
                }
            }
        }
    }
}

#[test]
fn columns_that_fill_no_block_are_padded() {
    let mut rng = fastrand::Rng::with_seed(4);
    for columns in [8, 24, 48, 90] {
        let matrix = matrix(20, columns, None, &mut rng);
        let integers = IntegerMatrix::new(&matrix).unwrap();
        let x = numbers(7 * columns, 3.0, &mut rng);
        for kernel in Kernel::all() {
            assert_eq!(bits(&products(kernel, &x, &integers)), bits(&by_definition(&x, &matrix)), "{columns}");
        }
    }
}

/// Rows that are multiplied together, the number of threads and the chosen outputs do not change a bit of a row.
#[test]
fn rows_are_independent_of_each_other() {
    let mut rng = fastrand::Rng::with_seed(5);
    for stored in [Some(GgmlDType::Q4_1), Some(GgmlDType::Q6K), None] {
        let (matrix, others) = (matrix(300, 256, stored, &mut rng), matrix(70, 256, stored, &mut rng));
        let [matrix, others] = [&matrix, &others].map(|matrix| IntegerMatrix::new(matrix).unwrap());
        let x = numbers(100 * 256, 3.0, &mut rng);
        let whole = bits(&multiply(&x, &[&matrix], 1)[0]);
        for rows in [1, 2, 7, 8, 12, 64] {
            let from = 100 - rows;
            for threads in [1, 2] {
                let [part, _] = multiply(&x[from * 256..], &[&matrix, &others], threads).try_into().unwrap();
                assert_eq!(bits(&part), whole[from * 300..], "{rows} rows, {threads} threads");
            }
        }
        let part = multiply_part(&IntegerRows::new(&x, &matrix), &matrix, 160..300);
        for (part, whole) in part.chunks_exact(140).zip(whole.chunks_exact(300)) {
            assert_eq!(bits(part), whole[160..]);
        }
    }
}

/// Quantised weights are kept exactly, whatever their scales.
#[test]
fn quantised_weights_are_exact() {
    let mut rng = fastrand::Rng::with_seed(6);
    for stored in STORED {
        let matrix = matrix(21, 512, Some(stored), &mut rng);
        let integers = IntegerMatrix::new(&matrix).unwrap();
        let floats = matrix.floats(0..21, &mut Vec::new()).to_vec();
        assert_eq!(integers.floats(0..21), floats, "{stored:?}");
    }
}

/// f32 weights are multiplied in integers only where they are those of bf16, of which integers keep the larger ones.
#[test]
fn bf16_weights_keep_what_is_large_in_their_block() {
    let mut rng = fastrand::Rng::with_seed(7);
    let drawn = numbers(32 * 64, 0.2, &mut rng);
    let tensor = Tensor::from_vec(drawn, (32, 64), &Device::Cpu).unwrap();
    assert!(IntegerMatrix::new(&Matrix::new(&tensor).unwrap()).is_none());
    let rounded = tensor.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
    let matrix = Matrix::new(&rounded).unwrap();
    let integers = IntegerMatrix::new(&matrix).unwrap();
    let (stored, kept) = (matrix.floats(0..32, &mut Vec::new()).to_vec(), integers.floats(0..32));
    for (stored, kept) in stored.chunks(BLOCK).zip(kept.chunks(BLOCK)) {
        let largest = stored.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        for (stored, kept) in stored.iter().zip(kept) {
            assert!((stored - kept).abs() <= largest / 8192.0, "{stored} {kept}");
            assert!(stored == kept || stored.abs() < largest / 32.0, "{stored} {kept}");
        }
    }
}

/// Numbers that no integer can be made of are not lost.
#[test]
fn what_is_not_finite_stays_so() {
    let mut rng = fastrand::Rng::with_seed(8);
    for stored in [Some(GgmlDType::Q8_0), None] {
        let matrix = IntegerMatrix::new(&matrix(16, 64, stored, &mut rng)).unwrap();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = numbers(2 * 64, 3.0, &mut rng);
            x[40] = bad;
            let y = products(Kernel::best(), &x, &matrix);
            assert!(y[..16].iter().all(|y| !y.is_finite()) && y[16..].iter().all(|y| y.is_finite()));
        }
        let tiny = products(Kernel::best(), &[1e-40; 64], &matrix);
        assert!(tiny.iter().all(|y| y.abs() < 1e-30));
    }
}

proptest! {
    /// The largest factors that are promised do not overflow 32 bits.
    #[test]
    fn sums_of_wide_factors_fit(x in prop::array::uniform32(-1e4f32..1e4), spread in 0..32usize) {
        let mut x = x;
        x[..spread].fill(1e4);
        let weights = vec![255.0 / 256.0; 16 * 32];
        let tensor = Tensor::from_vec(weights, (16, 32), &Device::Cpu).unwrap().to_dtype(DType::BF16).unwrap();
        let matrix = Matrix::new(&tensor).unwrap();
        let integers = IntegerMatrix::new(&matrix).unwrap();
        prop_assert_eq!(bits(&products(Kernel::best(), &x, &integers)), bits(&by_definition(&x, &matrix)));
    }
}
