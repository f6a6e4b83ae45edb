//! How a cache is configured for a cell, and the full-cache prefix that cells share.
//!
//! A bounded cache equals the full one until it overflows, so all cells of a text continue from one [`FullCachePrefix`].
//! Where a cell branches off depends only on the cell and the text, never on other cells of the sweep: a resumed sweep
//! gives the same bits.

use std::time::Instant;

use anyhow::Result;

use super::generation::Prefill;
use crate::eviction::{CacheRule, Positions, Scope, Score, SizedPolicy};
use crate::lm::{BLOCK, LanguageModel, Memory, MemoryPlan, Tensor};

/// The cache under which a sample is measured.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    pub rule: CacheRule,
    pub positions: Positions,
    pub prefill: Prefill,
    /// Whether a cache that is cut once is cut after the question; otherwise before it.
    pub query_aware: bool,
    pub seed: u64,
    /// Whether every prediction is compared with that of the full cache.
    pub compare: bool,
}

/// The beginning of a text, read with the full cache.
pub struct FullCachePrefix {
    pub(super) memory: Memory,
    /// The states after each of the tokens: (tokens, hidden)
    pub(super) states: Tensor,
    pub(super) read: usize,
    pub(super) seconds: f64,
}

impl CacheConfig {
    /// Tokens of the full-cache prefix that this configuration needs of a text of `tokens`.
    pub fn needs(&self, tokens: usize) -> usize {
        match self.rule {
            CacheRule::Unbounded => tokens,
            CacheRule::Truncate { size } | CacheRule::Evict { size, .. } if size >= tokens || self.compare => {
                tokens
            }
            CacheRule::Truncate { .. } => 0,
            CacheRule::Evict { .. } => self.start(tokens),
        }
    }

    /// Where a bounded cache branches off the full one: the last end of a block before it overflows or the text ends.
    pub(super) fn start(&self, tokens: usize) -> usize {
        match self.sized() {
            Some(policy)
                if self.positions == Positions::Absolute
                    && self.prefill == Prefill::Stream
                    && !policy.score().compares_norms() =>
            {
                policy.size().min(tokens) / BLOCK * BLOCK
            }
            _ => 0,
        }
    }

    pub(super) fn sized(&self) -> Option<SizedPolicy> {
        match self.rule {
            CacheRule::Evict { policy, size } => policy.at(size).ok(),
            _ => None,
        }
    }
}

impl FullCachePrefix {
    /// Reads a text as far as some configurations need it; `None` if none of them does.
    pub fn read(
        model: &LanguageModel,
        tokens: &[u32],
        configs: &[CacheConfig],
    ) -> Result<Option<FullCachePrefix>> {
        let needs = configs.iter().map(|config| config.needs(tokens.len())).max().unwrap_or(0);
        // A cache at least as large as the text is the full cache: nothing branches off.
        let forks = configs.iter().filter(|config| config.sized().is_some_and(|p| p.size() < tokens.len()));
        FullCachePrefix::read_to(model, tokens, &forks.copied().collect::<Vec<_>>(), needs)
    }

    /// The same for the first `read` tokens.
    pub(super) fn read_to(
        model: &LanguageModel,
        tokens: &[u32],
        configs: &[CacheConfig],
        read: usize,
    ) -> Result<Option<FullCachePrefix>> {
        let started = Instant::now();
        if read == 0 {
            return Ok(None);
        }
        let mut watch: Vec<Scope> = Vec::new();
        let mut marks = Vec::new();
        for config in configs {
            let Some(policy) = config.sized() else { continue };
            let start = config.start(tokens.len());
            if policy.score() == Score::AccumulatedAttention && start > 0 {
                watch.push(policy.scope());
                marks.push(start);
            }
        }
        watch.sort_by_key(|scope| scope.name());
        watch.dedup();
        marks.sort_unstable();
        marks.dedup();
        let plan =
            MemoryPlan { fork_scopes: &watch, fork_points: &marks, expect: read, ..MemoryPlan::unbounded() };
        let mut memory = model.new_memory(&plan);
        let states = model.read(&tokens[..read], &mut memory)?;
        Ok(Some(FullCachePrefix { memory, states, read, seconds: started.elapsed().as_secs_f64() }))
    }
}
