//! How the entries of a model's caches are divided among its layers and key-value heads.
//!
//! A cache size is the mean over layers and heads: whatever the budget, the sizes sum to layers x heads x size exactly, apart from heads
//! that a table lets keep everything.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::formula::{Formula, Pool};
use super::score::{Score, rank};

/// Which part of all entries each layer gets, or each key-value head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Budget {
    /// Every head of every layer has the same size.
    #[default]
    Uniform,
    /// PyramidKV (arXiv 2406.02069) with this β: sizes fall linearly from the first layer to the last.
    Pyramid(u32),
    /// In proportion to a list of shares, one for each layer. [`Budget::of_layers`] makes it.
    Layers(&'static Vec<Share>),
    /// Heads share their entries, and scores say whose leave (AdaKV, arXiv 2407.11550).
    Pool(BudgetPool),
    /// In proportion to a table of shares. [`Budget::of_heads`] makes it.
    Heads(&'static HeadTable),
}

/// Heads that hold size x heads entries together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BudgetPool {
    pub over: PoolOver,
    /// Each head keeps its best entries up to this percentage of the size, rounded down; at least one unless it is 0.
    pub floor: u8,
    /// Says how many leave from each head, where the policy's own score says only which (CriticalAdaKV, arXiv 2502.03805).
    pub score: Option<Formula>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolOver {
    /// The heads of a layer.
    Heads,
    /// The heads of all layers.
    Model,
}

impl BudgetPool {
    /// Entries that each head keeps at least, of a cache of `size`.
    pub(super) fn kept_by_each(self, size: usize) -> usize {
        if self.floor == 0 { 0 } else { (size * usize::from(self.floor) / 100).max(1) }
    }
}

/// Shares of the key-value heads: (layers)(heads). No entry of a head without a share leaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeadTable {
    heads: usize,
    shares: Vec<Option<Share>>,
}

/// A layer's or a head's part of the entries, relative to those of the others: the bits of a positive number, so that
/// equal lists are equal and have one hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share(u64);

impl Share {
    fn new(share: f64) -> Result<Share> {
        ensure!(share > 0.0 && share <= Budget::MOST, "{share} cannot be a share; shares are positive numbers");
        Ok(Share(share.to_bits()))
    }

    fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Keeps one of equal lists. A policy is copied to every cell and sample, so it refers to its list. Each distinct list is leaked once; a
/// sweep defines a few of them.
pub(super) fn interned<T: PartialEq>(known: &Mutex<Vec<&'static T>>, list: T) -> &'static T {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(equal) = known.iter().find(|other| ***other == list) {
        return equal;
    }
    let list: &'static T = Box::leak(Box::new(list));
    known.push(list);
    list
}

/// Targets that differ by less than this have equal remainders: the rest is rounding of f64.
const REMAINDERS: f64 = (1u64 << 20) as f64;

impl Budget {
    /// The largest share.
    pub const MOST: f64 = u32::MAX as f64;

    /// Sizes of layers in proportion to `shares`.
    ///
    /// # Errors
    /// No share, or one that is not a positive number.
    pub fn of_layers(shares: &[f64]) -> Result<Budget> {
        static LISTS: Mutex<Vec<&'static Vec<Share>>> = Mutex::new(Vec::new());
        ensure!(!shares.is_empty(), "there is no share");
        let shares = shares.iter().map(|share| Share::new(*share)).collect::<Result<_>>()?;
        Ok(Budget::Layers(interned(&LISTS, shares)))
    }

    /// Sizes of heads in proportion to a table in a text file, with a line for each layer. With `full`, that percentage of the heads keeps
    /// everything.
    ///
    /// # Errors
    /// A file that cannot be read, and as [`of_heads`](Self::of_heads).
    pub fn of_file(file: &str, full: Option<u8>) -> Result<Budget> {
        const MOST_BYTES: u64 = 1 << 20;
        let budget = || {
            let text = crate::bounded_read::text(Path::new(file), MOST_BYTES)?;
            Budget::of_heads(&head_table(&text, '\n')?, full)
        };
        budget().with_context(|| format!("cannot use the budget {file}"))
    }

    /// Sizes of heads in proportion to a table of shares, (layers)(heads). Heads without one keep everything. With `full`, that percentage
    /// of the heads does, those with the largest numbers, and all others have the same size (DuoAttention, arXiv 2410.10819).
    ///
    /// # Errors
    /// No share at all, one that is not a positive number, or layers with different numbers of heads.
    pub fn of_heads(table: &[Vec<Option<f64>>], full: Option<u8>) -> Result<Budget> {
        static TABLES: Mutex<Vec<&'static HeadTable>> = Mutex::new(Vec::new());
        let heads = table.first().map_or(0, Vec::len);
        ensure!(heads > 0, "there is no share");
        for (layer, row) in table.iter().enumerate() {
            let own = row.len();
            ensure!(
                own == heads,
                "layer 0 has {heads} heads, and layer {layer} has {own}; each needs a share for every head"
            );
        }
        let mut shares: Vec<Option<f64>> = table.iter().flatten().copied().collect();
        if let Some(full) = full {
            let numbers: Option<Vec<f64>> = shares.iter().copied().collect();
            let numbers = numbers.context("heads are `full` by the table, or by a percentage; not by both")?;
            let mut order: Vec<usize> = (0..numbers.len()).collect();
            order.sort_by(|a, b| rank(numbers[*a], numbers[*b]));
            // Rounded as the authors' and NVIDIA's code does.
            let bounded = (numbers.len() * usize::from(100 - full.min(100))) as f64 / 100.0;
            let (bounded, full) = order.split_at(bounded.round_ties_even() as usize);
            bounded.iter().for_each(|head| shares[*head] = Some(1.0));
            full.iter().for_each(|head| shares[*head] = None);
        }
        let shares = shares.into_iter().map(|share| share.map(Share::new).transpose());
        let shares: Vec<Option<Share>> = shares.collect::<Result<_>>()?;
        ensure!(shares.iter().any(Option::is_some), "every head is `full`; at least one needs a share");
        Ok(Budget::Heads(interned(&TABLES, HeadTable { heads, shares })))
    }

    /// The pool that entries of other heads can leave from.
    pub fn as_pool(self) -> Option<BudgetPool> {
        if let Budget::Pool(pool) = self { Some(pool) } else { None }
    }

    /// The score that says how many entries leave from each head of a pool, if it has one of its own.
    pub(super) fn divides(self) -> Option<Score> {
        self.as_pool()?.score.map(Score::Formula)
    }

    /// Whether the heads of all layers share their entries.
    pub fn pools_model(self) -> bool {
        self.as_pool().is_some_and(|pool| pool.over == PoolOver::Model)
    }

    /// Whether heads of a layer may hold different numbers of entries.
    pub fn is_by_head(self) -> bool {
        matches!(self, Budget::Pool(_) | Budget::Heads(_))
    }

    /// The shares of the layers, if they are listed.
    pub fn shares(self) -> impl Iterator<Item = f64> {
        let shares: &[Share] = if let Budget::Layers(shares) = self { shares } else { &[] };
        shares.iter().map(|share| share.value())
    }

    /// Checks that the budget says something about a model of so many layers and key-value heads.
    pub(super) fn check(self, layers: usize, kv_heads: usize) -> Result<()> {
        match self {
            Budget::Layers(shares) => {
                let listed = shares.len();
                ensure!(
                    listed == layers,
                    "its `budget` has shares for {listed} layers, and the model has {layers}\n\
                     hint: list a share for each layer; models with other numbers of layers need policies of their own"
                );
            }
            Budget::Heads(HeadTable { heads, shares }) => {
                let listed = shares.len() / heads;
                ensure!(
                    (listed, *heads) == (layers, kv_heads),
                    "its `budget` has shares for {listed} layers with {heads} key-value heads, and the model has {layers} with {kv_heads}\n\
                     hint: give a row for each layer, and in it a share for each key-value head; other models need policies of their own"
                );
            }
            _ => {}
        }
        Ok(())
    }

    /// The size of each of the layers that are `bounded`, where their mean is `size` and the newest `keep_recent` entries are protected.
    pub(super) fn sizes(self, size: usize, keep_recent: usize, bounded: &[bool]) -> Vec<usize> {
        let layers = bounded.iter().filter(|is_bounded| **is_bounded).count();
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
            Budget::Layers(shares) if shares.len() == bounded.len() => {
                let own = shares.iter().zip(bounded).filter(|(_, is_bounded)| **is_bounded);
                let own: Vec<f64> = own.map(|(share, _)| share.value()).collect();
                let sum: f64 = own.iter().sum();
                rounded(&own.iter().map(|share| all as f64 * share / sum).collect::<Vec<_>>(), all)
            }
            _ => vec![size; layers],
        }
    }

    /// Sizes of the heads of one layer by a table, where the mean of those with a share in the layers that are `bounded` is `size`;
    /// `usize::MAX` of heads from which no entry leaves. `None` of budgets that are not tables.
    pub(super) fn head_sizes(self, layer: usize, size: usize, bounded: &[bool]) -> Option<&'static Vec<usize>> {
        static LAYERS: Mutex<Vec<&'static Vec<usize>>> = Mutex::new(Vec::new());
        let Budget::Heads(HeadTable { heads, shares }) = self else { return None };
        let rows = shares.chunks(*heads).zip(bounded);
        let of_row = |(row, is_bounded): (&[Option<Share>], &bool)| {
            if *is_bounded { row.to_vec() } else { vec![None; *heads] }
        };
        let shares: Vec<Option<Share>> = rows.flat_map(of_row).collect();
        let values: Vec<f64> = shares.iter().flatten().map(|share| share.value()).collect();
        let (sum, entries) = (values.iter().sum::<f64>(), values.len() * size);
        let targets: Vec<f64> = values.iter().map(|share| entries as f64 * share / sum).collect();
        let mut sizes = rounded(&targets, entries).into_iter();
        let mut of_head = |share: &Option<Share>| share.and_then(|_| sizes.next()).unwrap_or(usize::MAX);
        let sizes: Vec<usize> = shares.iter().map(&mut of_head).collect();
        Some(interned(&LAYERS, sizes.chunks(*heads).nth(layer).unwrap_or_default().to_vec()))
    }
}

