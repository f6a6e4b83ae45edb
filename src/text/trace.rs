//! How long a cache holds each token of a text.

use anyhow::Result;

use super::{ScoreSettings, TextModel};
use crate::lm::MemoryPlan;
use crate::task::Lifetimes;

/// A text as one cache holds it.
pub struct Trace {
    pub lifetimes: Lifetimes,
    /// As of [`Scored`](super::Scored).
    pub nll: Vec<Option<f32>>,
}

impl TextModel {
    /// Reads tokens under a plan, and notes when each leaves.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    pub fn trace(&self, tokens: &[u32], plan: &MemoryPlan<'_>, settings: ScoreSettings) -> Result<Trace> {
        let scored = self.score(tokens, &MemoryPlan { log: true, ..*plan }, settings)?;
        let shape = self.model.shape();
        let windows = shape.attention.iter().map(|layer| layer.window);
        let lifetimes = match settings.truncated {
            Some(size) => {
                let lead = usize::from(self.begin_with_bos(tokens));
                Lifetimes::of_pieces(shape.cached_layers().len(), tokens.len(), size, lead).in_windows(windows)
            }
            None => {
                // Where only a window bounds a layer, nothing is logged.
                let groups = shape.decision_groups(plan.policy, plan.local_layers);
                let mut lifetimes = Lifetimes::new(&groups, tokens.len()).in_windows(windows);
                lifetimes.add(&scored.evictions);
                lifetimes
            }
        };
        Ok(Trace { lifetimes, nll: scored.nll })
    }
}
