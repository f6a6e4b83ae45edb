//! Requests as the samples of a task: their names, what they cost, and how they are measured.

use std::ops::{ControlFlow, Range};

use anyhow::Result;

use super::measure::Generation;
use super::prompts::{EncodedPrompt, EncodedPrompts};
use crate::eviction::CacheRule;
use crate::lm::{GenerationSettings, LanguageModel};
use crate::metric::MetricSum;
use crate::task::cache::{CacheConfig, FullCachePrefix, options_of_prefix};
use crate::task::canonical::json;
use crate::task::memory::SampleLengths;
use crate::task::prepared::{Batch, PreparedTask, Report, Samples, TokenCost};
use crate::task::request::{Request, Scorer, Unmeasurable};
use crate::task::spec::{PrepareContext, TaskSpec};

/// Makes samples of requests; those about one document must follow each other. `digest` is that of the requests.
pub fn prepare(
    spec: &TaskSpec,
    context: &PrepareContext<'_>,
    requests: Vec<Request>,
    digest: String,
    scorer: Box<dyn Scorer>,
) -> Result<PreparedTask> {
    let prompts = EncodedPrompts::new(requests, context.files, spec.generation()?, scorer)?;
    // Another template means other prompts.
    let digest = match &prompts.template {
        Some(template) => format!("{digest} chat_template:{template}"),
        None => digest,
    };
    Ok(PreparedTask { bos: prompts.bos.is_some(), samples: Box::new(prompts), digest })
}

impl Samples for EncodedPrompts {
    fn len(&self) -> usize {
        self.prompts.len()
    }

    fn name(&self, sample: usize) -> (&str, &str) {
        let request = &self.prompts[sample].request;
        (&request.name, &request.cluster)
    }

    fn content(&self, sample: usize) -> Option<String> {
        let EncodedPrompt { request, tokens, document, continuations, max_new_tokens, .. } = &self.prompts[sample];
        // What ends a text comes from the model's files.
        let GenerationSettings { stop_tokens, stop_strings, .. } = &self.writing;
        let ends = (*max_new_tokens > 0).then(|| (stop_tokens, stop_strings, self.tokenizer.tidies()));
        let settings = (request.length, request.seed, request.max_new_tokens, &request.likelihood_after);
        Some(json(&(request, settings, tokens, document, continuations, ends)))
    }

    fn rescored(&self, sample: usize, text: &str) -> Result<Vec<MetricSum>> {
        if !self.prompts[sample].continuations.is_empty() {
            return Ok(Vec::new());
        }
        self.scorer.score(text, &self.prompts[sample].request)
    }

    fn tokens(&self, sample: usize) -> usize {
        let prompt = &self.prompts[sample];
        prompt.tokens.len() + prompt.max_new_tokens + prompt.continued()
    }

    /// The tokens of a prompt that no other of its batch shares, its part of the shared ones, and the tokens that may be
    /// written.
    fn work(&self, sample: usize) -> usize {
        let batch = self.batches.partition_point(|batch| batch.end <= sample);
        let batch = self.batches[batch].clone();
        let common = self.common(batch.clone());
        common / batch.len() + self.tokens(sample) - common
    }

    fn batches(&self) -> Vec<Range<usize>> {
        self.batches.clone()
    }

    fn request(&self, sample: usize) -> Option<&Request> {
        Some(&self.prompts[sample].request)
    }

    fn lengths(&self, sample: usize, config: &CacheConfig) -> SampleLengths {
        let prompt = &self.prompts[sample];
        prompt.lengths(config.query_aware, prompt.tokens.len(), prompt.follow())
    }

    fn unmeasurable(&self, sample: usize) -> Option<&Unmeasurable> {
        self.prompts[sample].request.unmeasurable.as_ref()
    }

    fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }

    fn full_cache_tokens(&self, _: &[CacheConfig]) -> usize {
        (self as &dyn Samples).longest()
    }

    fn read_prefix(
        &self,
        model: &LanguageModel,
        batch: Range<usize>,
        configs: &[CacheConfig],
    ) -> Result<Option<FullCachePrefix>> {
        let common = self.common(batch.clone());
        // Cells of one model and text may differ in where they are cut.
        let end = |config: &CacheConfig| self.common_of(batch.clone(), config.cuts_before_question());
        let mut cuts: Vec<usize> = configs.iter().filter(|config| config.cuts()).map(end).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let of_config = |config: &CacheConfig| config.needs_to_go_on(end(config));
        let read = configs.iter().map(of_config).max().unwrap_or(0);
        let Some(prompt) = self.prompts.get(batch.start) else { return Ok(None) };
        let configs = (configs, options_of_prefix(configs));
        FullCachePrefix::read_to(model, &prompt.tokens[..common], configs, (read, cuts), prompt.request.length)
    }

    fn measure(&self, batch: &Batch<'_>, report: Report<'_>) -> ControlFlow<()> {
        let Batch { model, prefix, config, .. } = batch;
        Generation { model, prompts: self, config, prefix: *prefix }.measure(batch, report)
    }

    fn cost(&self, batch: Range<usize>, config: &CacheConfig) -> TokenCost {
        let common = self.common_of(batch.clone(), config.cuts_before_question());
        let prompts = &self.prompts[batch];
        // What all prompts begin with is read once, then the rest of each.
        let first = Some(config.start(common)..common).filter(|part| config.sized().is_some() && !part.is_empty());
        let rest = prompts.iter().map(|prompt| match config.cache.rule {
            CacheRule::Truncate { size } => 0..prompt.tokens.len().min(size),
            _ => common..prompt.tokens.len() + prompt.continued(),
        });
        let written = prompts.iter().map(|prompt| prompt.max_new_tokens).sum();
        let read: usize = prompts.iter().map(|prompt| prompt.tokens.len()).sum();
        TokenCost {
            // Each prompt is read whole.
            cut: None,
            shared: config.needs_to_go_on(common),
            parts: first.into_iter().chain(rest).collect(),
            scored: prompts.iter().map(EncodedPrompt::continued).sum(),
            written,
            read_again: if self.scorer.reads_again() { read + written } else { 0 },
        }
    }
}
