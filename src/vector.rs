//! Vectorised loops over rows of f32: softmax, norms, minima, small products.
//!
//! The instruction set is chosen at run time (AVX-512, AVX2, NEON or scalar), so one binary serves every machine:
//! `pulp::with_simd` makes `rotate`, say, which compiles `rotate_simd` for each set and calls the best.
//! These are the only hand-vectorised loops of the program. Each is here because a plain loop was measured to be
//! several times slower (libm's `exp` alone would take longer than the matrix products).

use std::sync::LazyLock;

use half::{bf16, f16};
use pulp::{Arch, Simd, WithSimd};

static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);

/// Divisor of the row lengths that masked functions take.
pub const LANES: usize = 16;

/// Rounds `n` up to whole lanes.
pub fn padded(n: usize) -> usize {
    n.next_multiple_of(LANES)
}

/// The name of the instruction set in use.
pub fn instruction_set() -> String {
    let name = format!("{:?}", *ARCH);
    match name.split(['(', ' ', '{']).next().unwrap_or_default() {
        "V4" => "AVX-512".into(),
        "V3" => "AVX2".into(),
        other => other.to_lowercase(),
    }
}

/// Loop without vector types, which [`best`] compiles for every instruction set. The loop and everything it calls must be inlined.
pub trait PlainLoop {
    fn run(self);
}

struct Best<L>(L);

impl<L: PlainLoop> WithSimd for Best<L> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.0.run();
    }
}

/// Runs the loop with the best instruction set.
pub fn best(plain: impl PlainLoop) {
    ARCH.dispatch(Best(plain));
}

/// Asks the processor to bring numbers into the second cache, if it can be asked.
pub fn prefetch<T>(numbers: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(numbers)).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: the address is inside the slice, and nothing is read.
        #[expect(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(numbers.as_ptr().cast::<i8>().add(line));
        }
    }
}

/// Widens bf16: `to[j] <- from[j]`.
#[pulp::with_simd(widen_bf16 = ARCH)]
#[inline(always)]
pub fn widen_bf16_simd<S: Simd>(_s: S, from: &[bf16], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = f32::from_bits(u32::from(from.to_bits()) << 16);
    }
}

/// Widens f16: `to[j] <- from[j]`. The type `f16` itself asks for the instruction set every few numbers.
#[pulp::with_simd(widen_f16 = ARCH)]
#[inline(always)]
pub fn widen_f16_simd<S: Simd>(_s: S, from: &[f16], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        let bits = u32::from(from.to_bits());
        let size = bits & 0x7fff;
        let usual = (size << 13) + (112 << 23); // the exponents of an f32 are larger by 112
        let tiny = (size as f32 * f32::from_bits((127 - 24) << 23)).to_bits(); // below 2^-14: multiples of 2^-24
        let no_number = size << 13 | 0x7f80_0000;
        let bits = (bits & 0x8000) << 16
            | match size {
                ..0x400 => tiny,
                0x7c00.. => no_number,
                _ => usual,
            };
        *to = f32::from_bits(bits);
    }
}

/// Widens f32 to f64: `to[j] <- from[j]`.
#[pulp::with_simd(widen_f64 = ARCH)]
#[inline(always)]
pub fn widen_f64_simd<S: Simd>(_s: S, from: &[f32], to: &mut [f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = f64::from(*from);
    }
}

/// Coefficients 1 / k! of the series of e^x.
const SERIES: [f64; 14] = {
    let mut terms = [1.0; 14];
    let mut k = 1;
    while k < terms.len() {
        terms[k] = terms[k - 1] / k as f64;
        k += 1;
    }
    terms
};

/// Computes e^x for |x| <= 700 with a relative error below 1e-15, by its series on [-ln 2 / 2, ln 2 / 2]. An addition rounds, as in
/// [`exp`].
#[inline(always)]
fn exp_f64(x: f64) -> f64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    let shifted = x * std::f64::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = x - n * 0.693_147_180_369_123_8 - n * 1.908_214_929_270_587_7e-10;
    let mut p = SERIES[SERIES.len() - 1];
    for term in SERIES[..SERIES.len() - 1].iter().rev() {
        p = p * r + term;
    }
    p * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52))
}

/// Computes `gate[j] <- silu(gate[j]) * up[j]` in f64.
#[pulp::with_simd(silu_mul_f64 = ARCH)]
#[inline(always)]
pub fn silu_mul_f64_simd<S: Simd>(_s: S, gate: &mut [f64], up: &[f64]) {
    for (g, u) in gate.iter_mut().zip(up) {
        *g = *g / (1.0 + exp_f64((-*g).clamp(-700.0, 700.0))) * u;
    }
}

/// Computes `gate[j] <- gelu(gate[j]) * up[j]` in f64, with the approximation of [`gelu_mul`].
#[pulp::with_simd(gelu_mul_f64 = ARCH)]
#[inline(always)]
pub fn gelu_mul_f64_simd<S: Simd>(_s: S, gate: &mut [f64], up: &[f64]) {
    for (g, u) in gate.iter_mut().zip(up) {
        let twice = 1.595_769_121_605_731 * (*g + 0.044_715 * *g * *g * *g);
        *g = *g / (1.0 + exp_f64((-twice).clamp(-700.0, 700.0))) * u;
    }
}

