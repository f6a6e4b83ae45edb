//! Matrix products over slices: candle's own allocate their result, take weights of one type only, and always use all
//! threads. The kernels are candle's (`gemm`), so the rounding is too.

use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use gemm::Parallelism;

use super::integers::{IntegerMatrix, IntegerRows, multiply_part};
use super::matrix::Matrix;
use super::types::Arithmetic;
use crate::vector;

/// Right factor of a product, given by its rows or by those of its transpose.
pub(in crate::lm) enum Right<'a, T = f32> {
    Rows(&'a [T]),
    Transposed(&'a [T]),
}

/// Computes dst (m, n) <- lhs (m, k) x rhs (k, n) on one thread. Rows of `dst` and `lhs` lie `stride` floats apart; those of `rhs`
/// are adjacent.
pub(in crate::lm) fn product(
    sides: (usize, usize, usize),
    (dst, dst_stride): (&mut [f32], usize),
    lhs: (&[f32], usize),
    rhs: Right<'_>,
) {
    if let Right::Transposed(rows) = rhs
        && vector::dots_of_few(lhs, rows, sides.2, (dst, dst_stride), (sides.0, sides.1))
    {
        return;
    }
    product_by_gemm(sides, (dst, dst_stride), lhs, rhs);
}

fn product_by_gemm(
    sides: (usize, usize, usize),
    (dst, dst_stride): (&mut [f32], usize),
    lhs: (&[f32], usize),
    rhs: Right<'_>,
) {
    // SAFETY: a float and a `MaybeUninit` of one have the same layout, and only floats are written.
    #[expect(unsafe_code)]
    let dst = unsafe { std::slice::from_raw_parts_mut(dst.as_mut_ptr().cast(), dst.len()) };
    product_into(sides, (dst, dst_stride), lhs, rhs, 1);
}

/// Computes dst (m, n) <- lhs (m, k) x rhs (k, n) in f32 or f64 on up to `threads` threads. `dst` need not be initialised before;
/// it is afterwards, as far as (m, n) reaches.
pub(in crate::lm) fn product_into<T: From<u8> + 'static>(
    (m, n, k): (usize, usize, usize),
    (dst, dst_stride): (&mut [MaybeUninit<T>], usize),
    (lhs, lhs_stride): (&[T], usize),
    rhs: Right<'_, T>,
    threads: usize,
) {
    let (rhs, rhs_row, rhs_column) = match rhs {
        Right::Rows(rhs) => (rhs, n, 1),
        Right::Transposed(rhs) => (rhs, 1, k),
    };
    assert!(m > 0 && n > 0 && k > 0, "an empty product of {m} x {k} x {n}");
    assert!((m - 1) * dst_stride + n <= dst.len(), "the product does not fit its destination");
    assert!((m - 1) * lhs_stride + k <= lhs.len() && n * k <= rhs.len(), "a factor is too short");
    // SAFETY: the assertions above ensure that every element the kernel accesses is inside its slice, and `dst` is
    // borrowed mutably, so it overlaps neither factor.
    #[expect(unsafe_code)]
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            dst.as_mut_ptr().cast::<T>(),
            1,
            dst_stride as isize,
            false,
            lhs.as_ptr(),
            1,
            lhs_stride as isize,
            rhs.as_ptr(),
            rhs_column as isize,
            rhs_row as isize,
            T::from(0),
            T::from(1),
            false,
            false,
            false,
            if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None },
        );
    }
}

/// Measures operations per second, two for each pair of factors, of `threads` threads that multiply matrices in cache: the best
/// that a run could reach.
///
/// # Errors
///
/// Threads that cannot be started.
pub fn matrix_rate(threads: usize, arithmetic: Arithmetic) -> Result<f64> {
    let (m, n, k) = (512, 688, 256);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let (lhs, rhs) = (vec![0.5; m * k], vec![0.5; n * k]);
    let rates = match arithmetic {
        Arithmetic::F32 => pool.broadcast(|_| {
            let mut dst = vec![0.0; m * n];
            thread_rate((m, n, k), || product((m, n, k), (&mut dst, n), (&lhs, k), Right::Transposed(&rhs)))
        }),
        Arithmetic::Fast => {
            let weights = Matrix::new(&Tensor::from_vec(rhs, (n, k), &Device::Cpu)?)?;
            let weights = IntegerMatrix::new(&weights).context("one half is a number of bf16")?;
            pool.broadcast(|_| {
                let x = IntegerRows::new(&lhs, &weights);
                thread_rate((m, n, k), || drop(multiply_part(&x, &weights, 0..n)))
            })
        }
    };
    Ok(rates.iter().sum())
}

/// Measures the rate of this thread: the median of several measurements, because threads that share a core take turns at being
/// fast.
fn thread_rate((m, n, k): (usize, usize, usize), mut multiply: impl FnMut()) -> f64 {
    let mut seconds = [0.0; 60];
    for seconds in &mut seconds {
        let started = std::time::Instant::now();
        multiply();
        *seconds = started.elapsed().as_secs_f64();
    }
    seconds.sort_by(f64::total_cmp);
    2.0 * (m * n * k) as f64 / seconds[seconds.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // (1 2; 3 4) x (5 6; 7 8), the right factor stored transposed
        let mut dst = [9.0; 4];
        let (lhs, rhs) = ([1.0, 2.0, 3.0, 4.0], [5.0, 7.0, 6.0, 8.0]);
        product((2, 2, 2), (&mut dst, 2), (&lhs, 2), Right::Transposed(&rhs));
        assert_eq!(dst, [19.0, 22.0, 43.0, 50.0]);
    }

    /// The faster way to multiply few rows gives the bits of `gemm`.
    #[test]
    fn few_rows_have_the_bits_of_gemm() {
        let mut rng = fastrand::Rng::with_seed(46);
        let widths = [1, 16, 63, 64, 65, 80, 86, 96, 128, 129, 144, 272, 277, 600, 1040];
        for (n, k) in widths.into_iter().flat_map(|n| [1, 33, 64, 80, 128, 256, 300].map(|k| (n, k))) {
            let mut draw = |count: usize| (0..count).map(|_| rng.f32() - 0.5).collect::<Vec<f32>>();
            let (stride, distance) = (n + 3, k + 5);
            let (lhs, rhs) = (draw(5 * distance), draw(n * k));
            for m in 1..=5 {
                let mut few = vec![0.0; m * stride];
                product((m, n, k), (&mut few, stride), (&lhs, distance), Right::Transposed(&rhs));
                let mut whole = vec![0.0; m * stride];
                product_by_gemm((m, n, k), (&mut whole, stride), (&lhs, distance), Right::Transposed(&rhs));
                assert!(
                    few.iter().zip(&whole).all(|(few, whole)| few.to_bits() == whole.to_bits()),
                    "{m} x {k} x {n}"
                );
            }
        }
    }
}