/// Whole numbers near the targets that sum to `all`, as the targets do: every target is rounded down, and those with
/// the largest remainders get one more, the first of equal ones.
fn rounded(targets: &[f64], all: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = targets.iter().map(|target| target.floor() as usize).collect();
    let remainder = |which: &usize| (targets[*which].fract() * REMAINDERS).round() as u64;
    let mut order: Vec<usize> = (0..targets.len()).collect();
    order.sort_by_key(|which| std::cmp::Reverse(remainder(which)));
    let left = all.saturating_sub(sizes.iter().sum());
    for which in order.into_iter().take(left) {
        sizes[which] += 1;
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
            Some(("heads", table)) => Budget::of_heads(&head_table(table, '/')?, None),
            Some(("pool", rest)) => {
                let (rest, score) = match rest.split_once(" score=") {
                    Some((rest, score)) => (rest, Some(Formula::new(score, Pool::Mean)?)),
                    None => (rest, None),
                };
                let (over, floor) = match rest.split_once(' ') {
                    Some(("heads", floor)) => (PoolOver::Heads, floor),
                    Some(("model", floor)) => (PoolOver::Model, floor),
                    _ => bail!("`{text}` is not a budget"),
                };
                let floor = floor.strip_suffix('%').context("a floor is a percentage")?.parse()?;
                Ok(Budget::Pool(BudgetPool { over, floor, score }))
            }
            _ => bail!("`{text}` is not a budget"),
        }
    }
}

/// A table of heads as text: a line for each layer, with a share or `full` for each key-value head.
///
/// # Errors
/// The line and what is neither.
fn head_table(text: &str, end_of_line: char) -> Result<Vec<Vec<Option<f64>>>> {
    let share = |text: &str| match text {
        "full" => Ok(None),
        number => {
            Ok(Some(number.parse::<f64>().with_context(|| format!("`{number}` is neither a share nor `full`"))?))
        }
    };
    let lines = text.trim_end().split(end_of_line).enumerate().map(|(line, text)| {
        let words = text.split([' ', '\t', ',', '\r']).filter(|word| !word.is_empty());
        words.map(share).collect::<Result<Vec<_>>>().with_context(|| format!("line {}", line + 1))
    });
    lines.collect()
}

