//! How a cache is configured for a cell, and the full-cache prefix that cells share.
//!
//! A bounded cache equals the full one until it overflows, so all cells of a text continue from one [`FullCachePrefix`].
//! Where a cell branches off depends only on the cell and the text, never on other cells of the sweep: a resumed sweep
//! gives the same bits.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::eviction::{
    CacheOptions, CacheRule, CacheSpec, Positions, RecordedAttention, Schedule, Scope, ScoreCount, SizedPolicy,
};
use crate::lm::{BLOCK, LanguageModel, Memory, MemoryPlan, PromptScores, Tensor};
use crate::metric::{HeldByHead, MetricSum, NO_NUMBER};

/// The cache under which a sample is measured.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    pub cache: CacheSpec,
    /// Whether a cache that is cut after its prompt is cut after the question; otherwise before it.
    pub query_aware: bool,
    /// Whether every prediction is compared with that of the full cache.
    pub compare: bool,
    /// Whether it is noted which tokens are evicted, and when.
    pub log: bool,
    /// The layers of the model, and whether the policy bounds them, and key-value heads of each, among which it divides its entries.
    pub bounded: &'static [bool],
    pub kv_heads: usize,
}

/// How many of the scores that decided were not numbers, if any.
///
/// # Errors
/// A score that never was a number.
pub(super) fn scores_without_numbers(count: ScoreCount) -> Result<Option<MetricSum>> {
    let ScoreCount { all, no_numbers } = count.checked()?;
    Ok((no_numbers > 0).then(|| MetricSum::new(NO_NUMBER, no_numbers as f64, all as f64)))
}

/// The beginning of a text, read with the full cache in the format of those that go on from it.
pub struct FullCachePrefix {
    pub(super) memory: Memory,
    /// The states after each of the tokens: (tokens, hidden)
    pub(super) states: Tensor,
    /// States of the full cache in f32, where predictions are compared with it and the format is another.
    reference: Option<Tensor>,
    pub(super) read: usize,
    pub(super) seconds: f64,
    /// Where policies cut the prompt, and what they know of it there.
    cuts: Vec<(usize, PromptScores)>,
}

impl CacheConfig {
    /// Whether a cache that evicts keeps every key, to measure the attention that evicted entries would have received.
    pub fn measures_loss(&self) -> bool {
        self.compare
            && self.cache.options.positions == Positions::Absolute
            && !self.cache.options.changes_full_cache()
    }

    /// Whether it is the unbounded cache that others are compared with.
    pub(super) fn is_reference(&self) -> bool {
        self.cache.rule == CacheRule::Unbounded && !self.cache.options.changes_full_cache()
    }

    /// Whether it can go on from the beginning of what a cache without a bound has read further in its format. Positions depend on what
    /// was evicted, and KIVI packs entries after a while.
    fn can_branch_off(&self) -> bool {
        self.cache.options.positions == Positions::Absolute && self.cache.options.format.kivi_bits().is_none()
    }

    /// Tokens of the full-cache prefix that this configuration needs of a text of `tokens`, of which the first may be a prompt.
    pub fn needs(&self, tokens: usize, prompt: Option<usize>) -> usize {
        let is_full = match self.cache.rule {
            CacheRule::Unbounded => true,
            CacheRule::Truncate { size } => size >= tokens,
            CacheRule::Evict { .. } => self.evicting(tokens).is_none(),
        };
        if is_full || self.compare { tokens } else { self.needs_to_go_on(self.continues(tokens, prompt)) }
    }

    /// The part of a text that is read before it is known what leaves: up to the cut, or all of it.
    pub(super) fn continues(&self, tokens: usize, prompt: Option<usize>) -> usize {
        prompt.filter(|_| self.cuts()).unwrap_or(tokens)
    }

    /// Whether it cuts the prompt, and what it needs to know of that can be found while the full cache reads it, with others. Scores
    /// that depend on the size need to know it, which is another for every prompt where it is a share of that.
    fn shares_prompt(&self) -> bool {
        let policy = self.sized().filter(|policy| policy.awaits_prompt() && self.can_branch_off());
        policy.is_some_and(|policy| {
            let score = policy.score;
            let knows_size = self.cache.relative.is_none() || !self.cache.rule.scores_depend_on_size();
            let is_formula = !score.is_function();
            is_formula && !score.compares_norms() && !score.reads_future() && knows_size
        })
    }

    /// Whether the policy cuts the prompt, or protects it: nothing leaves before it ends.
    pub fn cuts(&self) -> bool {
        self.cache.rule.awaits_prompt()
    }

