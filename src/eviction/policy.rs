//! What a cache policy is: a score, the scope of one decision, and the entries that are protected.
//!
//! A policy is data. It never sees a key or a value, and it cannot fail once [`Policy::at`] has accepted it for a
//! cache size. Named policies are in `presets`; YAML is the business of `sweep`.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Deserializer};

use super::budget::{Budget, BudgetPool, PoolOver};
use super::formula::{Pool, Word};
use super::method::Method;
use super::schedule::Schedule;
use super::score::Score;
use super::settings::{Heads, LocalLayers, Scope};
use crate::yaml::from_text;

/// How much of the past the model may attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheRule {
    /// The unbounded cache (the paper's topline).
    Unbounded,
    /// The text is cut to pieces of `size` tokens and each is read with an empty, unbounded cache (the paper's
    /// "Baseline", section 5.1).
    Truncate { size: usize },
    /// A cache of `size` entries under a policy.
    Evict { policy: Policy, size: usize },
}

impl CacheRule {
    fn policy(self) -> Option<Policy> {
        if let CacheRule::Evict { policy, .. } = self { Some(policy) } else { None }
    }

    /// Whether nothing leaves before the prompt ends: it is cut then, or protected.
    pub fn awaits_prompt(self) -> bool {
        self.policy().is_some_and(Policy::awaits_prompt)
    }

    /// The scope of a policy that needs the attention of the whole text.
    pub fn reads_future(self) -> Option<Scope> {
        self.policy().filter(|policy| policy.score.reads_future()).map(|policy| policy.scope)
    }

    /// Whether the scores that a policy has while it reads a prompt depend on its size.
    pub fn scores_depend_on_size(self) -> bool {
        let Some(policy) = self.policy() else { return false };
        let amounts = [policy.keep_first, policy.keep_recent];
        let of_size = amounts.into_iter().any(|amount| matches!(amount, Amount::Percent(_)));
        policy.scores().any(|score| score.depends_on_size() || score.depends_on_protection() && of_size)
    }

    /// The policy's definition, whatever the size; `None` if there is no policy.
    pub fn definition(self) -> Option<String> {
        self.policy().map(Policy::definition)
    }

    /// When entries leave; of caches from which none does, the default.
    pub fn schedule(self) -> Schedule {
        self.policy().map_or_else(Schedule::default, |policy| policy.schedule)
    }

    /// The policy with its size, if there is one.
    pub fn sized(self) -> Option<SizedPolicy> {
        match self {
            CacheRule::Evict { policy, size } => policy.at(size).ok(),
            _ => None,
        }
    }

    /// Entries of each layer's cache; `None` where they are unbounded.
    pub fn sizes(self, layers: usize) -> Option<Vec<usize>> {
        match self {
            CacheRule::Unbounded => None,
            CacheRule::Truncate { size } => Some(vec![size; layers]),
            CacheRule::Evict { policy, size } => {
                Some(policy.at(size).map_or_else(|_| vec![size; layers], |sized| sized.sizes(layers)))
            }
        }
    }
}

/// A number of protected entries: in tokens, or as a whole percentage of the cache size, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Amount {
    Tokens(usize),
    Percent(u8),
    /// Only for first tokens: the whole prompt, beside the cache's size.
    Prompt,
}

impl Amount {
    /// Entries out of a cache of `size`. H2O's 50 % of an odd size is the larger half: recent = k - floor(k / 2).
    pub fn of(self, size: usize) -> usize {
        match self {
            Amount::Tokens(n) => n,
            Amount::Percent(p) => (size * usize::from(p)).div_ceil(100),
            Amount::Prompt => 0,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Tokens(n) => write!(f, "{n}"),
            Amount::Percent(p) => write!(f, "{p}%"),
            Amount::Prompt => write!(f, "prompt"),
        }
    }
}

/// Which entry leaves a full cache. Size k counts every surviving entry per layer and key-value head, protected
/// ones included; the query of a step sees up to k + 1 entries, then one is evicted. Where the budget gives layers
/// other sizes, k is their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub score: Score,
    pub scope: Scope,
    /// The first tokens of the text never leave (attention sinks). With [`Amount::Prompt`] no token of the prompt does, and the size
    /// is that of what follows it.
    pub keep_first: Amount,
    /// The newest entries never leave. With 0 even the newest token may be evicted.
    pub keep_recent: Amount,
    /// How the layers share their entries.
    pub budget: Budget,
    /// When entries leave.
    pub schedule: Schedule,
}

impl Policy {
    /// Whether nothing leaves before the prompt ends: it is cut then, or protected.
    pub fn awaits_prompt(self) -> bool {
        self.schedule.cut || self.keep_first == Amount::Prompt
    }

    /// The policy without settings that cannot change which entries survive, so that equal experiments get equal
    /// ids.
    #[must_use]
    pub fn canonical(self) -> Policy {
        // The oldest unprotected entry leaves whatever the scope is, and it is the same for every layer and head. The
        // sizes of a pyramid depend on the number of protected entries.
        match (self.score.method(), self.budget) {
            (Method::Order, Budget::Pyramid(_)) => Policy { scope: Scope::Layer, ..self },
            (Method::Order, Budget::Pool(BudgetPool { score: Some(_), .. })) => self,
            (Method::Order, budget) if budget.is_by_head() => Policy { keep_recent: Amount::Tokens(0), ..self },
            (Method::Order, _) => Policy { scope: Scope::Layer, keep_recent: Amount::Tokens(0), ..self },
            _ => self,
        }
    }

