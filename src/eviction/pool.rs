//! Evictions that look at several heads: from the pool of a layer's heads, from that of a model's, and when a prompt is cut.

use std::cmp::Ordering;

use super::amount::FirstTokens;
use super::block::{Attention, Vectors};
use super::budget::BudgetPool;
use super::entries::{CacheEntries, Eviction, Kind};
use super::formula::{self, Scorer};
use super::policy::Policy;
use super::score::rank;
use super::sized_policy::SizedPolicy;

/// An entry that may leave.
#[derive(Clone, Copy)]
struct Ranked {
    score: f64,
    position: u32,
    column: u32,
}

/// A layer's cache whose entries leave when a token has gone through all layers.
pub struct LayerEntries<'a> {
    pub entries: &'a mut CacheEntries,
    /// Takes what leaves, group by group, the oldest first.
    pub log: Option<&'a mut Vec<Eviction>>,
    /// Keys and values of the columns, which functions need.
    pub vectors: Option<&'a dyn Vectors>,
}

/// The columns that each group keeps, ascending: (groups)(entries)
pub type Kept = Vec<Vec<u32>>;

/// The columns of a layer's groups during a block.
pub(super) struct Living<'a> {
    /// 0 for columns in the cache: (groups)(stride)
    pub masks: &'a mut [Vec<f32>],
    /// Entries in the cache, and columns up to that of the row: (groups)
    pub cached: &'a mut [usize],
    pub columns: &'a [usize],
}

