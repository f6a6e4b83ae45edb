//! The scan: row by row through a block's table of logits, with a softmax over the cached entries, scores, and one
//! eviction.
//!
//! Inside a layer a token's query, key and value don't depend on what was evicted there. So a block's logits
//! against (cache + block) are computed as one product beforehand, and only this scan is sequential. It leaves the
//! masked attention weights, ready for one product with the values: the same numbers as deleting entries one token
//! at a time (arXiv 2401.06104, appendix E, builds the same masks). An evicted entry stays a masked column until the
//! end of its block.

use super::block::{Attention, NewEntries, Queries, Vectors, weigh};
use super::entries::{CacheEntries, Eviction, Kind, Led};
use super::pool::Living;
use crate::vector;

/// Maximum and sum of each softmax of a block, both (heads, rows).
#[derive(Clone, Debug, Default)]
pub struct Normaliser {
    pub max: Vec<f32>,
    pub sum: Vec<f32>,
}

/// The scan of one block.
pub struct BlockScan<'a> {
    entries: &'a mut CacheEntries,
    rows: usize,
    /// Entries of each group before the block; its row r is column `held + r`. (groups)
    held: Vec<usize>,
    /// Entries of each group that are in the cache now. (groups)
    cached: Vec<usize>,
    /// 0 for entries in the cache, -inf for evicted and future ones: (groups)(stride)
    masks: Vec<Vec<f32>>,
    /// The newest query's attention, summed over a group's heads: (stride)
    newest: Vec<f32>,
    /// Logits of the layer's attention sinks: (heads), or empty.
    sinks: Vec<f32>,
    /// How many entries the query of each group selects (groups), where queries do.
    selected: Option<Vec<usize>>,
    /// What the first layer has evicted, where that decides for this one too; of the first layer itself, what it evicts.
    led: Option<(Led, Vec<Eviction>)>,
    /// Whether the read ends with this block.
    ends_read: bool,
    /// The masks as the queries of all rows saw them (groups, rows, stride), if they are asked for.
    seen: Option<Vec<f32>>,
    /// Groups and columns that the policy evicted in the last step.
    pub victims: Vec<(usize, usize)>,
}

impl CacheEntries {
    /// Starts a block of `rows` tokens.
    pub fn begin(&mut self, rows: usize, new: &NewEntries<'_>) -> BlockScan<'_> {
        self.save_for_forks();
        BlockScan::new(self, rows, new)
    }
}

impl<'a> BlockScan<'a> {
    pub(super) fn new(entries: &'a mut CacheEntries, rows: usize, new: &NewEntries<'_>) -> Self {
        let stride = vector::padded(entries.longest() + rows);
        // Entries that the layer's window has passed are there only if they are kept for forks.
        let oldest = entries.oldest_after(entries.seen) as u32;
        let mut masks = vec![vec![f32::NEG_INFINITY; stride]; entries.groups.len()];
        let (mut held, mut cached) = (Vec::new(), Vec::new());
        for (group, mask) in entries.groups.iter().zip(&mut masks) {
            let (len, passed) =
                (group.positions.len(), group.positions.partition_point(|position| *position < oldest));
            mask[passed..len].fill(0.0);
            held.push(len);
            cached.push(len - passed);
        }
        entries.join(rows, stride, new);
        if let Kind::Unbounded(unbounded) = &mut entries.kind {
            unbounded.cuts.iter_mut().for_each(|cut| cut.join(rows, stride, new));
        }
        let (newest, ends_read, sinks) = (vec![0.0; stride], new.ends_read, new.sinks.to_vec());
        let (selected, seen, victims) = (entries.selected(), None, Vec::new());
        let led = entries.leads_or_follows().map(|led| (led, Vec::new()));
        BlockScan { entries, rows, held, cached, masks, newest, sinks, selected, led, ends_read, seen, victims }
    }

