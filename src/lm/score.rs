//! Text in; negative log-likelihood per token out, and where it is asked for, whether a token was the most likely.
//!
//! The logits over the vocabulary are looked at in one pass, some rows at a time, and never kept.

use anyhow::{Result, ensure};
use candle_core::Tensor;

use super::transformer::LanguageModel;
use crate::vector;

/// What is known of some tokens and the states before them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// In nats, one per token.
    pub nll: Vec<f32>,
    /// Whether a token was the most likely one (the lowest id among equals), for each that was asked for.
    pub hits: Vec<bool>,
    /// From the unbounded states, if there were some.
    pub divergence: Divergence,
}

/// How a bounded model's predictions differ from the unbounded one's, summed over some tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Divergence {
    /// KL(unbounded || bounded) in nats.
    pub kl: f64,
    /// Tokens where both find the same token most likely.
    pub same_top: u64,
}

impl LanguageModel {
    /// NLL in nats, f32, of `targets[i]` after state i.
    ///
    /// # Errors
    /// As many targets as states are needed, all in the vocabulary.
    pub fn nll(&self, states: &Tensor, targets: &[u32]) -> Result<Vec<f32>> {
        Ok(self.score(states, targets, &[], None)?.nll)
    }

    /// Scores `targets[i]` after state i. `asked` are indices of targets, ascending, that are to be told whether they
    /// were the most likely token; with `unbounded` states every prediction is compared with theirs.
    ///
    /// # Errors
    /// As `nll`.
    pub fn score(
        &self,
        states: &Tensor,
        targets: &[u32],
        asked: &[usize],
        unbounded: Option<&Tensor>,
    ) -> Result<Scores> {
        let (rows, _) = states.dims2()?;
        ensure!(rows == targets.len(), "{} targets for {rows} states", targets.len());
        let vocab = self.shape().vocab;
        let score = |first: usize, logits: &[f32]| {
            let end = first + logits.len() / vocab;
            let asked = &asked[asked.partition_point(|at| *at < first)..asked.partition_point(|at| *at < end)];
            let hit = |at: &usize| {
                let row = &logits[(at - first) * vocab..][..vocab];
                vector::argmax(row) == Some(targets[*at] as usize)
            };
            let hits = asked.iter().map(hit).collect();
            Ok(Scores { nll: self.nll_of(logits, &targets[first..])?, hits, divergence: Divergence::default() })
        };
        let blocks = match unbounded {
            None => self.map_logits([states], |first, [logits]| score(first, logits))?,
            Some(unbounded) => self.map_logits([states, unbounded], |first, [bounded, topline]| {
                let mut scores = score(first, bounded)?;
                for (p, q) in topline.chunks_exact(vocab).zip(bounded.chunks_exact(vocab)) {
                    scores.divergence.kl += f64::from(vector::kl_divergence(p, q));
                    scores.divergence.same_top += u64::from(vector::argmax(p) == vector::argmax(q));
                }
                Ok(scores)
            })?,
        };
        let mut all = Scores { nll: Vec::with_capacity(rows), ..Scores::default() };
        for block in blocks {
            all.nll.extend(block.nll);
            all.hits.extend(block.hits);
            all.divergence.kl += block.divergence.kl;
            all.divergence.same_top += block.divergence.same_top;
        }
        Ok(all)
    }

    /// NLLs of the first targets under some rows of logits.
    fn nll_of(&self, logits: &[f32], targets: &[u32]) -> Result<Vec<f32>> {
        let vocab = self.shape().vocab;
        let rows = logits.chunks_exact(vocab).zip(targets);
        rows.map(|(row, target)| {
            ensure!((*target as usize) < vocab, "token {target} is outside the vocabulary of {vocab}");
            Ok(vector::log_sum_exp(row) - row[*target as usize])
        })
        .collect()
    }
}