/// Computes e^x for x <= 88 with a relative error below 2e-7; exactly 0 below -87.
///
/// Cephes' polynomial on [-ln 2 / 2, ln 2 / 2]. Adding 1.5 * 2^23 + 127 rounds to the nearest integer and leaves it in the low
/// bits, with the bias of exponents; a shift makes it a power of two, without conversion or `floor`. The product with that power is
/// NaN where x is, whatever its bits are.
#[inline(always)]
fn exp<S: Simd>(s: S, x: S::f32s) -> S::f32s {
    let magic = s.splat_f32s(12_583_039.0);
    let shifted = s.mul_add_e_f32s(x, s.splat_f32s(std::f32::consts::LOG2_E), magic);
    let n = s.sub_f32s(shifted, magic);
    let r = s.mul_add_e_f32s(n, s.splat_f32s(-0.693_359_4), x);
    let r = s.mul_add_e_f32s(n, s.splat_f32s(2.121_944_4e-4), r);
    let p = s.mul_add_e_f32s(s.splat_f32s(1.987_569_2e-4), r, s.splat_f32s(1.398_2e-3));
    let p = s.mul_add_e_f32s(p, r, s.splat_f32s(8.333_452e-3));
    let p = s.mul_add_e_f32s(p, r, s.splat_f32s(4.166_579_6e-2));
    let p = s.mul_add_e_f32s(p, r, s.splat_f32s(1.666_666_5e-1));
    let p = s.mul_add_e_f32s(p, r, s.splat_f32s(0.5));
    let p = s.mul_add_e_f32s(p, s.mul_f32s(r, r), s.add_f32s(r, s.splat_f32s(1.0)));
    let power = s.wrapping_dyn_shl_u32s(s.transmute_u32s_f32s(shifted), s.splat_u32s(23));
    let scaled = s.mul_f32s(p, s.transmute_f32s_u32s(power));
    s.select_f32s(s.less_than_f32s(x, s.splat_f32s(-87.0)), s.splat_f32s(0.0), scaled)
}

/// `row[j] <- e^(row[j] + mask[j] - max)`, where `mask` is 0 or -inf; masked elements become exactly 0. Returns
/// `max` and the sum of the row. The length of both slices is a multiple of [`LANES`].
#[pulp::with_simd(softmax_row = ARCH)]
#[inline(always)]
pub fn softmax_row_simd<S: Simd>(s: S, row: &mut [f32], mask: &[f32]) -> (f32, f32) {
    let (row, rest) = S::as_mut_simd_f32s(row);
    let (mask, _) = S::as_simd_f32s(mask);
    debug_assert!(rest.is_empty() && row.len() == mask.len());
    let low = s.splat_f32s(f32::NEG_INFINITY);
    let mut high = [low; 4];
    let (quads, tail) = row.as_chunks_mut::<4>();
    let (mask_quads, mask_tail) = mask.as_chunks::<4>();
    for (x, m) in quads.iter_mut().zip(mask_quads) {
        for lane in 0..4 {
            x[lane] = s.add_f32s(x[lane], m[lane]);
            high[lane] = s.max_f32s(x[lane], high[lane]);
        }
    }
    for (x, m) in tail.iter_mut().zip(mask_tail) {
        *x = s.add_f32s(*x, *m);
        high[0] = s.max_f32s(*x, high[0]);
    }
    let max = s.reduce_max_f32s(s.max_f32s(s.max_f32s(high[0], high[1]), s.max_f32s(high[2], high[3])));
    let shift = s.splat_f32s(max);
    let mut sum = s.splat_f32s(0.0);
    for x in row {
        *x = exp(s, s.sub_f32s(*x, shift));
        sum = s.add_f32s(sum, *x);
    }
    (max, s.reduce_sum_f32s(sum))
}

/// Adds a scaled row: `onto[j] += scale * row[j]`.
#[pulp::with_simd(add_scaled = ARCH)]
#[inline(always)]
pub fn add_scaled_simd<S: Simd>(s: S, onto: &mut [f32], row: &[f32], scale: f32) {
    debug_assert_eq!(onto.len(), row.len());
    let (onto, onto_rest) = S::as_mut_simd_f32s(onto);
    let (row, row_rest) = S::as_simd_f32s(row);
    let scales = s.splat_f32s(scale);
    for (y, x) in onto.iter_mut().zip(row) {
        *y = s.mul_add_e_f32s(*x, scales, *y);
    }
    for (y, x) in onto_rest.iter_mut().zip(row_rest) {
        *y += *x * scale;
    }
}

/// Dot product of two vectors.
#[pulp::with_simd(dot = ARCH)]
#[inline(always)]
pub fn dot_simd<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = S::as_simd_f32s(a);
    let (b, b_rest) = S::as_simd_f32s(b);
    let mut sum = s.splat_f32s(0.0);
    for (a, b) in a.iter().zip(b) {
        sum = s.mul_add_f32s(*a, *b, sum);
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    s.reduce_sum_f32s(sum) + rest
}

