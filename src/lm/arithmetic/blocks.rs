//! Quantised numbers in memory as llama.cpp stores them: blocks of small integers with a scale, and perhaps an offset.
//!
//! The numbers are those of `dequantize_row_*` in its ggml-quants.c, to the bit. candle has the same loops; those here are compiled
//! for every instruction set, and so are faster than the memory they read from.

use std::marker::PhantomData;
use std::ops::Range;

use candle_core::quantized::GgmlDType;
use half::f16;

use super::integers::{Quantised, Width};
use super::stored_type::StoredType;
use crate::vector;

/// Quantised numbers of a matrix, row after row.
#[derive(Debug)]
pub(in crate::lm) struct Blocks {
    stored: StoredType,
    loops: Loops,
    bytes: Vec<u8>,
}

/// Loops over blocks of one type.
#[derive(Clone, Copy, Debug)]
struct Loops {
    unpack: fn(&[u8], &mut [f32]),
    quantised: fn(&[u8]) -> Quantised,
    width: Width,
}

impl Blocks {
    /// Takes the bytes of a stored type; `None` for types that are not unpacked here.
    pub fn new(stored: StoredType, bytes: Vec<u8>) -> Option<Blocks> {
        Some(Blocks { stored, loops: Blocks::loops(stored)?, bytes })
    }

    /// Number of bits of an integer of a stored type; `None` for types that do not stay in memory as stored.
    pub fn width_of(stored: StoredType) -> Option<Width> {
        Blocks::loops(stored).map(|loops| loops.width)
    }

    fn loops(stored: StoredType) -> Option<Loops> {
        let StoredType::Ggml(stored) = stored else { return Some(loops::<Mxfp4, 17, 32, 1>()) };
        Some(match stored {
            GgmlDType::Q4_0 => loops::<Legacy<4, false>, 18, 32, 1>(),
            GgmlDType::Q4_1 => loops::<Legacy<4, true>, 20, 32, 1>(),
            GgmlDType::Q5_0 => loops::<Legacy<5, false>, 22, 32, 1>(),
            GgmlDType::Q5_1 => loops::<Legacy<5, true>, 24, 32, 1>(),
            GgmlDType::Q8_0 => loops::<Q8_0, 34, 32, 1>(),
            GgmlDType::Q4K => loops::<Q4K, 144, 256, 8>(),
            GgmlDType::Q6K => loops::<Q6K, 210, 256, 16>(),
            _ => return None,
        })
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of the blocks that hold `numbers`, a range from the beginning of a block to the end of one.
    pub fn bytes_of(&self, numbers: Range<usize>) -> &[u8] {
        let (each, size) = (self.stored.block_size(), self.stored.type_size());
        &self.bytes[numbers.start / each * size..numbers.end / each * size]
    }

    pub fn part(&self, numbers: Range<usize>) -> Blocks {
        Blocks { bytes: self.bytes_of(numbers).to_vec(), ..*self }
    }

    /// Unpacks a range of numbers to floats.
    pub fn floats(&self, numbers: Range<usize>, to: &mut [f32]) {
        (self.loops.unpack)(self.bytes_of(numbers), to);
    }

    /// Unpacks a range of numbers to the integers and scales that they are made of.
    pub fn quantised(&self, numbers: Range<usize>) -> Quantised {
        (self.loops.quantised)(self.bytes_of(numbers))
    }

    /// Number of bits of an integer.
    pub fn width(&self) -> Width {
        self.loops.width
    }
}

/// Unpacks whole blocks of one of llama.cpp's types that caches have.
pub(in crate::lm) fn unpack(stored: GgmlDType, bytes: &[u8], to: &mut [f32]) {
    let loops = Blocks::loops(StoredType::Ggml(stored)).expect("a type with loops");
    (loops.unpack)(bytes, to);
}

/// Unpacks whole blocks of `iq4_nl`.
pub(in crate::lm) fn unpack_iq4_nl(bytes: &[u8], to: &mut [f32]) {
    (loops::<Iq4Nl, 18, 32, 1>().unpack)(bytes, to);
}

/// A type of block: integers in groups that share a scale, and perhaps an offset.
trait Block<const BYTES: usize, const NUMBERS: usize, const GROUPS: usize> {
    const WIDTH: Width;
    const HAS_OFFSETS: bool;