    /// Takes the queries of all rows, for scores that look at the last rows of a prompt only.
    pub fn keep_queries(&mut self, queries: &Queries<'_>) {
        self.entries.keep_queries(self.rows, queries);
    }

    /// Remembers what the query of each row attends to.
    pub fn remember_masks(&mut self) {
        self.seen = Some(vec![f32::NEG_INFINITY; self.masks.len() * self.rows * self.stride()]);
    }

    /// Gives the scan what the first layer has evicted in this read, where that decides for all.
    pub fn follow(&mut self, decided: &[Eviction]) {
        let steps = self.entries.seen as u32..(self.entries.seen + self.rows) as u32;
        if let Some((Led::Follows, own)) = &mut self.led {
            own.extend(decided.iter().filter(|eviction| steps.contains(&eviction.step)));
        }
    }

    /// What the first layer has evicted in this block, where that decides for all.
    pub fn take_decided(&mut self) -> Vec<Eviction> {
        self.led.take().filter(|(led, _)| *led == Led::Leads).map_or_else(Vec::new, |(_, decided)| decided)
    }

    /// 0 for columns that the query of a row attended to, -inf for others: (groups, rows, stride)
    pub fn take_masks(&mut self) -> Option<Vec<f32>> {
        self.seen.take()
    }

    /// Columns rounded up to whole lanes: the length of a row of logits.
    pub fn stride(&self) -> usize {
        self.newest.len()
    }

    /// The nearest cached columns of a group before and after a column.
    pub fn neighbours(&self, group: usize, column: usize) -> (Option<usize>, Option<usize>) {
        let mask = &self.masks[group];
        let before = mask[..column].iter().rposition(|m| *m == 0.0);
        let after = mask[column + 1..].iter().position(|m| *m == 0.0).map(|offset| column + 1 + offset);
        (before, after)
    }

    /// The cached columns of a group.
    pub fn living(&self, group: usize) -> impl DoubleEndedIterator<Item = usize> {
        let mask = &self.masks[group];
        (0..mask.len()).filter(|column| mask[*column] == 0.0)
    }

    /// Position in the text of a column's token.
    pub fn position(&self, group: usize, column: usize) -> u32 {
        self.entries.groups[group].positions[column]
    }

    /// Adds token `row` of the block to the cache, computes its attention, and evicts. Each row once, in order.
    ///
    /// `logits` (heads, rows, stride) holds the row's scaled logits in the first columns, up to that of the row, and
    /// becomes its unnormalised attention weights, 0 for entries not in the cache; `normaliser` takes max and sum
    /// of each head. `vectors` are those of the same columns.
    pub fn step(
        &mut self,
        row: usize,
        logits: &mut [f32],
        normaliser: &mut Normaliser,
        vectors: &dyn Vectors,
        mut log: Option<&mut Vec<Eviction>>,
    ) {
        let (rows, stride) = (self.rows, self.stride());
        let heads = self.entries.heads;
        for ((mask, held), cached) in self.masks.iter_mut().zip(&self.held).zip(&mut self.cached) {
            mask[held + row] = 0.0;
            *cached += 1;
        }
        let widths: Vec<usize> = self.held.iter().map(|held| vector::padded(held + row + 1)).collect();
        self.victims.clear();
        self.pass(row, log.as_deref_mut());
        let excess = self.excess();
        let decides = excess.iter().any(|excess| *excess > 0);
        let of_head = |head: usize| (head * rows + row) * stride..(head * rows + row + 1) * stride;
        let plain =
            self.selected.as_ref().filter(|_| decides).map(|_| -> Vec<f32> {
                (0..heads.heads).flat_map(|head| &logits[of_head(head)]).copied().collect()
            });
        for head in 0..heads.heads {
            let width = widths[self.entries.group_of(head / heads.per_kv_head())];
            for scorer in self.entries.scorers_of_rows().filter(|scorer| scorer.wants_logits()) {
                scorer.take_logits(head, &logits[of_head(head)][..width]);
            }
        }
        self.weigh_row(row, logits, normaliser, &widths);
        let ends_read = self.ends_read && row + 1 == rows;
        let sums = &normaliser.sum;
        let attention = Attention { logits, sums, heads, rows, row, stride, widths: &widths, ends_read };
        let mask = |group: usize| &self.masks[group][..self.held[group] + row + 1];
        self.entries.attend(&attention, vectors, decides, mask);
        if let Kind::Unbounded(unbounded) = &mut self.entries.kind {
            if let Some(recorded) = &mut unbounded.recorded {
                recorded.push(&attention, heads);
            }
            if let Some(second) = &mut unbounded.second_reading {
                second.add(&attention, heads);
            }
            for cut in &mut unbounded.cuts {
                // Before the cut the caches of all heads hold the same.
                cut.attend(&attention, vectors, false, |_| mask(0));
            }
        }
        let Some(plain) = plain else {
            self.remember_row(row);
            if decides {
                self.evict(&attention, vectors, excess, log);
            }
            return;
        };
        // The query attends again, to what it has selected by its attention to all.
        let all = self.masks.clone();
        for (group, excess) in excess.into_iter().enumerate().filter(|(_, excess)| *excess > 0) {
            let mask = &mut self.masks[group][..self.held[group] + row + 1];
            self.entries.select((group, excess), mask, (&attention, vectors), &mut self.newest);
        }
        for (head, plain) in plain.chunks(stride).enumerate() {
            logits[of_head(head)].copy_from_slice(plain);
        }
        self.weigh_row(row, logits, normaliser, &widths);
        self.remember_row(row);
        self.masks = all;
    }

