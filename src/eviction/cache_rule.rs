//! How much of the past a model may attend to: all, a piece, or what a policy keeps.

use super::amount::Amount;
use super::policy::Policy;
use super::schedule::Schedule;
use super::settings::Scope;
use super::sized_policy::SizedPolicy;

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
}
