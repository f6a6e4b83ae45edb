//! Generates texts under one cache configuration, and measures them.
//!
//! The prompts of a batch share their beginning. It is read once for each configuration, and the cache is then copied
//! for every prompt. The texts are generated side by side.

use std::ops::Range;
use std::time::Instant;

use anyhow::Result;

use super::prompts::{EncodedPrompt, EncodedPrompts, Request};
use super::scorer::Scorer;
use super::settings::Prefill;
use crate::eviction::CacheRule;
use crate::lm::{BLOCK, Generated, LanguageModel, Memory, MemoryPlan, PrefilledPrompt, clone_error};
use crate::metric::MetricSum;
use crate::task::cache::{CacheConfig, FullCachePrefix};
use crate::task::prepared::{Batch, Measured, PreparedTask, SampleResult, Samples, TokenCost};
use crate::task::spec::{PrepareContext, TaskSpec};

/// Makes samples of requests; those about one document must follow each other. `digest` is that of the requests.
pub fn prepare(
    spec: &TaskSpec,
    context: &PrepareContext<'_>,
    requests: Vec<Request>,
    digest: String,
    scorer: Scorer,
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
        let EncodedPrompt { request, tokens, document, .. } = &self.prompts[sample];
        // The trivial answer may follow from all requests together, and is scored anew. How prompts are cut and framed shows in
        // their tokens.
        let Request { name, cluster, prompt, references, slices, length, seed, max_new_tokens, .. } = request;
        let own = max_new_tokens.map_or(String::new(), |most| format!(" max_new_tokens={most}"));
        Some(format!(
            "Request {{ name: {name:?}, cluster: {cluster:?}, prompt: {prompt:?}, references: {references:?}, \
             trivial: \"\", slices: {slices:?}, length: {length}, seed: {seed} }} {tokens:?} {document}{own}"
        ))
    }

    fn rescored(&self, sample: usize, text: &str) -> Vec<MetricSum> {
        self.scores(&self.prompts[sample].request, text)
    }

    fn tokens(&self, sample: usize) -> usize {
        self.prompts[sample].tokens.len() + self.prompts[sample].max_new_tokens
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
        let needed = configs.iter().map(|config| config.needs_to_go_on(common)).max().unwrap_or(0);
        let Some(prompt) = self.prompts.get(batch.start) else { return Ok(None) };
        FullCachePrefix::read_to(model, &prompt.tokens[..common], configs, (needed, prompt.request.length))
    }

    fn measure(&self, model: &LanguageModel, batch: &Batch<'_>, prefix: Option<&FullCachePrefix>) -> Measured {
        Generation { model, prompts: self, config: &batch.config, prefix }.measure(batch)
    }

    fn cost(&self, batch: &Batch<'_>) -> TokenCost {
        let config = &batch.config;
        let common = self.common(batch.all.clone());
        let count = batch.samples.len();
        let lengths = batch.samples.iter().map(|sample| self.prompts[*sample].tokens.len());
        let all: usize = lengths.clone().sum();
        let steps = batch.samples.iter().map(|sample| self.prompts[*sample].max_new_tokens).max().unwrap_or(0);
        let mean = all / count.max(1);
        // What all prompts begin with is read once, then the rest of each.
        let (parts, entries): (Vec<Range<usize>>, f64) = match config.rule {
            CacheRule::Truncate { size } => {
                (lengths.map(|length| 0..length.min(size)).collect(), mean.min(size) as f64)
            }
            CacheRule::Unbounded => (lengths.map(|length| common..length).collect(), mean as f64),
            CacheRule::Evict { .. } => {
                let first = std::iter::once(config.start(common)..common).filter(|part| !part.is_empty());
                let rest = lengths.map(|length| common..length);
                let held = |policy| config.mean(policy, |size| mean.min(size) as f64);
                (first.chain(rest).collect(), config.sized().map_or(mean as f64, held))
            }
        };
        let read: usize = parts.iter().map(ExactSizeIterator::len).sum();
        let attended = parts.iter().map(|part| config.attended(part.clone()) * part.len() as f64).sum::<f64>();
        let grows = config.sized().is_none();
        TokenCost {
            shared: config.needs_to_go_on(common),
            reads: parts.len(),
            read,
            attended: attended / read.max(1) as f64,
            steps,
            side_by_side: count,
            entries: entries + if grows { steps as f64 / 2.0 } else { 0.0 },
            read_again: if self.scorer.rescore { all + steps * count } else { 0 },
            ..TokenCost::default()
        }
    }
}

