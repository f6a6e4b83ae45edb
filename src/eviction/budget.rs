//! How the entries of a model's caches are divided among its layers.
//!
//! A cache size is the mean over layers: whatever the budget, the sizes of the layers sum to layers x size exactly.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail, ensure};

/// Which part of all entries each layer gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Budget {
    /// Every layer has the same size.
    #[default]
    Uniform,
    /// PyramidKV (arXiv 2406.02069) with this β: sizes fall linearly from the first layer to the last.
    Pyramid(u32),
    /// In proportion to a list of shares, one for each layer. [`Budget::of_layers`] makes it.
    Layers(&'static [Share]),
}

/// A layer's part of the entries, relative to those of the other layers: the bits of a positive number, so that
/// equal lists are equal and have one hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share(u64);

/// Every list of shares so far. A policy is copied to every cell and sample, so it refers to its list. Each distinct
/// list is leaked once; a sweep defines a few of them.
static LISTS: Mutex<Vec<&'static [Share]>> = Mutex::new(Vec::new());

/// Targets that differ by less than this have equal remainders: the rest is rounding of f64.
const REMAINDERS: f64 = (1u64 << 20) as f64;

impl Budget {
    /// The largest share.
    pub const MOST: f64 = u32::MAX as f64;

    /// Whether a number can be a layer's share.
    pub fn is_share(share: f64) -> bool {
        share > 0.0 && share <= Budget::MOST
    }

    /// Sizes in proportion to `shares`.
    ///
    /// # Errors
    /// No share, or one that is not a positive number.
    pub fn of_layers(shares: &[f64]) -> Result<Budget> {
        ensure!(!shares.is_empty(), "there is no share");
        for share in shares {
            ensure!(Budget::is_share(*share), "{share} cannot be a layer's share");
        }
        let shares: Vec<Share> = shares.iter().map(|share| Share(share.to_bits())).collect();
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lists.iter().find(|known| ***known == shares) {
            return Ok(Budget::Layers(known));
        }
        let list: &'static [Share] = Vec::leak(shares);
        lists.push(list);
        Ok(Budget::Layers(list))
    }

    /// The shares of the layers, if they are listed.
    pub fn shares(self) -> impl Iterator<Item = f64> {
        let shares = if let Budget::Layers(shares) = self { shares } else { &[] };
        shares.iter().map(|share| f64::from_bits(share.0))
    }

    /// Checks that the budget says something about a model of so many layers.
    pub(super) fn check(self, layers: usize) -> Result<()> {
        if let Budget::Layers(shares) = self {
            let listed = shares.len();
            ensure!(
                listed == layers,
                "its `budget` has shares for {listed} layers, and the model has {layers}\n\
                 hint: list a share for each layer; models with other numbers of layers need policies of their own"
            );
        }
        Ok(())
    }

    /// The size of each layer where the mean is `size` and the newest `keep_recent` entries are protected.
    pub(super) fn sizes(self, size: usize, keep_recent: usize, layers: usize) -> Vec<usize> {
        let all = layers * size;
        match self {
            Budget::Pyramid(beta) if layers > 1 => {
                // As published, with C = size and W = keep_recent: the last layer has (C - W) / β + W entries and
                // the first 2 (C - W) - (C - W) / β + W.
                let (free, kept) = (size.saturating_sub(keep_recent) as f64, keep_recent as f64);
                let last = free / f64::from(beta);
                let step = (2.0 * free - 2.0 * last) / (layers - 1) as f64;
                let target = |layer: usize| 2.0 * free - last - layer as f64 * step + kept;
                rounded(&(0..layers).map(target).collect::<Vec<_>>(), all)
            }
            Budget::Layers(shares) if shares.len() == layers => {
                let sum: f64 = self.shares().sum();
                rounded(&self.shares().map(|share| all as f64 * share / sum).collect::<Vec<_>>(), all)
            }
            _ => vec![size; layers],
        }
    }
}

