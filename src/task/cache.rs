//! How a cache is configured for a cell, and the full-cache prefix that cells share.
//!
//! A bounded cache equals the full one until it overflows, so all cells of a text continue from one [`FullCachePrefix`].
//! Where a cell branches off depends only on the cell and the text, never on other cells of the sweep: a resumed sweep
//! gives the same bits.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};

use super::generation::Prefill;
use crate::eviction::{CacheRule, LocalLayers, Positions, RecordedAttention, Scope, SizedPolicy};
use crate::lm::{BLOCK, LanguageModel, Memory, MemoryPlan, Tensor};

/// The cache under which a sample is measured.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    pub rule: CacheRule,
    pub positions: Positions,
    pub prefill: Prefill,
    /// Whether the cache of a prompt that was read whole is cut after the question; otherwise before it.
    pub query_aware: bool,
    pub seed: u64,
    /// Whether every prediction is compared with that of the full cache.
    pub compare: bool,
    /// What the policy does in layers with a window of their own.
    pub local_layers: LocalLayers,
    /// Layers of the model, among which a policy divides its entries.
    pub layers: usize,
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
        let is_full = match self.rule {
            CacheRule::Unbounded => true,
            CacheRule::Truncate { size } => size >= tokens,
            CacheRule::Evict { .. } => self.evicting(tokens).is_none(),
        };
        if is_full || self.compare { tokens } else { self.needs_to_go_on(tokens) }
    }

    /// The same where more tokens follow the text.
    pub(super) fn needs_to_go_on(&self, tokens: usize) -> usize {
        match self.rule {
            CacheRule::Unbounded => tokens,
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
                    && policy.score.shares_prefix() =>
            {
                policy.smallest(self.layers).min(tokens) / BLOCK * BLOCK
            }
            _ => 0,
        }
    }

    /// Entries that these tokens of a text attend to, on average over tokens and layers, while the text is read.
    pub fn attended(&self, tokens: Range<usize>) -> f64 {
        let of_layer = |size: usize| {
            let growing = tokens.start..tokens.end.min(size).max(tokens.start);
            let (full, all) = ((tokens.end - growing.end) as f64, tokens.len().max(1) as f64);
            let sum = (growing.start + growing.end) as f64 / 2.0 * growing.len() as f64;
            (sum + if full > 0.0 { full * size as f64 } else { 0.0 }) / all
        };
        match self.sized() {
            Some(policy) if self.prefill == Prefill::Stream => self.mean(policy, of_layer),
            _ => of_layer(usize::MAX),
        }
    }

    /// The mean over layers of something that depends on a layer's size.
    pub fn mean(&self, policy: SizedPolicy, of_layer: impl Fn(usize) -> f64) -> f64 {
        let sizes = policy.sizes(self.layers);
        sizes.iter().map(|size| of_layer(*size)).sum::<f64>() / sizes.len().max(1) as f64
    }

    pub(super) fn sized(&self) -> Option<SizedPolicy> {
        self.rule.sized()
    }

    /// The policy, if it evicts anything of a text of so many tokens: if any layer is smaller than the text.
    pub(super) fn evicting(&self, tokens: usize) -> Option<SizedPolicy> {
        self.sized().filter(|policy| policy.smallest(self.layers) < tokens)
    }

    /// A cache that evicts, for a text of `text` tokens that is read from its beginning.
    pub(super) fn plan(&self, policy: SizedPolicy, text: usize) -> MemoryPlan<'static> {
        let CacheConfig { positions, seed, local_layers, .. } = *self;
        MemoryPlan { positions, seed, local_layers, text, ..MemoryPlan::bounded(policy) }
    }

    /// A cache that evicts, and the tokens it has read: those of the first `tokens` before it branches off the full cache.
    /// `text` is the length of the whole text; a prompt that is read whole makes room for so many. A policy that knows the
    /// future needs the attention of the whole text.
    pub(super) fn bounded_memory(
        &self,
        model: &LanguageModel,
        policy: SizedPolicy,
        prefix: Option<&FullCachePrefix>,
        tokens: usize,
        text: usize,
        future: Option<&[Arc<RecordedAttention>]>,
    ) -> Result<(Memory, usize)> {
        let measure_loss = self.compare && self.positions == Positions::Absolute;
        let start = self.start(tokens);
        if start > 0 {
            let plan = MemoryPlan { measure_loss, ..self.plan(policy, text) };
            let fork = FullCachePrefix::of(prefix, start)?.memory.fork(start, &plan);
            return Ok((fork.context("the full-cache prefix cannot be continued")?, start));
        }
        let one_shot = self.prefill == Prefill::OneShot;
        let plan = MemoryPlan { one_shot, expect: text, measure_loss, future, ..self.plan(policy, text) };
        Ok((model.new_memory(&plan), 0))
    }
}

