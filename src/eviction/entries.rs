//! The entries of one layer's cache: for every decision group the token positions, oldest first, and what a policy
//! needs to know of each. Keys and values are stored elsewhere, in the same order.

use std::ops::Range;

use super::block::{Attention, NewEntries, Vectors, Wanted};
use super::budget::BudgetPool;
use super::custom::FunctionInputs;
use super::formula::{self, Function, ScoreCount, Scorer, Word, keep};
use super::future::{RecordedAttention, SecondReading};
use super::last_rows::LastRows;
use super::score::Score;
use super::settings::{Heads, Scope};
use super::sized_policy::SizedPolicy;

/// One evicted entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Position of the token that was read.
    pub step: u32,
    /// Decision group: 0, or the key-value head under scope `head`.
    pub group: u32,
    /// Position of the evicted token.
    pub victim: u32,
}

/// Attention that every entry has received, summed over the query heads of its group (a multiple of the mean).
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) scope: Scope,
    /// (groups)(entries)
    pub(super) sums: Vec<Vec<f32>>,
}

/// The entries of the heads that share decisions, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadGroup {
    /// Token positions in the text.
    pub(super) positions: Vec<u32>,
    /// Scores that never change, given when an entry joins; empty under other scores. In f64, because norms of
    /// like tokens differ by less than f32 can represent.
    pub(super) priority: Vec<f64>,
}

/// The entries of one layer under one rule.
#[derive(Clone, Debug)]
pub struct CacheEntries {
    pub(super) heads: Heads,
    pub(super) groups: Vec<HeadGroup>,
    /// Attention received so far, for each scope that a score or a fork needs it for.
    pub(super) received: Vec<Received>,
    /// Tokens that a query of this layer sees, itself included, if the model limits that.
    pub window: Option<usize>,
    /// Whether the window does not slide, but begins anew every `window` tokens.
    pub(super) is_chunked: bool,
    /// Tokens read so far.
    pub seen: usize,
    pub(super) layer: usize,
    pub(super) kind: Kind,
}

/// What a layer's cache keeps beside its entries.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Unbounded(Unbounded),
    Bounded(Box<Bounded>),
}

/// State of a cache from which no policy evicts.
#[derive(Clone, Debug, Default)]
pub(super) struct Unbounded {
    /// Whether entries outside the layer's window stay, masked, because forks may need them.
    pub keeps_all: bool,
    /// Attention so far, where it is recorded for policies that know the future.
    pub recorded: Option<RecordedAttention>,
    /// Attention that the prompt's entries receive while it is read again.
    pub second_reading: Option<SecondReading>,
    /// Bounded caches that will be cut after the prompt. Until then they hold the same entries, each with scores of its own.
    pub cuts: Vec<CacheEntries>,
    /// Positions at which received attention is saved, so that a bounded cache can be forked there.
    pub fork_points: Vec<usize>,
    pub saved: Vec<(usize, Vec<Received>)>,
}

/// State of a cache from which a policy evicts.
#[derive(Clone, Debug)]
pub(super) struct Bounded {
    pub policy: SizedPolicy,
    /// Computes the policy's score, if that is a formula.
    pub scorer: Option<Scorer>,
    /// Computes the score that divides the entries of a pool, if that is not the policy's own.
    pub divider: Option<Scorer>,
    /// Inputs of the policy's score, if that is a function.
    pub inputs: Option<FunctionInputs>,
    /// Size that each group is cut back to: (groups). `usize::MAX` before a prompt is cut and for pools over all layers; in a pool over
    /// heads, the mean.
    pub limits: Vec<usize>,
    /// Whether the prompt will be cut.
    pub awaits_cut: bool,
    /// Queries from which the scores of the prompt are computed when it is cut, where its last rows are enough.
    pub last_rows: Option<LastRows>,
    /// Attention of the prompt's last query, kept for the cut: (groups)(entries); for a function per query head: (groups)(heads of the
    /// group, entries). On a device it is any score. Empty if the host's score keeps its own state.
    pub newest: Vec<Vec<f32>>,
    /// Counts the scores of formulas that have decided what leaves.
    pub score_count: ScoreCount,
    /// Seeds what the score draws.
    pub salt: u64,
}

