//! The walk: row by row through a block's table of logits, softmax over the living, score, and one leaves.
//!
//! Inside a layer a token's query, key and value don't depend on who was evicted there, so a block's logits against
//! (cache + block) can be computed as one product, and only this walk is sequential. What it leaves behind are the
//! masked attention weights, ready for one product with the values: the same numbers as deleting entries one token
//! at a time (arXiv 2401.06104, appendix E, builds the same masks). A dead entry stays a masked column until the end
//! of its block.

use super::entries::{CacheEntries, Heads};
use super::policy::{Scope, Score};
use crate::vector;

/// One entry that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Position of the token whose query decided.
    pub step: u32,
    /// Decision group: 0, or the key-value head under scope `head`.
    pub group: u32,
    /// Position of the token that left.
    pub victim: u32,
}

/// What the softmax of a block's rows divided by, each (heads, rows).
#[derive(Clone, Debug, Default)]
pub struct Normaliser {
    pub max: Vec<f32>,
    pub sum: Vec<f32>,
}

/// A block on its way through the rows.
pub struct BlockScan<'a> {
    entries: &'a mut CacheEntries,
    rows: usize,
    /// Entries before the block; the block's row r is column `held + r`.
    held: usize,
    /// Living entries per group.
    alive: usize,
    /// 0 for the living, -inf for the dead and those to come: (groups)(stride)
    masks: Vec<Vec<f32>>,
    /// The newest query's attention, summed over a group's heads: (stride)
    newest: Vec<f32>,
    /// Columns that left at the last step: (groups), or nobody.
    victims: Vec<usize>,
    evicted: bool,
}

impl<'a> BlockScan<'a> {
    pub(super) fn new(
        entries: &'a mut CacheEntries,
        rows: usize,
        norm: impl Fn(usize, usize) -> f64,
    ) -> BlockScan<'a> {
        let held = entries.len();
        let stride = vector::padded(held + rows);
        for row in 0..rows {
            let position = (entries.seen + row) as u32;
            for group in 0..entries.groups.len() {
                let priority = entries.priority(group, position, |kv_head| norm(kv_head, row));
                entries.groups[group].born.push(position);
                entries.groups[group].priority.extend(priority);
            }
        }
        for received in &mut entries.received {
            for sums in &mut received.sums {
                sums.resize(stride, 0.0);
            }
        }
        let mut mask = vec![f32::NEG_INFINITY; stride];
        mask[..held].fill(0.0);
        let masks = vec![mask; entries.groups.len()];
        BlockScan {
            entries,
            rows,
            held,
            alive: held,
            masks,
            newest: vec![0.0; stride],
            victims: Vec::new(),
            evicted: false,
        }
    }

    /// Columns rounded up to whole lanes: the length of a row of logits.
    pub fn stride(&self) -> usize {
        self.newest.len()
    }

    /// Columns that left at the last step: (groups), or nobody.
    pub fn victims(&self) -> &[usize] {
        &self.victims
    }

    /// The living columns of a group that come before, or after, a column.
    pub fn neighbours(&self, group: usize, column: usize) -> (Option<usize>, Option<usize>) {
        let mask = &self.masks[group];
        let before = mask[..column].iter().rposition(|m| *m == 0.0);
        let after = mask[column + 1..].iter().position(|m| *m == 0.0).map(|offset| column + 1 + offset);
        (before, after)
    }

    /// Position in the text of the token a column holds.
    pub fn born(&self, group: usize, column: usize) -> u32 {
        self.entries.groups[group].born[column]
    }

    /// Lets token `row` of the block join, attend and evict. Rows are walked in order, each once.
    ///
    /// `logits` (heads, rows, stride) holds the row's scaled logits in its first `held + row + 1` columns and becomes
    /// its unnormalised attention weights, 0 for everybody not alive; `normaliser` takes max and sum of each head.
    pub fn step(
        &mut self,
        row: usize,
        logits: &mut [f32],
        normaliser: &mut Normaliser,
        log: Option<&mut Vec<Eviction>>,
    ) {
        let (rows, stride) = (self.rows, self.stride());
        let heads = self.entries.heads;
        let column = self.held + row;
        let width = vector::padded(column + 1);
        for mask in &mut self.masks {
            mask[column] = 0.0;
        }
        self.alive += 1;
        self.victims.clear();
        for head in 0..heads.heads {
            let group = self.entries.group_of(head / heads.per_kv_head());
            let weights = &mut logits[(head * rows + row) * stride..][..stride];
            let (max, sum) = vector::softmax_row(&mut weights[..width], &self.masks[group][..width]);
            weights[width..].fill(0.0);
            normaliser.max[head * rows + row] = max;
            normaliser.sum[head * rows + row] = sum;
        }
        let attention = Attention { logits, sums: &normaliser.sum, heads, rows, row, stride, width };
        for received in &mut self.entries.received {
            for (group, sums) in received.sums.iter_mut().enumerate() {
                attention.add_to(sums, received.scope, group);
            }
        }
        if row + 1 == rows && !self.entries.newest.is_empty() {
            let scope = self.entries.policy.map_or(Scope::Layer, |policy| policy.scope);
            for (group, newest) in self.entries.newest.iter_mut().enumerate() {
                newest.clear();
                newest.resize(width, 0.0);
                attention.add_to(newest, scope, group);
            }
        }
        if self.alive > self.entries.limit {
            self.evict(&attention, log);
        }
    }

    /// One entry of every group leaves.
    fn evict(&mut self, attention: &Attention<'_>, mut log: Option<&mut Vec<Eviction>>) {
        let Some(policy) = self.entries.policy else { return };
        // The first `keep_first` tokens are the first columns for ever; with `keep_recent` > 0 nobody among the
        // newest ever left, so they are the last columns.
        let candidates = policy.keep_first..self.held + attention.row + 1 - policy.keep_recent;
        for group in 0..self.masks.len() {
            let mask = &self.masks[group][candidates.clone()];
            let found = match policy.score {
                Score::Recency => mask.iter().position(|m| *m == 0.0),
                Score::LastAttention => {
                    self.newest[..attention.width].fill(0.0);
                    attention.add_to(&mut self.newest, policy.scope, group);
                    vector::argmin_living(&self.newest[candidates.clone()], mask)
                }
                Score::AccumulatedAttention => {
                    vector::argmin_living(&self.entries.received[0].sums[group][candidates.clone()], mask)
                }
                Score::KeyNorm | Score::Random => {
                    let same = if policy.compares_norms() { SAME_NORM } else { 0.0 };
                    lowest_living(&self.entries.groups[group].priority[candidates.clone()], mask, same)
                }
            };
            // Only NaN logits rank nobody; then the oldest leaves, and the NaN shows in the scores.
            let offset = found.or_else(|| mask.iter().position(|m| *m == 0.0));
            let victim = candidates.start + offset.expect("keep_first + keep_recent <= size leaves a candidate");
            self.masks[group][victim] = f32::NEG_INFINITY;
            self.victims.push(victim);
            if let Some(log) = log.as_deref_mut() {
                log.push(Eviction {
                    step: (self.entries.seen + attention.row) as u32,
                    group: group as u32,
                    victim: self.entries.groups[group].born[victim],
                });
            }
        }
        self.alive -= 1;
        self.evicted = true;
    }

    /// Ends the block. Returns the columns each group keeps, in order: (groups)(entries); `None` if nobody left.
    pub fn finish(self) -> Option<Vec<Vec<u32>>> {
        let BlockScan { entries, rows, held, masks, evicted, .. } = self;
        let columns = held + rows;
        entries.seen += rows;
        let kept: Option<Vec<Vec<u32>>> = evicted.then(|| {
            let living = |mask: &Vec<f32>| (0..columns as u32).filter(|c| mask[*c as usize] == 0.0).collect();
            masks.iter().map(living).collect()
        });
        for received in &mut entries.received {
            for sums in &mut received.sums {
                sums.truncate(columns);
            }
        }
        if let Some(kept) = &kept {
            entries.keep(kept);
        }
        kept
    }
}

