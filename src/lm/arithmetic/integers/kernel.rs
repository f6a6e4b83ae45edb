//! The kernel: a panel of weights times a group of rows.

use std::mem::MaybeUninit;
use std::sync::LazyLock;

use pulp::NullaryFnOnce;

use super::instructions::{Lanes, Plain};
use super::weights::{Width, Words};
use super::{BLOCK, PANEL};

/// Numbers of rows that a group may have, largest first.
pub(super) const SIZES: [usize; 5] = [12, 8, 4, 2, 1];

/// Weights of some outputs.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    /// Pairs of columns (columns / 2)(outputs)(2), packed as the width says.
    pub words: &'a [Words],
    pub width: Width,
    /// Scales (blocks, or twice as many)(outputs).
    pub scales: &'a [[f32; PANEL]],
    /// Offsets (blocks)(outputs), or none.
    pub offsets: &'a [[f32; PANEL]],
}

/// Activations of rows that are multiplied together.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub rows: usize,
    /// Pairs of columns as integers: (columns / 2)(rows)
    pub numbers: &'a [[i16; 2]],
    /// Scales (blocks)(rows).
    pub scales: &'a [f32],
    /// Sum of a block's numbers times their scale: (blocks)(rows)
    pub sums: &'a [f32],
}

/// Memory that products are written to: rows that lie `stride` apart, and some outputs in each. All of them are written.
pub(super) struct Output<'a> {
    pub y: &'a mut [MaybeUninit<f32>],
    pub stride: usize,
    pub outputs: usize,
}

/// Instruction set that the kernel is compiled for.
#[derive(Clone, Copy)]
pub(super) enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Avx512(super::instructions::x86::Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    #[cfg(target_arch = "aarch64")]
    Neon(pulp::aarch64::Neon),
    Plain,
}

impl Kernel {
    /// Instruction sets that this processor has, the fastest first.
    pub fn all() -> Vec<Kernel> {
        let vectors = [
            #[cfg(target_arch = "x86_64")]
            super::instructions::x86::Avx512::try_new().map(Kernel::Avx512),
            #[cfg(target_arch = "x86_64")]
            pulp::x86::V3::try_new().map(Kernel::Avx2),
            #[cfg(target_arch = "aarch64")]
            pulp::aarch64::Neon::try_new().map(Kernel::Neon),
        ];
        vectors.into_iter().flatten().chain([Kernel::Plain]).collect()
    }

    /// Fastest instruction set of this processor.
    pub fn best() -> Kernel {
        static BEST: LazyLock<Kernel> = LazyLock::new(|| Kernel::all()[0]);
        *BEST
    }

    /// Largest number of rows of a group.
    pub fn rows(self) -> usize {
        fn rows<S: Lanes>(_: S) -> usize {
            S::ROWS
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(set) => rows(set),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(set) => rows(set),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon(set) => rows(set),
            Kernel::Plain => rows(Plain),
        }
    }

    /// Computes `y[row][output] = sum over the blocks of (sum over the columns of w x) scale_w scale_x + offset_w sum_x` for the
    /// rows of groups of one size. Rows that the output lacks are left out.
    pub fn multiply(self, panel: &Panel<'_>, groups: &[Group<'_>], to: &mut Output<'_>) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(set) => by_rows(set, panel, groups, to),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(set) => by_rows(set, panel, groups, to),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon(set) => by_rows(set, panel, groups, to),
            Kernel::Plain => by_rows(Plain, panel, groups, to),
        }
    }
}

fn by_rows<S: Lanes>(set: S, panel: &Panel<'_>, groups: &[Group<'_>], to: &mut Output<'_>) {
    match groups[0].rows {
        12 if S::ROWS >= 12 => by_width::<S, 12>(set, panel, groups, to),
        8 if S::ROWS >= 8 => by_width::<S, 8>(set, panel, groups, to),
        4 if S::ROWS >= 4 => by_width::<S, 4>(set, panel, groups, to),
        2 if S::ROWS >= 2 => by_width::<S, 2>(set, panel, groups, to),
        1 => by_width::<S, 1>(set, panel, groups, to),
        rows => unreachable!("a group of {rows} rows"),
    }
}