    /// The policy at cache size `size`. Percentages are of this size in every layer, whatever the budget.
    ///
    /// # Errors
    /// A size of 0, or protected entries that leave none to evict.
    pub fn at(self, size: usize) -> Result<SizedPolicy> {
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
        let Policy { score, scope, budget, schedule, .. } = policy;
        let keeps_prompt = policy.keep_first == Amount::Prompt;
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
        let keep_first = if keeps_prompt { Amount::Prompt } else { Amount::Tokens(keep_first) };
        let policy = Policy { keep_first, keep_recent: Amount::Tokens(keep_recent), ..policy };
        Ok(SizedPolicy { policy, size })
    }

    /// The scores that it computes: its own, and the one that divides its budget if it has that.
    pub fn scores(self) -> impl Iterator<Item = Score> {
        std::iter::once(self.score).chain(self.budget.divides())
    }

    /// Checks the policy at cache size `size` in a model of so many layers and key-value heads.
    ///
    /// # Errors
    /// As [`Policy::at`] and [`SizedPolicy::check`].
    pub fn check(self, size: usize, layers: usize, kv_heads: usize) -> Result<()> {
        self.at(size)?.check(layers, kv_heads)
    }

    /// Refuses what layers with a window cannot have: a schedule under which their heads would hold different numbers of entries, or
    /// a protected prompt, which the window passes.
    ///
    /// # Errors
    /// Schedules other than `1` and `cut+1`, `keep_first: prompt`, and a score that reads the prompt again.
    pub fn check_windows(self) -> Result<()> {
        let because = if self.keep_first == Amount::Prompt {
            "which no prompt stays in".to_owned()
        } else if self.score.has(Word::RereadAttention) {
            "whose entries no second reading finds again".to_owned()
        } else if self.schedule.every != Some(1) {
            // Where several leave at once, the window takes more from some heads than from others.
            format!("whose heads the schedule {} would leave with different numbers of entries", self.schedule)
        } else {
            return Ok(());
        };
        bail!(
            "the model has layers with a window that is shorter than the text, {because}\n\
             hint: leave such layers alone with @exempt (`local_layers: exempt`)"
        )
    }

    /// The definition that rows have, which [`str::parse`] reads:
    /// `score=ema(attention, 0.9) scope=head keep_first=2 keep_recent=10% budget=pyramid 20 schedule=1`. Its score has the name of today.
    pub fn definition(self) -> String {
        let Policy { score, scope, keep_first, keep_recent, budget, schedule } = self.canonical();
        let (score, scope) = (score.name(), scope.name());
        format!(
            "score={score} scope={scope} keep_first={keep_first} keep_recent={keep_recent} budget={budget} \
             schedule={schedule}"
        )
    }

    /// The canonical text of the meaning, as it enters cell ids. With a size it is the same however the amounts were written.
    fn meaning(self, size: Option<usize>) -> String {
        let Policy { score, scope, keep_first, keep_recent, budget, schedule } = self.canonical();
        let (score, scope) = (score.identity(), scope.name());
        let mut text = format!("score={score} scope={scope} keep_first={keep_first} keep_recent={keep_recent}");
        text.extend(size.map(|size| format!(" size={size}")));
        // Left out where they are the defaults, as they were before there were others.
        text.extend((budget != Budget::Uniform).then(|| format!(" budget={budget}")));
        text.extend((schedule != Schedule::default()).then(|| format!(" schedule={schedule}")));
        text
    }
}

impl Default for Amount {
    fn default() -> Amount {
        Amount::Tokens(0)
    }
}

impl<'de> Deserialize<'de> for Amount {
    /// Tokens, or a percentage in text: `16` or `10%`; or `prompt`, which only first tokens can be.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a number of tokens such as 16, or a whole percentage such as 10%")
    }
}

impl FromStr for Amount {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Amount> {
        let amount = match text.strip_suffix('%') {
            None if text == "prompt" => Amount::Prompt,
            Some(digits) => Amount::Percent(digits.parse()?),
            None => Amount::Tokens(text.parse::<u32>()? as usize),
        };
        ensure!(!matches!(amount, Amount::Percent(101..)), "a percentage is 100 at most");
        Ok(amount)
    }
}

impl FromStr for Policy {
    type Err = anyhow::Error;

    /// Reads [`Policy::definition`]. An error where the score is a function, and for rows of other versions.
    fn from_str(text: &str) -> Result<Policy> {
        let mut rest = text;
        // From the end, because a formula may have spaces.
        let mut value = |key: &str| {
            let (before, value) = rest.rsplit_once(key).with_context(|| format!("there is no `{key}`"))?;
            rest = before;
            anyhow::Ok(value)
        };
        // Rows of the version before have none.
        let schedule = value(" schedule=").map_or_else(|_| Ok(Schedule::default()), str::parse)?;
        let budget = value(" budget=")?.parse()?;
        let keep_recent = value(" keep_recent=")?.parse()?;
        let keep_first = value(" keep_first=")?.parse()?;
        let scope = value(" scope=")?.parse()?;
        let score = Score::new(value("score=")?, Pool::Mean)?;
        Ok(Policy { score, scope, keep_first, keep_recent, budget, schedule })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.meaning(None))
    }
}

impl fmt::Display for SizedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.meaning(Some(self.size)))
    }
}

/// A policy for a cache of `size`. Only [`Policy::at`] makes one, so there is always an entry to evict:
/// `keep_first + keep_recent <= size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedPolicy {
    /// With amounts in tokens, or the prompt.
    pub(super) policy: Policy,
    /// Entries of a layer, or their mean over layers under a budget that is not uniform.
    pub size: usize,
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

impl LocalLayers {
    /// The policy of a layer with this window, or without one.
    pub fn policy(self, policy: Option<SizedPolicy>, window: Option<usize>) -> Option<SizedPolicy> {
        policy.filter(|_| self == LocalLayers::Bounded || window.is_none())
    }
}
