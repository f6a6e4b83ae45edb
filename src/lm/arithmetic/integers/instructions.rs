//! Operations of the kernel in each instruction set.
//!
//! All sets compute a float by the same operations in the same order, so they give the same bits. `pulp` has what they need; if the
//! processor adds up products of integers in one instruction, the compiler makes one instruction of two.

use pulp::bytemuck::{Pod, Zeroable};
use pulp::{NullaryFnOnce, cast};

use super::PANEL;
use super::weights::Words;

/// Vectors over the outputs of a panel, and over pairs of columns, which are side by side for each output.
pub(super) trait Lanes: Copy {
    /// Number of rows whose sums fit into the registers.
    const ROWS: usize;
    type Pairs: Pod;
    type Sums: Pod;
    type Floats: Pod;

    /// Calls a function with the instruction set in use. Everything it calls must be inlined.
    fn vectorize<F: NullaryFnOnce>(self, call: F) -> F::Output;
    /// Computes `words << left >> right`, where the sign is kept if `signed`, or else zeros are shifted in.
    fn integers(self, words: Self::Pairs, left: usize, right: usize, signed: bool) -> Self::Pairs;
    /// Computes `sums + first * x.0 + second * x.1` modulo 2^32, which factors of the promised sizes do not reach.
    fn add_products(self, sums: Self::Sums, pairs: Self::Pairs, x: [i16; 2]) -> Self::Sums;
    /// Computes `onto + sums * scales * scale`: a conversion, a product, and a product with its addition.
    fn add_scaled(self, onto: Self::Floats, sums: Self::Sums, scales: Self::Floats, scale: f32) -> Self::Floats;
    /// Computes `onto + floats * scale`, rounded once.
    fn add_multiple(self, onto: Self::Floats, floats: Self::Floats, scale: f32) -> Self::Floats;

    #[inline(always)]
    fn zeros(self) -> (Self::Sums, Self::Floats) {
        (Self::Sums::zeroed(), Self::Floats::zeroed())
    }

    #[inline(always)]
    fn words(self, words: &Words) -> Self::Pairs {
        cast(*words)
    }

    #[inline(always)]
    fn floats(self, numbers: &[f32; PANEL]) -> Self::Floats {
        cast(*numbers)
    }

    #[inline(always)]
    fn numbers(self, floats: Self::Floats) -> [f32; PANEL] {
        cast(floats)
    }
}

