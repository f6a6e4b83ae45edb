//! What a cache is: how much of the past a model may attend to, and all else that decides what the cache holds.

use anyhow::ensure;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::amount::{Amount, FirstTokens};
use super::options::CacheOptions;
use super::policy::Policy;
use super::schedule::Schedule;
use super::settings::Scope;
use super::size::CacheSize;
use super::sized_policy::SizedPolicy;

/// How much of the past the model may attend to. `CacheRule<()>` is a rule that has no size yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheRule<Size = usize> {
    /// The unbounded cache (the paper's topline).
    #[default]
    Unbounded,
    /// The text is cut to pieces of `size` tokens and each is read with an empty, unbounded cache (the paper's
    /// "Baseline", section 5.1).
    Truncate { size: Size },
    /// A cache of `size` entries under a policy.
    Evict { policy: Policy, size: Size },
}

/// A cache: everything that decides which entries it holds and at which positions their keys are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheSpec {
    pub rule: CacheRule,
    /// A share or an amount of memory, if the size was given so. Each sample then has its own number of entries, and the rule has the
    /// largest of them.
    pub relative: Option<CacheSize>,
    pub options: CacheOptions,
    /// Seeds the draws of a random score.
    pub seed: u64,
}

impl Serialize for CacheSpec {
    /// The encoding from which ids are made. The seed, which seldom changes a number, is not part of it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rule = match self.rule {
            CacheRule::Unbounded => "unbounded",
            CacheRule::Truncate { .. } => "truncate",
            CacheRule::Evict { .. } => "evict",
        };
        // However protected entries were given, the meaning is the same. The size of a sample follows from the sample.
        let sized = self.rule.sized().filter(|_| self.relative.is_none());
        let policy = sized.map(|sized| sized.definition()).or_else(|| self.rule.definition());
        let mut fields = serializer.serialize_struct("CacheSpec", 5)?;
        fields.serialize_field("rule", rule)?;
        fields.serialize_field("policy", &policy)?;
        fields.serialize_field("size", &self.rule.size().filter(|_| self.relative.is_none()))?;
        fields.serialize_field("relative", &self.relative.map(|relative| relative.to_string()))?;
        fields.serialize_field("options", &self.options)?;
        fields.end()
    }
}

impl<Size: Copy> CacheRule<Size> {
    /// The policy, if entries are evicted.
    pub fn policy(self) -> Option<Policy> {
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
        let of_size = matches!(policy.keep_first, FirstTokens::Count(Amount::Percent(_)))
            || matches!(policy.keep_recent, Amount::Percent(_));
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
}

impl CacheRule<()> {
    /// The rule at one cache size, which the unbounded cache ignores.
    pub fn at(self, size: usize) -> CacheRule {
        match self {
            CacheRule::Unbounded => CacheRule::Unbounded,
            CacheRule::Truncate { .. } => CacheRule::Truncate { size },
            CacheRule::Evict { policy, .. } => CacheRule::Evict { policy: policy.canonical(), size },
        }
    }
}

impl CacheRule {
    /// Entries per layer and key-value head, the mean over layers under a budget, or tokens of a piece; `None` for the unbounded cache.
    pub fn size(self) -> Option<usize> {
        match self {
            CacheRule::Unbounded => None,
            CacheRule::Truncate { size } | CacheRule::Evict { size, .. } => Some(size),
        }
    }

    /// Tokens of a piece, where the text is cut to pieces.
    pub fn piece(self) -> Option<usize> {
        if let CacheRule::Truncate { size } = self { Some(size) } else { None }
    }

    /// Refuses a size that the rule cannot have, whatever the model.
    ///
    /// # Errors
    /// Pieces in which there is nothing to predict, and as [`Policy::at`].
    pub fn check(self) -> anyhow::Result<()> {
        match self {
            CacheRule::Unbounded => {}
            CacheRule::Truncate { size } => {
                ensure!(size > 1, "a piece of {size} token predicts nothing; sizes start at 2");
            }
            CacheRule::Evict { policy, size } => {
                policy.at(size)?;
            }
        }
        Ok(())
    }

    /// The policy with its size, if there is one.
    pub fn sized(self) -> Option<SizedPolicy> {
        match self {
            CacheRule::Evict { policy, size } => policy.at(size).ok(),
            _ => None,
        }
    }
}
