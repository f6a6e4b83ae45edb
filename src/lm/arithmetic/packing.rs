//! Vectors in the formats of caches: packed to bytes, and unpacked to floats.
//!
//! llama.cpp's blocks are packed by candle (and `iq4_nl`, which candle lacks, here), to the bytes of `quantize_row_*_ref` in ggml-quants.c.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use super::blocks::{self, IQ4_NL};
use super::product::{Right, product};
use crate::eviction::{GROUP, NumberFormat, VectorFormat};
use crate::vector;

/// Packs and unpacks vectors of `dim` numbers.
#[derive(Debug)]
pub(in crate::lm) struct Packing {
    numbers: NumberFormat,
    dim: usize,
    /// Orthogonal matrix that parts of a vector are multiplied by before they are packed: (n, n)
    rotation: Option<(usize, Vec<f32>)>,
    /// Levels of a coordinate of a turned vector of length 1, ascending.
    levels: Vec<f32>,
}

/// Whether a vector is a key or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lm) enum Part {
    Key,
    Value,
}

impl Packing {
    /// Returns the packing of a format, which is made once: levels and rotations take a while.
    pub fn of(format: VectorFormat, dim: usize, part: Part) -> Arc<Packing> {
        type Known = HashMap<(VectorFormat, usize, Part), Arc<Packing>>;
        static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry((format, dim, part)).or_insert_with(|| Arc::new(Packing::new(format, dim, part))))
    }

    fn new(format: VectorFormat, dim: usize, part: Part) -> Packing {
        let VectorFormat { numbers, hadamard } = format;
        let of_two = 1 << dim.trailing_zeros();
        // As in llama-kv-cache.cpp.
        let size = if part == Part::Key { of_two } else { of_two.min(64) };
        let hadamard = hadamard.then(|| (size, hadamard_matrix(size)));
        let levels = numbers.turbo_bits().map_or(Vec::new(), |bits| turbo_levels(dim, 1 << bits));
        let random = numbers.turbo_bits().map(|_| (dim, random_rotation(dim)));
        Packing { numbers, dim, rotation: hadamard.or(random), levels }
    }

    /// Bytes of a vector.
    pub fn bytes(&self) -> usize {
        self.numbers.stored_bytes(self.dim)
    }

    /// Turns vectors as those that are packed: `(vectors, dim)`.
    pub fn turn(&self, vectors: &mut [f32]) {
        self.multiply(vectors, true);
    }

    /// Turns vectors back.
    pub fn turn_back(&self, vectors: &mut [f32]) {
        self.multiply(vectors, false);
    }

    fn multiply(&self, vectors: &mut [f32], forth: bool) {
        let Some((size, matrix)) = &self.rotation else { return };
        let right = || if forth { Right::Transposed(matrix) } else { Right::Rows(matrix) };
        // One vector after the other, so that its bits do not depend on the others.
        let mut turned = vec![0.0; *size];
        for vector in vectors.chunks_exact_mut(*size) {
            product((1, *size, *size), (&mut turned, *size), (vector, *size), right());
            vector.copy_from_slice(&turned);
        }
    }

    /// Packs vectors `(vectors, dim)` that were turned.
    pub fn pack(&self, vectors: &[f32]) -> Vec<u8> {
        let of_each = |number: fn(f32) -> u8| vectors.iter().map(|x| number(*x)).collect();
        if let Some(stored) = stored_by_candle(self.numbers) {
            let packed = Tensor::from_slice(vectors, (vectors.len() / GROUP, GROUP), &Device::Cpu)
                .and_then(|blocks| QTensor::quantize(&blocks, stored)?.data().map(|bytes| bytes.into_owned()));
            return packed.expect("whole blocks of floats on the host");
        }
        match self.numbers {
            NumberFormat::F32 => vectors.iter().flat_map(|x| x.to_le_bytes()).collect(),
            NumberFormat::F16 => vectors.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
            NumberFormat::Bf16 => vectors.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
            NumberFormat::Fp8E4m3 => of_each(|x| F8E4M3::from_f32(x).to_bits()),
            NumberFormat::Fp8E5m2 => of_each(|x| F8E5M2::from_f32(x).to_bits()),
            NumberFormat::Iq4Nl => vectors.as_chunks().0.iter().flat_map(iq4_nl).collect(),
            NumberFormat::Turbo4 | NumberFormat::Turbo3 => {
                vectors.chunks_exact(self.dim).flat_map(|vector| self.turbo(vector)).collect()
            }
            numbers => unreachable!("KIVI packs entries together, and candle has {numbers:?}"),
        }
    }

    /// Unpacks vectors, which are still turned, to `(vectors, dim)`.
    pub fn unpack(&self, bytes: &[u8], to: &mut [f32]) {
        static E4M3: LazyLock<[f32; 256]> =
            LazyLock::new(|| std::array::from_fn(|bits| F8E4M3::from_bits(bits as u8).to_f32()));
        static E5M2: LazyLock<[f32; 256]> =
            LazyLock::new(|| std::array::from_fn(|bits| F8E5M2::from_bits(bits as u8).to_f32()));
        let by_table = |to: &mut [f32], table: &[f32; 256]| {
            to.iter_mut().zip(bytes).for_each(|(to, bits)| *to = table[usize::from(*bits)]);
        };
        if let Some(stored) = stored_by_candle(self.numbers) {
            return blocks::unpack(stored, bytes, to);
        }
        match self.numbers {
            NumberFormat::F32 => {
                to.iter_mut().zip(bytes.as_chunks().0).for_each(|(to, x)| *to = f32::from_le_bytes(*x));
            }
            NumberFormat::F16 => {
                let halves: Vec<f16> = bytes.as_chunks().0.iter().map(|x| f16::from_le_bytes(*x)).collect();
                vector::widen_f16(&halves, to);
            }
            NumberFormat::Bf16 => {
                let halves: Vec<bf16> = bytes.as_chunks().0.iter().map(|x| bf16::from_le_bytes(*x)).collect();
                vector::widen_bf16(&halves, to);
            }
            NumberFormat::Fp8E4m3 => by_table(to, &E4M3),
            NumberFormat::Fp8E5m2 => by_table(to, &E5M2),
            NumberFormat::Iq4Nl => blocks::unpack_iq4_nl(bytes, to),
            NumberFormat::Turbo4 | NumberFormat::Turbo3 => {
                let vectors = to.chunks_exact_mut(self.dim).zip(bytes.chunks_exact(self.bytes()));
                vectors.for_each(|(to, bytes)| self.turbo_back(bytes, to));
            }
            numbers => unreachable!("KIVI packs entries together, and candle has {numbers:?}"),
        }
    }

    /// The length of a turned vector, and the nearest level of each coordinate of its direction, in the order of bits.
    fn turbo(&self, vector: &[f32]) -> Vec<u8> {
        let length = f16::from_f32(vector.iter().map(|x| x * x).sum::<f32>().sqrt());
        let scale = if length.to_f32() > 0.0 { 1.0 / length.to_f32() } else { 0.0 };
        let nearest = |x: f32| {
            let borders = self.levels.windows(2).map(|pair| f32::midpoint(pair[0], pair[1]));
            borders.take_while(|border| x * scale > *border).count() as u8
        };
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(bits::pack(vector.iter().map(|x| nearest(*x)), self.levels.len().ilog2() as usize));
        bytes
    }

    fn turbo_back(&self, bytes: &[u8], to: &mut [f32]) {
        let length = f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
        let levels = bits::unpack(&bytes[2..], self.levels.len().ilog2() as usize);
        to.iter_mut().zip(levels).for_each(|(to, level)| *to = self.levels[usize::from(level)] * length);
    }
}

