//! A matrix of weights as integers, in the order in which the kernel reads them.

use half::f16;
use pulp::bytemuck;
use rayon::prelude::*;

use super::super::matrix::Matrix;
use super::instructions::{Lanes, Plain};
use super::kernel::Panel;
use super::rows::rounded;
use super::{BLOCK, PANEL};
use crate::vector;

/// How many bytes ahead weights are asked for before they are needed.
const AHEAD: usize = 16 << 10;

/// Row of weights as integers: each weight is `integer * scale + offset`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::lm) struct Quantised {
    pub integers: Vec<i16>,
    /// Scales, one for a fixed number of columns.
    pub scales: Vec<f32>,
    /// Offsets, as many as scales, or none.
    pub offsets: Vec<f32>,
}

/// Number of bits that the integers of a matrix take in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lm) enum Width {
    /// Integers from -8 to 7, or from 0 to 15.
    Four {
        signed: bool,
    },
    Eight,
    /// Integers from -8191 to 8191, so that sums over a block fit into 32 bits. In the kernel, also those of fewer bits.
    Sixteen,
}

/// Words of a panel's rows: two columns, or several pairs of columns packed into one.
pub(super) type Words = [u16; 2 * PANEL];

/// Matrix in panels of rows. The last panel is filled up with rows of zeros, the last block with columns of zeros.
#[derive(Debug)]
pub(in crate::lm) struct IntegerMatrix {
    pub rows: usize,
    pub columns: usize,
    width: Width,
    /// Panel after panel, and in a panel the integers of two neighbouring columns after those of the two before: (columns / 2)
    /// (PANEL)(2). Those of 4 or 8 bits share a word with the next ones of their row, from the low bits up.
    words: Vec<Words>,
    /// Scales (scales of a row)(PANEL), panel after panel.
    scales: Scales,
    /// Offsets (offsets of a row)(PANEL), panel after panel, or none.
    offsets: Scales,
}

#[derive(Debug)]
enum Scales {
    F16(Vec<f16>),
    F32(Vec<f32>),
}

/// Memory for a panel that is unpacked.
#[derive(Default)]
pub(super) struct Unpacked {
    words: Vec<Words>,
    scales: Vec<f32>,
    offsets: Vec<f32>,
}

impl IntegerMatrix {
    /// Converts a matrix if integers keep what it stores: quantised weights exactly, bf16 and f16 with the 13 highest bits of the
    /// largest in a block. `None` otherwise.
    pub fn new(matrix: &Matrix) -> Option<IntegerMatrix> {
        let width = matrix.integer_width()?;
        let panel = |panel: usize| {
            let rows = panel * PANEL..matrix.rows.min((panel + 1) * PANEL);
            let rows: Vec<Quantised> = rows.map(|row| matrix.quantised(row)).collect();
            let mut pairs = vec![[[0; 2]; PANEL]; matrix.columns.next_multiple_of(BLOCK) / 2];
            for (lane, row) in rows.iter().enumerate() {
                for (pairs, pair) in pairs.iter_mut().zip(row.integers.chunks(2)) {
                    pairs[lane][..pair.len()].copy_from_slice(pair);
                }
            }
            let side_by_side = |of: fn(&Quantised) -> &[f32]| {
                let mut all = vec![[0.0; PANEL]; of(&rows[0]).len()];
                for (lane, row) in rows.iter().enumerate() {
                    all.iter_mut().zip(of(row)).for_each(|(all, one)| all[lane] = *one);
                }
                all
            };
            (width.packed(&pairs), side_by_side(|row| &row.scales), side_by_side(|row| &row.offsets))
        };
        let panels: Vec<_> = (0..matrix.rows.div_ceil(PANEL)).into_par_iter().map(panel).collect();
        let (mut words, mut scales, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        for panel in panels {
            words.extend(panel.0);
            scales.extend(panel.1.into_flattened());
            offsets.extend(panel.2.into_flattened());
        }
        let (scales, offsets) = (Scales::new(scales), Scales::new(offsets));
        Some(IntegerMatrix { rows: matrix.rows, columns: matrix.columns, width, words, scales, offsets })
    }

    pub(super) fn is_wide(&self) -> bool {
        self.width == Width::Sixteen
    }

    fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// Bytes of the matrix in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words) + self.scales.bytes() + self.offsets.bytes()
    }

