//! The entries of one layer's cache: for every decision group the token positions, oldest first, and what a policy
//! needs to know of each. Keys and values are stored elsewhere, in the same order.

use std::ops::Range;
use std::sync::Arc;

use super::formula::Scorer;
use super::future::RecordedAttention;
use super::policy::SizedPolicy;
use super::scan::{BlockScan, NewEntries};
use super::scoring::{Method, Score};
use super::settings::Scope;

/// Query and key-value heads of a layer: `heads` is a multiple of `kv_heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    pub heads: usize,
    pub kv_heads: usize,
}

impl Heads {
    /// Number of decision groups under a scope.
    pub fn groups(self, scope: Scope) -> usize {
        match scope {
            Scope::Layer => 1,
            Scope::Head => self.kv_heads,
        }
    }

    /// Query heads whose scores a group averages.
    pub fn of_group(self, scope: Scope, group: usize) -> Range<usize> {
        let per_group = self.heads / self.groups(scope);
        group * per_group..(group + 1) * per_group
    }

    /// Query heads that share a key-value head.
    pub fn per_kv_head(self) -> usize {
        self.heads / self.kv_heads
    }
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
    /// `None`: unbounded.
    pub(super) policy: Option<SizedPolicy>,
    pub(super) heads: Heads,
    pub(super) groups: Vec<HeadGroup>,
    pub(super) received: Vec<Received>,
    /// Computes the policy's score, if that is a formula.
    pub(super) scorer: Option<Scorer>,
    /// Attention so far, where it is recorded.
    pub(super) recorded: Option<RecordedAttention>,
    /// Tokens that a query of this layer sees, itself included, if the model limits that.
    pub(super) window: Option<usize>,
    /// Entries outside the window stay, masked: forks may need them.
    pub(super) keeps_all: bool,
    /// Beyond this many entries one is evicted per token: the policy's size, or no limit while a prompt is read in
    /// one shot.
    pub limit: usize,
    /// The newest row's attention, or its scores under a formula, (groups)(entries): what a prompt read in one shot is cut by.
    pub(super) newest: Vec<Vec<f32>>,
    /// Tokens read so far.
    pub seen: usize,
    /// Positions at which an unbounded cache saves its sums, so that a bounded one can be forked there.
    pub(super) fork_points: Vec<usize>,
    pub(super) saved: Vec<(usize, Vec<Received>)>,
    /// Seeds what the score draws.
    pub(super) salt: u64,
    pub(super) layer: usize,
}

impl CacheEntries {
    /// An unbounded cache from which bounded ones can be forked at `fork_points` (tokens from the start), for
    /// policies that accumulate attention over `scopes`.
    pub fn unbounded(heads: Heads, scopes: &[Scope], fork_points: &[usize]) -> CacheEntries {
        let received = |&scope| Received { scope, sums: vec![Vec::new(); heads.groups(scope)] };
        CacheEntries {
            policy: None,
            heads,
            groups: vec![HeadGroup::default()],
            received: scopes.iter().map(received).collect(),
            scorer: None,
            recorded: None,
            window: None,
            keeps_all: false,
            limit: usize::MAX,
            newest: Vec::new(),
            seen: 0,
            fork_points: fork_points.to_vec(),
            saved: Vec::new(),
            salt: 0,
            layer: 0,
        }
    }

    /// The same cache, empty, in a layer whose queries see only `window` tokens, themselves included: an entry leaves before the
    /// first query that cannot see it. With `keeps_all`, forks can be taken anywhere.
    #[must_use]
    pub fn with_window(self, window: Option<usize>, keeps_all: bool) -> CacheEntries {
        CacheEntries { window, keeps_all: window.is_some() && keeps_all, ..self }
    }

    /// The same cache as that of a layer, which functions that score entries are told.
    #[must_use]
    pub fn of_layer(self, layer: usize) -> CacheEntries {
        CacheEntries { layer, ..self }
    }

