//! Negative log-likelihood per token, whether tokens were the most likely, and the divergence from the full cache.
//!
//! The logits over the vocabulary are computed in one pass, some rows at a time, and not kept.

use anyhow::{Result, bail, ensure};
use candle_core::Tensor;

use super::transformer::LanguageModel;
use crate::vector;

/// Scores of some tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// In nats, one per token.
    pub nll: Vec<f32>,
    /// For each token asked for, whether it was the most likely (the lowest id among equals).
    pub hits: Vec<bool>,
    /// With unbounded states: KL(unbounded || bounded) in nats, summed over the tokens.
    pub kl: f64,
    /// With unbounded states: tokens at which both predict the same token.
    pub same_top: u64,
}

impl LanguageModel {
    /// NLL in nats, f32, of `targets[i]` after state i.
    ///
    /// # Errors
    /// Another number of targets than of states, or a target outside the vocabulary.
    pub fn nll(&self, states: &Tensor, targets: &[u32]) -> Result<Vec<f32>> {
        Ok(self.score(states, targets, &[], None)?.nll)
    }

    /// Scores `targets[i]` after state i. `hits_of` are ascending indices of targets to compare with the most
    /// likely token; with `unbounded` states every prediction is compared with theirs.
    ///
    /// # Errors
    /// As `nll`.
    pub fn score(
        &self,
        states: &Tensor,
        targets: &[u32],
        hits_of: &[usize],
        unbounded: Option<&Tensor>,
    ) -> Result<Scores> {
        let (rows, _) = states.dims2()?;
        ensure!(rows == targets.len(), "{} targets for {rows} states", targets.len());
        let vocab = self.shape().vocab;
        if let Some(target) = targets.iter().find(|target| **target as usize >= vocab) {
            bail!("token {target} is outside the vocabulary of {vocab}");
        }
        let score = |first: usize, logits: &[f32]| {
            let end = first + logits.len() / vocab;
            let at = |row: usize| hits_of.partition_point(|target| *target < row);
            let hit = |at: &usize| {
                let row = &logits[(at - first) * vocab..][..vocab];
                vector::argmax(row) == Some(targets[*at] as usize)
            };
            let hits = hits_of[at(first)..at(end)].iter().map(hit).collect();
            let rows = logits.chunks_exact(vocab).zip(&targets[first..]);
            let nll = rows.map(|(row, target)| vector::log_sum_exp(row) - row[*target as usize]);
            Ok(Scores { nll: nll.collect(), hits, ..Scores::default() })
        };
        let blocks = match unbounded {
            None => self.map_logits([states], |first, [logits]| score(first, logits))?,
            Some(unbounded) => self.map_logits([states, unbounded], |first, [bounded, full]| {
                let mut scores = score(first, bounded)?;
                for (p, q) in full.chunks_exact(vocab).zip(bounded.chunks_exact(vocab)) {
                    scores.kl += f64::from(vector::kl_divergence(p, q));
                    scores.same_top += u64::from(vector::argmax(p) == vector::argmax(q));
                }
                Ok(scores)
            })?,
        };
        let mut all = Scores { nll: Vec::with_capacity(rows), ..Scores::default() };
        for block in blocks {
            all.nll.extend(block.nll);
            all.hits.extend(block.hits);
            all.kl += block.kl;
            all.same_top += block.same_top;
        }
        Ok(all)
    }
}