    /// Makes attention weights of a row's logits, over what its query sees.
    fn weigh_row(&self, row: usize, logits: &mut [f32], normaliser: &mut Normaliser, widths: &[usize]) {
        let (rows, stride, heads) = (self.rows, self.stride(), self.entries.heads);
        for head in 0..heads.heads {
            let group = self.entries.group_of(head / heads.per_kv_head());
            let at = head * rows + row;
            let weights = &mut logits[at * stride..][..stride];
            (normaliser.max[at], normaliser.sum[at]) =
                weigh(weights, &self.masks[group][..widths[group]], self.sinks.get(head));
        }
    }

    /// Remembers what the query of a row attends to, if that is asked for.
    fn remember_row(&mut self, row: usize) {
        let (rows, stride) = (self.rows, self.stride());
        if let Some(seen) = &mut self.seen {
            for (group, mask) in self.masks.iter().enumerate() {
                seen[(group * rows + row) * stride..][..stride].copy_from_slice(mask);
            }
        }
    }

    /// Entries that have to leave each group, or that its query does not attend to; of a pool, all of them in the first place.
    fn excess(&self) -> Vec<usize> {
        if let Some(selected) = &self.selected {
            return self.cached.iter().zip(selected).map(|(cached, size)| cached.saturating_sub(*size)).collect();
        }
        let Some(bounded) = self.entries.as_bounded() else { return vec![0; self.cached.len()] };
        let (limits, burst) = (&bounded.limits, self.entries.burst());
        let of = |cached: usize, limit: usize, burst: usize| {
            if cached > limit.saturating_add(burst) { cached - limit } else { 0 }
        };
        if bounded.policy.budget.as_pool().is_some() {
            let limit = limits.iter().fold(0, |sum: usize, limit| sum.saturating_add(*limit));
            return vec![of(self.cached.iter().sum(), limit, limits.len() * (burst - 1))];
        }
        self.cached.iter().zip(limits).map(|(cached, limit)| of(*cached, *limit, burst - 1)).collect()
    }

