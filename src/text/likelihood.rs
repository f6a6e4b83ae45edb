//! The likelihood of texts that follow a prompt.

use anyhow::{Result, ensure};

use super::TextModel;
use crate::lm::{MemoryPlan, Tensor};

/// How likely a continuation is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// Its logarithm, in nats.
    pub log: f64,
    /// Whether each of its tokens was the likeliest.
    pub is_greedy: bool,
}

impl TextModel {
    /// Reads a prompt once, and each continuation after it from a copy of the cache. With `truncated` only so many last tokens of
    /// the prompt are read.
    ///
    /// # Errors
    /// An empty prompt or continuation, a token outside the vocabulary, or an interruption.
    pub fn likelihoods(
        &self,
        prompt: &[u32],
        continuations: &[Vec<u32>],
        plan: &MemoryPlan<'_>,
        truncated: Option<usize>,
        chunk: usize,
    ) -> Result<Vec<Likelihood>> {
        let prompt = &prompt[prompt.len().saturating_sub(truncated.unwrap_or(prompt.len()))..];
        ensure!(!prompt.is_empty(), "there is no token before the continuations");
        ensure!(continuations.iter().all(|tokens| !tokens.is_empty()), "a continuation has no tokens");
        let longest = continuations.iter().map(Vec::len).max().unwrap_or(0);
        let length = prompt.len() + longest;
        let mut memory = self.model.new_memory(&MemoryPlan { expect: length, text: length, ..*plan });
        let mut state = None;
        for part in prompt.chunks(chunk.max(1)) {
            state = Some(self.model.read(part, &mut memory)?.narrow(0, part.len() - 1, 1)?);
        }
        let state = state.expect("the prompt has a token");
        let likelihood = |tokens: &Vec<u32>| -> Result<Likelihood> {
            let mut states = state.clone();
            if tokens.len() > 1 {
                let read = self.model.read(&tokens[..tokens.len() - 1], &mut memory.clone())?;
                states = Tensor::cat(&[&states, &read], 0)?;
            }
            let all: Vec<usize> = (0..tokens.len()).collect();
            let scores = self.model.score(&states, tokens, &all, None)?;
            let log = -scores.nll.into_iter().map(f64::from).sum::<f64>();
            Ok(Likelihood { log, is_greedy: scores.hits.into_iter().all(|hit| hit) })
        };
        continuations.iter().map(likelihood).collect()
    }
}