/// Squared distance of two vectors, the sum of `(a[j] - b[j])^2`.
#[pulp::with_simd(squared_distance = ARCH)]
#[inline(always)]
pub fn squared_distance_simd<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = S::as_simd_f32s(a);
    let (b, b_rest) = S::as_simd_f32s(b);
    let mut sum = s.splat_f32s(0.0);
    for (a, b) in a.iter().zip(b) {
        let difference = s.sub_f32s(*a, *b);
        sum = s.mul_add_f32s(difference, difference, sum);
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| (a - b) * (a - b)).sum();
    s.reduce_sum_f32s(sum) + rest
}

/// Smallest of `values[j] - mask[j]`; NaN is left out.
#[pulp::with_simd(smallest = ARCH)]
#[inline(always)]
fn smallest_simd<S: Simd>(s: S, values: &[f32], mask: &[f32]) -> f32 {
    let (values, values_rest) = S::as_simd_f32s(values);
    let (mask, mask_rest) = S::as_simd_f32s(mask);
    let mut low = s.splat_f32s(f32::INFINITY);
    for (v, m) in values.iter().zip(mask) {
        // NaN first: x86 answers with the second where one is NaN, so this leaves it out.
        low = s.min_f32s(s.sub_f32s(*v, *m), low);
    }
    let mut low = s.reduce_min_f32s(low);
    for (v, m) in values_rest.iter().zip(mask_rest) {
        low = low.min(*v - *m);
    }
    low
}

/// Index of the smallest value whose mask is 0 and not -inf, the first of equal ones; `None` if there is none, or
/// all are NaN.
pub fn masked_argmin(values: &[f32], mask: &[f32]) -> Option<usize> {
    debug_assert_eq!(values.len(), mask.len());
    let low = smallest(values, mask);
    values.iter().zip(mask).position(|(v, m)| *m == 0.0 && *v == low)
}

/// Largest value of a row, where NaN is left out; -inf if there is no other value.
#[pulp::with_simd(largest = ARCH)]
#[inline(always)]
pub fn largest_simd<S: Simd>(s: S, row: &[f32]) -> f32 {
    let (row, rest) = S::as_simd_f32s(row);
    let mut high = [s.splat_f32s(f32::NEG_INFINITY); 4];
    let (quads, tail) = row.as_chunks::<4>();
    for x in quads {
        for lane in 0..4 {
            high[lane] = s.max_f32s(x[lane], high[lane]);
        }
    }
    for x in tail {
        high[0] = s.max_f32s(*x, high[0]);
    }
    let high = s.max_f32s(s.max_f32s(high[0], high[1]), s.max_f32s(high[2], high[3]));
    rest.iter().fold(s.reduce_max_f32s(high), |max, x| max.max(*x))
}

/// Index of the largest value, the first of equal ones; `None` if there is none, or all are NaN.
pub fn argmax(row: &[f32]) -> Option<usize> {
    let high = largest(row);
    row.iter().position(|x| *x == high)
}

/// Sum of e^(x - max) over the row; no x may be larger than `max`.
#[pulp::with_simd(exp_sum = ARCH)]
#[inline(always)]
pub fn exp_sum_simd<S: Simd>(s: S, row: &[f32], max: f32) -> f32 {
    let (row, rest) = S::as_simd_f32s(row);
    let shift = s.splat_f32s(max);
    // Several sums reduce the rounding error of a long row and make the additions independent.
    let mut sums = [s.splat_f32s(0.0); 4];
    let (quads, tail) = row.as_chunks::<4>();
    for x in quads {
        for lane in 0..4 {
            sums[lane] = s.add_f32s(sums[lane], exp(s, s.sub_f32s(x[lane], shift)));
        }
    }
    for x in tail {
        sums[0] = s.add_f32s(sums[0], exp(s, s.sub_f32s(*x, shift)));
    }
    let mut sum = s.reduce_sum_f32s(s.add_f32s(s.add_f32s(sums[0], sums[1]), s.add_f32s(sums[2], sums[3])));
    for x in rest {
        sum += (x - max).exp();
    }
    sum
}

/// Natural logarithm of the sum of e^x over the row.
pub fn log_sum_exp(row: &[f32]) -> f32 {
    let max = largest(row);
    max + exp_sum(row, max).ln()
}

/// Sum of e^(p - max) (p - q) over two rows; no p may be larger than `max`.
#[pulp::with_simd(weighted_difference = ARCH)]
#[inline(always)]
pub fn weighted_difference_simd<S: Simd>(s: S, p: &[f32], max: f32, q: &[f32]) -> f32 {
    debug_assert_eq!(p.len(), q.len());
    let (p, p_rest) = S::as_simd_f32s(p);
    let (q, q_rest) = S::as_simd_f32s(q);
    let shift = s.splat_f32s(max);
    let mut sum = s.splat_f32s(0.0);
    for (p, q) in p.iter().zip(q) {
        sum = s.mul_add_e_f32s(exp(s, s.sub_f32s(*p, shift)), s.sub_f32s(*p, *q), sum);
    }
    let mut sum = s.reduce_sum_f32s(sum);
    for (p, q) in p_rest.iter().zip(q_rest) {
        sum += (p - max).exp() * (p - q);
    }
    sum
}