    fn integers(block: &[u8; BYTES], to: &mut [i8; NUMBERS]);
    /// Scale and offset of each group of a block.
    fn scales(block: &[u8; BYTES]) -> [(f32, f32); GROUPS];
}

fn loops<B: Block<BYTES, NUMBERS, GROUPS>, const BYTES: usize, const NUMBERS: usize, const GROUPS: usize>() -> Loops
{
    Loops {
        unpack: |blocks, to| vector::best(Unpacking::<B, BYTES, NUMBERS, GROUPS>(blocks, to, PhantomData)),
        quantised: quantised::<B, BYTES, NUMBERS, GROUPS>,
        width: B::WIDTH,
    }
}

/// Loop that unpacks whole blocks, with the best instruction set.
struct Unpacking<'a, B, const BYTES: usize, const NUMBERS: usize, const GROUPS: usize>(
    &'a [u8],
    &'a mut [f32],
    PhantomData<B>,
);

impl<B: Block<BYTES, NUMBERS, GROUPS>, const BYTES: usize, const NUMBERS: usize, const GROUPS: usize>
    vector::PlainLoop for Unpacking<'_, B, BYTES, NUMBERS, GROUPS>
{
    #[inline(always)]
    fn run(self) {
        let ((blocks, _), (to, _)) = (self.0.as_chunks(), self.1.as_chunks_mut::<NUMBERS>());
        for (block, to) in blocks.iter().zip(to) {
            let mut integers = [0; NUMBERS];
            B::integers(block, &mut integers);
            let groups = to.chunks_exact_mut(NUMBERS / GROUPS).zip(integers.chunks_exact(NUMBERS / GROUPS));
            for ((to, integers), (scale, offset)) in groups.zip(B::scales(block)) {
                for (to, integer) in to.iter_mut().zip(integers) {
                    let scaled = f32::from(*integer) * scale;
                    *to = if B::HAS_OFFSETS { scaled + offset } else { scaled };
                }
            }
        }
    }
}

fn quantised<B: Block<BYTES, NUMBERS, GROUPS>, const BYTES: usize, const NUMBERS: usize, const GROUPS: usize>(
    blocks: &[u8],
) -> Quantised {
    let mut quantised = Quantised::default();
    for block in blocks.as_chunks().0 {
        let mut integers = [0; NUMBERS];
        B::integers(block, &mut integers);
        quantised.integers.extend(integers.map(i16::from));
        for (scale, offset) in B::scales(block) {
            quantised.scales.push(scale);
            if B::HAS_OFFSETS {
                quantised.offsets.push(offset);
            }
        }
    }
    quantised
}

#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Block of 32 numbers of 4 or 5 bits: a scale, perhaps an offset, their fifth bits, and 16 bytes that hold two numbers each.
struct Legacy<const BITS: usize, const OFFSET: bool>;

impl<const BYTES: usize, const BITS: usize, const OFFSET: bool> Block<BYTES, 32, 1> for Legacy<BITS, OFFSET> {
    const WIDTH: Width = if BITS == 4 { Width::Four { signed: !OFFSET } } else { Width::Eight };
    const HAS_OFFSETS: bool = OFFSET;

    #[inline(always)]
    fn integers(block: &[u8; BYTES], to: &mut [i8; 32]) {
        let at = if OFFSET { 4 } else { 2 };
        let (bits, pairs) = if BITS == 4 { (0, at) } else { (word(block, at), at + 4) };
        // Where there is no offset, numbers of both signs.
        let middle = if OFFSET { 0 } else { 1 << (BITS - 1) };
        for j in 0..16 {
            let (pair, (low, high)) = (block[pairs + j], fifth_bits(bits, j));
            to[j] = ((pair & 15) as i8 | low) - middle;
            to[j + 16] = ((pair >> 4) as i8 | high) - middle;
        }
    }

