//! How a cache begins: empty, under a rule, or where another has read to.

use std::ops::Range;
use std::sync::Arc;

use super::custom::FunctionInputs;
use super::entries::{Bounded, CacheEntries, HeadGroup, Kind, Received, Unbounded};
use super::formula::{ScoreCount, Scorer};
use super::future::RecordedAttention;
use super::last_rows::LastRows;
use super::method::Method;
use super::score::Score;
use super::settings::{Heads, Scope};
use super::sized_policy::SizedPolicy;

impl CacheEntries {
    /// An unbounded cache from which bounded ones can be forked at `fork_points` (tokens from the start), for
    /// policies that accumulate attention over `scopes`.
    pub fn unbounded(heads: Heads, scopes: &[Scope], fork_points: &[usize]) -> CacheEntries {
        let received = |&scope| Received { scope, sums: vec![Vec::new(); heads.groups(scope)] };
        CacheEntries {
            heads,
            groups: vec![HeadGroup::default()],
            received: scopes.iter().map(received).collect(),
            window: None,
            is_chunked: false,
            seen: 0,
            layer: 0,
            kind: Kind::Unbounded(Unbounded { fork_points: fork_points.to_vec(), ..Unbounded::default() }),
        }
    }

    /// Changes what an unbounded cache keeps for others; a bounded one stays as it is.
    fn with_unbounded(mut self, change: impl FnOnce(&mut Unbounded)) -> CacheEntries {
        if let Kind::Unbounded(unbounded) = &mut self.kind {
            change(unbounded);
        }
        self
    }

    /// Limits an empty cache to a layer whose queries see only `window` tokens, themselves included: an entry leaves before the
    /// first query that cannot see it. With `keeps_all`, such entries of an unbounded cache stay, masked, so that forks can be taken
    /// anywhere.
    #[must_use]
    pub fn with_window(self, window: Option<usize>, keeps_all: bool) -> CacheEntries {
        let cache = self.with_unbounded(|unbounded| unbounded.keeps_all = window.is_some() && keeps_all);
        CacheEntries { window, ..cache }
    }

    /// Makes the window one that does not slide, if `is_chunked`: a query sees the tokens of its own piece of `window` tokens.
    #[must_use]
    pub fn chunked(self, is_chunked: bool) -> CacheEntries {
        CacheEntries { is_chunked, ..self }
    }

    /// Says which layer of the model the cache is of; functions that score entries are told.
    #[must_use]
    pub fn of_layer(mut self, layer: usize) -> CacheEntries {
        self.layer = layer;
        if let Some(bounded) = self.as_bounded_mut() {
            bounded.scorers().for_each(|scorer| scorer.set_layer(layer));
        }
        self
    }

    /// Copies the entries, of which no policy has removed any yet, into an unbounded cache, which measures the attention that they get
    /// from what is read next.
    pub fn to_read_again(&self) -> CacheEntries {
        let groups = vec![HeadGroup { positions: self.groups[0].positions.clone(), priority: Vec::new() }];
        let unbounded =
            CacheEntries::unbounded(self.heads, &[], &[]).with_window(self.window, true).chunked(self.is_chunked);
        CacheEntries { groups, seen: self.seen, layer: self.layer, ..unbounded }
    }

    /// Gives an empty cache the attention of the text that it will read, for scores that know the future.
    #[must_use]
    pub fn with_future(mut self, future: Arc<RecordedAttention>) -> CacheEntries {
        if let Some(scorer) = self.as_bounded_mut().and_then(|bounded| bounded.scorer.as_mut()) {
            scorer.set_future(future);
        }
        self
    }