fn by_width<S: Lanes, const R: usize>(set: S, panel: &Panel<'_>, groups: &[Group<'_>], to: &mut Output<'_>) {
    match panel.width {
        Width::Four { signed: true } => by_scales::<S, R, 4, true>(set, panel, groups, to),
        Width::Four { signed: false } => by_scales::<S, R, 4, false>(set, panel, groups, to),
        Width::Eight => by_scales::<S, R, 8, true>(set, panel, groups, to),
        Width::Sixteen => by_scales::<S, R, 16, true>(set, panel, groups, to),
    }
}

fn by_scales<S: Lanes, const R: usize, const BITS: usize, const SIGNED: bool>(
    set: S,
    panel: &Panel<'_>,
    groups: &[Group<'_>],
    to: &mut Output<'_>,
) {
    let is_halved = panel.scales.len() > groups[0].scales.len() / R;
    match (is_halved, panel.offsets.is_empty()) {
        (false, true) => set.vectorize(Multiply::<S, R, BITS, SIGNED, 16, false> { set, panel, groups, to }),
        (false, false) => set.vectorize(Multiply::<S, R, BITS, SIGNED, 16, true> { set, panel, groups, to }),
        (true, _) => set.vectorize(Multiply::<S, R, BITS, SIGNED, 8, false> { set, panel, groups, to }),
    }
}

/// Kernel for groups of R rows and weights of BITS bits, with a fixed number of pairs of columns for each scale, and perhaps
/// offsets.
struct Multiply<
    'a,
    'b,
    S,
    const R: usize,
    const BITS: usize,
    const SIGNED: bool,
    const PAIRS: usize,
    const OFFSETS: bool,
> {
    set: S,
    panel: &'a Panel<'a>,
    groups: &'a [Group<'a>],
    to: &'a mut Output<'b>,
}

impl<S: Lanes, const R: usize, const BITS: usize, const SIGNED: bool, const PAIRS: usize, const OFFSETS: bool>
    NullaryFnOnce for Multiply<'_, '_, S, R, BITS, SIGNED, PAIRS, OFFSETS>
{
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Multiply { set, panel, groups, to } = self;
        let mut rows = to.y.chunks_mut(to.stride);
        for group in groups {
            let totals = Self::totals(set, panel, group);
            for (total, y) in totals.into_iter().zip(&mut rows) {
                let total = set.numbers(total);
                match y.first_chunk_mut::<PANEL>() {
                    Some(y) if to.outputs == PANEL => y.write_copy_of_slice(&total),
                    _ => y[..to.outputs].write_copy_of_slice(&total[..to.outputs]),
                };
            }
        }
    }
}

impl<S: Lanes, const R: usize, const BITS: usize, const SIGNED: bool, const PAIRS: usize, const OFFSETS: bool>
    Multiply<'_, '_, S, R, BITS, SIGNED, PAIRS, OFFSETS>
{
    /// Number of pairs of columns in a word.
    const IN_WORD: usize = 16 / BITS;

    #[inline(always)]
    fn totals(set: S, panel: &Panel<'_>, group: &Group<'_>) -> [S::Floats; R] {
        let (no_sums, no_floats) = set.zeros();
        let mut totals = [no_floats; R];
        let (row_scales, row_sums) = (group.scales.as_chunks::<R>().0, group.sums.as_chunks::<R>().0);
        let words = panel.words.chunks_exact(PAIRS / Self::IN_WORD);
        let numbers = group.numbers.as_chunks::<R>().0.as_chunks::<PAIRS>().0;
        // One loop over all scales: with one inside another, the compiler keeps row scales in registers that sums need.
        for (index, (words, numbers)) in words.zip(numbers).enumerate() {
            let mut sums = [no_sums; R];
            for (words, numbers) in words.iter().zip(numbers.chunks_exact(Self::IN_WORD)) {
                let words = set.words(words);
                for (part, numbers) in numbers.iter().enumerate() {
                    let pairs = set.integers(words, 16 - BITS * (part + 1), 16 - BITS, SIGNED);
                    for (sum, number) in sums.iter_mut().zip(numbers) {
                        *sum = set.add_products(*sum, pairs, *number);
                    }
                }
            }
            let scales = set.floats(&panel.scales[index]);
            for ((total, sum), scale) in totals.iter_mut().zip(sums).zip(&row_scales[index * PAIRS / (BLOCK / 2)])
            {
                *total = set.add_scaled(*total, sum, scales, *scale);
            }
            if OFFSETS {
                let offsets = set.floats(&panel.offsets[index]);
                for (total, sum) in totals.iter_mut().zip(&row_sums[index]) {
                    *total = set.add_multiple(*total, offsets, *sum);
                }
            }
        }
        totals
    }
}