impl EncodedPrompts {
    /// The scores of a text, whole and by slice.
    fn scores(&self, request: &Request, text: &str) -> Vec<MetricSum> {
        let mut sums = Vec::new();
        if self.scorer.needs_references && request.references.is_empty() {
            return sums;
        }
        for (metric, value) in (self.scorer.score)(text, request) {
            let slices = std::iter::once(None).chain(request.slices.iter().cloned().map(Some));
            sums.extend(slices.map(|slice| MetricSum::new(metric, value, 1.0).of_slice(slice)));
        }
        sums
    }
}

/// What generating under one cache configuration needs.
struct Generation<'a> {
    model: &'a LanguageModel,
    prompts: &'a EncodedPrompts,
    config: &'a CacheConfig,
    prefix: Option<&'a FullCachePrefix>,
}

impl Generation<'_> {
    fn measure(&self, batch: &Batch<'_>) -> Measured {
        let started = Instant::now();
        let mut results = Vec::new();
        let (mut ready, mut starts) = (Vec::new(), Vec::new());
        let (memory, common) = match self.common_cache(batch.all.clone()) {
            Ok(common) => common,
            Err(error) => return batch.samples.iter().map(|sample| (*sample, Err(clone_error(&error)))).collect(),
        };
        for &index in batch.samples {
            match self.read_prompt(&self.prompts.prompts[index], memory.as_ref(), common) {
                Ok((start, peak)) => {
                    ready.push((index, peak, start.prompt.clone()));
                    starts.push(start);
                }
                Err(error) => results.push((index, Err(error))),
            }
        }
        if ready.is_empty() {
            return results;
        }
        let decode = |tokens: &[u32]| self.prompts.tokenizer.decode(tokens);
        let written = match self.model.generate(starts, &self.prompts.writing, &decode) {
            Ok(written) => written,
            Err(error) => {
                results.extend(ready.iter().map(|(index, ..)| (*index, Err(clone_error(&error)))));
                return results;
            }
        };
        let seconds = (started.elapsed().as_secs_f64() + self.prefix_seconds()) / ready.len() as f64;
        for ((index, peak, prompt), written) in ready.into_iter().zip(written) {
            // A cache that never evicts has all tokens; how much it has allocated depends on the other prompts.
            let peak_cache_bytes = match self.config.rule {
                CacheRule::Evict { .. } => peak.max(written.cache_bytes),
                _ => self.model.shape().cache_bytes(prompt.len() + written.tokens.len()),
            };
            let result =
                self.score(&self.prompts.prompts[index].request, &prompt, &written).map(|sums| SampleResult {
                    sums,
                    seconds,
                    peak_cache_bytes,
                    prompt_tokens: prompt.len(),
                    new_tokens: written.tokens.len(),
                    side_files: Vec::new(),
                });
            results.push((index, result));
        }
        results
    }

    /// The time of the shared prefix counts for the full cache only, which the prefix belongs to.
    fn prefix_seconds(&self) -> f64 {
        let own = self.config.rule == CacheRule::Unbounded;
        self.prefix.filter(|_| own).map_or(0.0, |prefix| prefix.seconds)
    }

    /// A cache that has read what all prompts of a batch begin with, and the number of these tokens. There is none if
    /// nothing is shared.
    fn common_cache(&self, batch: Range<usize>) -> Result<(Option<Memory>, usize)> {
        let Generation { model, config, .. } = *self;
        let common = self.prompts.common(batch.clone());
        let all = &self.prompts.prompts[batch];
        let expect = all.iter().map(|prompt| prompt.tokens.len() + prompt.max_new_tokens).max().unwrap_or(0);
        // The same for every prompt of a task, so that no text depends on the others of its batch.
        let text = all.iter().map(|prompt| prompt.request.length).max().unwrap_or(0);
        let (mut memory, start) = match (config.rule, config.sized()) {
            // Each of its prompts is cut by itself.
            (CacheRule::Truncate { .. }, _) => return Ok((None, 0)),
            (_, Some(policy)) => config.bounded_memory(model, policy, self.prefix, common, text, None)?,
            _ if common > 0 => {
                return Ok((Some(FullCachePrefix::of(self.prefix, common)?.memory.clone()), common));
            }
            _ => (model.new_memory(&MemoryPlan { expect, text, ..MemoryPlan::unbounded() }), 0),
        };
        // A cache that is cut before the question is cut at the end of the shortest document at the latest.
        let shortest = all.iter().map(|prompt| prompt.document).min().unwrap_or(0);
        let common = if self.cuts_at_document() { common.min(shortest) / BLOCK * BLOCK } else { common };
        if common > start {
            model.read(&all[0].tokens[start..common], &mut memory)?;
        }
        Ok((Some(memory), common))
    }

    /// Whether a prompt that is read whole is cut at its document's end.
    fn cuts_at_document(&self) -> bool {
        self.cuts_prompt() && !self.config.query_aware
    }

    fn cuts_prompt(&self) -> bool {
        self.config.prefill == Prefill::OneShot && self.config.sized().is_some()
    }

    /// Reads the rest of a prompt. Also returns the largest size of the cache so far, in bytes.
    fn read_prompt(
        &self,
        prompt: &EncodedPrompt,
        common: Option<&Memory>,
        mut read: usize,
    ) -> Result<(PrefilledPrompt, u64)> {
        let Generation { model, config, .. } = *self;
        let seed = config.seed.wrapping_add(prompt.request.seed);
        let tokens = match config.rule {
            CacheRule::Truncate { size } => self.prompts.truncated(prompt, size)?,
            _ => prompt.tokens.clone(),
        };
        let mut memory = match common {
            Some(memory) => memory.clone(),
            None => {
                let expect = tokens.len() + prompt.max_new_tokens;
                let text =
                    if let CacheRule::Truncate { size } = config.rule { size } else { prompt.request.length };
                model.new_memory(&MemoryPlan { expect, text, ..MemoryPlan::unbounded() })
            }
        };
        let mut peak = 0;
        if self.cuts_at_document() {
            if prompt.document > read {
                model.read(&tokens[read..prompt.document], &mut memory)?;
                read = prompt.document;
            }
            peak = model.shape().cache_bytes(read);
            memory.cut();
        }
        let states = model.read(&tokens[read..], &mut memory)?; // (tokens, hidden)
        let state = states.narrow(0, tokens.len() - read - 1, 1)?;
        if self.cuts_prompt() && config.query_aware {
            peak = model.shape().cache_bytes(tokens.len());
            memory.cut();
        }
        peak = peak.max(memory.bytes());
        Ok((PrefilledPrompt { memory, state, prompt: tokens, seed, max_new_tokens: prompt.max_new_tokens }, peak))
    }

    /// The metrics of one text. The first is always the number of its tokens, and carries the text itself.
    fn score(&self, request: &Request, prompt: &[u32], written: &Generated) -> Result<Vec<MetricSum>> {
        let tokens = written.tokens.len() as f64;
        let output = Some(written.text.clone());
        let mut sums = vec![MetricSum { output, ..MetricSum::new("new_tokens", tokens, 1.0) }];
        if self.prompts.scorer.rescore && !written.tokens.is_empty() {
            let nll = self.full_cache_nll(prompt, &written.tokens, request.length)?;
            sums.push(MetricSum::new("nll_written", nll, tokens));
        }
        if self.prompts.scorer.counts_cut_off {
            sums.push(MetricSum::new("cut_off", f64::from(u8::from(!written.ended)), 1.0));
        }
        sums.extend(self.prompts.scores(request, &written.text));
        Ok(sums)
    }

    /// NLL in nats of a generated text under the model with the full cache.
    fn full_cache_nll(&self, prompt: &[u32], written: &[u32], text: usize) -> Result<f64> {
        let tokens = [prompt, written].concat();
        let plan = MemoryPlan { expect: tokens.len(), text, ..MemoryPlan::unbounded() };
        let mut memory = self.model.new_memory(&plan);
        let states = self.model.read(&tokens[..tokens.len() - 1], &mut memory)?;
        let states = states.narrow(0, prompt.len() - 1, written.len())?;
        Ok(self.model.nll(&states, written)?.into_iter().map(f64::from).sum())
    }
}