impl Bounded {
    pub fn scorers(&mut self) -> impl Iterator<Item = &mut Scorer> {
        [&mut self.scorer, &mut self.divider].into_iter().flatten()
    }

    /// Lists the scorers that run at every row: none while queries are kept for a prompt's last rows.
    pub fn scorers_of_rows(&mut self) -> impl Iterator<Item = &mut Scorer> {
        let waits = self.last_rows.is_some();
        self.scorers().filter(move |_| !waits)
    }

    /// Counts the scores by which entries leave now. The `mask` of a group is as of [`CacheEntries::attend`].
    pub fn count_scores<'a>(&mut self, groups: &[HeadGroup], mask: impl Fn(usize) -> &'a [f32]) {
        for (group, entries) in groups.iter().enumerate() {
            let mask = mask(group);
            let unprotected = entries.candidates(self.policy, mask.len());
            let entries = formula::Entries { positions: &entries.positions, mask, unprotected };
            for scorer in [&self.scorer, &self.divider].into_iter().flatten() {
                self.score_count += scorer.count(group, &entries);
            }
        }
    }
}

impl HeadGroup {
    /// Returns which of the group's first `columns` columns, evicted ones included, the policy does not protect.
    pub(super) fn candidates(&self, policy: SizedPolicy, columns: usize) -> Range<usize> {
        // Protected first tokens never were evicted, so they are the first columns, unless the window has passed them. With
        // `keep_recent` > 0 none of the newest was, so they are the last ones.
        let [keep_first, keep_recent] = policy.protected();
        let is_first = |position: &u32| (*position as usize) < keep_first;
        let first = self.positions.partition_point(is_first).min(columns);
        first..columns.saturating_sub(keep_recent).max(first)
    }
}

impl CacheEntries {
    pub(super) fn as_bounded(&self) -> Option<&Bounded> {
        if let Kind::Bounded(bounded) = &self.kind { Some(bounded) } else { None }
    }

    pub(super) fn as_bounded_mut(&mut self) -> Option<&mut Bounded> {
        if let Kind::Bounded(bounded) = &mut self.kind { Some(bounded) } else { None }
    }

    pub(super) fn as_unbounded(&self) -> Option<&Unbounded> {
        if let Kind::Unbounded(unbounded) = &self.kind { Some(unbounded) } else { None }
    }

    /// The policy that evicts; `None` of an unbounded cache.
    pub(super) fn policy(&self) -> Option<SizedPolicy> {
        Some(self.as_bounded()?.policy)
    }

    /// Size that a group is cut back to, or `usize::MAX`.
    pub(super) fn limit(&self, group: usize) -> usize {
        self.as_bounded().map_or(usize::MAX, |bounded| bounded.limits[group])
    }

    /// Entries that leave a group at once, when it has as many more than its limit.
    pub fn burst(&self) -> usize {
        self.as_bounded().and_then(|bounded| bounded.policy.schedule.every()).unwrap_or(1)
    }

    /// Whether its prompt will be cut.
    pub fn awaits_cut(&self) -> bool {
        self.as_bounded().is_some_and(|bounded| bounded.awaits_cut)
    }

    /// Whether entries outside the layer's window stay, masked.
    pub(super) fn keeps_all(&self) -> bool {
        self.as_unbounded().is_some_and(|unbounded| unbounded.keeps_all)
    }

    /// Bounded caches that will be cut after the prompt that this unbounded one reads.
    pub fn cuts(&self) -> &[CacheEntries] {
        self.as_unbounded().map_or(&[], |unbounded| &unbounded.cuts)
    }

    /// Takes [`cuts`](Self::cuts) away, at the end of the prompt.
    pub fn take_cuts(&mut self) -> Vec<CacheEntries> {
        if let Kind::Unbounded(unbounded) = &mut self.kind {
            std::mem::take(&mut unbounded.cuts)
        } else {
            Vec::new()
        }
    }

    /// The attention of the tokens read, if it was recorded.
    pub fn into_recorded(self) -> Option<RecordedAttention> {
        if let Kind::Unbounded(unbounded) = self.kind { unbounded.recorded } else { None }
    }