    /// The same cache, empty, with the attention of the text that it will read.
    #[must_use]
    pub fn with_future(self, future: Arc<RecordedAttention>) -> CacheEntries {
        CacheEntries { scorer: self.scorer.map(|scorer| scorer.with_future(future)), ..self }
    }

    /// The same cache, empty and unbounded, which records its attention over the groups of a scope.
    #[must_use]
    pub fn recording(self, scope: Option<Scope>) -> CacheEntries {
        let recorded = scope.map(|scope| RecordedAttention::new(self.heads, scope));
        CacheEntries { recorded, ..self }
    }

    /// What was recorded.
    pub fn into_recorded(self) -> Option<RecordedAttention> {
        self.recorded
    }

    /// Tokens that a query of this layer sees, if that is limited.
    pub fn window(&self) -> Option<usize> {
        self.window
    }

    /// Entries that it holds at most, while a token is read.
    pub fn most(&self) -> usize {
        self.limit.min(self.window.unwrap_or(usize::MAX)).saturating_add(1)
    }

    /// The oldest position that is there after `seen` tokens, as far as the window goes.
    pub(super) fn oldest_after(&self, seen: usize) -> usize {
        self.window.map_or(0, |window| seen.saturating_sub(window))
    }

    /// An empty bounded cache. `salt` differs between layers and seeds.
    pub fn bounded(heads: Heads, policy: SizedPolicy, salt: u64) -> CacheEntries {
        let scopes: &[Scope] = if policy.score.sums_attention() { &[policy.scope] } else { &[] };
        let unbounded = CacheEntries::unbounded(heads, scopes, &[]);
        unbounded.fork(0, Some(policy), salt).expect("an empty cache can be forked for any policy")
    }

    /// A cache that evicts nothing until [`cut`](Self::cut): for a prompt that is read in one shot.
    pub fn one_shot(heads: Heads, policy: SizedPolicy, salt: u64) -> CacheEntries {
        let bounded = CacheEntries::bounded(heads, policy, salt);
        let ranks_by_newest =
            matches!(policy.score.method(), Method::NewestAttention | Method::Instructions | Method::Function(_));
        let newest = if ranks_by_newest { bounded.groups.len() } else { 0 };
        CacheEntries { limit: usize::MAX, newest: vec![Vec::new(); newest], ..bounded }
    }

    /// Cuts a [`one_shot`](Self::one_shot) cache to its policy's size: protected entries are kept, and of the
    /// others those with the highest scores, the newer of equal ones. From then on one entry leaves at a time.
    /// This is what the paper's released code does with a prompt. Returns the columns each group keeps, ascending:
    /// (groups)(entries); `None` if all entries fit.
    pub fn cut(&mut self) -> Option<Vec<Vec<u32>>> {
        let policy = self.policy?;
        self.limit = policy.size;
        let newest = std::mem::take(&mut self.newest);
        let entries = self.len();
        if entries <= policy.size {
            return None;
        }
        // All groups hold the same: nothing but the window has removed anything yet.
        let first = self.first_columns(policy, 0);
        let candidates = first as u32..(entries - policy.keep_recent) as u32;
        let room = policy.size - first - policy.keep_recent;
        let kept: Vec<Vec<u32>> = (0..self.groups.len())
            .map(|group| {
                let score = |column: u32| self.score_at_cut(policy, group, column as usize, &newest);
                let mut kept: Vec<u32> = candidates.clone().collect();
                // NaN sorts somewhere; it shows in the results.
                kept.sort_by(|a, b| score(*b).total_cmp(&score(*a)).then(b.cmp(a)));
                kept.truncate(room);
                kept.extend(0..candidates.start);
                kept.extend(candidates.end..entries as u32);
                kept.sort_unstable();
                kept
            })
            .collect();
        self.keep(&kept);
        Some(kept)
    }

    /// The columns of protected first tokens, which are a group's first unless the window has passed them.
    pub(super) fn first_columns(&self, policy: SizedPolicy, group: usize) -> usize {
        self.groups[group].positions.partition_point(|position| (*position as usize) < policy.keep_first)
    }