impl FullCachePrefix {
    /// The prefix, which must have at least so many tokens.
    pub(super) fn of(prefix: Option<&FullCachePrefix>, tokens: usize) -> Result<&FullCachePrefix> {
        let long_enough = prefix.filter(|prefix| prefix.read >= tokens);
        long_enough.context("the full-cache prefix is shorter than this policy needs it")
    }

    /// Reads a text as far as some configurations need it; `None` if none of them does.
    pub fn read(
        model: &LanguageModel,
        tokens: &[u32],
        configs: &[CacheConfig],
    ) -> Result<Option<FullCachePrefix>> {
        let needs = configs.iter().map(|config| config.needs(tokens.len())).max().unwrap_or(0);
        // A cache at least as large as the text is the full cache: nothing branches off.
        let forks = configs.iter().filter(|config| config.evicting(tokens.len()).is_some());
        FullCachePrefix::read_to(model, tokens, &forks.copied().collect::<Vec<_>>(), (needs, tokens.len()))
    }

    /// The same for the first `read` tokens of a text of `text`.
    pub(super) fn read_to(
        model: &LanguageModel,
        tokens: &[u32],
        configs: &[CacheConfig],
        (read, text): (usize, usize),
    ) -> Result<Option<FullCachePrefix>> {
        let started = Instant::now();
        if read == 0 {
            return Ok(None);
        }
        // A policy that sums attention can only branch off where the sums were saved.
        let forks = configs.iter().filter_map(|config| Some((config.sized()?, config.start(tokens.len()))));
        let forks = forks.filter(|(policy, start)| policy.score.sums_attention() && *start > 0);
        let (mut scopes, mut points): (Vec<Scope>, Vec<usize>) =
            forks.map(|(policy, start)| (policy.scope, start)).unzip();
        scopes.sort_by_key(|scope| scope.name());
        scopes.dedup();
        points.sort_unstable();
        points.dedup();
        let plan = MemoryPlan {
            fork_scopes: &scopes,
            fork_points: &points,
            // Whether or not any cell branches off: it changes the last bits of layers with a window.
            forks: true,
            expect: read,
            text,
            ..MemoryPlan::unbounded()
        };
        let mut memory = model.new_memory(&plan);
        let states = model.read(&tokens[..read], &mut memory)?;
        Ok(Some(FullCachePrefix { memory, states, read, seconds: started.elapsed().as_secs_f64() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::{Budget, Policy, presets};

    fn config(rule: CacheRule, prefill: Prefill) -> CacheConfig {
        CacheConfig {
            rule,
            positions: Positions::Absolute,
            prefill,
            query_aware: true,
            seed: 0,
            compare: false,
            local_layers: LocalLayers::Bounded,
            layers: 3,
        }
    }

    #[test]
    fn the_smallest_layer_says_when_a_cache_is_full() {
        let uniform = presets::by_name("tova").unwrap();
        let policy = Policy { budget: Budget::of_layers(&[4.0, 1.0, 1.0]).unwrap(), ..uniform };
        let at = |policy, size| config(CacheRule::Evict { policy, size }, Prefill::Stream);
        // 1,200, 300 and 300 entries.
        let own = at(policy, 600);
        assert_eq!([300, 301, 1000].map(|tokens| own.evicting(tokens).is_some()), [false, true, true]);
        assert_eq!([300, 301, 1000].map(|tokens| own.needs(tokens)), [300, 256, 256]);
        assert_eq!([100, 256, 1000].map(|tokens| own.start(tokens)), [0, 256, 256]);
        assert_eq!([600, 601].map(|tokens| at(uniform, 600).evicting(tokens).is_some()), [false, true]);
        assert_eq!([600, 601].map(|tokens| at(uniform, 600).needs(tokens)), [600, 512]);
        // 200, 50 and 50: growing from 100 to 200 and then full, or full all the time.
        assert_eq!(at(policy, 100).attended(100..300), (175.0 + 50.0 + 50.0) / 3.0);
    }

    #[test]
    fn entries_that_tokens_attend_to_on_average() {
        let policy = presets::by_name("tova").unwrap();
        let evict = CacheRule::Evict { policy, size: 100 };
        let streamed = config(evict, Prefill::Stream);
        assert_eq!(streamed.attended(0..100), 50.0);
        assert_eq!(streamed.attended(100..300), 100.0);
        assert_eq!(streamed.attended(0..200), 75.0);
        assert_eq!(streamed.attended(150..150), 0.0);
        for config in [config(CacheRule::Unbounded, Prefill::Stream), config(evict, Prefill::OneShot)] {
            assert_eq!(config.attended(0..1000), 500.0);
            assert_eq!(config.attended(1000..3000), 2000.0);
        }
    }
}
