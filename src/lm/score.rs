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
        let vocab = self.shape().vocab;
        let mut nll = Vec::with_capacity(rows);
        self.visit_logits(states, |first, rows, logits| {
            for (row, target) in logits.chunks_exact(vocab).zip(&targets[first..first + rows]) {
                ensure!((*target as usize) < vocab, "token {target} is outside the vocabulary of {vocab}");
                nll.push(vector::log_sum_exp(row) - row[*target as usize]);
            }
            Ok(())
        })?;
        Ok(nll)
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
        let nll = self.nll(states, targets)?;
        let vocab = self.shape().vocab;
        let mut divergence = Divergence::default();
        self.visit_logits(unbounded, |first, rows, topline| {
            let block = states.narrow(0, first, rows)?;
            self.visit_logits(&block, |_, _, bounded| {
                for (p, q) in topline.chunks_exact(vocab).zip(bounded.chunks_exact(vocab)) {
                    divergence.kl += f64::from(vector::kl_divergence(p, q));
                    divergence.same_top += u64::from(argmax(p) == argmax(q));
                }
                Ok(())
            })
        })?;
        Ok((nll, divergence))
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