/// The type of candle that packs numbers of a format.
fn stored_by_candle(numbers: NumberFormat) -> Option<GgmlDType> {
    match numbers {
        NumberFormat::Q8_0 => Some(GgmlDType::Q8_0),
        NumberFormat::Q5_1 => Some(GgmlDType::Q5_1),
        NumberFormat::Q5_0 => Some(GgmlDType::Q5_0),
        NumberFormat::Q4_1 => Some(GgmlDType::Q4_1),
        NumberFormat::Q4_0 => Some(GgmlDType::Q4_0),
        _ => None,
    }
}

/// Integers of a few bits, the lowest bits of a byte first.
pub(in crate::lm) mod bits {
    /// Packs integers of `width` bits, up to 8.
    pub fn pack(integers: impl Iterator<Item = u8>, width: usize) -> Vec<u8> {
        let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
        for integer in integers {
            held |= u32::from(integer) << bits;
            bits += width;
            if bits >= 8 {
                bytes.push(held as u8);
                (held, bits) = (held >> 8, bits - 8);
            }
        }
        bytes.extend((bits > 0).then_some(held as u8));
        bytes
    }

    /// Unpacks integers of `width` bits; at the end there may be some that were not packed.
    pub fn unpack(bytes: &[u8], width: usize) -> impl Iterator<Item = u8> {
        (0..8 * bytes.len() / width).map(move |at| {
            let bit = at * width;
            let high = bytes.get(bit / 8 + 1).map_or(0, |byte| u32::from(*byte) << 8);
            ((u32::from(bytes[bit / 8]) | high) >> (bit % 8)) as u8 & ((1 << width) - 1)
        })
    }
}

