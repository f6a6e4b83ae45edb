//! A policy with its cache size: what each layer and head of a model keeps.

use std::ops::Deref;
use std::sync::Mutex;

use anyhow::{Result, bail, ensure};

use super::amount::{Amount, FirstTokens};
use super::budget::{Budget, BudgetPool, PoolOver, interned};
use super::formula::Word;
use super::options::LocalLayers;
use super::policy::Policy;
use super::schedule::Schedule;
use super::score::Score;
use super::settings::{Heads, Scope};

/// A policy for a cache of `size`. Only [`Policy::at`] makes one, so there is always an entry to evict:
/// `keep_first + keep_recent <= size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedPolicy {
    /// With amounts in tokens, or the prompt.
    pub(super) policy: Policy,
    /// Entries of a layer, or their mean over layers under a budget that is not uniform.
    pub size: usize,
    /// The cache size that the policy was made for, whatever a budget makes of it in a layer or head: what the word `size` says, and
    /// what percentages are of.
    pub(super) of_cache: usize,
    /// Entries of each key-value head of one layer, where a table divides the budget among heads: set by
    /// [`of_layers`](Self::of_layers).
    pub(super) of_heads: Option<&'static Vec<usize>>,
}

impl Policy {
    /// Refuses parts that contradict each other, whatever the size.
    ///
    /// # Errors
    /// A scope, a schedule or protected entries that the score or the budget cannot have.
    pub fn check_parts(self) -> Result<()> {
        let Policy { score, scope, budget, schedule, .. } = self.canonical();
        let (keeps_prompt, selects) = (self.keeps_prompt(), self.selects());
        let looks_ahead = |score: Score| score.has(Word::FutureAttention) || score.has(Word::RereadAttention);
        ensure!(
            !budget.is_by_head() || scope == Scope::Head,
            "its budget lets the heads of a layer hold different numbers of entries; its scope must be head"
        );
        ensure!(
            !budget.divides().is_some_and(looks_ahead),
            "the score that divides its budget looks ahead, which only the score that decides what leaves can"
        );
        ensure!(
            !(keeps_prompt && budget.pools_model()),
            "keep_first: prompt protects the whole prompt, which has no part in a pool of all layers; leave out one of them"
        );
        ensure!(
            selects || score.block().is_none() || scope != Scope::Head,
            "whole blocks are evicted under its score, which heads would do at different times; its scope must be layer"
        );
        ensure!(
            schedule.cuts() || !score.has(Word::RereadAttention),
            "`reread_attention` is known only where a prompt is cut; its schedule must be cut or cut+N, not {schedule}"
        );
        ensure!(
            !(keeps_prompt && schedule.cuts()),
            "keep_first: prompt protects the whole prompt, and the schedule {schedule} cuts it; leave out one of them"
        );
        let of_model = self.scope == Scope::Model;
        ensure!(
            !of_model || (budget == Budget::Uniform && !keeps_prompt && !selects),
            "one decision is for all layers, which hold the same entries; leave out its budget, keep_first: prompt and `select`, or \
             choose another scope"
        );
        ensure!(
            of_model || self.layers.is_none(),
            "`layers` says which layers decide for all; its scope must be model"
        );
        ensure!(
            selects || score.page().is_none(),
            "`page_bound` is of pages that are whole, and entries leave them; write it as `select: {{score: ...}}`"
        );
        ensure!(
            !selects || matches!(schedule, Schedule::EVERY_TOKEN | Schedule::Cut),
            "each query selects what it attends to, and no entry leaves; its schedule must be 1, or cut for the queries after the \
             prompt alone, not {schedule}"
        );
        ensure!(
            !selects || budget.as_pool().is_none(),
            "each query selects what it attends to, and no entry leaves a pool; leave out its budget"
        );
        ensure!(
            !(selects && keeps_prompt),
            "`select` counts protected entries in the size, which a whole prompt exceeds"
        );
        Ok(())
    }

    /// The policy at cache size `size`. Percentages and the word `size` are of this size in every layer, whatever the budget.
    ///
    /// # Errors
    /// As [`Policy::check_parts`]; a size of 0, protected entries that leave none to evict, or a size that makes a number in its
    /// formulas what it cannot be.
    pub fn at(self, size: usize) -> Result<SizedPolicy> {
        self.check_parts()?;
        let policy = self.canonical();
        let (keep_first, keep_recent) = policy.check_protected(size)?;
        policy.scores().try_for_each(|score| score.check_size(size))?;
        let keep_first = if policy.keeps_prompt() { FirstTokens::Prompt } else { FirstTokens::tokens(keep_first) };
        let policy = Policy { keep_first, keep_recent: Amount::Tokens(keep_recent), ..policy };
        Ok(SizedPolicy { policy, size, of_cache: size, of_heads: None })
    }

