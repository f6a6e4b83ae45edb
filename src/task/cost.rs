//! What measuring takes, in tokens. Known from lengths alone, before a model is loaded; `run` turns it into seconds.

use super::cache::CacheConfig;
use crate::eviction::CacheRule;

/// Tokens that the samples of one batch take under one cache configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenCost {
    /// Tokens of the full-cache prefix; the configurations of a batch share it.
    pub shared: usize,
    /// Tokens read for this configuration alone.
    pub read: usize,
    /// Entries that a token of `read` attends to, on average.
    pub attended: f64,
    /// Tokens whose probabilities are computed from states that were read.
    pub scored: usize,
    /// Tokens generated one after the other, at most.
    pub steps: usize,
    /// Texts generated side by side.
    pub side_by_side: usize,
    /// Tokens read once more with the full cache, to score a generated text.
    pub read_again: usize,
}

/// Entries that a token attends to, on average over a text of `tokens`.
pub(super) fn attended(config: &CacheConfig, tokens: usize) -> f64 {
    let tokens = tokens as f64;
    match config.rule {
        CacheRule::Unbounded => tokens / 2.0,
        CacheRule::Truncate { size } => (size as f64).min(tokens) / 2.0,
        CacheRule::Evict { size, .. } if size as f64 >= tokens => tokens / 2.0,
        CacheRule::Evict { size, .. } => size as f64,
    }
}