/// Two key norms closer than this share of themselves are equal. Where equal tokens see equal surroundings, their
/// norms are the same number in exact arithmetic; attention in f32 tells them apart by a few units of the ninth digit.
const SAME_NORM: f64 = 2e-8;

/// Index of the lowest living priority, the first of those that differ by no more than the share `same` of themselves.
fn lowest_living(priority: &[f64], mask: &[f32], same: f64) -> Option<usize> {
    let mut lowest: Option<usize> = None;
    for (i, value) in priority.iter().enumerate() {
        if mask[i] == 0.0 && lowest.is_none_or(|lowest| *value < priority[lowest] - same * priority[lowest].abs())
        {
            lowest = Some(i);
        }
    }
    lowest
}

/// One row's attention weights, not yet divided by their sums.
struct Attention<'a> {
    /// (heads, rows, stride)
    logits: &'a [f32],
    /// (heads, rows)
    sums: &'a [f32],
    heads: Heads,
    rows: usize,
    row: usize,
    stride: usize,
    width: usize,
}

impl Attention<'_> {
    /// Adds a group's attention, summed over its query heads, to `onto` (stride).
    fn add_to(&self, onto: &mut [f32], scope: Scope, group: usize) {
        for head in self.heads.of_group(scope, group) {
            let at = head * self.rows + self.row;
            let weights = &self.logits[at * self.stride..][..self.width];
            vector::add_scaled(&mut onto[..self.width], weights, 1.0 / self.sums[at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_that_cannot_be_told_apart_are_equal() {
        let living = [0.0; 3];
        assert_eq!(lowest_living(&[-1.0, -(1.0 + 1e-8), -0.5], &living, SAME_NORM), Some(0));
        assert_eq!(lowest_living(&[-1.0, -(1.0 + 5e-8), -0.5], &living, SAME_NORM), Some(1));
        assert_eq!(lowest_living(&[-1.0, -(1.0 + 1e-8), -0.5], &living, 0.0), Some(1));
        assert_eq!(lowest_living(&[-2.0, -1.0, -1.0], &[f32::NEG_INFINITY, 0.0, 0.0], SAME_NORM), Some(1));
    }
}