impl fmt::Display for Budget {
    /// Writes the budget as in rows and cell ids: `pyramid 20`, `layers 3 2 2 1`, `pool heads 20%`, `heads full 1/1 2.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Budget::Uniform => write!(f, "uniform"),
            Budget::Pyramid(beta) => write!(f, "pyramid {beta}"),
            Budget::Layers(_) => {
                write!(f, "layers")?;
                self.shares().try_for_each(|share| write!(f, " {share}"))
            }
            Budget::Pool(BudgetPool { over, floor, score }) => {
                let over = if *over == PoolOver::Heads { "heads" } else { "model" };
                write!(f, "pool {over} {floor}%")?;
                score.map_or(Ok(()), |score| write!(f, " score={}", score.text()))
            }
            Budget::Heads(HeadTable { heads, shares }) => {
                write!(f, "heads")?;
                for (at, share) in shares.iter().enumerate() {
                    let before = if at > 0 && at % heads == 0 { '/' } else { ' ' };
                    match share {
                        Some(share) => write!(f, "{before}{}", share.value())?,
                        None => write!(f, "{before}full")?,
                    }
                }
                Ok(())
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
            assert_eq!(layers(shares).sizes(size, 0, &vec![true; shares.len()]), expected, "{shares:?} at {size}");
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
            assert_eq!(
                Budget::Pyramid(beta).sizes(size, keep_recent, &[true; 4]),
                ours,
                "{beta} {size} {keep_recent}"
            );
            assert_eq!(of_kvcache_factory(beta as usize, size, keep_recent, 4), theirs);
            assert_eq!(ours.iter().sum::<usize>(), 4 * size);
        }
        assert_eq!(Budget::Pyramid(20).sizes(7, 0, &[true]), [7]);
        // The example of docs/sweeps.md.
        let (ours, theirs) = (Budget::Pyramid(20).sizes(128, 8, &[true; 30]), of_kvcache_factory(20, 128, 8, 30));
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
        let heads = Budget::of_heads(&[vec![None, Some(1.0)], vec![Some(2.5), None]], None).unwrap();
        assert_eq!(heads.to_string(), "heads full 1/2.5 full");
        let score = Some(Formula::new("sum(attention) * value_norm", Pool::Mean).unwrap());
        let divided = Budget::Pool(BudgetPool { over: PoolOver::Model, floor: 5, score });
        assert_eq!(divided.to_string(), "pool model 5% score=sum(attention) * value_norm");
        assert_eq!([a.to_string(), Budget::Pyramid(20).to_string()], ["layers 3 2.5", "pyramid 20"]);
        for budget in [
            a,
            Budget::Pyramid(20),
            Budget::Uniform,
            heads,
            divided,
            Budget::Pool(BudgetPool { over: PoolOver::Heads, floor: 20, score: None }),
        ] {
            assert_eq!(budget.to_string().parse::<Budget>().unwrap(), budget);
        }
        for unknown in [
            "",
            "pyramid",
            "pyramid x",
            "layers ",
            "layers 3 0",
            "another 3",
            "heads 1 x",
            "heads 1/1 2",
            "pool heads",
            "pool all 2%",
        ] {
            assert!(unknown.parse::<Budget>().is_err(), "{unknown}");
        }
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, -0.0, 1e10] {
            assert!(Budget::of_layers(&[1.0, wrong]).is_err(), "{wrong}");
        }
        assert!(Budget::of_layers(&[]).is_err());
    }

    #[test]
    fn tables_of_heads_by_hand() {
        let sizes = |table: &str, full: Option<u8>, size: usize| {
            let budget = Budget::of_heads(&head_table(table, '\n').unwrap(), full).unwrap();
            let of_layer = |layer| budget.head_sizes(layer, size, &[true; 2]).unwrap().clone();
            [of_layer(0), of_layer(1)]
        };
        const FULL: usize = usize::MAX;
        // Of 30 entries of three heads 5, 10 and 15.
        assert_eq!(sizes("full 1\n2,3\n", None, 10), [[FULL, 5], [10, 15]]);
        // Of 33 entries 5.5, 11 and 16.5: of the equal remainders the first counts.
        assert_eq!(sizes("full\t1\n2\t3", None, 11), [[FULL, 6], [11, 16]]);
        assert_eq!(sizes("0.1 0.9\n0.5 0.3", Some(50), 7), [[7, FULL], [FULL, 7]]);
        // Of four numbers 2.5 are rounded to the even number.
        assert_eq!(sizes("0.1 0.9\n0.5 0.3", Some(38), 7), [[7, FULL], [FULL, 7]]);
        assert_eq!(sizes("0 0.9\n0.5 0.3", Some(25), 7), [[7, FULL], [7, 7]]);
        for (table, full) in
            [("1 2\n3", None), ("full full", None), ("1 2", Some(100)), ("full 1", Some(50)), ("1 -1", None)]
        {
            assert!(Budget::of_heads(&head_table(table, '\n').unwrap(), full).is_err(), "{table}");
        }
        let error = head_table("1 2\n1 x", '\n').unwrap_err();
        assert_eq!(format!("{error:#}"), "line 2: `x` is neither a share nor `full`: invalid float literal");
        assert!(
            Budget::of_file("/nowhere/heads.tsv", None).unwrap_err().to_string().contains("/nowhere/heads.tsv")
        );
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
            let sizes = layers(&shares).sizes(size, 0, &vec![true; count]);
            prop_assert_eq!(sizes.iter().sum::<usize>(), count * size);
            for (share, own) in shares.iter().zip(&sizes) {
                prop_assert!((*own as f64 - (count * size) as f64 * share / all).abs() < 1.0 + 1e-6);
            }
            let recent = recent.min(size);
            let sizes = Budget::Pyramid(beta).sizes(size, recent, &vec![true; count]);
            prop_assert_eq!(sizes.iter().sum::<usize>(), count * size);
            prop_assert!(sizes.windows(2).all(|pair| pair[0] >= pair[1]), "{:?}", sizes);
            prop_assert!(sizes.iter().all(|size| *size >= recent));
        }
    }
}
