//! How a cache ranks its entries by a score, and evicts those that rank lowest.
//!
//! Scores that never change are drawn or taken from the key when an entry joins, and are stored beside it as its
//! priority. The others are sums over attention, which the scan provides.

use std::borrow::Cow;
use std::ops::Range;

use super::block::{Attention, Vectors, weigh};
use super::custom::{CustomScore, Step};
use super::entries::{Bounded, CacheEntries, HeadGroup, Kind};
use super::formula;
use super::method::Method;
use super::score::{rank, uniform};
use super::settings::Scope;
use crate::vector;

impl CacheEntries {
    /// The priority of an entry under scores that never change; `None` under the others. `norm(kv_head)` is the L2
    /// norm of its key.
    pub(super) fn priority(&self, group: usize, position: u32, norm: impl Fn(usize) -> f64) -> Option<f64> {
        let bounded = self.as_bounded()?;
        match (bounded.policy.score.method(), bounded.policy.scope) {
            (Method::NormPriority, Scope::Head) => Some(-norm(group)),
            (Method::NormPriority, Scope::Layer) => {
                let kv_heads = self.heads.kv_heads;
                Some(-(0..kv_heads).map(norm).sum::<f64>() / kv_heads as f64)
            }
            (Method::RandomPriority, _) => Some(uniform(bounded.salt, group as u64, u64::from(position))),
            _ => None,
        }
    }

