//! What a memory is made for.

use std::sync::Arc;

use crate::eviction::{CacheOptions, CacheSpec, RecordedAttention, Scope, SizedPolicy};
use crate::lm::shape::config::ModelShape;

/// Settings of a new memory. There are many, and a caller names the few that it needs: the others are those of
/// [`unbounded`](Self::unbounded).
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryPlan<'a> {
    /// `None`: unbounded.
    pub policy: Option<SizedPolicy>,
    pub options: CacheOptions,
    /// Seeds [`Score::Random`](crate::eviction::Score::Random).
    pub seed: u64,
    /// Tokens that the text will have. Models with other positions for long texts (LongRoPE) need it; beyond the length of the
    /// usual ones no more than was announced can be read.
    pub text: usize,
    /// Unbounded only: scopes whose accumulated attention forks will need, and the lengths at which they will
    /// start.
    pub fork_scopes: &'a [Scope],
    pub fork_points: &'a [usize],
    /// Unbounded only: all lengths at which forks will start, for layers that have a state in place of a cache.
    pub state_points: &'a [usize],
    /// Unbounded only: policies that will cut the prompt, for [`Memory::cuts`](super::memory::Memory::cuts), each with its options
    /// and its seed.
    pub cuts: &'a [(SizedPolicy, CacheOptions, u64)],
    /// Unbounded only: forks will be taken, so layers with a window keep what it has passed.
    pub forks: bool,
    /// Unbounded only: tokens to make room for; more are no error.
    pub expect: usize,
    /// Unbounded only: record attention over the decision groups of a scope, for
    /// [`Memory::into_attention`](super::memory::Memory::into_attention).
    pub record: Option<Scope>,
    /// The attention of the whole text, by layer, for policies that know the future.
    pub future: Option<&'a [Arc<RecordedAttention>]>,
    /// Measure the attention mass that evicted entries would have received (absolute positions).
    pub measure_loss: bool,
    /// Record evictions for [`Memory::take_log`](super::memory::Memory::take_log).
    pub log: bool,
}

impl MemoryPlan<'_> {
    /// The unbounded cache.
    pub fn unbounded() -> MemoryPlan<'static> {
        MemoryPlan::default()
    }

    /// The memory of a cache; under `truncate`, of one of its pieces.
    pub fn of_cache(cache: &CacheSpec) -> MemoryPlan<'static> {
        let CacheSpec { rule, options, seed, .. } = *cache;
        MemoryPlan { policy: rule.sized(), options, seed, ..MemoryPlan::unbounded() }
    }

    /// A cache bounded by a policy.
    pub fn bounded(policy: SizedPolicy) -> MemoryPlan<'static> {
        MemoryPlan { policy: Some(policy), ..MemoryPlan::unbounded() }
    }

    /// Whether the text will be longer than the model's usual positions reach.
    pub(super) fn is_long(&self, shape: &ModelShape) -> bool {
        shape.length_of_usual_positions().is_some_and(|usual| self.text > usual)
    }
}

/// Seeds the draws of a layer: every layer draws differently.
pub(super) fn salt(seed: u64, layer: usize) -> u64 {
    seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(layer as u64)
}
