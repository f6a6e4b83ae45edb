//! How generated texts are scored.

use super::prompts::Request;
use crate::metric::MetricSum;

/// What a task measures of answers.
pub trait Scorer: Send + Sync {
    /// The metrics of a text, given its request: whole and by slice.
    fn score(&self, _text: &str, _request: &Request) -> Vec<MetricSum> {
        Vec::new()
    }

    /// The metrics of a request whose continuations are compared, from how likely each is.
    fn choose(&self, _likelihoods: &[Likelihood], _request: &Request) -> Vec<MetricSum> {
        Vec::new()
    }

    /// Whether the model with the full cache reads the text again, for the metric `nll_written`.
    fn reads_again(&self) -> bool {
        false
    }

    /// Whether long texts are the point: the metric `cut_off` says that one reached its limit of tokens without an end, and
    /// `held_bytes` what the cache held meanwhile.
    fn is_long(&self) -> bool {
        false
    }
}

/// How likely a continuation is after its prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// Its logarithm, in nats.
    pub log: f64,
    /// Whether each of its tokens was the likeliest.
    pub is_greedy: bool,
}

/// A metric of an answer as a whole, and for each slice it counts for.
pub fn by_slice(request: &Request, metric: &'static str, value: f64) -> impl Iterator<Item = MetricSum> {
    let slices = std::iter::once(None).chain(request.slices.iter().cloned().map(Some));
    slices.map(move |slice| MetricSum::new(metric, value, 1.0).of_slice(slice))
}
