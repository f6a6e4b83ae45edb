//! What is measured: the table of all metrics ([`METRICS`]), and the scores of written texts.
//!
//! A [`MetricSum`] is a sum over a sample and the weight it is a sum over, so that pooling is one division whatever the
//! metric: perplexity pools NLL over tokens and is never a mean of perplexities. Texts are scored against references
//! ([`best_rouge`], [`best_f1`]) and by themselves ([`diversity`]); the scores equal those of the Python packages that
//! published numbers come from.

mod diversity;
mod f1;
mod overlap;
mod rouge;
mod table;

pub use diversity::{Diversity, diversity};
pub use f1::{Letters, best_exact_match, best_f1, exact_match, f1};
pub use rouge::{Rouge, best_rouge, geometric_mean, rouge};
pub use table::{Better, DependsOn, Guess, METRICS, Metric, Pooling, geometric_means};

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

/// F-measure of the words that a written text and its reference share, 0 to 1, the best over references.
pub const ROUGE1: &str = "rouge1";
/// The same of pairs of neighbouring words.
pub const ROUGE2: &str = "rouge2";
/// The same of the longest common subsequence of words.
pub const ROUGEL: &str = "rougeL";
/// Geometric mean of a sample's three ROUGEs. The published score is that of the three means over all samples.
pub const ROUGE_GEO_INSTANCE: &str = "rouge_geo_instance";
/// F1 of the words that an answer and its reference share as SQuAD normalises them, the best over references.
pub const F1: &str = "f1";
/// [`F1`] with letters beyond ASCII folded, as ZeroSCROLLS does it.
pub const F1_IN_ASCII: &str = "f1_ascii";
/// Answers that hold the words they were asked for, in any case of letters.
pub const FOUND: &str = "found";
/// Answers that are one of their references, as SQuAD normalises them.
pub const EXACT_MATCH: &str = "exact_match";

/// What a trivial answer would score: of [`F1`] the commonest answer of the data set, of the others the document's
/// first words, as many as its references have.
pub const F1_TRIVIAL: &str = "f1_trivial";
pub const ROUGE1_TRIVIAL: &str = "rouge1_trivial";
pub const ROUGE2_TRIVIAL: &str = "rouge2_trivial";
pub const ROUGEL_TRIVIAL: &str = "rougeL_trivial";

/// Tokens that were written.
pub const NEW_TOKENS: &str = "new_tokens";
/// Different words among all words of a written text.
pub const DISTINCT_1: &str = "distinct_1";
/// Different pairs of neighbouring words among all such pairs.
pub const DISTINCT_2: &str = "distinct_2";
/// Different runs of three words among all such runs.
pub const DISTINCT_3: &str = "distinct_3";
/// Runs of four words that occurred before in the same written text, among all such runs.
pub const REPETITION_4: &str = "repetition_4";
/// Sum of NLL in nats that the model with an unbounded cache gives to what was written.
pub const NLL_FULL_OF_WRITTEN: &str = "nll_written";

/// Steps at which a token was visible, summed over tokens and layers, and averaged over decision groups.
pub const LIFETIME: &str = "lifetime";
/// Of the entries that a full cache keeps after each step, those that Window of the same size would keep too.
pub const RECENT_SHARE: &str = "recent_share";
/// [`LIFETIME`] of some tokens of one layer, whose output is the step at which each token left.
pub const KEPT_UNTIL: &str = "kept_until";
/// [`LIFETIME`] whose output is a table by the tokens' texts.
pub const LIFETIME_BY_TOKEN: &str = "lifetime_by_token";

/// Seconds to read a prompt into a cache, over its tokens.
pub const PREFILL: &str = "prefill";
/// Seconds from an unread prompt to the first token after it.
pub const FIRST_TOKEN: &str = "first_token";
/// Seconds of decoding one sequence, over its tokens.
pub const DECODE: &str = "decode";
/// Seconds of decoding the largest batch, over the tokens of all its sequences.
pub const DECODE_BATCH: &str = "decode_batch";
/// Sequences that fit the memory the task grants.
pub const BATCH: &str = "batch";
/// Bytes of a sequence's keys and values, counted.
pub const CACHE_BYTES: &str = "cache_bytes";
/// Bytes that the program grew by while the caches of the largest batch were there, over its sequences.
pub const RESIDENT_BYTES: &str = "resident_bytes";

/// One metric of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSum {
    pub metric: &'static str,
    /// The slice of the sample it is about, such as `kind:home`; `None`: all of it.
    pub slice: Option<String>,
    /// The sum over the sample.
    pub value: f64,
    /// What it is a sum over.
    pub weight: f64,
    /// A text that belongs to this number: what the model wrote, or a table of the sample.
    pub output: Option<String>,
}

impl MetricSum {
    /// A sum over a whole sample.
    pub fn new(metric: &'static str, value: f64, weight: f64) -> MetricSum {
        MetricSum { metric, slice: None, value, weight, output: None }
    }
}

/// The words of a text as Python's `str.split()` finds them, which also splits at four separators of ASCII that
/// are not white space to Unicode.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_space = |c: char| c.is_whitespace() || matches!(c, '\x1c'..='\x1f');
    text.split(is_space).filter(|word| !word.is_empty())
}