/// Packs a block as `quantize_row_iq4_nl_ref` does: the scale is that of the largest number first, and then the one with the least squared
/// error, weighted by squares, of the levels found.
fn iq4_nl(block: &[f32; GROUP]) -> Vec<u8> {
    let largest = block.iter().fold(0.0_f32, |most, x| if x.abs() > most.abs() { *x } else { most });
    let (mut scale, mut levels) = (0.0, [0; GROUP]);
    if largest.abs() >= 1e-15 {
        let inverse = 1.0 / (largest / f32::from(IQ4_NL[0]));
        let (mut products, mut squares) = (0.0_f32, 0.0_f32);
        for (x, level) in block.iter().zip(&mut levels) {
            let borders = IQ4_NL.windows(2).map(|pair| (f32::from(pair[0]), f32::from(pair[1])));
            let above = |(low, high): &(f32, f32)| inverse * x - low >= high - inverse * x;
            *level = borders.take_while(above).count() as u8;
            let (weight, number) = (x * x, f32::from(IQ4_NL[usize::from(*level)]));
            products += weight * number * x;
            squares += weight * number * number;
        }
        scale = products / squares;
    }
    let pairs = (0..GROUP / 2).map(|j| levels[j] | levels[j + GROUP / 2] << 4);
    f16::from_f32(scale).to_le_bytes().into_iter().chain(pairs).collect()
}

/// Sylvester's Hadamard matrix with rows of length 1: (size, size)
fn hadamard_matrix(size: usize) -> Vec<f32> {
    let entry = 1.0 / (size as f32).sqrt();
    let sign = |(row, column): (usize, usize)| if (row & column).count_ones() % 2 == 0 { entry } else { -entry };
    (0..size * size).map(|at| sign((at / size, at % size))).collect()
}