    #[inline(always)]
    fn scales(block: &[u8; BYTES]) -> [(f32, f32); 1] {
        [(half(block, 0), if OFFSET { half(block, 2) } else { 0.0 })]
    }
}

/// Fifth bits of numbers j and j + 16 among 32, each as 16 or 0.
#[inline(always)]
fn fifth_bits(bits: u32, j: usize) -> (i8, i8) {
    ((bits >> j << 4 & 16) as i8, (bits >> (j + 12) & 16) as i8)
}

#[inline(always)]
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

struct Q8_0;

impl Block<34, 32, 1> for Q8_0 {
    const WIDTH: Width = Width::Eight;
    const HAS_OFFSETS: bool = false;

    #[inline(always)]
    fn integers(block: &[u8; 34], to: &mut [i8; 32]) {
        for j in 0..32 {
            to[j] = block[2 + j] as i8;
        }
    }

    #[inline(always)]
    fn scales(block: &[u8; 34]) -> [(f32, f32); 1] {
        [(half(block, 0), 0.0)]
    }
}

/// Levels of `iq4_nl`.
pub(in crate::lm) const IQ4_NL: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Block of 32 numbers of 4 bits that stand for uneven levels, and a scale.
struct Iq4Nl;

impl Block<18, 32, 1> for Iq4Nl {
    const WIDTH: Width = Width::Eight;
    const HAS_OFFSETS: bool = false;

    #[inline(always)]
    fn integers(block: &[u8; 18], to: &mut [i8; 32]) {
        for j in 0..16 {
            to[j] = IQ4_NL[usize::from(block[2 + j] & 15)];
            to[j + 16] = IQ4_NL[usize::from(block[2 + j] >> 4)];
        }
    }

    #[inline(always)]
    fn scales(block: &[u8; 18]) -> [(f32, f32); 1] {
        [(half(block, 0), 0.0)]
    }
}

/// Block of 32 numbers of 4 bits (a sign and an index) and a power of two: its exponent is stored plus 127, and the integers are
/// twice the numbers.
struct Mxfp4;

impl Block<17, 32, 1> for Mxfp4 {
    const WIDTH: Width = Width::Eight;
    const HAS_OFFSETS: bool = false;

    #[inline(always)]
    fn integers(block: &[u8; 17], to: &mut [i8; 32]) {
        // 0, 1, 2, 3, 4, 6, 8, 12: a table would keep the loop from being vectorised.
        let integer = |bits: u8| {
            let index = (bits & 7) as i8;
            let size = index + (index - 4).max(0) + 2 * (index - 6).max(0);
            if bits & 8 == 0 { size } else { -size }
        };
        for j in 0..16 {
            to[j] = integer(block[1 + j]);
            to[j + 16] = integer(block[1 + j] >> 4);
        }
    }

    #[inline(always)]
    fn scales(block: &[u8; 17]) -> [(f32, f32); 1] {
        // 2^(e - 128), which is subnormal for the two smallest.
        let bits = if block[0] < 2 { 0x0020_0000 << block[0] } else { (u32::from(block[0]) - 1) << 23 };
        [(f32::from_bits(bits), 0.0)]
    }
}

/// Block of 256 numbers in eight groups of 32, whose scales and offsets are integers of 6 bits.
struct Q4K;

impl Block<144, 256, 8> for Q4K {
    const WIDTH: Width = Width::Four { signed: false };
    const HAS_OFFSETS: bool = true;