    /// Whether it cuts the prompt where the question begins.
    pub(super) fn cuts_before_question(&self) -> bool {
        self.cuts() && !self.query_aware
    }

    /// Counts the tokens of the full-cache prefix that this configuration needs of a text of `tokens` that more tokens follow.
    pub(super) fn needs_to_go_on(&self, tokens: usize) -> usize {
        match self.cache.rule {
            CacheRule::Unbounded => tokens,
            CacheRule::Truncate { .. } => 0,
            CacheRule::Evict { .. } => self.start(tokens),
        }
    }

    /// Where a bounded cache branches off the full one: the last end of a block before it overflows or the text ends. One that is
    /// cut branches off after all `tokens`.
    pub(super) fn start(&self, tokens: usize) -> usize {
        match self.sized().filter(|_| self.can_branch_off()) {
            Some(_) if self.shares_prompt() => tokens,
            Some(policy) if policy.awaits_prompt() => 0,
            // The sums of attention that some policies continue from are saved for one size only.
            Some(_) if self.cache.relative.is_some() => 0,
            Some(policy) if policy.schedule == Schedule::EVERY_TOKEN && policy.shares_prefix() => {
                policy.smallest(self.bounded).min(tokens) / BLOCK * BLOCK
            }
            _ => 0,
        }
    }

    /// Entries that these tokens of a text attend to, on average over tokens and layers, while the text is read. A cache is cut after
    /// the first `cut` tokens.
    pub fn attended(&self, tokens: Range<usize>, cut: Option<usize>) -> f64 {
        let of_head = |size: usize| {
            let growing = tokens.start..tokens.end.min(size).max(tokens.start);
            let (full, all) = ((tokens.end - growing.end) as f64, tokens.len().max(1) as f64);
            let sum = (growing.start + growing.end) as f64 / 2.0 * growing.len() as f64;
            (sum + if full > 0.0 { full * size as f64 } else { 0.0 }) / all
        };
        match self.sized() {
            Some(policy) if cut.is_some_and(|cut| tokens.start >= cut) => {
                let held = |policy: SizedPolicy, at: usize| policy.entries_after(at, cut.unwrap_or(at)) as f64;
                self.mean(policy, |own| (held(own, tokens.start) + held(own, tokens.end)) / 2.0)
            }
            // Half of what is evicted at once is there on average.
            Some(policy) if !policy.awaits_prompt() && !policy.selects() => {
                self.mean(policy, |own| of_head(own.size.saturating_add(policy.schedule.buffer() / 2)))
            }
            _ => of_head(usize::MAX),
        }
    }

    /// The mean over heads of bounded layers of something that depends on a head's size.
    pub fn mean(&self, policy: SizedPolicy, of_head: impl Fn(SizedPolicy) -> f64) -> f64 {
        let layers = policy.of_layers(self.bounded).into_iter().flatten();
        let heads: Vec<f64> = layers.flat_map(|own| own.of_heads(self.kv_heads)).map(of_head).collect();
        heads.iter().sum::<f64>() / heads.len().max(1) as f64
    }

    /// Entries of every key-value head, where a budget lets them hold different numbers, as a text (a part for each layer); the weight is the
    /// number of tokens that `memory` has read.
    pub(super) fn held_by_head(&self, memory: &Memory) -> Option<MetricSum> {
        self.sized().filter(|policy| policy.budget.is_by_head())?;
        let entries = memory.entries();
        let all: Vec<usize> = entries.iter().flatten().copied().collect();
        let mean = all.iter().sum::<usize>() as f64 / all.len().max(1) as f64;
        let output = Some(HeldByHead(entries).to_string());
        Some(MetricSum { output, ..MetricSum::new("held_by_head", mean, memory.seen() as f64) })
    }

    pub(super) fn sized(&self) -> Option<SizedPolicy> {
        self.cache.rule.sized()
    }

    /// The policy, if it evicts anything of a text of so many tokens: if any layer or head is smaller than the text.
    pub fn evicting(&self, tokens: usize) -> Option<SizedPolicy> {
        self.sized().filter(|policy| policy.smallest(self.bounded) < tokens)
    }