    /// Keeps the columns `kept` of every group: (groups)(entries), ascending.
    pub(super) fn keep(&mut self, kept: &[Vec<u32>]) {
        for received in &mut self.received {
            for (sums, kept) in received.sums.iter_mut().zip(kept) {
                keep(sums, kept);
            }
        }
        for (group, kept) in self.groups.iter_mut().zip(kept) {
            keep(&mut group.positions, kept);
            if !group.priority.is_empty() {
                keep(&mut group.priority, kept);
            }
        }
        if let Some(scorer) = &mut self.scorer {
            scorer.keep(kept);
        }
    }

    /// A cache that continues after the first `len` tokens of this unbounded one, bounded by `policy` if there is one, with a
    /// `salt` of its own. `None` if `len` tokens exceed the policy's size, if its score needs sums that were not saved at
    /// `len`, if it needs what an unbounded read does not compute (see [`Score::shares_prefix`]), or if the layer's window has
    /// passed entries that it needs.
    pub fn fork(&self, len: usize, policy: Option<SizedPolicy>, salt: u64) -> Option<CacheEntries> {
        let too_large = policy.is_some_and(|policy| len > policy.size);
        let needs_more = len > 0 && policy.is_some_and(|policy| !policy.score.shares_prefix());
        let columns = self.columns_at(len)?;
        if self.policy.is_some() || too_large || needs_more {
            return None;
        }
        let received = match policy {
            Some(policy) if policy.score.sums_attention() => {
                let at = if len == self.seen {
                    &self.received
                } else {
                    &self.saved.iter().find(|(at, _)| *at == len)?.1
                };
                let mut received = at.iter().find(|received| received.scope == policy.scope)?.clone();
                received.sums.iter_mut().for_each(|sums| *sums = sums[columns.clone()].to_vec());
                vec![received]
            }
            _ => Vec::new(),
        };
        let groups = policy.map_or(1, |policy| self.heads.groups(policy.scope));
        let mut fork = CacheEntries {
            policy,
            groups: vec![HeadGroup::default(); groups],
            received,
            scorer: policy.and_then(|policy| match policy.score {
                Score::Formula(formula) if formula.method() == Method::Instructions => {
                    Some(Scorer::new(formula, policy.size, self.heads, policy.scope, salt))
                }
                _ => None,
            }),
            window: self.window,
            limit: policy.map_or(usize::MAX, |policy| policy.size),
            seen: len,
            salt,
            layer: self.layer,
            ..CacheEntries::unbounded(self.heads, &[], &[])
        };
        let positions = &self.groups[0].positions[columns];
        for group in 0..groups {
            let priority = positions.iter().map_while(|position| fork.priority(group, *position, |_| 0.0));
            fork.groups[group] = HeadGroup { priority: priority.collect(), positions: positions.to_vec() };
        }
        Some(fork)
    }

    /// The columns of an unbounded cache that were there after `len` tokens; `None` if some are not there (any more).
    pub fn columns_at(&self, len: usize) -> Option<Range<usize>> {
        let first = self.oldest_after(len);
        let start = self.groups[0].positions.first().map_or(0, |position| *position as usize);
        (len <= self.seen && start <= first).then(|| first - start..len - start)
    }

    /// Entries per key-value head.
    pub fn len(&self) -> usize {
        self.groups[0].positions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    /// Starts a block of `rows` tokens.
    pub fn begin(&mut self, rows: usize, new: &NewEntries<'_>) -> BlockScan<'_> {
        if self.fork_points.contains(&self.seen) {
            self.saved.push((self.seen, self.received.clone()));
        }
        BlockScan::new(self, rows, new)
    }
}

/// Keeps the elements at the ascending indices `kept`.
pub(super) fn keep<T: Copy>(values: &mut Vec<T>, kept: &[u32]) {
    for (to, &from) in kept.iter().enumerate() {
        values[to] = values[from as usize];
    }
    values.truncate(kept.len());
}