    /// How many first and newest entries a layer or head of `size` entries protects.
    fn check_protected(self, size: usize) -> Result<(usize, usize)> {
        let (keep_first, keep_recent) = (self.keep_first.of(size), self.keep_recent.of(size));
        ensure!(size > 0, "cache size 0 can hold nothing; sizes start at 1");
        // Where queries select whole blocks.
        let block = self.score.block().filter(|_| self.selects()).unwrap_or(0);
        ensure!(block <= size, "a block of {block} entries is selected whole, which a size of {size} cannot hold");
        ensure!(
            keep_first < size,
            "keep_first {} fills a cache of {size} entries; it must be smaller than every cache size",
            self.keep_first
        );
        ensure!(
            keep_first + keep_recent <= size,
            "keep_first {keep_first} and keep_recent {keep_recent} protect more than the {size} entries of the \
             cache; together they may be {size} at most"
        );
        Ok((keep_first, keep_recent))
    }

    /// Checks the policy at cache size `size` in a model with such layers and so many key-value heads.
    ///
    /// # Errors
    /// As [`Policy::at`] and [`SizedPolicy::check`].
    pub fn check(self, size: usize, bounded: &[bool], kv_heads: usize) -> Result<()> {
        self.at(size)?.check(bounded, kv_heads)
    }

    /// The smallest size from `share` to `most` at which it can be used: a share of a short prompt may be less than what is protected
    /// of it. `None` if there is none.
    pub fn least_size(self, share: usize, most: usize, bounded: &[bool], kv_heads: usize) -> Option<usize> {
        (share..=most).find(|size| self.check(*size, bounded, kv_heads).is_ok())
    }
}

impl Deref for SizedPolicy {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.policy
    }
}

impl SizedPolicy {
    /// How many of a prompt's last queries tell the scores by which it is cut; `None` if all are needed, or what follows.
    pub fn horizon(self) -> Option<usize> {
        self.scores().try_fold(1, |most, score| Some(score.horizon(self.of_cache)?.max(most)))
    }

    /// Entries that never leave: the first ones, before the prompt ends under [`FirstTokens::Prompt`] none, and the newest.
    pub fn protected(self) -> [usize; 2] {
        [self.keep_first.of(self.size), self.keep_recent.of(self.size)]
    }

    /// The policy of each layer of a model, with the layer's size; `None` for a layer that is not `bounded`. A budget is divided among the layers
    /// that it bounds. One for another number of layers, which [`Policy::check`] refuses, counts as uniform.
    pub fn of_layers(self, bounded: &[bool]) -> Vec<Option<SizedPolicy>> {
        let first = self.select_from.unwrap_or(0);
        let bounded =
            &bounded.iter().enumerate().map(|(layer, own)| *own && layer >= first).collect::<Vec<_>>()[..];
        let mut sizes = self.budget.sizes(self.size, self.protected()[1], bounded).into_iter();
        let of_layer = |(layer, is_bounded): (usize, &bool)| {
            let size = if *is_bounded { sizes.next()? } else { return None };
            // Its size is the layer's already; heads still share theirs.
            let budget = if self.budget.is_by_head() { self.budget } else { Budget::Uniform };
            let of_heads = self.budget.head_sizes(layer, size, bounded);
            Some(SizedPolicy { policy: Policy { budget, ..self.policy }, size, of_heads, ..self })
        };
        bounded.iter().enumerate().map(of_layer).collect()
    }

    /// Entries of every head of the layers that the policy bounds, layer by layer.
    fn all_sizes(self, bounded: &[bool], kv_heads: usize) -> Vec<usize> {
        self.of_layers(bounded).into_iter().flatten().flat_map(|own| own.head_sizes(kv_heads)).collect()
    }

    /// Entries of the smallest layer or head: the tokens that it can read before anything is evicted.
    pub fn smallest(self, bounded: &[bool]) -> usize {
        self.all_sizes(bounded, 1).into_iter().min().unwrap_or(self.size)
    }

    /// Whether every head of every layer has the policy's size.
    pub fn is_uniform(self, bounded: &[bool], kv_heads: usize) -> bool {
        match self.budget.as_pool() {
            Some(BudgetPool { over, score, .. }) => over == PoolOver::Heads && kv_heads == 1 && score.is_none(),
            None => self.all_sizes(bounded, kv_heads).into_iter().all(|size| size == self.size),
        }
    }

    /// Entries of each key-value head of one layer ([`of_layers`](Self::of_layers)); `usize::MAX` for one from which none leaves. In a pool
    /// they are the mean.
    pub(super) fn head_sizes(self, kv_heads: usize) -> Vec<usize> {
        self.of_heads.map_or_else(|| vec![self.size; kv_heads], Vec::clone)
    }

    /// Entries of each decision group of one layer; `usize::MAX` for a group from which none leaves.
    pub(super) fn group_sizes(self, heads: Heads) -> Vec<usize> {
        match self.scope {
            Scope::Head => self.head_sizes(heads.kv_heads),
            Scope::Layer | Scope::Model => vec![self.size],
        }
    }