/// Whole numbers near the targets that sum to `all`, as the targets do: every target is rounded down, and those with
/// the largest remainders get one more, the lower layer of equal ones.
fn rounded(targets: &[f64], all: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = targets.iter().map(|target| target.floor() as usize).collect();
    let remainder = |layer: &usize| (targets[*layer].fract() * REMAINDERS).round() as u64;
    let mut layers: Vec<usize> = (0..targets.len()).collect();
    layers.sort_by_key(|layer| std::cmp::Reverse(remainder(layer)));
    let left = all.saturating_sub(sizes.iter().sum());
    for layer in layers.into_iter().take(left) {
        sizes[layer] += 1;
    }
    sizes
}

impl FromStr for Budget {
    type Err = anyhow::Error;

    /// Reads what [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<Budget> {
        match text.split_once(' ') {
            None if text == "uniform" => Ok(Budget::Uniform),
            Some(("pyramid", beta)) => Ok(Budget::Pyramid(beta.parse()?)),
            Some(("layers", shares)) => {
                let shares = shares.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
                Budget::of_layers(&shares)
            }
            _ => bail!("`{text}` is no budget"),
        }
    }
}

impl fmt::Display for Budget {
    /// As rows and cell ids have it: `pyramid 20`, `layers 3 2 2 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Budget::Uniform => write!(f, "uniform"),
            Budget::Pyramid(beta) => write!(f, "pyramid {beta}"),
            Budget::Layers(_) => {
                write!(f, "layers")?;
                self.shares().try_for_each(|share| write!(f, " {share}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layers(shares: &[f64]) -> Budget {
        Budget::of_layers(shares).unwrap()
    }

    #[test]
    fn shares_by_hand() {
        for (shares, size, expected) in [
            // Shares that sum to layers x size are the sizes.
            (&[3.0, 2.0, 2.0, 1.0][..], 2, &[3, 2, 2, 1][..]),
            (&[3.0, 2.0, 2.0, 1.0], 16, &[24, 16, 16, 8]),
            // 4.5, 3, 3 and 1.5 of 12: of the two equal remainders the lower layer's counts.
            (&[3.0, 2.0, 2.0, 1.0], 3, &[5, 3, 3, 1]),
            // Four times 10 / 3, and 6 + 2 / 3.
            (&[1.0, 1.0, 1.0, 1.0, 2.0], 4, &[4, 3, 3, 3, 7]),
            (&[0.5, 0.25], 3, &[4, 2]),
            // 0.05, 0.05 and 8.9 of 9.
            (&[1.0, 1.0, 178.0], 3, &[0, 0, 9]),
            (&[7.5], 5, &[5]),
        ] {
            assert_eq!(layers(shares).sizes(size, 0, shares.len()), expected, "{shares:?} at {size}");
        }
    }

    /// The layers of PyramidKV in KVCache-Factory (`pyramidkv_utils.py`, `PyramidKVCluster`), which rounds the step
    /// between layers down, so that they hold more than layers x size together. `keep_recent` is its window.
    fn of_kvcache_factory(beta: usize, size: usize, keep_recent: usize, layers: usize) -> Vec<usize> {
        let least = (size - keep_recent) / beta;
        let most = (size - keep_recent) * 2 - least;
        let step = (most - least) / (layers - 1);
        (0..layers).map(|layer| most - layer * step + keep_recent).collect()
    }

    #[test]
    fn pyramids_by_hand_and_as_kvcache_factory_has_them() {
        for (beta, (size, keep_recent), ours, theirs) in [
            // Of 36 entries that are not protected the last layer gets 36 / 20 = 1.8 and the first 72 - 1.8 = 70.2,
            // a step of 22.8: 74.2, 51.4, 28.6 and 5.8 with the 4 that are protected. Theirs: 1, 71 and a step of
            // 23.3, rounded to 23.
            (20, (40, 4), [74, 51, 29, 6], [75, 52, 29, 6]),
            // 3.2 to 124.8, a step of 40.53: 124.8, 84.27, 43.73, 3.2. Theirs: 3, 125 and 40 for 40.67.
            (20, (64, 0), [125, 84, 44, 3], [125, 85, 45, 5]),
            // 5 to 15 in steps of 3.33: 15, 11.67, 8.33, 5. Theirs: the same with a step of 3.
            (2, (10, 0), [15, 12, 8, 5], [15, 12, 9, 6]),
            // 13.5, 11.17, 8.83 and 6.5, with 3 of them protected. Of 0.5, 0.17, 0.83 and 0.5 two are rounded up.
            (2, (10, 3), [14, 11, 9, 6], [14, 12, 10, 8]),
            (1, (10, 3), [10; 4], [10; 4]),
        ] {
            assert_eq!(Budget::Pyramid(beta).sizes(size, keep_recent, 4), ours, "{beta} {size} {keep_recent}");
            assert_eq!(of_kvcache_factory(beta as usize, size, keep_recent, 4), theirs);
            assert_eq!(ours.iter().sum::<usize>(), 4 * size);
        }
        assert_eq!(Budget::Pyramid(20).sizes(7, 0, 1), [7]);
        // The example of docs/sweeps.md.
        let (ours, theirs) = (Budget::Pyramid(20).sizes(128, 8, 30), of_kvcache_factory(20, 128, 8, 30));
        assert_eq!((ours[0], ours[1], ours[29]), (242, 234, 14));
        assert_eq!((theirs[0], theirs[1], theirs[29]), (242, 235, 39));
        assert_eq!((ours.iter().sum::<usize>(), theirs.iter().sum::<usize>()), (3840, 4215));
    }

    #[test]
    fn equal_lists_are_one() {
        let (a, b) = (layers(&[3.0, 2.5]), layers(&[3.0, 2.5]));
        assert_eq!(a, b);
        assert_ne!(a, layers(&[2.5, 3.0]));
        assert!(matches!((a, b), (Budget::Layers(a), Budget::Layers(b)) if std::ptr::eq(a, b)));
        assert_eq!([a.to_string(), Budget::Pyramid(20).to_string()], ["layers 3 2.5", "pyramid 20"]);
        for budget in [a, Budget::Pyramid(20), Budget::Uniform] {
            assert_eq!(budget.to_string().parse::<Budget>().unwrap(), budget);
        }
        for unknown in ["", "pyramid", "pyramid x", "layers ", "layers 3 0", "another 3"] {
            assert!(unknown.parse::<Budget>().is_err(), "{unknown}");
        }
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, -0.0, 1e10] {
            assert!(Budget::of_layers(&[1.0, wrong]).is_err(), "{wrong}");
        }
        assert!(Budget::of_layers(&[]).is_err());
    }

    proptest! {
        /// Sums are exact, no layer is a whole entry off its target, and no layer of a pyramid has more than the one
        /// before it.
        #[test]
        fn sizes_sum_to_layers_times_size(
            shares in prop::collection::vec(1e-3f64..1e3, 1..100),
            size in 1usize..10_000, recent in 0usize..100, beta in 1u32..100,
        ) {
            let (count, all): (usize, f64) = (shares.len(), shares.iter().sum());
            let sizes = layers(&shares).sizes(size, 0, count);
            prop_assert_eq!(sizes.iter().sum::<usize>(), count * size);
            for (share, own) in shares.iter().zip(&sizes) {
                prop_assert!((*own as f64 - (count * size) as f64 * share / all).abs() < 1.0 + 1e-6);
            }
            let recent = recent.min(size);
            let sizes = Budget::Pyramid(beta).sizes(size, recent, count);
            prop_assert_eq!(sizes.iter().sum::<usize>(), count * size);
            prop_assert!(sizes.windows(2).all(|pair| pair[0] >= pair[1]), "{:?}", sizes);
            prop_assert!(sizes.iter().all(|size| *size >= recent));
        }
    }
}
