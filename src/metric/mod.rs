//! How good an answer is: marks, pure numbers.
//!
//! A mark is a sum over a sample and the weight it is a sum over, so that pooling is one division whatever the
//! metric: perplexity pools NLL over tokens and is never a mean of perplexities.

/// Sum of NLL in nats over scored tokens; perplexity is e to its mean.
pub const NLL: &str = "nll";
/// The same sum over the words those tokens spell; word-level perplexity is e to its mean.
pub const NLL_WORD: &str = "nll_word";
/// KL divergence in nats of the bounded cache's prediction from the unbounded one's.
pub const KL_TO_FULL: &str = "kl_to_full";
/// Tokens where both caches find the same next token most likely.
pub const TOP1_AGREEMENT: &str = "top1_agreement";
/// Attention mass, mean over layers and heads, that evicted entries would have received.
pub const EVICTED_MASS: &str = "evicted_mass";

/// Recalls whose every token was the most likely one, given the true text before it.
pub const RECALL: &str = "recall";
/// How many of the same recalls a guess among the values named so far would find.
pub const RECALL_CHANCE: &str = "recall_chance";

/// One metric of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub metric: &'static str,
    /// Which part of the sample it is about, such as `kind:home`; `None`: all of it.
    pub group: Option<String>,
    /// The sum over the sample.
    pub value: f64,
    /// What it is a sum over.
    pub weight: f64,
}

impl Mark {
    /// A mark of a whole sample.
    pub fn new(metric: &'static str, value: f64, weight: f64) -> Mark {
        Mark { metric, group: None, value, weight }
    }
}
