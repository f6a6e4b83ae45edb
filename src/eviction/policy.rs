//! What a cache policy is: a score, the scope of one decision, and the entries that are protected.
//!
//! A policy is data. It never sees a key or a value, and it cannot fail once [`Policy::at`] has accepted it for a
//! cache size. Named policies are in `presets`; YAML is the business of `sweep`.

use std::fmt;

use anyhow::{Result, ensure};

use super::scoring::Score;
use super::settings::Scope;

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

/// A number of protected entries: in tokens, or as a whole percentage of the cache size, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Amount {
    Tokens(usize),
    Percent(u8),
}

impl Amount {
    /// Entries out of a cache of `size`. H2O's 50 % of an odd size is the larger half: recent = k - floor(k / 2).
    pub fn of(self, size: usize) -> usize {
        match self {
            Amount::Tokens(n) => n,
            Amount::Percent(p) => (size * usize::from(p)).div_ceil(100),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Tokens(n) => write!(f, "{n}"),
            Amount::Percent(p) => write!(f, "{p}%"),
        }
    }
}

/// Which entry leaves a full cache. Size k counts every surviving entry per layer and key-value head, protected
/// ones included; the query of a step sees up to k + 1 entries, then one is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub score: Score,
    pub scope: Scope,
    /// The first tokens of the text never leave (attention sinks).
    pub keep_first: Amount,
    /// The newest entries never leave. With 0 even the newest token may be evicted.
    pub keep_recent: Amount,
}

impl Policy {
    /// The policy without settings that cannot change which entries survive, so that equal experiments get equal
    /// ids.
    #[must_use]
    pub fn canonical(self) -> Policy {
        match self.score {
            // The oldest unprotected entry leaves whatever the scope is, and it is the same for every layer and
            // head.
            Score::Recency => Policy { scope: Scope::Layer, keep_recent: Amount::Tokens(0), ..self },
            _ => self,
        }
    }

    /// The policy at cache size `size`.
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
        Ok(SizedPolicy { score: policy.score, scope: policy.scope, keep_first, keep_recent, size })
    }
}

impl fmt::Display for Policy {
    /// The canonical text of the meaning, as it enters cell ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Policy { score, scope, keep_first, keep_recent } = self.canonical();
        let (score, scope) = (score.name(), scope.name());
        write!(f, "score={score} scope={scope} keep_first={keep_first} keep_recent={keep_recent}")
    }
}

impl fmt::Display for SizedPolicy {
    /// The canonical text of the meaning, as it enters cell ids: the same however the amounts were written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SizedPolicy { score, scope, keep_first, keep_recent, size } = *self;
        let (score, scope) = (score.name(), scope.name());
        write!(f, "score={score} scope={scope} keep_first={keep_first} keep_recent={keep_recent} size={size}")
    }
}

/// A policy whose amounts are entries of a cache of `size`. Only [`Policy::at`] makes one, so there is always an
/// entry to evict: `keep_first + keep_recent <= size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedPolicy {
    pub score: Score,
    pub scope: Scope,
    pub(super) keep_first: usize,
    pub(super) keep_recent: usize,
    pub size: usize,
}