/// Computes `x[j] <- f(x[j], y[j])`. The last numbers go through the same instructions as the others, so that their bits do not
/// depend on where a number is. It is a macro because a closure would not be compiled for the instruction set.
macro_rules! map_pairs {
    ($s:ident, $x:ident, $y:ident, $f:ident) => {{
        debug_assert_eq!($x.len(), $y.len());
        let (x, x_rest) = S::as_mut_simd_f32s($x);
        let (y, y_rest) = S::as_simd_f32s($y);
        for (x, y) in x.iter_mut().zip(y) {
            *x = $f($s, *x, *y);
        }
        let rest = $f($s, $s.partial_load_f32s(x_rest), $s.partial_load_f32s(y_rest));
        $s.partial_store_f32s(x_rest, rest);
    }};
}

/// Computes `gate[j] <- silu(gate[j]) * up[j]`.
#[pulp::with_simd(silu_mul = ARCH)]
#[inline(always)]
pub fn silu_mul_simd<S: Simd>(s: S, gate: &mut [f32], up: &[f32]) {
    map_pairs!(s, gate, up, silu);
}

#[inline(always)]
fn silu<S: Simd>(s: S, g: S::f32s, u: S::f32s) -> S::f32s {
    // e^-g would overflow below -88, where silu is 0 to f32 anyway.
    let e = exp(s, s.min_f32s(s.neg_f32s(g), s.splat_f32s(88.0)));
    s.div_f32s(s.mul_f32s(g, u), s.add_f32s(s.splat_f32s(1.0), e))
}

/// Limit of gate and up in gpt-oss. [`SWIGLU_SLOPE`] is the factor in its sigmoid.
pub const SWIGLU_LIMIT: f32 = 7.0;
pub const SWIGLU_SLOPE: f32 = 1.702;

/// Computes `gate[j] <- g * sigmoid(1.702 g) * (u + 1)`, where g is gate[j], at most 7, and u is up[j], between -7 and 7.
#[pulp::with_simd(limited_swiglu = ARCH)]
#[inline(always)]
pub fn limited_swiglu_simd<S: Simd>(s: S, gate: &mut [f32], up: &[f32]) {
    map_pairs!(s, gate, up, swiglu);
}

#[inline(always)]
fn swiglu<S: Simd>(s: S, g: S::f32s, u: S::f32s) -> S::f32s {
    let (one, low, high) = (s.splat_f32s(1.0), s.splat_f32s(-SWIGLU_LIMIT), s.splat_f32s(SWIGLU_LIMIT));
    let (g, u) = (s.min_f32s(g, high), s.max_f32s(s.min_f32s(u, high), low));
    let e = exp(s, s.min_f32s(s.mul_f32s(g, s.splat_f32s(-SWIGLU_SLOPE)), s.splat_f32s(88.0)));
    s.div_f32s(s.mul_f32s(g, s.add_f32s(u, one)), s.add_f32s(one, e))
}

/// Computes [`limited_swiglu`] in f64.
#[pulp::with_simd(limited_swiglu_f64 = ARCH)]
#[inline(always)]
pub fn limited_swiglu_f64_simd<S: Simd>(_s: S, gate: &mut [f64], up: &[f64]) {
    let limit = f64::from(SWIGLU_LIMIT);
    for (g, u) in gate.iter_mut().zip(up) {
        let (x, u) = (g.min(limit), u.clamp(-limit, limit));
        *g = x / (1.0 + exp_f64((-1.702 * x).clamp(-700.0, 700.0))) * (u + 1.0);
    }
}

/// Computes `gate[j] <- gelu(gate[j]) * up[j]`, with the approximation of GELU by tanh: x / (1 + e^-2y), where y = sqrt(2 / pi) (x
/// + 0.044715 x^3).
#[pulp::with_simd(gelu_mul = ARCH)]
#[inline(always)]
pub fn gelu_mul_simd<S: Simd>(s: S, gate: &mut [f32], up: &[f32]) {
    map_pairs!(s, gate, up, gelu);
}

#[inline(always)]
fn gelu<S: Simd>(s: S, g: S::f32s, u: S::f32s) -> S::f32s {
    const TWICE: f32 = 1.595_769_2; // 2 sqrt(2 / pi)
    const CUBE: f32 = 0.044_715;
    let one = s.splat_f32s(1.0);
    let inner = s.mul_add_e_f32s(s.mul_f32s(g, g), s.splat_f32s(CUBE), one);
    let y = s.mul_f32s(s.mul_f32s(g, inner), s.splat_f32s(TWICE));
    // e^-y would overflow below -88, where the result is 0 to f32 anyway.
    let e = exp(s, s.min_f32s(s.neg_f32s(y), s.splat_f32s(88.0)));
    s.div_f32s(s.mul_f32s(g, u), s.add_f32s(one, e))
}

/// Computes `out[j] <- row[j] / sqrt(mean(row^2) + eps) * weight[j]`.
#[pulp::with_simd(rms_norm = ARCH)]
#[inline(always)]
pub fn rms_norm_simd<S: Simd>(s: S, row: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    debug_assert!(row.len() == weight.len() && row.len() == out.len());
    let len = row.len() as f32;
    let (row, row_rest) = S::as_simd_f32s(row);
    let (weight, weight_rest) = S::as_simd_f32s(weight);
    let (out, out_rest) = S::as_mut_simd_f32s(out);
    let mut sums = [s.splat_f32s(0.0); 2];
    for (i, x) in row.iter().enumerate() {
        sums[i % 2] = s.mul_add_e_f32s(*x, *x, sums[i % 2]);
    }
    let sum = s.reduce_sum_f32s(s.add_f32s(sums[0], sums[1])) + row_rest.iter().map(|x| x * x).sum::<f32>();
    let scale = 1.0 / (sum / len + eps).sqrt();
    let scales = s.splat_f32s(scale);
    for ((y, x), w) in out.iter_mut().zip(row).zip(weight) {
        *y = s.mul_f32s(s.mul_f32s(*x, scales), *w);
    }
    for ((y, x), w) in out_rest.iter_mut().zip(row_rest).zip(weight_rest) {
        *y = x * scale * w;
    }
}

