//! What a cache policy is: a score, the scope of one decision, and who is protected.
//!
//! A policy is data. It never sees a key or a value, only decides which entry leaves, and it cannot fail once
//! [`Policy::at`] has accepted it for a cache size. Names and YAML are the business of `presets` and `sweep`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What ranks the entries of a full cache. The entry with the lowest score leaves; of equal scores the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// The oldest leaves (Window, StreamingLLM).
    Recency,
    /// Attention the newest query pays (TOVA; arXiv 2401.06104, section 4).
    LastAttention,
    /// Attention received since the entry joined, its own row included (H2O; arXiv 2306.14048).
    AccumulatedAttention,
    /// The largest L2 norm of the key leaves (arXiv 2406.11430; `KnormPress` in NVIDIA/kvpress).
    KeyNorm,
    /// A priority drawn once, when the entry joins: the survivors are a uniform sample of everything read.
    Random,
}

impl Score {
    /// Every score, in the order the documentation lists them.
    pub const ALL: [Score; 5] =
        [Score::Recency, Score::LastAttention, Score::AccumulatedAttention, Score::KeyNorm, Score::Random];

    /// The name YAML and result rows use.
    pub fn name(self) -> &'static str {
        match self {
            Score::Recency => "recency",
            Score::LastAttention => "last_attention",
            Score::AccumulatedAttention => "accumulated_attention",
            Score::KeyNorm => "key_norm",
            Score::Random => "random",
        }
    }
}

/// Who shares one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One decision per layer; scores averaged over all query heads.
    Layer,
    /// One decision per key-value head; scores averaged over the query heads of its group.
    Head,
}

impl Scope {
    /// The name YAML and result rows use.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Layer => "layer",
            Scope::Head => "head",
        }
    }
}

/// A number of cache entries: in tokens, or as a whole percentage of the cache size, rounded up.
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

/// Who stays when the cache is full. Size k counts every surviving entry per layer and key-value head, the
/// protected ones included; the query of a step sees up to k + 1 entries, then one leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub score: Score,
    pub scope: Scope,
    /// The first tokens of the text never leave (attention sinks).
    pub keep_first: usize,
    /// The newest entries never leave. With 0 the newest token itself may be the one that leaves.
    pub keep_recent: Amount,
}

impl Policy {
    /// The one spelling of each meaning: settings that cannot change a survivor are erased, so that equal
    /// experiments get equal ids.
    #[must_use]
    pub fn canonical(self) -> Policy {
        match self.score {
            // The oldest leaves whatever else is said, and every layer and head agrees on who that is.
            Score::Recency => Policy { scope: Scope::Layer, keep_recent: Amount::Tokens(0), ..self },
            _ => self,
        }
    }

    /// The policy at cache size `size`.
    ///
    /// # Errors
    /// A size of 0, or protected entries that leave nobody to evict.
    pub fn at(self, size: usize) -> Result<SizedPolicy, PolicyError> {
        let policy = self.canonical();
        let keep_recent = policy.keep_recent.of(size);
        if size == 0 {
            return Err(PolicyError::SizeZero);
        }
        if policy.keep_first >= size {
            return Err(PolicyError::KeepFirst { keep_first: policy.keep_first, size });
        }
        if policy.keep_first + keep_recent > size {
            return Err(PolicyError::Protected { keep_first: policy.keep_first, keep_recent, size });
        }
        Ok(SizedPolicy {
            score: policy.score,
            scope: policy.scope,
            keep_first: policy.keep_first,
            keep_recent,
            size,
        })
    }
}

impl fmt::Display for Policy {
    /// The canonical text of the meaning, as it enters cell ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Policy { score, scope, keep_first, keep_recent } = self.canonical();
        write!(
            f,
            "score={} scope={} keep_first={keep_first} keep_recent={keep_recent}",
            score.name(),
            scope.name()
        )
    }
}

/// A policy whose amounts are entries of a cache of `size`; made by [`Policy::at`] only, so it always has
/// somebody to evict: `keep_first + keep_recent <= size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedPolicy {
    pub(crate) score: Score,
    pub(crate) scope: Scope,
    pub(crate) keep_first: usize,
    pub(crate) keep_recent: usize,
    pub(crate) size: usize,
}

impl SizedPolicy {
    pub fn size(&self) -> usize {
        self.size
    }
    /// Whether decisions compare key norms. Norms of like tokens differ in the eighth digit, and which of two leaves
    /// is not forgiven by attention, as it is where the least attended leaves: keys must be computed with care.
    pub fn compares_norms(&self) -> bool {
        self.score == Score::KeyNorm
    }
    pub fn score(&self) -> Score {
        self.score
    }
    pub fn scope(&self) -> Scope {
        self.scope
    }
    pub fn keep_first(&self) -> usize {
        self.keep_first
    }
    pub fn keep_recent(&self) -> usize {
        self.keep_recent
    }
}

/// Why a policy cannot hold a cache of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("cache size 0 can hold nothing; sizes start at 1")]
    SizeZero,
    #[error("keep_first {keep_first} fills a cache of {size} entries; it must be smaller than every cache size")]
    KeepFirst { keep_first: usize, size: usize },
    #[error(
        "keep_first {keep_first} and keep_recent {keep_recent} protect more than the {size} entries of the cache; \
         together they may be {size} at most"
    )]
    Protected { keep_first: usize, keep_recent: usize, size: usize },
}
