//! A policy with its cache size: what each layer and head of a model keeps.

use std::fmt;
use std::ops::Deref;

use anyhow::{Result, bail, ensure};

use super::amount::Amount;
use super::budget::{Budget, BudgetPool, PoolOver};
use super::formula::Word;
use super::policy::Policy;
use super::schedule::Schedule;
use super::score::Score;
use super::settings::{Heads, LocalLayers, Scope};

/// A policy for a cache of `size`. Only [`Policy::at`] makes one, so there is always an entry to evict:
/// `keep_first + keep_recent <= size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedPolicy {
    /// With amounts in tokens, or the prompt.
    pub(super) policy: Policy,
    /// Entries of a layer, or their mean over layers under a budget that is not uniform.
    pub size: usize,
}

impl Policy {
    /// Refuses parts that contradict each other, whatever the size.
    ///
    /// # Errors
    /// A scope, a schedule or protected entries that the score or the budget cannot have.
    pub fn check_parts(self) -> Result<()> {
        let Policy { score, scope, budget, schedule, keep_first, .. } = self.canonical();
        let keeps_prompt = keep_first == Amount::Prompt;
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
            score.block().is_none() || scope == Scope::Layer,
            "whole blocks are evicted under its score, which heads would do at different times; its scope must be layer"
        );
        ensure!(
            schedule.cut || !score.has(Word::RereadAttention),
            "`reread_attention` is known only where a prompt is cut; its schedule must be cut or cut+N, not {schedule}"
        );
        ensure!(
            !(keeps_prompt && schedule.cut),
            "keep_first: prompt protects the whole prompt, and the schedule {schedule} cuts it; leave out one of them"
        );
        Ok(())
    }

    /// The policy at cache size `size`. Percentages are of this size in every layer, whatever the budget.
    ///
    /// # Errors
    /// As [`Policy::check_parts`]; a size of 0, or protected entries that leave none to evict.
    pub fn at(self, size: usize) -> Result<SizedPolicy> {
        self.check_parts()?;
        let policy = self.canonical();
        let keep_recent = policy.keep_recent.of(size);
        let keep_first = policy.keep_first.of(size);
        ensure!(size > 0, "cache size 0 can hold nothing; sizes start at 1");
        ensure!(
            keep_first < size,
            "keep_first {} fills a cache of {size} entries; it must be smaller than every cache size",
            policy.keep_first
        );
        ensure!(
            keep_first + keep_recent <= size,
            "keep_first {keep_first} and keep_recent {keep_recent} protect more than the {size} entries of the \
             cache; together they may be {size} at most"
        );
        let keep_first =
            if policy.keep_first == Amount::Prompt { Amount::Prompt } else { Amount::Tokens(keep_first) };
        let policy = Policy { keep_first, keep_recent: Amount::Tokens(keep_recent), ..policy };
        Ok(SizedPolicy { policy, size })
    }

    /// Checks the policy at cache size `size` in a model of so many layers and key-value heads.
    ///
    /// # Errors
    /// As [`Policy::at`] and [`SizedPolicy::check`].
    pub fn check(self, size: usize, layers: usize, kv_heads: usize) -> Result<()> {
        self.at(size)?.check(layers, kv_heads)
    }
}

impl Deref for SizedPolicy {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.policy
    }
}

impl SizedPolicy {
    /// Entries that never leave: the first ones, before the prompt ends under [`Amount::Prompt`] none, and the newest.
    pub(super) fn protected(self) -> [usize; 2] {
        [self.keep_first, self.keep_recent].map(|amount| amount.of(self.size))
    }

    /// Entries of each layer of a model that has so many. A budget for another number of layers, which
    /// [`Policy::check`] refuses, counts as uniform.
    pub fn sizes(self, layers: usize) -> Vec<usize> {
        self.budget.sizes(self.size, self.protected()[1], layers)
    }

    /// Entries of the smallest layer or head: what it can read before anything is evicted.
    pub fn smallest(self, layers: usize) -> usize {
        let sizes = (0..layers).flat_map(|layer| self.of_layer(layer, layers).head_sizes(1));
        sizes.min().unwrap_or(self.size)
    }