/// Turns every pair `(a[j], b[j])` by one angle.
#[pulp::with_simd(rotate = ARCH)]
#[inline(always)]
pub fn rotate_simd<S: Simd>(s: S, a: &mut [f32], b: &mut [f32], cos: f32, sin: f32) {
    debug_assert_eq!(a.len(), b.len());
    let (a, a_rest) = S::as_mut_simd_f32s(a);
    let (b, b_rest) = S::as_mut_simd_f32s(b);
    let (cos_s, sin_s) = (s.splat_f32s(cos), s.splat_f32s(sin));
    for (a, b) in a.iter_mut().zip(b) {
        let (x, y) = (*a, *b);
        *a = s.sub_f32s(s.mul_f32s(x, cos_s), s.mul_f32s(y, sin_s));
        *b = s.add_f32s(s.mul_f32s(y, cos_s), s.mul_f32s(x, sin_s));
    }
    for (a, b) in a_rest.iter_mut().zip(b_rest) {
        let (x, y) = (*a, *b);
        *a = x * cos - y * sin;
        *b = y * cos + x * sin;
    }
}

/// Sums N vectors of columns, from vector `at` on. There are no closures here: one that is not inlined is compiled without the
/// instruction set.
#[inline(always)]
fn combined<S: Simd, const N: usize>(
    s: S,
    weights: &[f32],
    table: &[f32],
    stride: usize,
    out: &mut [f32],
    at: usize,
) {
    let mut sums = [s.splat_f32s(0.0); N];
    for (row, weight) in weights.iter().enumerate() {
        let weight = s.splat_f32s(*weight);
        let (row, _) = S::as_simd_f32s(&table[row * stride..][..out.len()]);
        let row = &row[at..at + N];
        for n in 0..N {
            sums[n] = s.mul_add_e_f32s(weight, row[n], sums[n]);
        }
    }
    let (out, _) = S::as_mut_simd_f32s(out);
    out[at..at + N].copy_from_slice(&sums);
}

/// Multiplies one row with a table whose rows lie `stride` apart: `out <- sum of weights[i] * table[i * stride ..]`.
#[pulp::with_simd(combine = ARCH)]
#[inline(always)]
pub fn combine_simd<S: Simd>(s: S, weights: &[f32], table: &[f32], stride: usize, out: &mut [f32]) {
    assert!(out.len() <= stride);
    assert!(weights.is_empty() || table.len() >= (weights.len() - 1) * stride + out.len());
    let lanes = size_of::<S::f32s>() / size_of::<f32>();
    let vectors = out.len() / lanes;
    let mut at = 0;
    while at + 8 <= vectors {
        combined::<S, 8>(s, weights, table, stride, out, at);
        at += 8;
    }
    while at < vectors {
        combined::<S, 1>(s, weights, table, stride, out, at);
        at += 1;
    }
    for column in vectors * lanes..out.len() {
        let mut sum = 0.0f32;
        for (row, weight) in weights.iter().enumerate() {
            sum = weight.mul_add(table[row * stride + column], sum);
        }
        out[column] = sum;
    }
}

/// Computes the dot products of two to four queries (queries, k) with keys (n, k): `out[query * stride + key]`. Each is added up in
/// the order of its numbers, as `gemm` does, which copies all keys to another order first. Returns false and does nothing where
/// `gemm` has another order (for up to 256 products, and in vectors that it adds up in parts), and where the processor lacks the
/// instructions.
pub fn dots_of_few(
    queries: (&[f32], usize),
    keys: &[f32],
    k: usize,
    out: (&mut [f32], usize),
    count: (usize, usize),
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if (2..=4).contains(&count.0)
        && count.0 * count.1 > 256
        && k <= few::LONGEST
        && let Some(set) = pulp::x86::V3::try_new()
    {
        set.vectorize(few::Dots { set, queries, keys, k, out, count });
        return true;
    }
    let _ = (queries, keys, out);
    false
}