    /// Returns a panel as it is stored; scales in half precision are converted into `room`.
    pub(super) fn panel<'a>(&'a self, panel: usize, room: &'a mut Unpacked) -> Panel<'a> {
        let later = self.later(panel);
        vector::prefetch(self.words(later));
        self.scaled(panel, self.words(panel), self.width, &mut room.scales, &mut room.offsets)
    }

    /// Unpacks a panel to integers of 16 bits, which is faster if several groups of rows are multiplied with it.
    pub(super) fn unpacked<'a>(&'a self, panel: usize, room: &'a mut Unpacked) -> Panel<'a> {
        if self.width == Width::Sixteen {
            return self.panel(panel, room);
        }
        let Unpacked { words: to, scales, offsets } = room;
        let words = self.words(panel);
        to.resize(words.len() * self.width.in_word(), [0; 2 * PANEL]);
        vector::best(Unpack { words, later: self.words(self.later(panel)), width: self.width, to });
        self.scaled(panel, to, Width::Sixteen, scales, offsets)
    }

    fn scaled<'a>(
        &'a self,
        panel: usize,
        words: &'a [Words],
        width: Width,
        scales: &'a mut Vec<f32>,
        offsets: &'a mut Vec<f32>,
    ) -> Panel<'a> {
        let (later, panels) = (self.later(panel), self.panels());
        self.scales.prefetch(later, panels);
        self.offsets.prefetch(later, panels);
        let (scales, offsets) =
            (self.scales.of_panel(panel, panels, scales), self.offsets.of_panel(panel, panels, offsets));
        Panel { words, width, scales, offsets }
    }

    fn words(&self, panel: usize) -> &[Words] {
        part(&self.words, panel, self.panels())
    }

    /// Index of the panel to bring nearer from memory while `panel` is multiplied.
    fn later(&self, panel: usize) -> usize {
        (panel + (AHEAD / size_of_val(self.words(panel))).max(1)).min(self.panels() - 1)
    }

    /// Some rows as the numbers that products use: (rows, columns)
    pub fn floats(&self, rows: std::ops::Range<usize>) -> Vec<f32> {
        let mut room = Unpacked::default();
        let mut floats = Vec::with_capacity(rows.len() * self.columns);
        for row in rows {
            let (panel, lane) = (self.unpacked(row / PANEL, &mut room), row % PANEL);
            let per_scale = 2 * panel.words.len() / panel.scales.len();
            floats.extend((0..self.columns).map(|column| {
                let scaled = f32::from(panel.words[column / 2][2 * lane + column % 2] as i16)
                    * panel.scales[column / per_scale][lane];
                panel.offsets.get(column / per_scale).map_or(scaled, |offsets| scaled + offsets[lane])
            }));
        }
        floats
    }
}

impl Width {
    fn bits(self) -> usize {
        match self {
            Width::Four { .. } => 4,
            Width::Eight => 8,
            Width::Sixteen => 16,
        }
    }

    /// Number of pairs of columns in a word.
    fn in_word(self) -> usize {
        16 / self.bits()
    }

    /// Largest number of bytes that `numbers` weights take: two scales or offsets for each block.
    pub fn most_bytes(self, numbers: usize) -> usize {
        numbers / self.in_word() * size_of::<u16>() + numbers / BLOCK * 2 * size_of::<f32>()
    }

    /// Packs pairs of columns (pairs)(PANEL)(2) into words.
    fn packed(self, pairs: &[[[i16; 2]; PANEL]]) -> Vec<Words> {
        let vectors: &[[i16; 2 * PANEL]] = bytemuck::cast_slice(pairs);
        let mut words = vec![[0; 2 * PANEL]; vectors.len() / self.in_word()];
        for (words, vectors) in words.iter_mut().zip(vectors.chunks_exact(self.in_word())) {
            for (index, vector) in vectors.iter().enumerate() {
                for (word, integer) in words.iter_mut().zip(vector) {
                    *word |= (*integer as u16 & (u16::MAX >> (16 - self.bits()))) << (index * self.bits());
                }
            }
        }
        words
    }
}

