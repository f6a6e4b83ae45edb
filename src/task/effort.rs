//! What measuring takes, in tokens: read with others, read alone, scored, written.
//!
//! Arithmetic over lengths, known before a model is loaded. What a token costs is the business of `run`.

use std::ops::Range;

use super::answers::Marking;
use super::asking::Samples;
use super::reading::Reading;
use super::requests::Requests;
use crate::eviction::CacheRule;

/// Tokens that the samples of one job take under one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effort {
    /// Tokens of the unbounded reading that the rule goes on from; rules of a job share it.
    pub shared: usize,
    /// Tokens this rule reads for itself.
    pub read: usize,
    /// Entries that a token of `read` attends to, in the mean.
    pub attended: f64,
    /// Tokens whose chances are computed from a state that was read.
    pub scored: usize,
    /// Tokens written one after the other, at most, and the texts side by side.
    pub steps: usize,
    pub side_by_side: usize,
    /// Tokens read once more with the unbounded cache, to say what it makes of a written text.
    pub read_again: usize,
}

impl Samples {
    /// What a rule takes for the samples `wanted` of a job; of a timing, one repeat without its batch.
    pub fn effort(&self, job: Range<usize>, wanted: &[usize], reading: &Reading) -> Effort {
        match self {
            Samples::Texts(texts) => {
                let tokens = texts[job.start].tokens.len();
                Effort { scored: texts[job.start].scored.len(), ..of_text(tokens, reading) }
            }
            Samples::Kept(texts, _) => {
                let tokens = texts.samples[job.start].sample.tokens.len();
                // From the first token on, while the cache fills.
                let size = reading.sized().map_or(tokens, |policy| policy.size().min(tokens)) as f64;
                let attended = size * (1.0 - size / 2.0 / tokens.max(1) as f64);
                Effort { read: tokens, attended, ..Effort::default() }
            }
            Samples::Requests(requests, marking) => of_requests(requests, *marking, job, wanted, reading),
            Samples::Repeats(timing, _) => {
                Effort { read: timing.prompt, steps: timing.decoded(), side_by_side: 1, ..Effort::default() }
            }
        }
    }
}

fn of_text(tokens: usize, reading: &Reading) -> Effort {
    let shared = reading.needs(tokens);
    let read = match reading.rule {
        CacheRule::Unbounded => 0,
        CacheRule::Truncate { size } | CacheRule::Evict { size, .. } if size >= tokens => 0,
        CacheRule::Truncate { .. } => tokens,
        CacheRule::Evict { .. } => tokens - reading.start(tokens),
    };
    Effort { shared, read, attended: attended(reading, tokens), ..Effort::default() }
}

fn of_requests(
    requests: &Requests,
    marking: Marking,
    sitting: Range<usize>,
    wanted: &[usize],
    reading: &Reading,
) -> Effort {
    let common = requests.common(sitting);
    let start = reading.start(common);
    let shared = match reading.rule {
        CacheRule::Unbounded => common,
        CacheRule::Truncate { .. } => 0,
        CacheRule::Evict { .. } => start,
    };
    let lengths = wanted.iter().map(|index| requests.asked[*index].tokens.len());
    let longest = lengths.clone().max().unwrap_or(0);
    let all: usize = lengths.clone().sum();
    let steps = requests.writing.max_new_tokens;
    let read = match reading.rule {
        CacheRule::Truncate { size } => lengths.map(|length| length.min(size)).sum(),
        CacheRule::Unbounded => all - common * wanted.len(),
        CacheRule::Evict { .. } => common - start + all - common * wanted.len(),
    };
    Effort {
        shared,
        read,
        attended: attended(reading, longest),
        scored: 0,
        steps,
        side_by_side: wanted.len(),
        read_again: if marking == Marking::Text { all + steps * wanted.len() } else { 0 },
    }
}

/// Entries a token attends to, in the mean over a text of `tokens`.
fn attended(reading: &Reading, tokens: usize) -> f64 {
    let tokens = tokens as f64;
    match reading.rule {
        CacheRule::Unbounded => tokens / 2.0,
        CacheRule::Truncate { size } => (size as f64).min(tokens) / 2.0,
        CacheRule::Evict { size, .. } if size as f64 >= tokens => tokens / 2.0,
        CacheRule::Evict { size, .. } => size as f64,
    }
}