#[cfg(target_arch = "x86_64")]
mod few {
    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, bytemuck, f32x4};

    /// Largest length of a vector.
    pub(super) const LONGEST: usize = 256;
    /// Number of keys side by side: enough for their sums not to wait for one another.
    const KEYS: usize = 8;

    pub(super) struct Dots<'a> {
        pub set: V3,
        pub queries: (&'a [f32], usize),
        pub keys: &'a [f32],
        pub k: usize,
        pub out: (&'a mut [f32], usize),
        /// Number of queries and of keys.
        pub count: (usize, usize),
    }

    impl NullaryFnOnce for Dots<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Dots { set, queries: (queries, distance), keys, k, out: (out, stride), count: (rows, columns) } =
                self;
            // A vector has a number of each query.
            let mut by_query = [[0.0; 4]; LONGEST];
            for row in 0..rows {
                for (vector, number) in by_query.iter_mut().zip(&queries[row * distance..][..k]) {
                    vector[row] = *number;
                }
            }
            let by_query: &[f32x4] = bytemuck::cast_slice(&by_query[..k]);
            for first in (0..columns).step_by(KEYS) {
                let some = KEYS.min(columns - first);
                let keys: [_; KEYS] = std::array::from_fn(|key| &keys[(first + key.min(some - 1)) * k..][..k]);
                let mut sums = [set.splat_f32x4(0.0); KEYS];
                for (at, query) in by_query.iter().enumerate() {
                    for key in 0..KEYS {
                        sums[key] = set.mul_add_f32x4(set.splat_f32x4(keys[key][at]), *query, sums[key]);
                    }
                }
                for (key, sums) in sums[..some].iter().enumerate() {
                    let sums: [f32; 4] = pulp::cast(*sums);
                    for row in 0..rows {
                        out[row * stride + first + key] = sums[row];
                    }
                }
            }
        }
    }
}

/// Computes `out[n * stride + r] <-` the dot product of row r of weights with row n of x, for R rows of weights and N rows of x,
/// all of `input` floats. Each product is the sum of two sums, over even and odd vectors, in the same order for all R and N.
#[inline(always)]
fn dots<S: Simd, const R: usize, const N: usize>(
    s: S,
    x: &[f32],
    input: usize,
    w: &[f32],
    out: &mut [f32],
    stride: usize,
) {
    let w: [_; R] = std::array::from_fn(|r| S::as_simd_f32s(&w[r * input..][..input]));
    let x: [_; N] = std::array::from_fn(|n| S::as_simd_f32s(&x[n * input..][..input]));
    let vectors = w[0].0.len();
    let (w_body, x_body) = (w.map(|(body, _)| &body[..vectors]), x.map(|(body, _)| &body[..vectors]));
    let (mut even, mut odd) = ([[s.splat_f32s(0.0); N]; R], [[s.splat_f32s(0.0); N]; R]);
    let mut at = 0;
    while at + 1 < vectors {
        for r in 0..R {
            for n in 0..N {
                even[r][n] = s.mul_add_e_f32s(w_body[r][at], x_body[n][at], even[r][n]);
                odd[r][n] = s.mul_add_e_f32s(w_body[r][at + 1], x_body[n][at + 1], odd[r][n]);
            }
        }
        at += 2;
    }
    if at < vectors {
        for r in 0..R {
            for n in 0..N {
                even[r][n] = s.mul_add_e_f32s(w_body[r][at], x_body[n][at], even[r][n]);
            }
        }
    }
    // No closures here: one that is not inlined is compiled without the instruction set, and takes longer than the
    // product.
    for r in 0..R {
        for n in 0..N {
            let mut end = 0.0;
            for (w, x) in w[r].1.iter().zip(x[n].1) {
                end += w * x;
            }
            out[n * stride + r] = s.reduce_sum_f32s(s.add_f32s(even[r][n], odd[r][n])) + end;
        }
    }
}

/// Number of floats of x that are multiplied with all weights together: half of the first-level cache.
const NEAR: usize = 4096;