    /// The scores of a group's `candidates`. The `mask` has the columns of the group, and is 0 for those that are in the cache. `newest` is
    /// scratch space for one row of attention.
    pub(super) fn scores_of<'a>(
        &'a self,
        group: usize,
        candidates: Range<usize>,
        mask: &[f32],
        (attention, vectors): (&Attention<'_>, &dyn Vectors),
        newest: &'a mut [f32],
    ) -> Scores<'a> {
        let Some(bounded) = self.as_bounded() else { return Scores::Ascending };
        let policy = bounded.policy;
        match policy.score.method() {
            Method::Order => Scores::Ascending,
            Method::NewestAttention => {
                let newest = &mut newest[..mask.len()];
                newest.fill(0.0);
                attention.add_to(newest, policy.scope, group);
                Scores::Numbers(Cow::Borrowed(&newest[candidates]))
            }
            Method::SummedAttention => Scores::Numbers(Cow::Borrowed(&self.received[0].sums[group][candidates])),
            Method::NormPriority | Method::RandomPriority => {
                let priorities = &self.groups[group].priority[candidates];
                Scores::Priorities(priorities.into(), policy.score.same_priority())
            }
            Method::Instructions => {
                let scores = bounded.scorer.iter().flat_map(|scorer| scorer.scores(group, candidates.clone()));
                Scores::Numbers(scores.collect())
            }
            // Without an answer the oldest entry leaves.
            Method::Function(score) => match self.custom_scores(score, group, mask, (attention, vectors)) {
                Some(scores) => Scores::Priorities(scores[candidates].to_vec().into(), 0.0),
                None => Scores::Ascending,
            },
        }
    }

    /// Evicts the `excess` entries of a group: those with the lowest scores among the `candidates`, the oldest of equal ones.
    pub(super) fn evict(
        &self,
        group: usize,
        (candidates, excess): (Range<usize>, usize),
        mask: &mut [f32],
        sources: (&Attention<'_>, &dyn Vectors),
        newest: &mut [f32],
        mut evicted: impl FnMut(usize),
    ) {
        let Some(policy) = self.policy() else { return };
        let scores = self.scores_of(group, candidates.clone(), mask, sources, newest);
        if let (Scores::Numbers(scores), Some(tokens)) = (&scores, policy.score.block()) {
            let living: Vec<usize> = (0..mask.len()).filter(|column| mask[*column] == 0.0).collect();
            let score = |column: usize| f64::from(scores[column - candidates.start]);
            for column in self.blocks(tokens, group, &living, candidates.clone(), excess, score) {
                mask[column] = f32::NEG_INFINITY;
                evicted(column);
            }
            return;
        }
        for _ in 0..excess {
            let living = &mut mask[candidates.clone()];
            let Some(offset) = scores.lowest(living) else { return };
            living[offset] = f32::NEG_INFINITY;
            evicted(candidates.start + offset);
        }
    }

    /// The columns of the blocks of so many `tokens` that leave, lowest score first, the oldest of equal ones, until at least `excess`
    /// of the `living` columns do. A block with protected entries leaves after all others, and without these.
    pub(super) fn blocks(
        &self,
        tokens: usize,
        group: usize,
        living: &[usize],
        candidates: Range<usize>,
        excess: usize,
        score: impl Fn(usize) -> f64,
    ) -> Vec<usize> {
        let block = |column: &usize| self.groups[group].positions[*column] as usize / tokens;
        let blocks = living.chunk_by(|a, b| block(a) == block(b)).filter_map(|all| {
            let free: Vec<usize> = all.iter().copied().filter(|column| candidates.contains(column)).collect();
            Some((free.len() < all.len(), score(*free.first()?), free))
        });
        let mut blocks: Vec<_> = blocks.collect();
        // Stable, so that the oldest of equal ones is the first.
        blocks.sort_by(|a, b| a.0.cmp(&b.0).then(rank(a.1, b.1)));
        let mut left = Vec::new();
        for (_, _, free) in blocks {
            if left.len() >= excess {
                break;
            }
            left.extend(free);
        }
        left
    }

    /// The scores of a function, by column: NaN for columns that are not `living`. `None` if it has none.
    fn custom_scores(
        &self,
        score: CustomScore,
        group: usize,
        living: &[f32],
        (attention, vectors): (&Attention<'_>, &dyn Vectors),
    ) -> Option<Vec<f64>> {
        let policy = self.policy()?;
        let columns: Vec<usize> = (0..living.len()).filter(|column| living[*column] == 0.0).collect();
        let positions: Vec<u32> = columns.iter().map(|column| self.groups[group].positions[*column]).collect();
        let attention = attention.by_head(policy.scope, group, &columns);
        let own = self.function_scores(score, group, (&columns, &positions, &attention), vectors)?;
        let mut scores = vec![f64::NAN; living.len()];
        for (column, value) in columns.iter().zip(own) {
            scores[*column] = value;
        }
        Some(scores)
    }

    /// What a function says of some columns of a group: with their positions, and the attention of the group's heads.
    fn function_scores(
        &self,
        score: CustomScore,
        group: usize,
        (columns, positions, attention): (&[usize], &[u32], &[f32]),
        vectors: &dyn Vectors,
    ) -> Option<Vec<f64>> {
        let bounded = self.as_bounded()?;
        let (policy, inputs, layer) = (bounded.policy, bounded.inputs.as_ref()?, self.layer);
        let heads = self.heads.of_group(policy.scope, group);
        let seen = *positions.last()? as usize + 1;
        let (queries, hidden) = inputs.give(group, seen, heads.clone(), self.heads.heads);
        let token_ids = positions.iter().map(|position| inputs.token_ids[*position as usize]).collect();
        let per_kv = self.heads.per_kv_head();
        let kv_heads = heads.start / per_kv..heads.end / per_kv;
        let state = inputs.state(group);
        score.scores(&Step {
            layer,
            group,
            seen,
            positions,
            token_ids,
            attention,
            queries,
            hidden,
            kv_heads,
            columns,
            vectors,
            state,
        })
    }

    /// Computes the scores of a prompt that has been read from its last rows, if they were kept for that.
    pub fn score_last_rows(&mut self, vectors: &dyn Vectors) {
        let Some(last) = self.as_bounded_mut().and_then(|bounded| bounded.last_rows.take()) else { return };
        let (heads, columns) = (self.heads, self.seen);
        let stride = vector::padded(columns);
        let Kind::Bounded(bounded) = &mut self.kind else { return };
        bounded.scorers().for_each(|scorer| scorer.make_room(stride));
        let mut step = columns - last.rows();
        let mut mask = vec![f32::NEG_INFINITY; stride];
        mask[..step].fill(0.0);
        let mut logits = Vec::new();
        for block in &last.blocks {
            let (rows, end) = (block.rows, step + block.kept);
            logits.resize(heads.heads * rows * stride, 0.0);
            let of_kv_heads = logits.chunks_exact_mut(heads.per_kv_head() * rows * stride);
            for (kv_head, logits) in of_kv_heads.enumerate() {
                vectors.logits(kv_head, &block.of_kv_head(kv_head, heads), end, (logits, stride));
            }
            let mut sums = vec![0.0; heads.heads * rows];
            for row in rows - block.kept..rows {
                mask[step] = 0.0;
                let width = vector::padded(step + 1);
                for (head, sum) in (0..heads.heads).zip(sums[row..].iter_mut().step_by(rows)) {
                    let weights = &mut logits[(head * rows + row) * stride..][..stride];
                    let scorers = bounded.scorers().filter(|scorer| scorer.wants_logits());
                    scorers.for_each(|scorer| scorer.take_logits(head, &weights[..width]));
                    *sum = weigh(weights, &mask[..width], last.sinks.get(head)).1;
                }
                let (sums, widths, ends_read) = (&sums, &[width], step + 1 == columns);
                let attention = Attention { logits: &logits, sums, heads, rows, row, stride, widths, ends_read };
                let mask = &mask[..=step];
                let row = formula::Row { attention: &attention, vectors, step, decides: ends_read };
                let policy = bounded.policy;
                for scorer in bounded.scorers() {
                    for (group, entries) in self.groups.iter().enumerate() {
                        let HeadGroup { positions, .. } = entries;
                        let unprotected = entries.candidates(policy, mask.len());
                        scorer.run(&row, group, &formula::Entries { positions, mask, unprotected });
                    }
                }
                step += 1;
            }
        }
        let columns = vec![columns; self.groups.len()];
        bounded.scorers().for_each(|scorer| scorer.truncate(&columns));
    }

    /// The scores of a group's columns after the last token that was read.
    pub(super) fn scores_at_cut(
        &self,
        bounded: &Bounded,
        group: usize,
        vectors: Option<&dyn Vectors>,
    ) -> Vec<f64> {
        let Bounded { policy, newest, .. } = bounded;
        let HeadGroup { positions, priority } = &self.groups[group];
        let of_f32 = |scores: &[f32]| scores.iter().map(|score| f64::from(*score)).collect();
        match policy.score.method() {
            Method::Order => positions.iter().map(|position| f64::from(*position)).collect(),
            Method::Instructions | Method::NewestAttention => match &bounded.scorer {
                Some(scorer) => scorer.scores(group, 0..positions.len()).map(f64::from).collect(),
                None => of_f32(&newest[group]),
            },
            Method::SummedAttention => of_f32(&self.received[0].sums[group]),
            Method::NormPriority | Method::RandomPriority => priority.clone(),
            Method::Function(score) => {
                let columns: Vec<usize> = (0..positions.len()).collect();
                let of_entries = (&columns[..], &positions[..], &newest[group][..]);
                // Without an answer the oldest entries leave.
                let scores = vectors.and_then(|vectors| self.function_scores(score, group, of_entries, vectors));
                scores.unwrap_or_else(|| positions.iter().map(|position| f64::from(*position)).collect())
            }
        }
    }
}

/// The scores of some columns.
pub(super) enum Scores<'a> {
    /// The oldest has the lowest.
    Ascending,
    Numbers(Cow<'a, [f32]>),
    /// Priorities, and the share of themselves by which they differ at least where they are not equal.
    Priorities(Cow<'a, [f64]>, f64),
}

impl Scores<'_> {
    /// The first column of the lowest score among those whose mask is 0; `None` if there is none.
    pub fn lowest(&self, mask: &[f32]) -> Option<usize> {
        let lowest = match self {
            Scores::Ascending => None,
            Scores::Numbers(scores) => vector::masked_argmin(scores, mask),
            Scores::Priorities(scores, same) => lowest_priority(scores, mask, *same),
        };
        // If every score is NaN, the oldest leaves, and the NaN shows in the results.
        lowest.or_else(|| mask.iter().position(|m| *m == 0.0))
    }

    /// The score of a column whose token has this position.
    pub fn at(&self, column: usize, position: u32) -> f64 {
        match self {
            Scores::Ascending => f64::from(position),
            Scores::Numbers(scores) => f64::from(scores[column]),
            Scores::Priorities(scores, _) => scores[column],
        }
    }

    /// The share of itself by which a score must be lower than another to be no tie.
    pub fn tolerance(&self) -> f64 {
        if let Scores::Priorities(_, same) = self { *same } else { 0.0 }
    }
}

/// Index of the first of the unmasked priorities that are the lowest, or differ from it by no more than the share `same` of themselves.
/// What is not a number counts as the highest.
fn lowest_priority(priority: &[f64], mask: &[f32], same: f64) -> Option<usize> {
    let unmasked = || (0..priority.len()).filter(|i| mask[*i] == 0.0);
    let value = |i: usize| if priority[i].is_nan() { f64::INFINITY } else { priority[i] };
    let least = unmasked().map(value).fold(f64::INFINITY, f64::min);
    unmasked().find(|i| value(*i) <= least || value(*i) - same * value(*i).abs() <= least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::score::SAME_NORM;

    #[test]
    fn nearly_equal_norms_are_ties() {
        let unmasked = [0.0; 3];
        assert_eq!(lowest_priority(&[-1.0, -(1.0 + 1e-8), -0.5], &unmasked, SAME_NORM), Some(0));
        assert_eq!(lowest_priority(&[-1.0, -(1.0 + 5e-8), -0.5], &unmasked, SAME_NORM), Some(1));
        assert_eq!(lowest_priority(&[-1.0, -(1.0 + 1e-8), -0.5], &unmasked, 0.0), Some(1));
        assert_eq!(lowest_priority(&[-2.0, -1.0, -1.0], &[f32::NEG_INFINITY, 0.0, 0.0], SAME_NORM), Some(1));
    }
}