    /// The policies of the key-value heads of one layer, each with its own size.
    pub fn of_heads(self, kv_heads: usize) -> impl Iterator<Item = SizedPolicy> {
        self.head_sizes(kv_heads).into_iter().map(move |size| SizedPolicy { size, ..self })
    }

    /// Whether a bounded cache can continue where an unbounded one has read the beginning of the text ([`Score::shares_prefix`]).
    pub fn shares_prefix(self) -> bool {
        self.score.shares_prefix() && self.budget.divides().is_none()
    }

    /// Checks the policy in a model with such layers and so many key-value heads.
    ///
    /// # Errors
    /// A budget for another number of layers or heads, or a layer or head too small for what is protected.
    pub fn check(self, bounded: &[bool], kv_heads: usize) -> Result<()> {
        self.budget.check(bounded.len(), kv_heads)?;
        for layer in self.layers.into_iter().flat_map(|layers| layers.of(bounded.len())) {
            ensure!(
                bounded.get(layer).is_some_and(|is_bounded| *is_bounded),
                "its layer {layer} cannot decide for all: the model has the layers 0 to {} with a cache, and none that its window alone \
                 bounds decides",
                bounded.len() - 1
            );
        }
        for (layer, own) in self.of_layers(bounded).into_iter().enumerate() {
            for size in own.map_or(Vec::new(), |own| own.head_sizes(kv_heads)) {
                if let Err(error) = self.check_protected(size) {
                    let budget = match self.budget {
                        Budget::Heads(_) => String::new(),
                        budget => format!(" `{budget}`"),
                    };
                    bail!(
                        "its budget{budget} leaves layer {layer} (of 0 to {}) a size of {size}: {error}\n\
                         hint: use a larger cache size, protect fewer entries, or share more evenly",
                        bounded.len() - 1
                    );
                }
            }
        }
        Ok(())
    }

    /// Entries of a layer of this size between two tokens, at most. A prompt that will be cut is held whole.
    pub fn most(self) -> usize {
        if self.awaits_prompt() || self.selects() {
            usize::MAX
        } else {
            self.size.saturating_add(self.schedule.buffer())
        }
    }

    /// Entries of a layer of this size after so many tokens, of which the first are the prompt.
    pub fn entries_after(self, tokens: usize, prompt: usize) -> usize {
        if self.selects() {
            return tokens;
        }
        let (grown, size) = match (self.schedule.cuts(), self.keeps_prompt()) {
            (true, _) if tokens < prompt => return tokens,
            (true, _) => (prompt.min(self.size) + tokens - prompt, self.size),
            (_, true) => (tokens, self.size.saturating_add(prompt)),
            _ => (tokens, self.size),
        };
        match self.schedule.every() {
            Some(every) if grown > size => size + (grown - size) % every,
            _ => grown,
        }
    }

    /// Entries of a layer of this size that the next query attends to after so many tokens, of which the first are the prompt, and pages of
    /// others whose bounds are read to choose them.
    pub fn read_after(self, tokens: usize, prompt: usize) -> (usize, usize) {
        match self.score.page() {
            _ if !self.selects() => (self.entries_after(tokens, prompt), 0),
            Some(page) if tokens > self.size => (self.size, tokens.div_ceil(page)),
            _ => (tokens.min(self.size), 0),
        }
    }

    /// The policy that has the same scores while a prompt is read that will be cut: what does not change them has its default, so
    /// that policies of several sizes share theirs.
    #[must_use]
    pub(super) fn before_cut(self) -> SizedPolicy {
        let [keep_first, keep_recent] = match self.scores().any(Score::depends_on_protection) {
            true => self.protected(),
            false => [0; 2],
        };
        let (keep_first, keep_recent) = (FirstTokens::tokens(keep_first), Amount::Tokens(keep_recent));
        let budget = if self.budget.divides().is_some() { self.budget } else { Budget::Uniform };
        let of_cache = if self.scores().any(Score::depends_on_size) { self.of_cache } else { 1 };
        let policy = Policy { keep_first, keep_recent, budget, schedule: Schedule::Cut, ..*self };
        SizedPolicy { policy, size: 1, of_cache, of_heads: None }
    }
}

impl LocalLayers {
    /// Whether a policy bounds each of the layers with these windows. It lives as long as the program, which has few models.
    pub fn bounded(self, windows: impl Iterator<Item = Option<usize>>) -> &'static [bool] {
        static LISTS: Mutex<Vec<&'static Vec<bool>>> = Mutex::new(Vec::new());
        let bounded: Vec<bool> = windows.map(|window| self == LocalLayers::Bounded || window.is_none()).collect();
        interned::<Vec<bool>>(&LISTS, bounded)
    }
}
