//! How generated texts are scored.

use std::sync::Arc;

use super::prompts::Request;
use crate::metric::MetricSum;

/// Metrics and their values for one text.
pub type Values = Vec<(&'static str, f64)>;

/// The metrics of a written answer.
pub type OfAnswer = dyn Fn(&str, &Request) -> Vec<MetricSum> + Send + Sync;
/// The metrics of continuations, from how likely each is.
pub type OfLikelihoods = dyn Fn(&[Likelihood], &Request) -> Vec<MetricSum> + Send + Sync;

/// What a task measures of answers.
#[derive(Clone)]
pub struct Scorer {
    /// The metrics of a text, given its request: whole and by slice.
    pub score: Arc<OfAnswer>,
    /// The metrics of a request whose continuations are compared by their likelihood.
    pub choose: Arc<OfLikelihoods>,
    /// Whether texts are compared with references; requests without any then get no metric.
    pub needs_references: bool,
    /// Whether the model with the full cache reads the text again, for the metric `nll_written`.
    pub rescore: bool,
    /// Whether long texts are the point: the metric `cut_off` says that one reached its limit of tokens without an end, and
    /// `held_bytes` what the cache held meanwhile.
    pub is_long: bool,
}

/// How likely a continuation is after its prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// Its logarithm, in nats.
    pub log: f64,
    /// Whether each of its tokens was the likeliest.
    pub is_greedy: bool,
}

impl Scorer {
    /// Texts that are compared with references, and nothing else.
    pub fn new(score: impl Fn(&str, &Request) -> Values + Send + Sync + 'static) -> Scorer {
        let by_slice = move |text: &str, request: &Request| {
            let values = score(text, request).into_iter();
            values.flat_map(|(metric, value)| by_slice(request, metric, value)).collect()
        };
        Scorer {
            score: Arc::new(by_slice),
            choose: Arc::new(|_, _| Vec::new()),
            needs_references: true,
            rescore: false,
            is_long: false,
        }
    }
}

/// A metric of an answer as a whole, and for each slice it counts for.
pub fn by_slice(request: &Request, metric: &'static str, value: f64) -> impl Iterator<Item = MetricSum> {
    let slices = std::iter::once(None).chain(request.slices.iter().cloned().map(Some));
    slices.map(move |slice| MetricSum::new(metric, value, 1.0).of_slice(slice))
}
