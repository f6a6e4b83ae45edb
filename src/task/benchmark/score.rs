//! How answers and choices are scored.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::definition::Definition;
use super::metric;
use super::output::OutputType;
use crate::metric::{Metric, MetricSum, Slice};
use crate::task::request::{Likelihood, Request, Scorer, by_slice};

/// Scores each request as the file does that it is of.
pub struct ByFile(pub Vec<Arc<Definition>>);

impl Scorer for ByFile {
    fn score(&self, text: &str, request: &Request) -> Result<Vec<MetricSum>> {
        // Without a target there is nothing to compare with.
        if request.references.is_empty() { Ok(Vec::new()) } else { score(&self.0[request.part], text, request) }
    }

    fn choose(&self, likelihoods: &[Likelihood], request: &Request) -> Vec<MetricSum> {
        choose(&self.0[request.part], likelihoods, request)
    }

    fn is_long(&self) -> bool {
        self.0.iter().any(|definition| definition.cache.long_answers)
    }
}

/// The metrics of a written answer: of what the first filter leaves, and of each filter as a slice where there are several.
fn score(definition: &Definition, text: &str, request: &Request) -> Result<Vec<MetricSum>> {
    let mut sums = Vec::new();
    for (at, chain) in definition.filters.iter().enumerate() {
        let of_filter = || format!("the filter {}", chain.name);
        let answer = chain.apply(text).with_context(of_filter)?;
        for metric in &definition.metrics {
            for (id, value) in metric::of_answer(metric, &answer, request).with_context(of_filter)? {
                if at == 0 {
                    sums.extend(by_slice(request, id, value));
                }
                if definition.filters.len() > 1 {
                    sums.push(
                        MetricSum::new(id, value, 1.0).of_slice(Some(Slice::named("filter", chain.name.as_str()))),
                    );
                }
            }
        }
    }
    if definition.cache.trivial.is_some() {
        for metric in &definition.metrics {
            let trivial = metric::of_answer(metric, &request.trivial, request)?;
            let guessed =
                trivial.into_iter().filter_map(|(id, value)| Some((Metric::known(id)?.guess?.metric, value)));
            sums.extend(guessed.flat_map(|(id, value)| by_slice(request, id, value)));
        }
    }
    Ok(sums)
}

/// The metrics of likelihoods. The first carries the likeliest choice.
fn choose(definition: &Definition, likelihoods: &[Likelihood], request: &Request) -> Vec<MetricSum> {
    let mut sums = Vec::new();
    for metric in &definition.metrics {
        let scored = match definition.output {
            OutputType::Loglikelihood => metric::of_target(metric, likelihoods),
            _ => metric::of_choices(metric, likelihoods, &request.classes, &request.right),
        };
        if let Some((id, value, weight)) = scored {
            sums.extend(by_slice(request, id, value).map(|sum| MetricSum { weight, ..sum }));
        }
    }
    let likeliest = metric::likeliest(likelihoods).and_then(|at| request.classes.get(at).cloned());
    if let Some(first) = sums.first_mut() {
        first.output = likeliest;
    }
    // Of the right choice; those of all go with it.
    let right = request.right.first().and_then(|at| likelihoods.get(*at));
    let all: Vec<f64> = likelihoods.iter().map(|likelihood| likelihood.log).collect();
    let output = serde_json::to_string(&all).ok();
    sums.extend(right.map(|right| MetricSum { output, ..MetricSum::new("loglikelihood", right.log, 1.0) }));
    sums
}