    #[inline(always)]
    fn integers(block: &[u8; 144], to: &mut [i8; 256]) {
        for (group, to) in to.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let pairs = &block[16 + group / 2 * 32..][..32];
            let shift = group % 2 * 4;
            for j in 0..32 {
                to[j] = (pairs[j] >> shift & 15) as i8;
            }
        }
    }

    #[inline(always)]
    fn scales(block: &[u8; 144]) -> [(f32, f32); 8] {
        let (scale, offset, integers) = (half(block, 0), half(block, 2), &block[4..16]);
        std::array::from_fn(|group| {
            let (of_scale, of_offset) = if group < 4 {
                (integers[group] & 63, integers[group + 4] & 63)
            } else {
                let both = integers[group + 4];
                (both & 15 | integers[group - 4] >> 6 << 4, both >> 4 | integers[group] >> 6 << 4)
            };
            (scale * f32::from(of_scale), -(offset * f32::from(of_offset)))
        })
    }
}

/// Block of 256 numbers in groups of 16, each with a scale of 8 bits: two halves of four times 32 numbers.
struct Q6K;

impl Block<210, 256, 16> for Q6K {
    const WIDTH: Width = Width::Eight;
    const HAS_OFFSETS: bool = false;

    #[inline(always)]
    fn integers(block: &[u8; 210], to: &mut [i8; 256]) {
        for (group, to) in to.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (part, of_part, column) = (group / 8, group % 8 / 2, group % 2 * 16);
            let low = &block[part * 64 + of_part % 2 * 32 + column..][..16];
            let high = &block[128 + part * 32 + column..][..16];
            let (low_shift, high_shift) = (of_part / 2 * 4, of_part * 2);
            for j in 0..16 {
                to[j] = (low[j] >> low_shift & 15 | (high[j] >> high_shift & 3) << 4) as i8 - 32;
            }
        }
    }

    #[inline(always)]
    fn scales(block: &[u8; 210]) -> [(f32, f32); 16] {
        let scale = half(block, 208);
        std::array::from_fn(|group| (scale * f32::from(block[192 + group] as i8), 0.0))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::{QStorage, QTensor};
    use candle_core::{Device, Tensor};

    use super::*;

    /// Compares drawn bytes, but for the f16s, with candle's loops, which give the numbers of llama.cpp (a test of `weights`).
    #[test]
    fn equal_to_candle_bit_for_bit() {
        let mut rng = fastrand::Rng::with_seed(5);
        use GgmlDType::{Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q6K, Q8_0};
        for (stored, halves) in [
            (Q4_0, vec![0]),
            (Q4_1, vec![0, 2]),
            (Q5_0, vec![0]),
            (Q5_1, vec![0, 2]),
            (Q8_0, vec![0]),
            (Q4K, vec![0, 2]),
            (Q6K, vec![208]),
        ] {
            let (each, size) = (stored.block_size(), stored.type_size());
            let mut bytes: Vec<u8> = (0..50 * size).map(|_| rng.u8(..)).collect();
            for block in bytes.chunks_exact_mut(size) {
                for at in &halves {
                    let number = f16::from_f32(rng.f32() * 0.1 - 0.05);
                    block[*at..at + 2].copy_from_slice(&number.to_le_bytes());
                }
            }
            let theirs = QStorage::from_data(bytes.clone().into(), &Device::Cpu, stored).unwrap();
            let theirs: Tensor = QTensor::new(theirs, (50, each)).unwrap().dequantize(&Device::Cpu).unwrap();
            let theirs = theirs.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let blocks = Blocks::new(StoredType::Ggml(stored), bytes).unwrap();
            let mut ours = vec![0.0; 50 * each];
            blocks.floats(0..50 * each, &mut ours);
            let bits = |floats: &[f32]| floats.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&ours), bits(&theirs), "{stored:?}");
            let mut few = vec![0.0; 3 * each];
            blocks.part(10 * each..40 * each).floats(5 * each..8 * each, &mut few);
            assert_eq!(few, ours[15 * each..18 * each]);
        }
    }
}