    /// Plans a cache that evicts, for a text of `text` tokens that is read from its beginning.
    pub(super) fn plan(&self, policy: SizedPolicy, text: usize) -> MemoryPlan<'static> {
        MemoryPlan { policy: Some(policy), log: self.log, text, ..MemoryPlan::of_cache(&self.cache) }
    }

    /// A cache that evicts, and the tokens it has read: those of the first `tokens` before it branches off the full cache. If a prompt
    /// `ends` there, one that cuts it may have done so.
    /// `text` is the length of the whole text; a prompt that will be cut makes room for so many. A policy that knows the
    /// future needs the attention of the whole text.
    pub(super) fn bounded_memory(
        &self,
        model: &LanguageModel,
        policy: SizedPolicy,
        prefix: Option<&FullCachePrefix>,
        (tokens, ends): (usize, bool),
        text: usize,
        future: Option<&[Arc<RecordedAttention>]>,
    ) -> Result<(Memory, usize)> {
        let measure_loss = self.measures_loss();
        let start = self.start(tokens);
        if start > 0 {
            let plan = MemoryPlan { measure_loss, ..self.plan(policy, text) };
            let prefix = FullCachePrefix::of(prefix, start)?;
            let fork = match prefix.cuts.iter().find(|(at, _)| policy.awaits_prompt() && *at == start) {
                Some((_, scores)) => model.fork_for_cut(&prefix.memory, (scores, ends), start, &plan)?,
                None => prefix.memory.fork(start, &plan),
            };
            return Ok((fork.context("the full-cache prefix cannot be continued")?, start));
        }
        let plan = MemoryPlan { expect: text, measure_loss, future, ..self.plan(policy, text) };
        Ok((model.new_memory(&plan), 0))
    }
}

impl FullCachePrefix {
    /// Returns the prefix if it has at least `tokens` tokens.
    pub(super) fn of(prefix: Option<&FullCachePrefix>, tokens: usize) -> Result<&FullCachePrefix> {
        let long_enough = prefix.filter(|prefix| prefix.read >= tokens);
        long_enough.context("the full-cache prefix is shorter than this policy needs it")
    }

    /// Reads a text, of which the first tokens may be a prompt, as far as some configurations need it; `None` if none of them does.
    pub fn read(
        model: &LanguageModel,
        tokens: &[u32],
        prompt: Option<usize>,
        configs: &[CacheConfig],
    ) -> Result<Option<FullCachePrefix>> {
        let text = tokens.len();
        let read = configs.iter().map(|config| config.needs(text, prompt)).max().unwrap_or(0);
        // A cache at least as large as the text is the full cache: nothing branches off.
        let forks = configs.iter().filter(|config| config.evicting(text).is_some());
        let forks: Vec<CacheConfig> = forks.copied().collect();
        let ends = || prompt.into_iter().collect();
        let options = options_of_prefix(configs);
        let own = FullCachePrefix::read_to(model, tokens, (&forks, options), (read, ends()), text)?;
        let is_compared = options.changes_full_cache() && configs.iter().any(|config| config.compare);
        let Some(prefix) = own else { return Ok(None) };
        let exact = match is_compared {
            true => FullCachePrefix::read_to(model, tokens, (&[], CacheOptions::default()), (read, ends()), text)?,
            false => None,
        };
        Ok(Some(FullCachePrefix { reference: exact.map(|exact| exact.states), ..prefix }))
    }

    /// States with which predictions are compared.
    pub(super) fn reference(&self) -> &Tensor {
        self.reference.as_ref().unwrap_or(&self.states)
    }