/// A rotation drawn at random, the same for each `dim`: rows of normal numbers (Box and Muller's of the numbers of SplitMix64 from seed 0),
/// made orthogonal one after the other: (dim, dim)
fn random_rotation(dim: usize) -> Vec<f32> {
    let mut state = 0_u64;
    let mut uniform = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut normal = || (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    let mut rows: Vec<Vec<f64>> = Vec::new();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for _ in 0..dim {
        let mut row: Vec<f64> = (0..dim).map(|_| normal()).collect();
        for other in &rows {
            let along = dot(&row, other);
            row.iter_mut().zip(other).for_each(|(x, other)| *x -= along * other);
        }
        let length = dot(&row, &row).sqrt();
        rows.push(row.iter().map(|x| x / length).collect());
    }
    rows.concat().into_iter().map(|x| x as f32).collect()
}

/// Levels with the least squared error for a coordinate of a direction drawn at random in `dim` dimensions, at least 4, whose density is
/// (1 - x²)^((dim - 3) / 2) (Lloyd and Max; TurboQuant, equation 4). They are symmetric, so half of them are found.
fn turbo_levels(dim: usize, count: usize) -> Vec<f32> {
    const PARTS: usize = 100;
    let power = (dim as f64 - 3.0) / 2.0;
    let density = |x: f64| (1.0 - x * x).max(0.0).powf(power);
    // Simpson's rule; beyond ten deviations there is nothing.
    let mass = |from: f64, to: f64| {
        let width = (to.min(from + 10.0 / (dim as f64).sqrt()) - from) / (2 * PARTS) as f64;
        let weight = |at: usize| if at == 0 || at == 2 * PARTS { 1.0 } else { 2.0 + 2.0 * (at % 2) as f64 };
        (0..=2 * PARTS).map(|at| weight(at) * density(from + at as f64 * width)).sum::<f64>() * width / 3.0
    };
    let moment = |from: f64, to: f64| {
        let below = |x: f64| (1.0 - x * x).max(0.0).powf(power + 1.0) / (2.0 * (power + 1.0));
        below(from) - below(to)
    };
    let half = count / 2;
    let most = (3.0 / (dim as f64).sqrt()).min(1.0);
    let mut levels: Vec<f64> = (0..half).map(|level| most * (2 * level + 1) as f64 / count as f64).collect();
    for _ in 0..1000 {
        let border = |at: usize| match at {
            0 => 0.0,
            _ if at == half => 1.0,
            _ => f64::midpoint(levels[at - 1], levels[at]),
        };
        levels =
            (0..half).map(|at| moment(border(at), border(at + 1)) / mass(border(at), border(at + 1))).collect();
    }
    let negative = levels.iter().rev().map(|level| -level);
    negative.chain(levels.iter().copied()).map(|level| level as f32).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// Vectors of 64 numbers, and what gguf's numpy code and torch make of them (`tests/golden/make/formats.py`).
    #[derive(Deserialize)]
    struct Golden {
        x: Vec<f32>,
        bytes: HashMap<String, Vec<u8>>,
        numbers: HashMap<String, Vec<f32>>,
    }

    fn packing(name: &str) -> Arc<Packing> {
        Packing::of(name.parse().unwrap(), 64, Part::Key)
    }

    fn unpacked(packing: &Packing, bytes: &[u8]) -> Vec<f32> {
        let mut to = vec![0.0; bytes.len() / packing.bytes() * 64];
        packing.unpack(bytes, &mut to);
        to
    }

    #[test]
    fn equal_to_other_programs_bit_for_bit() {
        let golden = include_str!("../../../tests/golden/formats/packed.json");
        let Golden { x, bytes, numbers } = serde_json::from_str(golden).unwrap();
        assert!(bytes.len() == 6 && numbers.len() == 4);
        for (name, bytes) in bytes {
            assert_eq!(packing(&name).pack(&x), bytes, "{name}");
        }
        for (name, numbers) in numbers {
            let packing = packing(&name);
            assert_eq!(unpacked(&packing, &packing.pack(&x)), numbers, "{name}");
        }
    }

    /// However vectors are cut into calls, and wherever they lie, their bytes and numbers are equal.
    #[test]
    fn each_vector_is_packed_by_itself() {
        let mut rng = fastrand::Rng::with_seed(3);
        let x: Vec<f32> = (0..20 * 64).map(|_| (rng.f32() - 0.5) * 8.0).collect();
        for known in crate::eviction::FORMATS.iter().filter(|known| known.value.kivi_bits().is_none()) {
            let packing = packing(known.name);
            let whole = packing.pack(&x);
            assert_eq!(whole.len(), 20 * known.value.stored_bytes(64), "{}", known.name);
            let parts: Vec<u8> = x.chunks(3 * 64).flat_map(|part| packing.pack(part)).collect();
            assert_eq!(whole, parts, "{}", known.name);
            let numbers = unpacked(&packing, &whole);
            let parts: Vec<f32> =
                whole.chunks(7 * packing.bytes()).flat_map(|part| unpacked(&packing, part)).collect();
            assert_eq!(numbers, parts, "{}", known.name);
        }
    }

    /// Rotations keep lengths and turn back, and the levels of TurboQuant have the error that its theorem 1 gives for many dimensions.
    #[test]
    fn rotations_and_levels() {
        for name in ["q4_0h", "turbo-4"] {
            let packing = packing(name);
            let mut rng = fastrand::Rng::with_seed(4);
            let x: Vec<f32> = (0..2 * 64).map(|_| rng.f32() - 0.5).collect();
            let mut turned = x.clone();
            packing.turn(&mut turned);
            let length = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
            assert!(turned != x && (length(&turned[..64]) - length(&x[..64])).abs() < 1e-4);
            packing.turn_back(&mut turned);
            assert!(turned.iter().zip(&x).all(|(a, b)| (a - b).abs() < 1e-5));
        }
        // Heads of few numbers have levels too.
        for (dim, count) in (4..12).flat_map(|dim| [(dim, 8), (dim, 16)]) {
            let levels = turbo_levels(dim, count);
            assert!(
                levels.windows(2).all(|pair| pair[0] < pair[1]) && levels[count - 1] < 1.0,
                "{dim}: {levels:?}"
            );
        }
        // Normal numbers quantised by Lloyd and Max lose 0.009497 of their variance with 16 levels, 0.03454 with 8 (Max 1960).
        for (count, expected) in [(16, 0.009_497), (8, 0.034_54)] {
            let levels = turbo_levels(256, count);
            let mut rng = fastrand::Rng::with_seed(5);
            let (mut error, mut all) = (0.0, 0.0);
            for _ in 0..2000 {
                let x: Vec<f32> = (0..256).map(|_| (0..12).map(|_| rng.f32()).sum::<f32>() - 6.0).collect();
                let length = x.iter().map(|x| x * x).sum::<f32>().sqrt();
                for x in x.iter().map(|x| x / length) {
                    let nearest = levels.iter().map(|level| (level - x).powi(2)).fold(f32::INFINITY, f32::min);
                    (error, all) = (error + f64::from(nearest), all + f64::from(x * x));
                }
            }
            assert!((error / all / expected - 1.0).abs() < 0.05, "{count} levels lose {}", error / all);
        }
    }
}
