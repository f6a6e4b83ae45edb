//! What a layer's cache keeps beside its entries: under a policy, the state of its score; without one, what bounded caches that
//! continue from it will need.

use super::custom::FunctionInputs;
use super::entries::{CacheEntries, HeadGroup, Received};
use super::formula::{self, ScoreCount, Scorer};
use super::future::{RecordedAttention, SecondReading};
use super::sized_policy::SizedPolicy;

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Unbounded(Unbounded),
    Bounded(Box<Bounded>),
}

/// State of a cache from which no policy evicts.
#[derive(Clone, Debug, Default)]
pub(super) struct Unbounded {
    /// Whether entries outside the layer's window stay, masked, because forks may need them.
    pub keeps_all: bool,
    /// Attention so far, where it is recorded for policies that know the future.
    pub recorded: Option<RecordedAttention>,
    /// Attention that the prompt's entries receive while it is read again.
    pub second_reading: Option<SecondReading>,
    /// Bounded caches that will be cut after the prompt. Until then they hold the same entries, each with scores of its own.
    pub cuts: Vec<CacheEntries>,
    /// Positions at which received attention is saved, so that a bounded cache can be forked there.
    pub fork_points: Vec<usize>,
    pub saved: Vec<(usize, Vec<Received>)>,
}

/// State of a cache from which a policy evicts.
#[derive(Clone, Debug)]
pub(super) struct Bounded {
    pub policy: SizedPolicy,
    /// Computes the policy's score, if that is a formula.
    pub scorer: Option<Scorer>,
    /// Computes the score that divides the entries of a pool, if that is not the policy's own.
    pub divider: Option<Scorer>,
    /// Inputs of the policy's score, if that is a function.
    pub inputs: Option<FunctionInputs>,
    /// Size that each group is cut back to: (groups). `usize::MAX` before a prompt is cut and for pools over all layers; in a pool over
    /// heads, the mean.
    pub limits: Vec<usize>,
    /// Whether the prompt will be cut.
    pub awaits_cut: bool,
    /// Attention of the prompt's last query, kept for the cut: (groups)(entries); for a function per query head: (groups)(heads of the
    /// group, entries). Empty if the score keeps its own state.
    pub newest: Vec<Vec<f32>>,
    /// Counts the scores of formulas that have decided what leaves.
    pub score_count: ScoreCount,
    /// Seeds what the score draws.
    pub salt: u64,
}

impl Bounded {
    pub fn scorers(&mut self) -> impl Iterator<Item = &mut Scorer> {
        [&mut self.scorer, &mut self.divider].into_iter().flatten()
    }

    /// Counts the scores by which entries leave now. The `mask` of a group is as of [`CacheEntries::attend`].
    pub fn count_scores<'a>(&mut self, groups: &[HeadGroup], mask: impl Fn(usize) -> &'a [f32]) {
        for (group, entries) in groups.iter().enumerate() {
            let mask = mask(group);
            let unprotected = entries.candidates(self.policy, mask.len());
            let entries = formula::Entries { positions: &entries.positions, mask, unprotected };
            for scorer in [&self.scorer, &self.divider].into_iter().flatten() {
                self.score_count += scorer.count(group, &entries);
            }
        }
    }
}

impl CacheEntries {
    pub(super) fn as_bounded(&self) -> Option<&Bounded> {
        if let Kind::Bounded(bounded) = &self.kind { Some(bounded) } else { None }
    }

    pub(super) fn as_bounded_mut(&mut self) -> Option<&mut Bounded> {
        if let Kind::Bounded(bounded) = &mut self.kind { Some(bounded) } else { None }
    }

    pub(super) fn as_unbounded(&self) -> Option<&Unbounded> {
        if let Kind::Unbounded(unbounded) = &self.kind { Some(unbounded) } else { None }
    }

    /// The policy that evicts; `None` of an unbounded cache.
    pub(super) fn policy(&self) -> Option<SizedPolicy> {
        Some(self.as_bounded()?.policy)
    }

    /// Size that a group is cut back to, or `usize::MAX`.
    pub(super) fn limit(&self, group: usize) -> usize {
        self.as_bounded().map_or(usize::MAX, |bounded| bounded.limits[group])
    }

    /// Entries that leave a group at once, when it has as many more than its limit.
    pub fn burst(&self) -> usize {
        self.as_bounded().and_then(|bounded| bounded.policy.schedule.every()).unwrap_or(1)
    }

    /// Whether its prompt will be cut.
    pub fn awaits_cut(&self) -> bool {
        self.as_bounded().is_some_and(|bounded| bounded.awaits_cut)
    }

    /// Whether entries outside the layer's window stay, masked.
    pub(super) fn keeps_all(&self) -> bool {
        self.as_unbounded().is_some_and(|unbounded| unbounded.keeps_all)
    }

    /// Bounded caches that will be cut after the prompt that this unbounded one reads.
    pub fn cuts(&self) -> &[CacheEntries] {
        self.as_unbounded().map_or(&[], |unbounded| &unbounded.cuts)
    }

    /// Takes [`cuts`](Self::cuts) away, at the end of the prompt.
    pub fn take_cuts(&mut self) -> Vec<CacheEntries> {
        if let Kind::Unbounded(unbounded) = &mut self.kind {
            std::mem::take(&mut unbounded.cuts)
        } else {
            Vec::new()
        }
    }

    /// The attention of the tokens read, if it was recorded.
    pub fn into_recorded(self) -> Option<RecordedAttention> {
        if let Kind::Unbounded(unbounded) = self.kind { unbounded.recorded } else { None }
    }

    /// Counts the scores of formulas that have decided what leaves.
    pub fn score_count(&self) -> ScoreCount {
        self.as_bounded().map(|bounded| bounded.score_count).unwrap_or_default()
    }

    /// Takes the attention of the prompt's last query from a device: (groups)(entries)
    pub fn set_newest(&mut self, newest: Vec<Vec<f32>>) {
        if let Some(bounded) = self.as_bounded_mut() {
            bounded.newest = newest;
        }
    }
}