    /// Makes an empty, unbounded cache also keep the scores by which each of the `policies` will cut the prompt; a policy comes with
    /// the salt of its draws.
    #[must_use]
    pub fn with_cuts(self, policies: &[(SizedPolicy, u64)]) -> CacheEntries {
        let mut cuts: Vec<CacheEntries> = Vec::new();
        for (policy, salt) in policies {
            let cut = CacheEntries::bounded(self.heads, policy.before_cut(), *salt).of_layer(self.layer);
            if !cuts.iter().any(|known| known.draws_like(cut.policy(), *salt)) {
                cuts.push(cut);
            }
        }
        self.with_unbounded(|unbounded| unbounded.cuts = cuts)
    }

    /// Whether a policy evicts from the cache by scores that are drawn with a salt.
    fn draws_like(&self, policy: Option<SizedPolicy>, salt: u64) -> bool {
        self.as_bounded().is_some_and(|bounded| Some(bounded.policy) == policy && bounded.salt == salt)
    }

    /// Makes an empty cache, and those that will cut its prompt, compute the scores of a prompt when it is cut, where they need its last
    /// rows only. It must be given the [queries](super::BlockScan::keep_queries) of every block. Where a window removes entries before the
    /// cut, the last rows are not enough.
    #[must_use]
    pub fn with_last_rows(mut self) -> CacheEntries {
        let caches = match &mut self.kind {
            _ if self.window.is_some() => return self,
            Kind::Bounded(bounded) => std::slice::from_mut(&mut **bounded),
            Kind::Unbounded(own) => {
                let cuts = std::mem::take(&mut own.cuts).into_iter().map(CacheEntries::with_last_rows);
                own.cuts = cuts.collect();
                &mut []
            }
        };
        let is_cut = |bounded: &&mut Bounded| bounded.policy.schedule.cuts() && bounded.awaits_cut;
        for bounded in caches.iter_mut().filter(|bounded| is_cut(bounded) && !bounded.policy.selects()) {
            let computes = bounded.scorers().next().is_some();
            bounded.last_rows = bounded.policy.horizon().filter(|_| computes).map(LastRows::new);
        }
        self
    }

    /// A cache that has read the first `len` tokens of this unbounded one, a prompt, and will be cut as `policy` says. `cuts` are
    /// what was taken after the prompt; `None` if the policy was not among them.
    pub fn fork_for_cut(
        &self,
        cuts: &[CacheEntries],
        len: usize,
        policy: SizedPolicy,
        salt: u64,
    ) -> Option<CacheEntries> {
        let mut fork = cuts[CacheEntries::cut_of(cuts, len, policy, salt)?].clone();
        let columns = self.columns_at(len)?;
        if columns.start > 0 {
            // The layer's window has passed the others.
            let kept: Vec<u32> = columns.map(|column| column as u32).collect();
            fork.keep(&vec![kept; fork.groups.len()]);
        }
        fork.as_bounded_mut()?.policy = policy;
        Some(CacheEntries { window: self.window, is_chunked: self.is_chunked, ..fork })
    }

    /// Index of what was taken for a policy after a prompt of `len` tokens.
    pub fn cut_of(cuts: &[CacheEntries], len: usize, policy: SizedPolicy, salt: u64) -> Option<usize> {
        let before = Some(policy.before_cut());
        cuts.iter().position(|cut| cut.draws_like(before, salt) && cut.seen == len)
    }

    /// Makes an empty, unbounded cache record its attention over the decision groups of a scope.
    #[must_use]
    pub fn recording(self, scope: Option<Scope>) -> CacheEntries {
        let recorded = scope.map(|scope| RecordedAttention::new(self.heads, scope));
        self.with_unbounded(|unbounded| unbounded.recorded = recorded)
    }

    /// An empty bounded cache. `salt` differs between layers and seeds. If its policy cuts the prompt, or protects it, nothing leaves
    /// until [`cut`](Self::cut).
    pub fn bounded(heads: Heads, policy: SizedPolicy, salt: u64) -> CacheEntries {
        let scopes: &[Scope] = if policy.score.sums_attention() { &[policy.scope] } else { &[] };
        let unbounded = CacheEntries::unbounded(heads, scopes, &[]);
        let mut cache =
            unbounded.fork(0, Some(policy), salt).expect("an empty cache can be forked for any policy");
        if let Some(bounded) = cache.as_bounded_mut().filter(|_| policy.awaits_prompt()) {
            bounded.awaits_cut = true;
            bounded.evict_together();
        }
        cache
    }