    /// Reads the first `read` of `tokens`, the beginning of a text of `text` tokens, with the full cache. Reads stop at `ends`, ascending:
    /// the places where caches are cut, which are ends of prompts or of what prompts share.
    pub(super) fn read_to(
        model: &LanguageModel,
        tokens: &[u32],
        (configs, options): (&[CacheConfig], CacheOptions),
        (read, ends): (usize, Vec<usize>),
        text: usize,
    ) -> Result<Option<FullCachePrefix>> {
        let started = Instant::now();
        if read == 0 {
            return Ok(None);
        }
        let of_cuts = configs.iter().filter(|config| config.shares_prompt());
        let cuts = of_cuts.filter_map(|config| Some((config.sized()?, config.cache.options, config.cache.seed)));
        let cuts: Vec<(SizedPolicy, CacheOptions, u64)> = cuts.collect();
        // A policy that sums attention can only branch off where the sums were saved.
        let forks = configs.iter().filter(|config| !config.cuts());
        let forks = forks.filter_map(|config| Some((config.sized()?, config.start(tokens.len()))));
        let forks = forks.filter(|(policy, start)| policy.score.sums_attention() && *start > 0);
        let (mut scopes, mut points): (Vec<Scope>, Vec<usize>) =
            forks.map(|(policy, start)| (policy.scope, start)).unzip();
        scopes.sort_by_key(|scope| scope.name());
        scopes.dedup();
        points.sort_unstable();
        points.dedup();
        let starts = configs.iter().filter(|config| !config.cuts()).map(|config| config.start(tokens.len()));
        let state_points: Vec<usize> = starts.chain(ends.iter().copied()).collect();
        let plan = MemoryPlan {
            fork_scopes: &scopes,
            fork_points: &points,
            state_points: &state_points,
            // Whether or not any cell branches off: it changes the last bits of layers with a window.
            forks: true,
            cuts: &cuts,
            expect: read,
            text,
            options,
            ..MemoryPlan::unbounded()
        };
        let mut memory = model.new_memory(&plan);
        let (mut states, mut at_ends) = (Vec::new(), Vec::new());
        // Whether or not any cell cuts: where a read ends may change the last bits.
        let ends: Vec<usize> = ends.into_iter().filter(|end| (1..=read).contains(end)).collect();
        for &end in &ends {
            states.push(model.read(&tokens[memory.seen()..end], &mut memory)?);
            if !cuts.is_empty() {
                model.end_prompt(&mut memory)?;
                let is_last = ends.last() == Some(&end);
                at_ends.push((end, if is_last { memory.take_cuts() } else { memory.cuts() }));
            }
        }
        if memory.seen() < read {
            states.push(model.read(&tokens[memory.seen()..read], &mut memory)?);
        }
        let states = if states.len() == 1 { states.remove(0) } else { Tensor::cat(&states, 0)? };
        let seconds = started.elapsed().as_secs_f64();
        Ok(Some(FullCachePrefix { memory, states, reference: None, read, seconds, cuts: at_ends }))
    }
}

/// The options of the unbounded cache from which configurations go on; they share them.
pub(super) fn options_of_prefix(configs: &[CacheConfig]) -> CacheOptions {
    configs.first().map_or_else(CacheOptions::default, |config| config.cache.options.without_evictions())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::{Budget, Policy, presets};

    fn config(rule: CacheRule) -> CacheConfig {
        CacheConfig {
            cache: CacheSpec { rule, ..CacheSpec::default() },
            query_aware: true,
            compare: false,
            log: false,
            bounded: &[true; 3],
            kv_heads: 2,
        }
    }

    #[test]
    fn the_smallest_layer_says_when_a_cache_is_full() {
        let uniform = presets::by_name("tova").unwrap();
        let policy = Policy { budget: Budget::of_layers(&[4.0, 1.0, 1.0]).unwrap(), ..uniform };
        let at = |policy, size| config(CacheRule::Evict { policy, size });
        // 1,200, 300 and 300 entries.
        let own = at(policy, 600);
        assert_eq!([300, 301, 1000].map(|tokens| own.evicting(tokens).is_some()), [false, true, true]);
        assert_eq!([300, 301, 1000].map(|tokens| own.needs(tokens, None)), [300, 256, 256]);
        assert_eq!([100, 256, 1000].map(|tokens| own.start(tokens)), [0, 256, 256]);
        assert_eq!([600, 601].map(|tokens| at(uniform, 600).evicting(tokens).is_some()), [false, true]);
        assert_eq!([600, 601].map(|tokens| at(uniform, 600).needs(tokens, None)), [600, 512]);
        // 200, 50 and 50: growing from 100 to 200 and then full, or full all the time.
        assert_eq!(at(policy, 100).attended(100..300, None), (175.0 + 50.0 + 50.0) / 3.0);
    }

    #[test]
    fn entries_that_tokens_attend_to_on_average() {
        let policy = presets::by_name("tova").unwrap();
        let evict = CacheRule::Evict { policy, size: 100 };
        let streamed = config(evict);
        assert_eq!(streamed.attended(0..100, None), 50.0);
        assert_eq!(streamed.attended(100..300, None), 100.0);
        assert_eq!(streamed.attended(0..200, None), 75.0);
        assert_eq!(streamed.attended(150..150, None), 0.0);
        let cut = CacheRule::Evict { policy: Policy { schedule: Schedule::CutThenEvery(1), ..policy }, size: 100 };
        for config in [config(CacheRule::Unbounded), config(cut)] {
            assert_eq!(config.attended(0..1000, None), 500.0);
            assert_eq!(config.attended(1000..3000, None), 2000.0);
        }
    }
}
