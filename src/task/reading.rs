//! How a text is read, and the unbounded reading that several rules share.
//!
//! A bounded cache equals the unbounded one until it is full, so the cells of a text go on from one unbounded reading
//! ([`Topline`]). Where a cell takes over depends on the cell and the text alone, never on what else the sweep holds:
//! a resumed sweep gives the same bits.

use std::time::Instant;

use anyhow::Result;

use super::style::Prefill;
use crate::eviction::{CacheRule, Positions, Scope, SizedPolicy};
use crate::lm::{BLOCK, LanguageModel, Memory, MemoryPlan, Tensor};

/// How a sample is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub rule: CacheRule,
    pub positions: Positions,
    pub prefill: Prefill,
    /// Cut a prompt that is read in one shot after its question, not before.
    pub query_aware: bool,
    pub seed: u64,
    /// Compare every prediction with the unbounded cache's.
    pub compare: bool,
}

/// A text read with the unbounded cache, as far as somebody needs it.
pub struct Topline {
    pub(super) memory: Memory,
    /// (rows, hidden): the states after the first tokens.
    pub(super) states: Tensor,
    pub(super) read: usize,
    pub(super) seconds: f64,
}

impl Reading {
    /// Tokens of the unbounded reading of a text of `tokens` this one needs: all of them, or those it starts from.
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

    /// Where a bounded cache takes over from the unbounded one: the last block's end before it is full, or the text
    /// ends.
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

impl Topline {
    /// Reads a text as far as `readings` need it; `None` if none of them does.
    ///
    /// # Errors
    /// What [`LanguageModel::read`] reports.
    pub fn read(model: &LanguageModel, tokens: &[u32], readings: &[Reading]) -> Result<Option<Topline>> {
        let needs = readings.iter().map(|reading| reading.needs(tokens.len())).max().unwrap_or(0);
        // A cache at least as large as the text is the unbounded reading itself: nobody forks it.
        let forks = readings.iter().filter(|reading| reading.sized().is_some_and(|p| p.size() < tokens.len()));
        Topline::read_to(model, tokens, &forks.copied().collect::<Vec<_>>(), needs)
    }

    /// The same as far as somebody says.
    pub(super) fn read_to(
        model: &LanguageModel,
        tokens: &[u32],
        readings: &[Reading],
        read: usize,
    ) -> Result<Option<Topline>> {
        let started = Instant::now();
        if read == 0 {
            return Ok(None);
        }
        let mut watch: Vec<Scope> = Vec::new();
        let mut marks = Vec::new();
        for reading in readings {
            let Some(policy) = reading.sized() else { continue };
            let start = reading.start(tokens.len());
            if policy.score().accumulates() && start > 0 {
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
        Ok(Some(Topline { memory, states, read, seconds: started.elapsed().as_secs_f64() }))
    }
}