    /// A cache that continues after the first `len` tokens of this unbounded one, bounded by `policy` if there is one, with a
    /// `salt` of its own. `None` if `len` tokens exceed the policy's size, if its score needs sums that were not saved at
    /// `len`, if it needs what an unbounded read does not compute (see [`Score::shares_prefix`]), or if the layer's window has
    /// passed entries that it needs.
    pub fn fork(&self, len: usize, policy: Option<SizedPolicy>, salt: u64) -> Option<CacheEntries> {
        let smallest = |policy: SizedPolicy| policy.head_sizes(self.heads.kv_heads).into_iter().min();
        let too_large = policy.and_then(smallest).is_some_and(|smallest| len > smallest);
        let needs_more = len > 0 && policy.is_some_and(|policy| !policy.shares_prefix());
        let columns = self.columns_at(len)?;
        let own = self.as_unbounded()?;
        if too_large || needs_more {
            return None;
        }
        let received = match policy {
            Some(policy) if policy.score.sums_attention() => {
                let at = if len == self.seen {
                    &self.received
                } else {
                    &own.saved.iter().find(|(at, _)| *at == len)?.1
                };
                let mut received = at.iter().find(|received| received.scope == policy.scope)?.clone();
                received.sums.iter_mut().for_each(|sums| *sums = sums[columns.clone()].to_vec());
                vec![received]
            }
            _ => Vec::new(),
        };
        let groups = policy.map_or(1, |policy| self.heads.groups(policy.scope));
        let kind = match policy {
            Some(policy) => Kind::Bounded(Box::new(Bounded::new(self.heads, policy, self.layer, salt))),
            None => Kind::Unbounded(Unbounded::default()),
        };
        let mut fork = CacheEntries {
            heads: self.heads,
            groups: vec![HeadGroup::default(); groups],
            received,
            window: self.window,
            is_chunked: self.is_chunked,
            seen: len,
            layer: self.layer,
            kind,
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
}

impl Bounded {
    fn new(heads: Heads, policy: SizedPolicy, layer: usize, salt: u64) -> Bounded {
        let is_divided = policy.budget.divides().is_some();
        let scorer = |formula, is_divided| {
            let mut scorer = Scorer::new(formula, policy.of_cache, is_divided, heads, policy.scope, salt);
            scorer.set_layer(layer);
            scorer
        };
        let mut bounded = Bounded {
            policy,
            scorer: match policy.score {
                Score::Formula(formula) if formula.method() == Method::Instructions => {
                    Some(scorer(formula, is_divided))
                }
                _ => None,
            },
            divider: policy.budget.as_pool().and_then(|pool| Some(scorer(pool.score?, true))),
            inputs: policy.score.is_function().then(|| FunctionInputs::new(heads.groups(policy.scope))),
            limits: match policy.selects() {
                true => vec![usize::MAX; heads.groups(policy.scope)],
                false => policy.group_sizes(heads),
            },
            awaits_cut: false,
            last_rows: None,
            newest: Vec::new(),
            score_count: ScoreCount::default(),
            salt,
        };
        if policy.evicts_together() {
            bounded.evict_together();
        }
        bounded
    }

    /// Lets nothing leave until [`evict_together`](super::evict_together) is called.
    fn evict_together(&mut self) {
        let ranks_by_newest = matches!(self.policy.score.method(), Method::NewestAttention | Method::Function(_));
        let groups = self.limits.len();
        self.newest = vec![Vec::new(); if ranks_by_newest { groups } else { 0 }];
        self.limits = vec![usize::MAX; groups];
    }
}