/// Operations without vectors, which define those of all instruction sets.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Lanes for Plain {
    const ROWS: usize = 1;
    type Pairs = Words;
    type Sums = [i32; PANEL];
    type Floats = [f32; PANEL];

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, call: F) -> F::Output {
        call.call()
    }

    #[inline(always)]
    fn integers(self, mut words: Words, left: usize, right: usize, signed: bool) -> Words {
        for word in &mut words {
            *word = if signed { ((*word << left) as i16 >> right) as u16 } else { *word << left >> right };
        }
        words
    }

    #[inline(always)]
    fn add_products(self, mut sums: [i32; PANEL], pairs: Words, x: [i16; 2]) -> [i32; PANEL] {
        for (sum, pair) in sums.iter_mut().zip(pairs.as_chunks::<2>().0) {
            let product = |column: usize| i32::from(pair[column] as i16) * i32::from(x[column]);
            *sum = sum.wrapping_add(product(0)).wrapping_add(product(1));
        }
        sums
    }

    #[inline(always)]
    fn add_scaled(self, onto: [f32; PANEL], sums: [i32; PANEL], scales: [f32; PANEL], scale: f32) -> [f32; PANEL] {
        self.add_multiple(onto, std::array::from_fn(|lane| sums[lane] as f32 * scales[lane]), scale)
    }

    #[inline(always)]
    fn add_multiple(self, onto: [f32; PANEL], floats: [f32; PANEL], scale: f32) -> [f32; PANEL] {
        std::array::from_fn(|lane| floats[lane].mul_add(scale, onto[lane]))
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use pulp::x86::{V3, V4};
    use pulp::{Simd, f32x8, f32x16, i16x16, i16x32, i32x8, i32x16, u64x2};

    use super::*;

    pulp::simd_type! {
        /// Instructions of V4, and the sum of two products of integers added to a third number. All are named, because only named
        /// instructions are looked for and compiled for.
        struct Vnni {
            sse: "sse",
            sse2: "sse2",
            fxsr: "fxsr",
            sse3: "sse3",
            ssse3: "ssse3",
            sse4_1: "sse4.1",
            sse4_2: "sse4.2",
            popcnt: "popcnt",
            avx: "avx",
            avx2: "avx2",
            bmi1: "bmi1",
            bmi2: "bmi2",
            fma: "fma",
            lzcnt: "lzcnt",
            avx512f: "avx512f",
            avx512bw: "avx512bw",
            avx512cd: "avx512cd",
            avx512dq: "avx512dq",
            avx512vl: "avx512vl",
            avx512vnni: "avx512vnni",
        }
    }

    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512 {
        own: V4,
        vnni: Option<Vnni>,
    }

    impl Avx512 {
        pub fn try_new() -> Option<Avx512> {
            V4::try_new().map(|own| Avx512 { own, vnni: Vnni::try_new() })
        }
    }

    impl Lanes for Avx512 {
        const ROWS: usize = 12;
        type Pairs = i16x32;
        type Sums = i32x16;
        type Floats = f32x16;

        #[inline(always)]
        fn vectorize<F: NullaryFnOnce>(self, call: F) -> F::Output {
            match self.vnni {
                Some(vnni) => vnni.vectorize(call),
                None => self.own.vectorize(call),
            }
        }

        #[inline(always)]
        fn integers(self, words: i16x32, left: usize, right: usize, signed: bool) -> i16x32 {
            let (left, right) = (u64x2(left as u64, 0), u64x2(right as u64, 0));
            let words = self.own.shl_i16x32(words, left);
            if signed { self.own.shr_i16x32(words, right) } else { cast(self.own.shr_u16x32(cast(words), right)) }
        }

        #[inline(always)]
        fn add_products(self, sums: i32x16, pairs: i16x32, x: [i16; 2]) -> i32x16 {
            let x = self.own.splat_i32x16(cast(x));
            let products = self.own.multiply_wrapping_add_adjacent_i16x32(pairs, cast(x));
            cast(self.own.add_u32s(cast(sums), cast(products)))
        }

        #[inline(always)]
        fn add_scaled(self, onto: f32x16, sums: i32x16, scales: f32x16, scale: f32) -> f32x16 {
            self.add_multiple(onto, self.own.mul_f32s(self.own.convert_i32x16_to_f32x16(sums), scales), scale)
        }

        #[inline(always)]
        fn add_multiple(self, onto: f32x16, floats: f32x16, scale: f32) -> f32x16 {
            self.own.mul_add_f32s(floats, self.own.splat_f32x16(scale), onto)
        }
    }

    impl Lanes for V3 {
        const ROWS: usize = 4;
        type Pairs = [i16x16; 2];
        type Sums = [i32x8; 2];
        type Floats = [f32x8; 2];

        #[inline(always)]
        fn vectorize<F: NullaryFnOnce>(self, call: F) -> F::Output {
            self.vectorize(call)
        }

        #[inline(always)]
        fn integers(self, words: [i16x16; 2], left: usize, right: usize, signed: bool) -> [i16x16; 2] {
            let by = (u64x2(left as u64, 0), u64x2(right as u64, 0));
            [shifted(self, words[0], by, signed), shifted(self, words[1], by, signed)]
        }

        #[inline(always)]
        fn add_products(self, sums: [i32x8; 2], pairs: [i16x16; 2], x: [i16; 2]) -> [i32x8; 2] {
            let x: i16x16 = cast(self.splat_i32x8(cast(x)));
            [sum_of_products(self, sums[0], pairs[0], x), sum_of_products(self, sums[1], pairs[1], x)]
        }

        #[inline(always)]
        fn add_scaled(self, onto: [f32x8; 2], sums: [i32x8; 2], scales: [f32x8; 2], scale: f32) -> [f32x8; 2] {
            let scaled = [scaled(self, sums[0], scales[0]), scaled(self, sums[1], scales[1])];
            self.add_multiple(onto, scaled, scale)
        }

        #[inline(always)]
        fn add_multiple(self, onto: [f32x8; 2], floats: [f32x8; 2], scale: f32) -> [f32x8; 2] {
            let scale = self.splat_f32s(scale);
            [self.mul_add_f32s(floats[0], scale, onto[0]), self.mul_add_f32s(floats[1], scale, onto[1])]
        }
    }

    // Halves of what V3 does with 16 columns. Not closures: these are not always inlined, and an instruction of a set that its function
    // lacks is then a call.

    #[inline(always)]
    fn shifted(set: V3, words: i16x16, (left, right): (u64x2, u64x2), signed: bool) -> i16x16 {
        let words = set.shl_i16x16(words, left);
        if signed { set.shr_i16x16(words, right) } else { cast(set.shr_u16x16(cast(words), right)) }
    }

    #[inline(always)]
    fn sum_of_products(set: V3, sum: i32x8, pairs: i16x16, x: i16x16) -> i32x8 {
        let products = set.multiply_wrapping_add_adjacent_i16x16(pairs, x);
        cast(set.add_u32s(cast(sum), cast(products)))
    }

    #[inline(always)]
    fn scaled(set: V3, sum: i32x8, scale: f32x8) -> f32x8 {
        set.mul_f32s(set.convert_i32x8_to_f32x8(sum), scale)
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) mod neon {
    use pulp::aarch64::Neon;
    use pulp::{Simd, f32x4, i16x8, i32x4};

    use super::*;

    impl Lanes for Neon {
        const ROWS: usize = 2;
        type Pairs = [i16x8; 4];
        /// Sums of the first column and of the second, which are added up at the end.
        type Sums = [i32x4; 8];
        type Floats = [f32x4; 4];

        #[inline(always)]
        fn vectorize<F: NullaryFnOnce>(self, call: F) -> F::Output {
            self.vectorize(call)
        }

        #[inline(always)]
        fn integers(self, words: [i16x8; 4], left: usize, right: usize, signed: bool) -> [i16x8; 4] {
            // To the right is to the left by less than nothing.
            let by = |amount: i16| pulp::cast!([amount; 8]);
            words.map(|words| {
                let words = self.neon.vshlq_s16(pulp::cast!(words), by(left as i16));
                let right = by(-(right as i16));
                if signed {
                    pulp::cast!(self.neon.vshlq_s16(words, right))
                } else {
                    pulp::cast!(self.neon.vshlq_u16(pulp::cast!(words), right))
                }
            })
        }

        #[inline(always)]
        fn add_products(self, sums: [i32x4; 8], pairs: [i16x8; 4], x: [i16; 2]) -> [i32x4; 8] {
            let x = pulp::cast!(self.splat_u32s(cast(x)));
            std::array::from_fn(|quarter| {
                let (sums, pairs) = (pulp::cast!(sums[quarter]), pulp::cast!(pairs[quarter / 2]));
                if quarter % 2 == 0 {
                    let low = |vector| self.neon.vget_low_s16(vector);
                    pulp::cast!(self.neon.vmlal_s16(sums, low(pairs), low(x)))
                } else {
                    pulp::cast!(self.neon.vmlal_high_s16(sums, pairs, x))
                }
            })
        }

        #[inline(always)]
        fn add_scaled(self, onto: [f32x4; 4], sums: [i32x4; 8], scales: [f32x4; 4], scale: f32) -> [f32x4; 4] {
            let scaled = std::array::from_fn(|quarter| {
                let [first, second] = [0, 1].map(|half| pulp::cast!(sums[2 * quarter + half]));
                let floats = self.neon.vcvtq_f32_s32(self.neon.vpaddq_s32(first, second));
                self.mul_f32s(pulp::cast!(floats), scales[quarter])
            });
            self.add_multiple(onto, scaled, scale)
        }

        #[inline(always)]
        fn add_multiple(self, onto: [f32x4; 4], floats: [f32x4; 4], scale: f32) -> [f32x4; 4] {
            let scale = self.splat_f32s(scale);
            std::array::from_fn(|quarter| self.mul_add_f32s(floats[quarter], scale, onto[quarter]))
        }
    }
}