/// Computes the first `outputs` columns of `out` (rows, stride) `<- x weights^T`, where x is (rows, input) and the weights are
/// (outputs, input). The bits of an element depend only on its row of x and its row of weights.
#[pulp::with_simd(row_products = ARCH)]
#[inline(always)]
pub fn row_products_simd<S: Simd>(s: S, x: &[f32], input: usize, weights: &[f32], out: &mut [f32], stride: usize) {
    assert!(input > 0 && x.len().is_multiple_of(input) && weights.len().is_multiple_of(input));
    let (rows, outputs) = (x.len() / input, weights.len() / input);
    assert!(outputs <= stride && (rows == 0 || out.len() >= (rows - 1) * stride + outputs));
    let fours = rows / 4 * 4;
    let near = (NEAR / input / 4 * 4).max(4);
    for first in (0..fours).step_by(near) {
        let end = (first + near).min(fours);
        for output in (0..outputs / 2 * 2).step_by(2) {
            for row in (first..end).step_by(4) {
                let (x, w) = (&x[row * input..], &weights[output * input..]);
                dots::<S, 2, 4>(s, x, input, w, &mut out[row * stride + output..], stride);
            }
        }
        if outputs % 2 == 1 {
            let last = outputs - 1;
            for row in (first..end).step_by(4) {
                let (x, w) = (&x[row * input..], &weights[last * input..]);
                dots::<S, 1, 4>(s, x, input, w, &mut out[row * stride + last..], stride);
            }
        }
    }
    for row in fours..rows {
        let x = &x[row * input..];
        let whole = outputs / 4 * 4;
        for output in (0..whole).step_by(4) {
            dots::<S, 4, 1>(s, x, input, &weights[output * input..], &mut out[row * stride + output..], stride);
        }
        for output in whole..outputs {
            dots::<S, 1, 1>(s, x, input, &weights[output * input..], &mut out[row * stride + output..], stride);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, scale: f32) -> Vec<f32> {
        // A fixed irregular sequence in [-scale, scale].
        (0..n).map(|i| ((i as f32 * 12.9898).sin() * 43_758.547).fract() * scale).collect()
    }

    #[track_caller]
    fn close(got: f32, want: f64, tolerance: f64) {
        assert!((f64::from(got) - want).abs() <= tolerance, "{got} is not {want}");
    }

    #[test]
    fn a_row_times_a_table() {
        for (rows, columns, stride) in
            [(1, 16, 16), (5, 48, 50), (32, 160, 640), (3, 0, 4), (0, 16, 16), (5, 37, 40)]
        {
            let (weights, table) = (numbers(rows, 1.0), numbers(rows * stride, 1.0));
            let mut out = vec![f32::NAN; columns];
            combine(&weights, &table, stride, &mut out);
            for (column, got) in out.iter().enumerate() {
                let term = |(row, w): (usize, &f32)| f64::from(*w) * f64::from(table[row * stride + column]);
                close(*got, weights.iter().enumerate().map(term).sum(), 1e-5);
            }
        }
    }

    #[test]
    fn softmax_agrees_with_libm_and_masked_elements_become_exactly_zero() {
        for scale in [1e-3, 1.0, 30.0, 86.0] {
            let mut x = numbers(256, scale);
            let max = x.iter().copied().fold(f32::MIN, f32::max);
            let expected: Vec<f64> = x.iter().map(|x| f64::from(x - max).exp()).collect();
            let mut mask = [0.0; 256];
            let masked = x.iter().position(|x| *x < max).unwrap();
            (x[masked], mask[masked]) = (1e4, f32::NEG_INFINITY);
            let (found, sum) = softmax_row(&mut x, &mask);
            assert_eq!((found, x[masked]), (max, 0.0));
            for (at, (got, want)) in x.iter().zip(&expected).enumerate().filter(|(at, _)| *at != masked) {
                assert!(got.is_finite(), "{at}");
                close(*got, *want, 3e-7 * want + 1e-37);
            }
            let total = expected.iter().sum::<f64>() - expected[masked];
            close(sum, total, 1e-5 * total);
        }
    }

    #[test]
    fn argmin_prefers_the_first_and_skips_masked_values() {
        let values = [3.0, 0.0, 2.0, 1.0, 1.0];
        let masked = f32::NEG_INFINITY;
        assert_eq!(masked_argmin(&values, &[0.0, masked, 0.0, 0.0, 0.0]), Some(3));
        assert_eq!(masked_argmin(&values, &[masked; 5]), None);
        assert_eq!(masked_argmin(&[f32::INFINITY], &[0.0]), Some(0));
    }

    /// One element is NaN, whichever it is: functions that look for the largest or smallest value find that of the others, and sums
    /// are NaN.
    fn reductions_with_nan<S: Simd>(s: S) {
        let is_nan = |x: f32| assert!(x.is_nan(), "{x}");
        for n in [1, 5, 16, 32, 48, 80, 144] {
            for at in 0..n {
                // Falling values and rising ones, so that the extreme lies before the NaN or after it; and NaN of several bits.
                for (step, bits) in [(1.0, 0x7fc0_0000), (-1.0, 0x7fc0_0000), (1.0, u32::MAX), (-1.0, 0x7fc0_7fc0)]
                {
                    let mut row: Vec<f32> = (0..n).map(|i| step * i as f32 / 16.0).collect();
                    let ones = vec![1.0; n];
                    row[at] = f32::from_bits(bits);
                    let fold = |f: fn(f32, f32) -> f32, from| row.iter().copied().fold(from, f);
                    assert_eq!(smallest_simd(s, &row, &vec![0.0; n]), fold(f32::min, f32::INFINITY), "{n} {at}");
                    assert_eq!(largest_simd(s, &row), fold(f32::max, f32::NEG_INFINITY), "{n} {at}");
                    is_nan(dot_simd(s, &row, &ones));
                    is_nan(squared_distance_simd(s, &ones, &row));
                    is_nan(exp_sum_simd(s, &row, 9.0));
                    is_nan(weighted_difference_simd(s, &row, 9.0, &ones));
                    is_nan(weighted_difference_simd(s, &ones, 9.0, &row));
                    let mut out = vec![0.0; n];
                    rms_norm_simd(s, &row, &ones, 1e-5, &mut out);
                    out.into_iter().for_each(is_nan);
                    if n % LANES == 0 {
                        let largest = fold(f32::max, f32::NEG_INFINITY);
                        let (max, sum) = softmax_row_simd(s, &mut row, &vec![0.0; n]);
                        assert_eq!(max, largest, "{n} {at}");
                        is_nan(sum);
                        is_nan(row[at]);
                    }
                }
            }
        }
    }

    #[test]
    fn nan_in_every_lane_of_every_reduction() {
        reductions_with_nan(pulp::Scalar::new());
        #[cfg(target_arch = "x86_64")]
        {
            pulp::x86::V3::try_new().into_iter().for_each(reductions_with_nan);
            pulp::x86::V4::try_new().into_iter().for_each(reductions_with_nan);
        }
        #[cfg(target_arch = "aarch64")]
        pulp::aarch64::Neon::try_new().into_iter().for_each(reductions_with_nan);
    }

    #[test]
    fn argmax_is_the_first_of_the_largest() {
        for n in [1, 5, 16, 63, 64, 65, 257, 2048] {
            for at in [0, n / 3, n / 2, n - 1] {
                let mut row = numbers(n, 4.0);
                row[at] = 5.0;
                assert_eq!(argmax(&row), Some(at), "{n}");
                row[n - 1] = 5.0;
                assert_eq!(argmax(&row), Some(at), "{n}");
            }
        }
        assert_eq!(argmax(&[f32::NEG_INFINITY; 40]), Some(0));
        assert_eq!(argmax(&[f32::NAN; 40]), None);
        assert_eq!(argmax(&[]), None);
    }

    #[test]
    fn rows_of_any_length() {
        for n in [1, 7, 16, 33, 130] {
            let (x, w) = (numbers(n, 4.0), numbers(n, 1.0));
            let lse = x.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
            close(log_sum_exp(&x), lse, 1e-5);
            let mut out = vec![0.0; n];
            rms_norm(&x, &w, 1e-5, &mut out);
            let rms = (x.iter().map(|x| f64::from(x * x)).sum::<f64>() / n as f64 + 1e-5).sqrt();
            let mut gate = x.clone();
            silu_mul(&mut gate, &w);
            for j in 0..n {
                close(out[j], f64::from(x[j] * w[j]) / rms, 1e-5);
                close(gate[j], f64::from(x[j]) / (1.0 + f64::from(-x[j]).exp()) * f64::from(w[j]), 1e-6);
            }
            let mut gate = x.clone();
            gelu_mul(&mut gate, &w);
            for j in 0..n {
                let x = f64::from(x[j]);
                let tanh = (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))).tanh();
                close(gate[j], 0.5 * x * (1.0 + tanh) * f64::from(w[j]), 1e-6);
            }
        }
    }

    #[test]
    fn other_types() {
        let x: Vec<f64> = (-4000..4000).map(|i| f64::from(i) * 0.017).chain([-1e4, 1e4, 0.0]).collect();
        let w: Vec<f64> = x.iter().map(|x| 1.0 + 0.1 * x.sin()).collect();
        let (mut silu, mut gelu) = (x.clone(), x.clone());
        silu_mul_f64(&mut silu, &w);
        gelu_mul_f64(&mut gelu, &w);
        for (j, x) in x.iter().copied().enumerate() {
            let want = x / (1.0 + (-x).exp()) * w[j];
            assert!((silu[j] - want).abs() <= 4e-15 * want.abs() + 1e-290, "silu of {x}: {} {want}", silu[j]);
            let y = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3));
            let want = x / (1.0 + (-2.0 * y).exp()) * w[j];
            // An exponent of several hundreds has lost three digits.
            assert!((gelu[j] - want).abs() <= 1e-12 * want.abs() + 1e-290, "gelu of {x}: {} {want}", gelu[j]);
        }
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let mut wide = vec![0.0; all.len()];
        let halves: Vec<f16> = all.iter().copied().map(f16::from_bits).collect();
        widen_f16(&halves, &mut wide);
        for (half, wide) in halves.iter().zip(&wide) {
            assert!(
                wide.to_bits() == half.to_f32().to_bits() || wide.is_nan() && half.is_nan(),
                "{half:?} {wide}"
            );
        }
        let halves: Vec<bf16> = all.iter().copied().map(bf16::from_bits).collect();
        widen_bf16(&halves, &mut wide);
        for (half, wide) in halves.iter().zip(&wide) {
            assert!(
                wide.to_bits() == half.to_f32().to_bits() || wide.is_nan() && half.is_nan(),
                "{half:?} {wide}"
            );
        }
        let mut wide = [0.0; 3];
        widen_f64(&[0.1, -2.0, f32::MAX], &mut wide);
        assert_eq!(wide, [f64::from(0.1f32), -2.0, f64::from(f32::MAX)]);
    }

    #[test]
    fn silu_of_extremes_is_finite() {
        let mut gate = [0.0; 16];
        gate[..5].copy_from_slice(&[-1000.0, -90.0, 0.0, 90.0, 1000.0]);
        silu_mul(&mut gate, &[1.0; 16]);
        assert_eq!((gate[2], gate[3], gate[4]), (0.0, 90.0, 1000.0));
        assert!(gate[0].abs() < 1e-30 && gate[1].abs() < 1e-30);
    }

    #[test]
    fn row_products_by_hand_and_one_row_at_a_time() {
        for input in [1, 5, 16, 33, 64, 130] {
            let weights = numbers(7 * input, 1.0);
            let x = numbers(6 * input, 2.0);
            let mut all = vec![0.0; 7 * 6];
            row_products(&x, input, &weights, &mut all, 7);
            for row in 0..6 {
                let mut alone = vec![0.0; 7];
                row_products(&x[row * input..][..input], input, &weights, &mut alone, 7);
                for out in 0..7 {
                    let pairs = x[row * input..][..input].iter().zip(&weights[out * input..][..input]);
                    close(all[row * 7 + out], pairs.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum(), 1e-4);
                    assert_eq!(all[row * 7 + out].to_bits(), alone[out].to_bits(), "{input}");
                }
            }
            // Splitting the weights must not change a bit.
            let mut parts = vec![0.0; 7 * 6];
            row_products(&x, input, &weights[..2 * input], &mut parts, 7);
            row_products(&x, input, &weights[2 * input..], &mut parts[2..], 7);
            assert_eq!(parts, all);
        }
    }
}
