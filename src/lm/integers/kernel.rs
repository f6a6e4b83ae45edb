//! The kernel: a panel of weights times a group of rows.

use std::mem::MaybeUninit;
use std::sync::LazyLock;

use pulp::NullaryFnOnce;

use super::instructions::{Lanes, Plain};
use super::{BLOCK, PANEL};

/// Numbers of rows that a group may have.
pub(super) const SIZES: [usize; 5] = [12, 8, 4, 2, 1];

/// The weights of some outputs.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    /// (columns / 2)(outputs): pairs of columns
    pub numbers: &'a [[[i16; 2]; PANEL]],
    /// (blocks, or twice as many)(outputs)
    pub scales: &'a [[f32; PANEL]],
    /// (blocks)(outputs), or none
    pub offsets: &'a [[f32; PANEL]],
}

/// Activations of rows that are multiplied together.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub rows: usize,
    /// (columns / 2)(rows): pairs of columns
    pub numbers: &'a [[i16; 2]],
    /// (blocks)(rows)
    pub scales: &'a [f32],
    /// The sum of a block's numbers times their scale: (blocks)(rows)
    pub sums: &'a [f32],
}

/// Where products go: rows that are so far apart, of which some are wanted, and of these so many outputs. All of them are written.
pub(super) struct Output<'a> {
    pub y: &'a mut [MaybeUninit<f32>],
    pub stride: usize,
    pub rows: usize,
    pub outputs: usize,
}

/// An instruction set that the kernel is compiled for.
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
    /// Those that this processor has, the fastest first.
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

    /// The fastest.
    pub fn best() -> Kernel {
        static BEST: LazyLock<Kernel> = LazyLock::new(|| Kernel::all()[0]);
        *BEST
    }

    /// Most rows of a group.
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

    /// `y[row][output] = sum over the blocks of (sum over the columns of w x) scale_w scale_x + offset_w sum_x`
    pub fn multiply(self, panel: &Panel<'_>, group: &Group<'_>, to: &mut Output<'_>) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(set) => by_rows(set, panel, group, to),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(set) => by_rows(set, panel, group, to),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon(set) => by_rows(set, panel, group, to),
            Kernel::Plain => by_rows(Plain, panel, group, to),
        }
    }
}

fn by_rows<S: Lanes>(set: S, panel: &Panel<'_>, group: &Group<'_>, to: &mut Output<'_>) {
    match group.rows {
        12 if S::ROWS >= 12 => by_scales::<S, 12>(set, panel, group, to),
        8 if S::ROWS >= 8 => by_scales::<S, 8>(set, panel, group, to),
        4 if S::ROWS >= 4 => by_scales::<S, 4>(set, panel, group, to),
        2 if S::ROWS >= 2 => by_scales::<S, 2>(set, panel, group, to),
        1 => by_scales::<S, 1>(set, panel, group, to),
        rows => unreachable!("a group of {rows} rows"),
    }
}

fn by_scales<S: Lanes, const R: usize>(set: S, panel: &Panel<'_>, group: &Group<'_>, to: &mut Output<'_>) {
    let is_halved = panel.scales.len() > group.scales.len() / R;
    match (is_halved, panel.offsets.is_empty()) {
        (false, true) => set.vectorize(Multiply::<S, R, 1, false> { set, panel, group, to }),
        (false, false) => set.vectorize(Multiply::<S, R, 1, true> { set, panel, group, to }),
        (true, _) => set.vectorize(Multiply::<S, R, 2, false> { set, panel, group, to }),
    }
}

/// The kernel for R rows, and weights with so many scales in a block, and perhaps offsets.
struct Multiply<'a, 'b, S, const R: usize, const SCALES: usize, const OFFSETS: bool> {
    set: S,
    panel: &'a Panel<'a>,
    group: &'a Group<'a>,
    to: &'a mut Output<'b>,
}

impl<S: Lanes, const R: usize, const SCALES: usize, const OFFSETS: bool> NullaryFnOnce
    for Multiply<'_, '_, S, R, SCALES, OFFSETS>
{
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Multiply { set, panel, group, to } = self;
        let (no_sums, no_floats) = set.zeros();
        let mut totals = [no_floats; R];
        let weights =
            panel.numbers.as_chunks::<{ BLOCK / 2 }>().0.iter().zip(panel.scales.as_chunks::<SCALES>().0);
        let numbers = group.numbers.as_chunks::<R>().0.as_chunks::<{ BLOCK / 2 }>().0;
        let rows = numbers.iter().zip(group.scales.as_chunks::<R>().0).zip(group.sums.as_chunks::<R>().0);
        let mut offsets = panel.offsets.iter();
        for ((weights, scales), ((numbers, row_scales), row_sums)) in weights.zip(rows) {
            let parts = weights.chunks_exact(BLOCK / 2 / SCALES).zip(numbers.chunks_exact(BLOCK / 2 / SCALES));
            for ((weights, numbers), scales) in parts.zip(scales) {
                let mut sums = [no_sums; R];
                for (weights, numbers) in weights.iter().zip(numbers) {
                    for (sum, number) in sums.iter_mut().zip(numbers) {
                        *sum = set.add_products(*sum, weights, *number);
                    }
                }
                let scales = set.floats(scales);
                for ((total, sum), scale) in totals.iter_mut().zip(sums).zip(row_scales) {
                    *total = set.add_scaled(*total, sum, scales, *scale);
                }
            }
            if OFFSETS && let Some(offsets) = offsets.next() {
                let offsets = set.floats(offsets);
                for (total, sum) in totals.iter_mut().zip(row_sums) {
                    *total = set.add_multiple(*total, offsets, *sum);
                }
            }
        }
        for (y, total) in to.y.chunks_mut(to.stride).zip(totals).take(to.rows) {
            let total = set.numbers(total);
            match y.first_chunk_mut::<PANEL>() {
                Some(y) if to.outputs == PANEL => y.write_copy_of_slice(&total),
                _ => y[..to.outputs].write_copy_of_slice(&total[..to.outputs]),
            };
        }
    }
}