    /// Counts the scores of formulas that have decided what leaves.
    pub fn score_count(&self) -> ScoreCount {
        self.as_bounded().map(|bounded| bounded.score_count).unwrap_or_default()
    }

    /// Forgets what was read after the first `len` tokens, and begins to record the attention that those of `chunk` receive, unless the
    /// layer's window has passed any of them.
    pub fn read_again(&mut self, len: usize, chunk: Range<usize>) {
        let positions = &mut self.groups[0].positions;
        positions.truncate(positions.partition_point(|position| (*position as usize) < len));
        self.seen = len;
        let has_all = positions.len() == len;
        if let Kind::Unbounded(own) = &mut self.kind {
            own.second_reading = has_all.then(|| SecondReading::new(self.heads, len, chunk));
        }
    }

    /// The tokens of the prompt that is read again, and the chunk of them that is repeated.
    pub fn second_reading(&self) -> Option<(usize, Range<usize>)> {
        self.as_unbounded()?.second_reading.as_ref().map(|own| (own.prompt, own.chunk.clone()))
    }

    /// The largest attention that was paid to the entries of the chunk: (kv_heads)(entries).
    pub fn take_second_reading(&mut self) -> Vec<Vec<f32>> {
        let Kind::Unbounded(own) = &mut self.kind else { return Vec::new() };
        own.second_reading.take().map(|reading| reading.largest).unwrap_or_default()
    }

    /// Lists the scores of the cache's policy, and of the policies that will cut it.
    fn scores(&self) -> impl Iterator<Item = Score> {
        let policies = std::iter::once(self).chain(self.cuts()).filter_map(CacheEntries::policy);
        policies.flat_map(|policy| policy.scores())
    }

    /// Lists the state of the cache's policy, and of the policies that will cut it.
    pub(super) fn each_bounded(&mut self) -> impl Iterator<Item = &mut Bounded> {
        let (bounded, cuts) = match &mut self.kind {
            Kind::Bounded(bounded) => (Some(&mut **bounded), &mut [][..]),
            Kind::Unbounded(own) => (None, &mut own.cuts[..]),
        };
        bounded.into_iter().chain(cuts.iter_mut().filter_map(CacheEntries::as_bounded_mut))
    }

    /// Lists the scorers that run at every row.
    pub(super) fn scorers_of_rows(&mut self) -> impl Iterator<Item = &mut Scorer> {
        self.each_bounded().flat_map(Bounded::scorers_of_rows)
    }

    /// Which properties of new entries the scores read that the host computes.
    pub fn wants(&self) -> Wanted {
        let on_host =
            |bounded: &&Bounded| bounded.scorer.is_some() || bounded.divider.is_some() || bounded.inputs.is_some();
        let caches = std::iter::once(self).chain(self.cuts()).filter_map(CacheEntries::as_bounded);
        let scores: Vec<Score> = caches.filter(on_host).flat_map(|bounded| bounded.policy.scores()).collect();
        let any = |what: fn(&Score) -> bool| scores.iter().any(what);
        Wanted {
            hidden: any(|score| score.is_function()),
            projected_norms: any(|score| score.has(Word::ProjectedValueNorm)),
            token_texts: any(|score| score.calls(Function::TokenIn)),
            vectors: any(|score| {
                let words = [Word::KeyNorm, Word::ValueNorm, Word::ValueNorm2];
                words.into_iter().any(|word| score.has(word)) || score.calls(Function::Dot)
            }),
        }
    }

    /// Whether the prompt has to be read again before it is cut.
    pub fn wants_second_reading(&self) -> bool {
        let waits = self.awaits_cut() || !self.cuts().is_empty();
        waits && self.scores().any(|score| score.has(Word::RereadAttention))
    }