    /// Drops entries that have just left the layer's sliding window, unless the policy evicted them earlier.
    fn pass(&mut self, row: usize, mut log: Option<&mut Vec<Eviction>>) {
        let position = self.entries.seen + row;
        let passed = self.entries.oldest_after(position)..self.entries.oldest_after(position + 1);
        for passed in passed {
            let groups = self.entries.groups.iter().zip(&mut self.masks).zip(&mut self.cached).enumerate();
            for (group, ((entries, mask), cached)) in groups {
                let column = entries.positions.binary_search(&(passed as u32)).ok();
                let Some(column) = column.filter(|column| mask[*column] == 0.0) else { continue };
                mask[column] = f32::NEG_INFINITY;
                *cached -= 1;
                if let Some(log) = log.as_deref_mut() {
                    // It was seen for the last time one step before.
                    log.push(Eviction { step: position as u32 - 1, group: group as u32, victim: passed as u32 });
                }
            }
        }
    }

    /// Evicts from the groups that have too many entries. (With a window one entry leaves at a time, and a group that its window has
    /// taken one from has no more than its size.)
    fn evict(
        &mut self,
        attention: &Attention<'_>,
        vectors: &dyn Vectors,
        excess: Vec<usize>,
        log: Option<&mut Vec<Eviction>>,
    ) {
        let BlockScan { entries, held, cached, masks, newest, victims, led, .. } = self;
        let Some(policy) = entries.policy() else { return };
        let step = (entries.seen + attention.row) as u32;
        let columns: Vec<usize> = held.iter().map(|held| held + attention.row + 1).collect();
        let sources = (attention, vectors);
        if let Some((Led::Follows, decided)) = led {
            let positions = &entries.groups[0].positions;
            let left = decided.iter().filter(|eviction| eviction.step == step);
            let left = left.filter_map(|eviction| positions.binary_search(&eviction.victim).ok());
            victims.extend(left.map(|column| (0, column)));
            victims.iter().for_each(|(_, column)| masks[0][*column] = f32::NEG_INFINITY);
            cached[0] -= victims.len();
        } else if let Some(pool) = policy.budget.as_pool() {
            let living = Living { masks, cached, columns: &columns };
            entries.evict_from_pool(policy, pool, excess[0], living, sources, victims);
        } else {
            for (group, excess) in excess.into_iter().enumerate().filter(|(_, excess)| *excess > 0) {
                let candidates = entries.groups[group].candidates(policy, columns[group]);
                let mask = &mut masks[group][..columns[group]];
                entries.evict(group, (candidates, excess), mask, sources, newest, |victim| {
                    victims.push((group, victim))
                });
            }
            victims.iter().for_each(|(group, _)| cached[*group] -= 1);
        }
        let evictions = victims.iter().map(|(group, victim)| {
            let victim = entries.groups[*group].positions[*victim];
            Eviction { step, group: *group as u32, victim }
        });
        if let Some((Led::Leads, decided)) = led {
            decided.extend(evictions.clone());
        }
        if let Some(log) = log {
            log.extend(evictions);
        }
    }

    /// Ends the block. Returns the columns each group keeps, ascending: (groups)(entries); `None` if nothing was
    /// evicted.
    pub fn finish(self) -> Option<Vec<Vec<u32>>> {
        let BlockScan { entries, rows, held, cached, masks, .. } = self;
        let loses = held.iter().zip(&cached).any(|(held, cached)| *cached < held + rows);
        let kept: Option<Vec<Vec<u32>>> = (loses && !entries.keeps_all()).then(|| {
            let kept = |(mask, held): (&Vec<f32>, &usize)| {
                (0..(held + rows) as u32).filter(|column| mask[*column as usize] == 0.0).collect()
            };
            masks.iter().zip(&held).map(kept).collect()
        });
        entries.leave(rows);
        if let Kind::Unbounded(unbounded) = &mut entries.kind {
            unbounded.cuts.iter_mut().for_each(|cut| cut.leave(rows));
        }
        if let Some(kept) = &kept {
            entries.keep(kept);
        }
        kept
    }
}
