//! The texts of a batch under one cache configuration.
//!
//! The prompts of a batch share their beginning. It is read once for each configuration, and the cache is then copied
//! for every prompt. The texts are generated side by side; whenever one has ended, the next prompt is read and joins.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::time::Instant;

use anyhow::{Context, Error, Result};

use super::prompts::{EncodedPrompt, EncodedPrompts};
use crate::eviction::CacheRule;
use crate::lm::{Generated, Generator, LanguageModel, Memory, MemoryPlan, PrefilledPrompt, Tensor, clone_error};
use crate::metric::MetricSum;
use crate::task::cache::{CacheConfig, FullCachePrefix, scores_without_numbers};
use crate::task::memory::{HeldEntries, SampleLengths};
use crate::task::prepared::{Batch, Report, SampleResult};
use crate::task::request::{Likelihood, Request, by_slice};

/// What generating under one cache configuration needs.
pub(super) struct Generation<'a> {
    pub model: &'a LanguageModel,
    pub prompts: &'a EncodedPrompts,
    pub config: &'a CacheConfig,
    pub prefix: Option<&'a FullCachePrefix>,
}

/// What is known of a text while it is being generated.
struct Open {
    prompt: Vec<u32>,
    /// The prompt's own lengths, without what is written.
    lengths: SampleLengths,
    /// What the cache holds after the prompt.
    held: HeldEntries,
    /// Its cache, with the size that it has for this prompt.
    config: CacheConfig,
    /// Largest size of the cache so far, in bytes.
    peak: u64,
    /// The likeliest of the request's classes, if that is measured.
    likeliest: Option<String>,
    /// The NLL of the reference answer, whole and by slice, if that is measured, and what heads hold that share their entries.
    measured: Vec<MetricSum>,
    /// Seconds of reading the prompt, with its part of what all prompts begin with.
    seconds: f64,
}

