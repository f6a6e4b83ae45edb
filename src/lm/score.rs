//! Text in, negative log-likelihood per token out.

use anyhow::{Result, ensure};
use candle_core::Tensor;

use super::transformer::LanguageModel;
use crate::vector;

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
        let (rows, _) = states.dims2()?;
        ensure!(rows == targets.len(), "{} targets for {rows} states", targets.len());
        let nll = self.map_logits([states], |first, [logits]| self.nll_of(logits, &targets[first..]))?;
        Ok(nll.concat())
    }

    /// NLLs as [`nll`](Self::nll) gives them, and how the predictions differ from those of the unbounded states.
    ///
    /// # Errors
    /// As `nll`.
    pub fn nll_and_divergence(
        &self,
        states: &Tensor,
        unbounded: &Tensor,
        targets: &[u32],
    ) -> Result<(Vec<f32>, Divergence)> {
        let vocab = self.shape().vocab;
        let blocks = self.map_logits([states, unbounded], |first, [bounded, topline]| {
            let mut divergence = Divergence::default();
            for (p, q) in topline.chunks_exact(vocab).zip(bounded.chunks_exact(vocab)) {
                divergence.kl += f64::from(vector::kl_divergence(p, q));
                divergence.same_top += u64::from(argmax(p) == argmax(q));
            }
            Ok((self.nll_of(bounded, &targets[first..])?, divergence))
        })?;
        let (mut nll, mut sum) = (Vec::with_capacity(targets.len()), Divergence::default());
        for (block, divergence) in blocks {
            nll.extend(block);
            sum.kl += divergence.kl;
            sum.same_top += divergence.same_top;
        }
        Ok((nll, sum))
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

/// The first largest entry.
fn argmax(row: &[f32]) -> usize {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        if *x > row[best] {
            best = i;
        }
    }
    best
}