struct Unpack<'a> {
    words: &'a [Words],
    /// Words of a later panel, as many, which are brought nearer meanwhile.
    later: &'a [Words],
    width: Width,
    to: &'a mut [Words],
}

impl vector::PlainLoop for Unpack<'_> {
    #[inline(always)]
    fn run(self) {
        match self.width {
            Width::Four { signed: true } => self.unpack::<4, true>(),
            Width::Four { signed: false } => self.unpack::<4, false>(),
            Width::Eight => self.unpack::<8, true>(),
            Width::Sixteen => self.to.copy_from_slice(self.words),
        }
    }
}

impl Unpack<'_> {
    #[inline(always)]
    fn unpack<const BITS: usize, const SIGNED: bool>(self) {
        // A function of its own tells the compiler that the words are not those that are written.
        #[inline(always)]
        fn integers<const BITS: usize, const SIGNED: bool>(words: &Words, part: usize, to: &mut Words) {
            *to = Plain.integers(*words, 16 - BITS * (part + 1), 16 - BITS, SIGNED);
        }
        for ((words, later), to) in self.words.iter().zip(self.later).zip(self.to.chunks_exact_mut(16 / BITS)) {
            vector::prefetch(later);
            for (part, to) in to.iter_mut().enumerate() {
                integers::<BITS, SIGNED>(words, part, to);
            }
        }
    }
}

impl Scales {
    /// Holds scales in half precision if all of them are exact there.
    fn new(scales: Vec<f32>) -> Scales {
        let halves: Vec<f16> = scales.iter().copied().map(f16::from_f32).collect();
        let is_exact = halves.iter().zip(&scales).all(|(half, scale)| half.to_f32() == *scale);
        if is_exact { Scales::F16(halves) } else { Scales::F32(scales) }
    }

    fn bytes(&self) -> usize {
        match self {
            Scales::F16(scales) => size_of_val(&**scales),
            Scales::F32(scales) => size_of_val(&**scales),
        }
    }

    fn prefetch(&self, panel: usize, panels: usize) {
        match self {
            Scales::F16(scales) => vector::prefetch(part(scales, panel, panels)),
            Scales::F32(scales) => vector::prefetch(part(scales, panel, panels)),
        }
    }

    /// Scales of panel `panel`, one of `panels`.
    fn of_panel<'a>(&'a self, panel: usize, panels: usize, room: &'a mut Vec<f32>) -> &'a [[f32; PANEL]] {
        let scales = match self {
            Scales::F32(scales) => part(scales, panel, panels),
            Scales::F16(scales) => {
                let scales = part(scales, panel, panels);
                room.resize(scales.len(), 0.0);
                vector::widen_f16(scales, room);
                room
            }
        };
        scales.as_chunks().0
    }
}

fn part<T>(all: &[T], index: usize, of: usize) -> &[T] {
    let each = all.len() / of;
    &all[index * each..][..each]
}

/// Quantises a row to integers of 13 bits and a sign, by blocks. Scales are powers of two, so that integers of the larger numbers
/// of a block are exact: those of bf16 down to 1/32 of the largest.
pub(in crate::lm) fn of_floats(row: &[f32]) -> Quantised {
    const BITS: u32 = 13;
    const MANTISSA: u32 = f32::MANTISSA_DIGITS - 1;
    let mut quantised = Quantised::default();
    for block in row.chunks(BLOCK) {
        let largest = block.iter().fold(0, |largest, x| largest.max(x.abs().to_bits()));
        // The largest is below 2^BITS times this.
        let exponent = (largest >> MANTISSA).saturating_sub(BITS - 1);
        let scale = match exponent {
            0 => 0.0,
            _ if largest >= f32::INFINITY.to_bits() => f32::NAN,
            _ => f32::from_bits(exponent << MANTISSA),
        };
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        quantised.integers.extend(block.iter().map(|x| rounded(x * inverse)));
        quantised.scales.push(scale);
    }
    quantised
}