/// Evicts what leaves after a token has gone through all layers. At the end of a prompt, a policy that protects it has its size from there
/// on, and a cache whose schedule says so is cut: protected entries are kept, and of the others those with the highest scores, the newer
/// of equal ones. Where all layers share their entries, these are evicted when there are as many more as the schedule says. Returns
/// for each layer what its groups keep; `None` where all entries stay.
pub fn evict_together(layers: &mut [LayerEntries<'_>], ends_prompt: bool) -> Vec<Option<Kept>> {
    let mut kept: Vec<Option<Kept>> = layers.iter().map(|_| None).collect();
    let mut pooled = Vec::new();
    let mut cuts = false;
    for (index, layer) in layers.iter_mut().enumerate() {
        let Some(bounded) = layer.entries.as_bounded_mut() else { continue };
        let policy = bounded.policy;
        let is_cut = ends_prompt && std::mem::take(&mut bounded.awaits_cut);
        if policy.budget.pools_model() {
            pooled.push((index, policy));
            cuts |= is_cut;
        } else if is_cut {
            kept[index] = layer.cut(policy);
        }
    }
    let Some(&(_, policy)) = pooled.first() else { return kept };
    let Some(pool) = policy.budget.as_pool() else { return kept };
    let held: Vec<usize> = pooled.iter().flat_map(|(index, _)| layers[*index].entries.held()).collect();
    // A layer with a window never has more than that, and no other layer gets the rest.
    let shares = pooled.iter().map(|(index, policy)| {
        let entries = &layers[*index].entries;
        entries.groups.len() * entries.share(*policy)
    });
    let limit: usize = shares.sum();
    let buffer = if cuts { 0 } else { held.len().saturating_mul(policy.schedule.buffer()) };
    let all = held.iter().sum::<usize>();
    if all > limit.saturating_add(buffer) {
        let ranked: Vec<Vec<Ranked>> =
            pooled.iter().flat_map(|(index, policy)| layers[*index].ranked(*policy)).collect();
        let mut leaving = divide(&ranked, &held, pool.kept_by_each(policy.size), all - limit);
        let mut ranked = ranked.into_iter();
        for &(index, policy) in &pooled {
            layers[index].entries.count_scores_together();
            let groups = layers[index].entries.groups.len();
            let ranked: Vec<Vec<Ranked>> = ranked.by_ref().take(groups).collect();
            let rest = leaving.split_off(groups);
            kept[index] = layers[index].remove(policy, ranked, &leaving);
            leaving = rest;
        }
    }
    if cuts {
        pooled.iter().for_each(|(index, policy)| layers[*index].entries.after_cut(*policy));
    }
    kept
}

/// How many entries leave from each head, `excess` in all: the lowest scores of all heads that hold more than `floor`, the older of equal
/// ones, and of these that of the lower head. The `ranked` entries of a head are those that may leave.
fn divide(ranked: &[Vec<Ranked>], held: &[usize], floor: usize, excess: usize) -> Vec<usize> {
    let heads = ranked.iter().enumerate();
    let mut all: Vec<(f64, u32, usize)> =
        heads.flat_map(|(head, entries)| entries.iter().map(move |own| (own.score, own.position, head))).collect();
    all.sort_unstable_by(|a, b| rank(a.0, b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let (mut leaving, mut left) = (vec![0; held.len()], excess);
    for (_, _, head) in all {
        if left > 0 && held[head] - leaving[head] > floor {
            leaving[head] += 1;
            left -= 1;
        }
    }
    leaving
}

/// The lowest score first, of equal ones the oldest.
fn order(a: &Ranked, b: &Ranked) -> Ordering {
    rank(a.score, b.score).then(a.position.cmp(&b.position))
}

/// Keeps the `count` entries that come first, in any order.
fn keep_first(ranked: &mut Vec<Ranked>, count: usize) {
    if count < ranked.len() {
        ranked.select_nth_unstable_by(count, order);
        ranked.truncate(count);
    }
}

impl LayerEntries<'_> {
    /// Cuts a layer by itself.
    fn cut(&mut self, policy: SizedPolicy) -> Option<Kept> {
        let entries = &mut *self.entries;
        if policy.keeps_prompt() {
            entries.protect_prompt(policy);
            return None;
        }
        let held = entries.held();
        let sizes = policy.group_sizes(entries.heads);
        let excess: Vec<usize> = held.iter().zip(&sizes).map(|(held, size)| held.saturating_sub(*size)).collect();
        let leaves = excess.iter().any(|excess| *excess > 0);
        if leaves {
            entries.count_scores_together();
        }
        let kept = if !leaves {
            None
        } else if let Some(tokens) = policy.score.block() {
            let all: Vec<usize> = (0..held[0]).collect();
            let scores = self.scores(0);
            let candidates = self.entries.groups[0].candidates(policy, held[0]);
            let leaving = self.entries.blocks(tokens, 0, &all, candidates, excess[0], |column| scores[column]);
            self.remove_columns(vec![leaving])
        } else {
            let ranked = self.ranked(policy);
            let leaving = match policy.budget.as_pool() {
                Some(pool) => divide(&ranked, &held, pool.kept_by_each(policy.size), excess.iter().sum()),
                None => excess,
            };
            self.remove(policy, ranked, &leaving)
        };
        self.entries.after_cut(policy);
        kept
    }

    /// The entries of each group that may leave, with the budget's score or else the policy's own.
    fn ranked(&self, policy: SizedPolicy) -> Vec<Vec<Ranked>> {
        let of_group = |group: usize| {
            let columns = self.entries.groups[group].positions.len();
            let scores = match self.entries.as_bounded().and_then(|bounded| bounded.divider.as_ref()) {
                Some(divider) => divider.scores(group, 0..columns).map(f64::from).collect(),
                None => self.scores(group),
            };
            let candidates = self.entries.groups[group].candidates(policy, columns);
            self.entries.ranked(group, candidates, |column| scores[column])
        };
        (0..self.entries.groups.len()).map(of_group).collect()
    }

    /// Evicts `leaving[g]` entries of group g: the lowest of `ranked`, or, if `ranked` has the budget's score, those with the lowest
    /// score of the policy itself.
    fn remove(&mut self, policy: SizedPolicy, mut ranked: Vec<Vec<Ranked>>, leaving: &[usize]) -> Option<Kept> {
        if self.entries.has_divider() {
            for (group, ranked) in ranked.iter_mut().enumerate() {
                let columns = self.entries.groups[group].positions.len();
                let mask = vec![0.0; columns];
                self.entries.resize_group(group, &mask, columns - leaving[group]);
                let scores = self.scores(group);
                self.entries.rank_again(policy, ranked, columns, |column, _| scores[column]);
            }
        }
        let of_group = |(mut ranked, leaving): (Vec<Ranked>, &usize)| {
            keep_first(&mut ranked, *leaving);
            ranked.into_iter().map(|entry| entry.column as usize).collect()
        };
        self.remove_columns(ranked.into_iter().zip(leaving).map(of_group).collect())
    }

    /// The scores of a group's columns after the last token that was read, by the policy itself.
    fn scores(&self, group: usize) -> Vec<f64> {
        let scores = |bounded| self.entries.scores_at_cut(bounded, group, self.vectors);
        self.entries.as_bounded().map(scores).unwrap_or_default()
    }

    /// Removes columns of each group.
    fn remove_columns(&mut self, leaving: Vec<Vec<usize>>) -> Option<Kept> {
        if leaving.iter().all(Vec::is_empty) {
            return None;
        }
        let mut kept = Vec::new();
        for (group, mut leaving) in leaving.into_iter().enumerate() {
            leaving.sort_unstable();
            let positions = &self.entries.groups[group].positions;
            if let Some(log) = self.log.as_deref_mut() {
                let (step, group) = (self.entries.seen as u32 - 1, group as u32);
                log.extend(leaving.iter().map(|column| Eviction { step, group, victim: positions[*column] }));
            }
            let stays = |column: &u32| leaving.binary_search(&(*column as usize)).is_err();
            kept.push((0..positions.len() as u32).filter(stays).collect());
        }
        self.entries.keep(&kept);
        Some(kept)
    }
}

impl CacheEntries {
    /// Entries of each group.
    fn held(&self) -> Vec<usize> {
        self.groups.iter().map(|group| group.positions.len()).collect()
    }

    /// Counts the scores by which entries leave after a token has gone through all layers.
    fn count_scores_together(&mut self) {
        let mask = vec![0.0; self.longest()];
        let columns = self.held();
        if let Kind::Bounded(bounded) = &mut self.kind {
            bounded.count_scores(&self.groups, |group| &mask[..columns[group]]);
        }
    }

    /// Whether a score of its own divides the entries of its pool.
    fn has_divider(&self) -> bool {
        self.as_bounded().is_some_and(|bounded| bounded.divider.is_some())
    }

    /// From the end of the prompt on, its tokens are protected, and the size is that of what follows.
    fn protect_prompt(&mut self, policy: SizedPolicy) {
        let protected = Policy { keep_first: FirstTokens::tokens(self.seen), ..*policy };
        let sizes = policy.group_sizes(self.heads).into_iter().zip(self.held());
        let limits = sizes.map(|(size, held)| size.saturating_add(held)).collect();
        if let Some(bounded) = self.as_bounded_mut() {
            bounded.policy = SizedPolicy { policy: protected, ..policy };
            bounded.newest = Vec::new();
            bounded.limits = limits;
        }
    }

    /// After a cut, entries leave as the schedule says, or none does any more.
    fn after_cut(&mut self, policy: SizedPolicy) {
        let Kind::Bounded(bounded) = &mut self.kind else { return };
        match policy.schedule.every() {
            // They go on to leave together.
            Some(_) if policy.budget.pools_model() => return,
            Some(_) => {
                bounded.limits = policy.group_sizes(self.heads);
                bounded.scorers().for_each(Scorer::shrink);
            }
            // Nothing needs a score.
            None => {
                bounded.scorer = None;
                bounded.divider = None;
                bounded.inputs = None;
                self.received = Vec::new();
            }
        }
        bounded.newest = Vec::new();
    }

    /// Some entries of a group, with their scores.
    fn ranked(
        &self,
        group: usize,
        columns: impl Iterator<Item = usize>,
        score: impl Fn(usize) -> f64,
    ) -> Vec<Ranked> {
        let position = |column: usize| self.groups[group].positions[column];
        let ranked = columns.map(|column| Ranked {
            score: score(column),
            position: position(column),
            column: column as u32,
        });
        ranked.collect()
    }

    /// Gives entries the policy's own score. Those that are the best of `held` by the score that they have, as many as each head keeps at
    /// least, are taken away.
    fn rank_again(
        &self,
        policy: SizedPolicy,
        ranked: &mut Vec<Ranked>,
        held: usize,
        score: impl Fn(usize, u32) -> f64,
    ) {
        let floor = policy.budget.as_pool().map_or(0, |pool| pool.kept_by_each(policy.size));
        let protected = held - ranked.len();
        let may_leave = ranked.len() - floor.saturating_sub(protected).min(ranked.len());
        keep_first(ranked, may_leave);
        ranked.iter_mut().for_each(|entry| entry.score = score(entry.column as usize, entry.position));
    }

    /// Computes the own scores of a group of a pool again, which will hold `size` entries.
    fn resize_group(&mut self, group: usize, mask: &[f32], size: usize) {
        let Kind::Bounded(bounded) = &mut self.kind else { return };
        if let Some(scorer) = &mut bounded.scorer {
            let unprotected = self.groups[group].candidates(bounded.policy, mask.len());
            let entries = formula::Entries { positions: &self.groups[group].positions, mask, unprotected };
            scorer.resize(size, group, &entries);
        }
    }

    /// Evicts `excess` entries from the heads of a layer. `victims` takes their groups and columns.
    pub(super) fn evict_from_pool(
        &mut self,
        policy: SizedPolicy,
        pool: BudgetPool,
        excess: usize,
        living: Living<'_>,
        sources: (&Attention<'_>, &dyn Vectors),
        victims: &mut Vec<(usize, usize)>,
    ) {
        let Living { masks, cached, columns } = living;
        let floor = pool.kept_by_each(policy.size);
        let groups = 0..self.groups.len();
        if self.has_divider() {
            self.evict_divided(policy, floor, excess, Living { masks, cached, columns }, sources, victims);
            return;
        }
        let mut newest: Vec<Vec<f32>> = columns.iter().map(|columns| vec![0.0; *columns]).collect();
        let of_groups = newest.iter_mut().enumerate().map(|(group, newest)| {
            let candidates = self.groups[group].candidates(policy, columns[group]);
            let mask = &masks[group][..columns[group]];
            (self.scores_of(group, candidates.clone(), mask, sources, newest), candidates)
        });
        let of_groups: Vec<_> = of_groups.collect();
        // The next to leave from each group.
        let next = |group: usize, masks: &[Vec<f32>]| {
            let (scores, candidates) = &of_groups[group];
            let offset = scores.lowest(&masks[group][candidates.clone()])?;
            let column = candidates.start + offset;
            let position = self.groups[group].positions[column];
            Some((scores.at(offset, position), position, column))
        };
        let mut lowest: Vec<_> = groups.clone().map(|group| next(group, masks)).collect();
        for _ in 0..excess {
            let mut first: Option<usize> = None;
            for group in groups.clone().filter(|group| cached[*group] > floor) {
                let Some((score, position, _)) = lowest[group] else { continue };
                let is_first = first.and_then(|first| lowest[first]).is_none_or(|(other, older, _)| {
                    let is_tied = (score - other).abs() <= of_groups[group].0.tolerance() * other.abs();
                    let order = if is_tied { Ordering::Equal } else { rank(score, other) };
                    order.then(position.cmp(&older)).is_lt()
                });
                if is_first {
                    first = Some(group);
                }
            }
            let Some((group, (_, _, column))) = first.and_then(|first| Some((first, lowest[first]?))) else {
                return;
            };
            masks[group][column] = f32::NEG_INFINITY;
            cached[group] -= 1;
            victims.push((group, column));
            lowest[group] = next(group, masks);
        }
    }

    /// Evicts `excess` entries from the heads of a layer, where a score of the budget says how many leave from each head and the policy's
    /// score says which.
    fn evict_divided(
        &mut self,
        policy: SizedPolicy,
        floor: usize,
        excess: usize,
        Living { masks, cached, columns }: Living<'_>,
        sources: (&Attention<'_>, &dyn Vectors),
        victims: &mut Vec<(usize, usize)>,
    ) {
        let ranked = (0..columns.len()).map(|group| {
            let dividers = self.as_bounded().and_then(|bounded| bounded.divider.as_ref()).into_iter();
            let scores: Vec<f32> = dividers.flat_map(|divider| divider.scores(group, 0..columns[group])).collect();
            let candidates = self.groups[group].candidates(policy, columns[group]);
            let in_cache = candidates.filter(|column| masks[group][*column] == 0.0);
            self.ranked(group, in_cache, |column| f64::from(scores[column]))
        });
        let ranked: Vec<Vec<Ranked>> = ranked.collect();
        let leaving = divide(&ranked, cached, floor, excess);
        for (group, mut ranked) in ranked.into_iter().enumerate().filter(|(group, _)| leaving[*group] > 0) {
            let mask = &mut masks[group][..columns[group]];
            self.resize_group(group, mask, cached[group] - leaving[group]);
            let mut newest = vec![0.0; columns[group]];
            let candidates = self.groups[group].candidates(policy, columns[group]);
            let first = candidates.start;
            let scores = self.scores_of(group, candidates, mask, sources, &mut newest);
            self.rank_again(policy, &mut ranked, cached[group], |column, position| {
                scores.at(column - first, position)
            });
            ranked.sort_unstable_by(order);
            for entry in ranked.iter().take(leaving[group]) {
                mask[entry.column as usize] = f32::NEG_INFINITY;
                victims.push((group, entry.column as usize));
            }
            cached[group] -= leaving[group];
        }
    }
}