    /// Whether every head of every layer has the policy's size.
    pub fn is_uniform(self, layers: usize, kv_heads: usize) -> bool {
        let sizes = || (0..layers).flat_map(|layer| self.of_layer(layer, layers).head_sizes(kv_heads));
        match self.budget.as_pool() {
            Some(BudgetPool { over, score, .. }) => over == PoolOver::Heads && kv_heads == 1 && score.is_none(),
            None => sizes().all(|size| size == self.size),
        }
    }

    /// Entries of each key-value head of one layer ([`of_layer`](Self::of_layer)); `usize::MAX` for one from which none leaves. In a pool
    /// they are the mean.
    pub(super) fn head_sizes(self, kv_heads: usize) -> Vec<usize> {
        if let Budget::OfLayer(sizes) = self.budget { sizes.clone() } else { vec![self.size; kv_heads] }
    }

    /// The same of each decision group.
    pub(super) fn group_sizes(self, heads: Heads) -> Vec<usize> {
        match self.scope {
            Scope::Head => self.head_sizes(heads.kv_heads),
            Scope::Layer => vec![self.size],
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

    /// Checks the policy in a model of so many layers and key-value heads.
    ///
    /// # Errors
    /// A budget for another number of layers or heads, or a layer or head too small for what is protected.
    pub fn check(self, layers: usize, kv_heads: usize) -> Result<()> {
        self.budget.check(layers, kv_heads)?;
        let of_head = Policy { budget: Budget::Uniform, ..*self };
        for layer in 0..layers {
            for size in self.of_layer(layer, layers).head_sizes(kv_heads) {
                if let Err(error) = of_head.at(size) {
                    let budget = match self.budget {
                        Budget::Heads(_) => String::new(),
                        budget => format!(" `{budget}`"),
                    };
                    bail!(
                        "its budget{budget} leaves layer {layer} (of 0 to {}) a size of {size}: {error}\n\
                         hint: use a larger cache size, protect fewer entries, or share more evenly",
                        layers - 1
                    );
                }
            }
        }
        Ok(())
    }

    /// Entries of a layer of this size between two tokens, at most. A prompt that will be cut is held whole.
    pub fn most(self) -> usize {
        if self.awaits_prompt() { usize::MAX } else { self.size.saturating_add(self.schedule.buffer()) }
    }

    /// Entries of a layer of this size after so many tokens, of which the first are the prompt.
    pub fn entries_after(self, tokens: usize, prompt: usize) -> usize {
        let (grown, size) = match (self.schedule.cut, self.keep_first == Amount::Prompt) {
            (true, _) if tokens < prompt => return tokens,
            (true, _) => (prompt.min(self.size) + tokens - prompt, self.size),
            (_, true) => (tokens, self.size.saturating_add(prompt)),
            _ => (tokens, self.size),
        };
        match self.schedule.every {
            Some(every) if grown > size => size + (grown - size) % every,
            _ => grown,
        }
    }

    /// The policy that has the same scores while a prompt is read that will be cut: what does not change them has its default, so
    /// that policies of several sizes share theirs.
    #[must_use]
    pub(super) fn before_cut(self) -> SizedPolicy {
        let [keep_first, keep_recent] = match self.scores().any(Score::depends_on_protection) {
            true => self.protected().map(Amount::Tokens),
            false => [Amount::default(); 2],
        };
        let budget = if self.budget.divides().is_some() { self.budget } else { Budget::Uniform };
        let size = if self.scores().any(Score::depends_on_size) { self.size } else { 1 };
        let policy = Policy { keep_first, keep_recent, budget, schedule: Schedule::CUT, ..*self };
        SizedPolicy { policy, size }
    }

    /// The policy of one layer, with its size.
    #[must_use]
    pub fn of_layer(self, layer: usize, layers: usize) -> SizedPolicy {
        let size = self.sizes(layers).get(layer).copied().unwrap_or(self.size);
        SizedPolicy { policy: Policy { budget: self.budget.of_layer(layer, size), ..*self }, size }
    }
}

impl fmt::Display for SizedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.meaning(Some(self.size)))
    }
}

impl LocalLayers {
    /// The policy of a layer with this window, or without one.
    pub fn policy(self, policy: Option<SizedPolicy>, window: Option<usize>) -> Option<SizedPolicy> {
        policy.filter(|_| self == LocalLayers::Bounded || window.is_none())
    }
}