impl Generation<'_> {
    pub(super) fn measure(&self, batch: &Batch<'_>, report: Report<'_>) -> ControlFlow<()> {
        // Alone in its batch.
        if let Some((&sample, reason)) =
            batch.samples.first().zip(self.prompts.prompts[batch.all.start].request.unmeasurable.as_ref())
        {
            return report(sample, Err(reason.clone().into()));
        }
        let started = Instant::now();
        let (memory, common) = match self.common_cache(batch.all.clone()) {
            Ok(common) => common,
            Err(error) => return all_fail(batch.samples.iter(), &error, report),
        };
        // The time of the shared prefix counts for the full cache only, which the prefix belongs to.
        let prefix = self.prefix.filter(|_| self.config.cache.rule == CacheRule::Unbounded);
        let prefix_seconds = prefix.map_or(0.0, |prefix| prefix.seconds);
        let shared_seconds = (started.elapsed().as_secs_f64() + prefix_seconds) / batch.samples.len() as f64;
        let decode = |tokens: &[u32]| self.prompts.tokenizer.written(tokens);
        let mut generator = Generator::new(self.model, &self.prompts.writing, &decode);
        let mut waiting = batch.samples.iter();
        let mut open: BTreeMap<usize, Open> = BTreeMap::new();
        loop {
            while generator.open() < batch.side_by_side.max(1)
                && let Some(&sample) = waiting.next()
            {
                let started = Instant::now();
                let begun = self.begin(&self.prompts.prompts[sample], memory.as_ref(), common);
                if !self.prompts.prompts[sample].continuations.is_empty() {
                    let chosen = begun.and_then(|(prompt, of_text)| {
                        let sums = self.choose(sample, &prompt)?;
                        let seconds = shared_seconds + started.elapsed().as_secs_f64();
                        let longest = self.prompts.prompts[sample].continuations.iter().map(Vec::len).max();
                        Ok(self.result(sums, Open { seconds, ..of_text }, (0, longest.unwrap_or(0), 0)))
                    });
                    report(sample, chosen)?;
                    continue;
                }
                let added = begun.and_then(|(prompt, of_text)| {
                    generator.add(sample, prompt)?;
                    Ok(Open { seconds: shared_seconds + started.elapsed().as_secs_f64(), ..of_text })
                });
                match added {
                    Ok(of_text) => drop(open.insert(sample, of_text)),
                    Err(error) => report(sample, Err(error))?,
                }
            }
            if open.is_empty() {
                return ControlFlow::Continue(());
            }
            let ended = match generator.step() {
                Ok(ended) => ended,
                Err(error) => return all_fail(open.keys().chain(waiting), &error, report),
            };
            for text in ended {
                let Some(mut of_text) = open.remove(&text.key) else { continue };
                of_text.seconds += text.seconds;
                let result = text.text.and_then(|written| {
                    let sums = self.score(text.key, &of_text, &written)?;
                    Ok(self.result(
                        sums,
                        of_text,
                        (written.tokens.len(), written.tokens.len(), written.cache_bytes),
                    ))
                });
                report(text.key, result)?;
            }
        }
    }

    /// Puts together what was measured of a text that wrote `new_tokens` tokens, where `follow` tokens were written or compared after the
    /// prompt, and whose cache took `bytes` bytes.
    fn result(
        &self,
        sums: Vec<MetricSum>,
        of_text: Open,
        (new_tokens, follow, bytes): (usize, usize, u64),
    ) -> SampleResult {
        let Open { prompt, config, lengths, held, peak, seconds, .. } = of_text;
        // How much a cache without a policy has allocated depends on the other prompts.
        let allocated_bytes = match self.config.cache.rule {
            CacheRule::Evict { .. } => peak.max(bytes),
            _ => self.model.shape().cache_bytes(prompt.len() + new_tokens, config.cache.options),
        };
        let lengths = lengths.followed_by(follow);
        let prompt_tokens = prompt.len();
        SampleResult {
            sums,
            seconds,
            memory: config.memory(self.model.shape(), &lengths, Some(&held)),
            allocated_bytes,
            prompt_tokens,
            new_tokens,
            side_files: Vec::new(),
            own_size: config.own_size(),
        }
    }

    /// The metrics of a prompt's continuations.
    fn choose(&self, sample: usize, prompt: &PrefilledPrompt) -> Result<Vec<MetricSum>> {
        let of_sample = &self.prompts.prompts[sample];
        let EncodedPrompt { request, continuations, .. } = of_sample;
        let likelihood = |tokens: &Vec<u32>| match of_sample.without_room_for(tokens) {
            None => self.likelihood(&prompt.memory, &prompt.state, tokens),
            Some(shorter) => {
                let (own, _) = self.begin(&shorter, None, 0)?;
                self.likelihood(&own.memory, &own.state, tokens)
            }
        };
        let likelihoods: Vec<Likelihood> = continuations.iter().map(likelihood).collect::<Result<_>>()?;
        let mut sums = self.prompts.scorer.choose(&likelihoods, request);
        sums.extend(scores_without_numbers(prompt.memory.score_count())?);
        Ok(sums)
    }

    /// How likely a continuation is after what a cache has read; `state` is that of its last token.
    fn likelihood(&self, memory: &Memory, state: &Tensor, tokens: &[u32]) -> Result<Likelihood> {
        let mut states = state.clone();
        if let [begin @ .., _] = tokens
            && !begin.is_empty()
        {
            states = Tensor::cat(&[&states, &self.model.read(begin, &mut memory.clone())?], 0)?;
        }
        let all: Vec<usize> = (0..tokens.len()).collect();
        let scores = self.model.score(&states, tokens, &all, None)?;
        let log = -scores.nll.into_iter().map(f64::from).sum::<f64>();
        Ok(Likelihood { log, is_greedy: scores.hits.into_iter().all(|hit| hit) })
    }

    /// A cache that has read what all prompts of a batch begin with, and the number of these tokens. There is none if
    /// nothing is shared.
    fn common_cache(&self, batch: Range<usize>) -> Result<(Option<Memory>, usize)> {
        let Generation { model, config, .. } = *self;
        let common = self.prompts.common_of(batch.clone(), self.config.cuts_before_question());
        let all = &self.prompts.prompts[batch];
        let expect = all.iter().map(|prompt| prompt.tokens.len() + prompt.max_new_tokens).max().unwrap_or(0);
        // The same for every prompt of a task, so that no text depends on the others of its batch.
        let text = all.iter().map(|prompt| prompt.request.length).max().unwrap_or(0);
        let (mut memory, start) = match (config.cache.rule, config.sized()) {
            // Each of its prompts is cut by itself.
            (CacheRule::Truncate { .. }, _) => return Ok((None, 0)),
            // Each has a size of its own.
            _ if config.cache.relative.is_some() => return Ok((None, config.start(common))),
            (_, Some(policy)) => config.bounded_memory(model, policy, self.prefix, (common, false), text, None)?,
            _ if common > 0 => {
                return Ok((Some(FullCachePrefix::of(self.prefix, common)?.memory.clone()), common));
            }
            _ => (model.new_memory(&MemoryPlan { expect, text, ..MemoryPlan::of_cache(&config.cache) }), 0),
        };
        if common > start {
            model.read(&all[0].tokens[start..common], &mut memory)?;
        }
        Ok((Some(memory), common))
    }

    /// Reads the rest of a prompt after the tokens that `common` has read.
    fn begin(
        &self,
        prompt: &EncodedPrompt,
        common: Option<&Memory>,
        mut read: usize,
    ) -> Result<(PrefilledPrompt, Open)> {
        let Generation { model, config, .. } = *self;
        let seed = config.cache.seed.wrapping_add(prompt.request.seed);
        let own = config
            .of_sample(model.shape(), &prompt.lengths(config.query_aware, prompt.tokens.len(), prompt.follow()))?;
        let tokens = match own.cache.rule {
            CacheRule::Truncate { size } => self.prompts.truncated(prompt, size)?,
            _ => prompt.tokens.clone(),
        };
        // Where the prompt ends for a cache that is cut.
        let cut = if self.config.cuts_before_question() { prompt.before_question } else { tokens.len() };
        let mut memory = match (common, own.sized()) {
            (Some(memory), _) => memory.clone(),
            (None, Some(policy)) => {
                own.bounded_memory(model, policy, self.prefix, (read, false), prompt.request.length, None)?.0
            }
            (None, None) => {
                let expect = tokens.len() + prompt.max_new_tokens;
                let text = own.cache.rule.piece().unwrap_or(prompt.request.length);
                model.new_memory(&MemoryPlan { expect, text, ..MemoryPlan::of_cache(&config.cache) })
            }
        };
        let mut peak = 0;
        if self.config.cuts_before_question() {
            if cut > read {
                model.read(&tokens[read..cut], &mut memory)?;
                read = cut;
            }
            peak = model.shape().cache_bytes(read, config.cache.options);
            model.cut(&mut memory)?;
        }
        let states = model.read(&tokens[read..], &mut memory)?; // (tokens, hidden)
        let state = states.narrow(0, tokens.len() - read - 1, 1)?;
        if config.cuts() && config.query_aware {
            peak = model.shape().cache_bytes(tokens.len(), config.cache.options);
            model.cut(&mut memory)?;
        }
        peak = peak.max(memory.bytes());
        let opening = prompt.request.likelihood_after.as_deref();
        let likeliest = opening.map(|opening| self.likeliest(&memory, &state, opening, &prompt.request.classes));
        let likeliest = likeliest.transpose()?;
        let mut measured = self.answer_nll(&memory, &state, &prompt.request)?;
        measured.extend(own.held_by_head(&memory));
        let lengths = prompt.lengths(config.query_aware, tokens.len(), 0);
        let held = HeldEntries::from(&memory);
        let of_text =
            Open { prompt: tokens.clone(), lengths, held, config: own, peak, likeliest, measured, seconds: 0.0 };
        let max_new_tokens = prompt.max_new_tokens;
        Ok((PrefilledPrompt { memory, state, prompt: tokens, seed, max_new_tokens }, of_text))
    }

    /// The NLL of the first reference answer after a prompt, whole and by slice, if it is asked for and there is one. A space
    /// separates them where the prompt ends with none.
    fn answer_nll(&self, memory: &Memory, state: &Tensor, request: &Request) -> Result<Vec<MetricSum>> {
        let Some(reference) = request.references.first().filter(|_| self.prompts.answer_nll) else {
            return Ok(Vec::new());
        };
        let separated = self.prompts.template.is_some() || request.prompt.whole().ends_with(char::is_whitespace);
        let space = if separated { "" } else { " " };
        let tokens = self.prompts.tokenizer.encode(&[space, reference].concat())?.ids;
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        let weight = tokens.len() as f64;
        let likelihood = self.likelihood(memory, state, &tokens)?;
        let sums = by_slice(request, "answer_nll", -likelihood.log);
        Ok(sums.map(|sum| MetricSum { weight, ..sum }).collect())
    }

    /// The class with the largest probability, its tokens' product, after an opening that is read into a copy of the cache.
    fn likeliest(&self, memory: &Memory, state: &Tensor, opening: &str, classes: &[String]) -> Result<String> {
        let log = |class: &String| -> Result<f64> {
            let tokens = self.prompts.tokenizer.encode(&[opening, class].concat())?.ids;
            Ok(self.likelihood(memory, state, &tokens)?.log)
        };
        let logs: Vec<f64> = classes.iter().map(log).collect::<Result<_>>()?;
        // The first of equals.
        let likeliest = (0..logs.len()).min_by(|a, b| logs[*b].total_cmp(&logs[*a]));
        likeliest.map(|class| classes[class].clone()).context("the request has no classes")
    }

    /// The metrics of one text. The first is always the number of its tokens, and carries the text itself.
    fn score(&self, sample: usize, of_text: &Open, written: &Generated) -> Result<Vec<MetricSum>> {
        let (scorer, request) = (&self.prompts.scorer, &self.prompts.prompts[sample].request);
        let Open { prompt, likeliest, measured, .. } = of_text;
        let tokens = written.tokens.len() as f64;
        let output = Some(written.text.clone());
        let mut sums = vec![MetricSum { output, ..MetricSum::new("new_tokens", tokens, 1.0) }];
        if scorer.reads_again() && !written.tokens.is_empty() {
            let nll = self.full_cache_nll(prompt, &written.tokens, request.length)?;
            sums.push(MetricSum::new("nll_written", nll, tokens));
        }
        if scorer.is_long() {
            sums.push(MetricSum::new("cut_off", f64::from(u8::from(!written.ended)), 1.0));
        }
        if let Some(class) = likeliest {
            let is_right = request.references.contains(class);
            sums.extend(by_slice(request, "accuracy_likelihood", f64::from(u8::from(is_right))));
        }
        sums.extend(scorer.score(&written.text, request)?);
        sums.extend(measured.iter().cloned());
        sums.extend(scores_without_numbers(written.score_count)?);
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

/// Samples that fail for the same reason.
fn all_fail<'a>(
    mut samples: impl Iterator<Item = &'a usize>,
    error: &Error,
    report: Report<'_>,
) -> ControlFlow<()> {
    samples.try_for_each(|sample| report(*sample, Err(clone_error(error))))
}