    /// Takes what the second reading has paid to the entries of the prompt: (kv_heads)(tokens).
    pub fn end_prompt(&mut self, reread: &[Vec<f32>]) {
        let bounded = match &mut self.kind {
            Kind::Bounded(bounded) => bounded,
            Kind::Unbounded(own) => return own.cuts.iter_mut().for_each(|cut| cut.end_prompt(reread)),
        };
        let Bounded { policy, scorer: Some(scorer), awaits_cut: true, last_rows, .. } = &mut **bounded else {
            return;
        };
        if scorer.wants_reread() {
            // Nothing has left yet, and no window takes anything.
            let mask = vec![0.0; self.seen];
            for (group, entries) in self.groups.iter().enumerate() {
                let positions = &entries.positions;
                let of_entries =
                    |head: &Vec<f32>| positions.iter().map(|position| head[*position as usize]).collect();
                let reread: Vec<Vec<f32>> = reread.iter().map(of_entries).collect();
                scorer.take_second_reading(&reread, group);
                if last_rows.is_none() {
                    let unprotected = entries.candidates(*policy, self.seen);
                    scorer.score_again(group, &formula::Entries { positions, mask: &mask, unprotected });
                }
            }
        }
    }

    /// Entries that a key-value head holds at most, while a token is read; in a pool, on average over its heads.
    pub fn most(&self, kv_head: usize) -> usize {
        let limit = match self.policy() {
            Some(policy) if self.evicts_together() && policy.schedule.every().is_some() => self.share(policy),
            _ => self.limit(self.group_of(kv_head)),
        };
        limit.saturating_add(self.burst() - 1).min(self.window.unwrap_or(usize::MAX)).saturating_add(1)
    }

    /// The oldest position that is there after `seen` tokens, as far as the window goes.
    pub(super) fn oldest_after(&self, seen: usize) -> usize {
        match self.window {
            None => 0,
            Some(window) if self.is_chunked => seen.saturating_sub(1) / window * window,
            Some(window) => seen.saturating_sub(window),
        }
    }

    /// Adds the positions of a block's tokens, and what is known of them.
    pub(super) fn join(&mut self, rows: usize, stride: usize, new: &NewEntries<'_>) {
        let kv_heads = self.heads.kv_heads;
        let norm = |kv_head: usize, row: usize| new.norms.map_or(0.0, |norms| norms[row * kv_heads + kv_head]);
        for row in 0..rows {
            let position = (self.seen + row) as u32;
            for group in 0..self.groups.len() {
                let priority = self.priority(group, position, |kv_head| norm(kv_head, row));
                self.groups[group].positions.push(position);
                self.groups[group].priority.extend(priority);
            }
        }
        let sums = self.received.iter_mut().flat_map(|received| &mut received.sums);
        sums.for_each(|sums| sums.resize(stride, 0.0));
        let Kind::Bounded(bounded) = &mut self.kind else { return };
        // They are of the row before.
        bounded.newest.iter_mut().for_each(Vec::clear);
        bounded.scorers_of_rows().for_each(|scorer| scorer.make_room(stride));
        bounded.scorers().for_each(|scorer| scorer.join(self.seen, rows, new));
        if let Some(inputs) = &mut bounded.inputs {
            inputs.add(new);
        }
    }

