//! How long a cache holds each token of a text.

use anyhow::Result;

use super::{ScoreSettings, TextModel};
use crate::eviction::{CacheRule, CacheSpec};
use crate::task::Lifetimes;

/// A text as one cache holds it.
pub struct Trace {
    pub lifetimes: Lifetimes,
    /// Negative log-likelihood of every token after the first, in nats; `None` for the first of a piece.
    pub nll: Vec<Option<f32>>,
}

impl TextModel {
    /// Reads tokens under a cache, and notes when each leaves.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    pub fn trace(&self, tokens: &[u32], cache: &CacheSpec, settings: ScoreSettings) -> Result<Trace> {
        let scored = self.score(tokens, cache, ScoreSettings { log: true, ..settings })?;
        let shape = self.model.shape();
        let lifetimes = match cache.rule {
            CacheRule::Truncate { size } => {
                let lead = usize::from(self.begin_with_bos(tokens));
                Lifetimes::of_pieces(shape.cached_layers().len(), tokens.len(), size, lead).in_windows(shape)
            }
            _ => {
                // Where only a window bounds a layer, nothing is logged.
                let groups = shape.decision_groups(cache.rule.sized(), cache.options);
                let mut lifetimes = Lifetimes::new(&groups, tokens.len()).in_windows(shape);
                lifetimes.add(&scored.evictions);
                lifetimes
            }
        };
        Ok(Trace { lifetimes, nll: scored.nll })
    }
}