    /// Takes a row of attention: adds it to what entries have received, computes the formula of the policy if that has one, with its
    /// scores if they `decide` what leaves, and keeps what a prompt would be cut by after this row. The `mask` of a group has all
    /// columns up to that of the row's token, and is 0 for those that are in the cache.
    pub(super) fn attend<'a>(
        &mut self,
        attention: &Attention<'_>,
        vectors: &dyn Vectors,
        decides: bool,
        mask: impl Fn(usize) -> &'a [f32],
    ) {
        for received in &mut self.received {
            for (group, sums) in received.sums.iter_mut().enumerate() {
                attention.add_to(sums, received.scope, group);
            }
        }
        let Kind::Bounded(bounded) = &mut self.kind else { return };
        let policy = bounded.policy;
        let step = self.seen + attention.row;
        // The end of a read may be that of the prompt.
        let may_be_cut = attention.ends_read && (bounded.awaits_cut || policy.budget.pools_model());
        let row = formula::Row { attention, vectors, step, decides: decides || may_be_cut };
        let mask = &mask;
        for scorer in bounded.scorers_of_rows() {
            scorer.take_query(step, vectors.scale(step), |head| vectors.query(attention.row, head));
            for (group, HeadGroup { positions, .. }) in self.groups.iter().enumerate() {
                let mask = mask(group);
                let unprotected = self.groups[group].candidates(policy, mask.len());
                scorer.run(&row, group, &formula::Entries { positions, mask, unprotected });
            }
        }
        if decides {
            bounded.count_scores(&self.groups, mask);
        }
        if !may_be_cut {
            return;
        }
        for (group, newest) in bounded.newest.iter_mut().enumerate() {
            let columns = mask(group).len();
            *newest = match policy.score {
                Score::Custom(_) => attention.by_head(policy.scope, group, &(0..columns).collect::<Vec<_>>()),
                Score::Formula(_) => {
                    let mut newest = vec![0.0; columns];
                    attention.add_to(&mut newest, policy.scope, group);
                    newest
                }
            };
        }
    }

    /// Ends a block.
    pub(super) fn leave(&mut self, rows: usize) {
        self.seen += rows;
        let columns: Vec<usize> = self.groups.iter().map(|group| group.positions.len()).collect();
        for received in &mut self.received {
            // An unbounded cache has one group, and sums for more.
            let groups = received.sums.len() / columns.len();
            received.sums.iter_mut().enumerate().for_each(|(group, sums)| sums.truncate(columns[group / groups]));
        }
        if let Kind::Bounded(bounded) = &mut self.kind {
            bounded.scorers().for_each(|scorer| scorer.truncate(&columns));
        }
    }

    /// Keeps the columns `kept` of every group: (groups)(entries), ascending.
    pub(super) fn keep(&mut self, kept: &[Vec<u32>]) {
        for received in &mut self.received {
            for (sums, kept) in received.sums.iter_mut().zip(kept) {
                keep(sums, kept);
            }
        }
        if let Kind::Bounded(bounded) = &mut self.kind {
            for ((newest, group), kept) in bounded.newest.iter_mut().zip(&self.groups).zip(kept) {
                let heads = newest.chunks(group.positions.len().max(1));
                *newest = heads.flat_map(|head| kept.iter().map(|column| head[*column as usize])).collect();
            }
            bounded.scorers().for_each(|scorer| scorer.keep(kept));
        }
        for (group, kept) in self.groups.iter_mut().zip(kept) {
            keep(&mut group.positions, kept);
            if !group.priority.is_empty() {
                keep(&mut group.priority, kept);
            }
        }
    }

    /// The pool that its entries leave from, if heads share them.
    pub fn pool(&self) -> Option<BudgetPool> {
        self.policy()?.budget.as_pool()
    }

    /// Whether its entries leave together with those of other layers.
    pub fn evicts_together(&self) -> bool {
        self.as_bounded().is_some_and(|bounded| bounded.policy.budget.pools_model() && !bounded.awaits_cut)
    }

    /// What its heads add to the pool of all layers before entries leave that; `None` before a prompt that will be cut ends.
    pub fn most_together(&self) -> Option<usize> {
        let policy = self.policy().filter(|_| self.evicts_together())?;
        Some(self.groups.len().saturating_mul(self.share(policy).saturating_add(policy.schedule.buffer())))
    }

    /// What each of its heads adds to the entries of a pool: its size, but no more than the layer's window.
    pub(super) fn share(&self, policy: SizedPolicy) -> usize {
        policy.size.min(self.window.unwrap_or(usize::MAX))
    }

    /// Entries of a key-value head.
    pub fn len(&self, kv_head: usize) -> usize {
        self.groups[self.group_of(kv_head)].positions.len()
    }

    /// Entries of each key-value head.
    pub fn lens(&self) -> Vec<usize> {
        (0..self.heads.kv_heads).map(|kv_head| self.len(kv_head)).collect()
    }

    /// Entries of the key-value head that has most.
    pub fn longest(&self) -> usize {
        self.groups.iter().map(|group| group.positions.len()).max().unwrap_or(0)
    }

    /// Token positions of the surviving entries: (groups)(entries), oldest first. One group if all heads hold the
    /// same.
    pub fn survivors(&self) -> Vec<&[u32]> {
        self.groups.iter().map(|group| group.positions.as_slice()).collect()
    }

    /// The group whose entries a key-value head holds.
    pub fn group_of(&self, kv_head: usize) -> usize {
        if self.groups.len() == 1 { 0 } else { kv_head }
    }
}
