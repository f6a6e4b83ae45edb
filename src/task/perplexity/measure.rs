//! Measures the perplexity and the recall of one sample under one cache configuration.
//!
//! The bounded cache continues from the shared [`FullCachePrefix`]. It scores the tokens it has read before it reads on,
//! so a long text takes no more memory than a short one.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};

use super::pieces::{Piece, pieces};
use crate::eviction::{CacheRule, SizedPolicy};
use crate::lm::{LanguageModel, Memory, MemoryPlan, Tensor};
use crate::metric::{MetricSum, Slice};
use crate::parquet::Table;
use crate::task::cache::{CacheConfig, FullCachePrefix, scores_without_numbers};
use crate::task::data::{TextSample, octave, recall_sums};
use crate::task::prepared::{CHUNK, SampleResult, SideFile};
use crate::task::retention::Lifetimes;

/// Measures one sample. With the `texts` of its tokens, also their log.
///
/// # Errors
/// What the model reports, or a prefix that is too short for the configuration.
pub fn measure(
    model: &LanguageModel,
    sample: &TextSample,
    texts: Option<&[Arc<str>]>,
    config: &CacheConfig,
    prefix: Option<&FullCachePrefix>,
) -> Result<SampleResult> {
    let started = Instant::now();
    let tokens = sample.tokens.len();
    let (shape, lengths) = (model.shape(), sample.lengths());
    let config = &config.of_sample(shape, &lengths)?;
    let own_size = config.own_size();
    let shared = || FullCachePrefix::of(prefix, config.needs(tokens, sample.prompt));
    let mut seconds = 0.0;
    let (mut lost, mut by_head, mut no_numbers) = (None, None, None);
    let mut memory = config.memory(shape, &lengths, None);
    let mut side_files = Vec::new();
    let mut tally = Tally::new(model, sample, if config.compare { Some(shared()?) } else { None });
    let allocated_bytes = match (config.cache.rule, config.evicting(tokens)) {
        (CacheRule::Truncate { size }, _) if size < tokens => {
            truncated(model, sample, (config, size), &mut tally)?;
            shape.cache_bytes(size, config.cache.options)
        }
        (_, Some(policy)) => {
            let mut read;
            (read, by_head) = bounded(model, sample, config, policy, prefix, &mut tally)?;
            // Of the queries that predict the scored tokens, as of every other metric here.
            let of_queries = |lost: &[f32]| tally.queries().map(|query| f64::from(lost[query])).sum::<f64>();
            lost = read.lost().map(of_queries);
            no_numbers = scores_without_numbers(read.score_count())?;
            if config.log {
                let groups = shape.decision_groups(Some(policy), config.cache.options);
                // What windows had passed before the cache branched off the full one is not in the log.
                let mut lifetimes = Lifetimes::new(&groups, tokens).in_windows(shape);
                lifetimes.add(&read.take_log());
                side_files.extend(lifetimes.log());
            }
            match sample.prompt.filter(|_| config.cuts()) {
                None => read.bytes(),
                Some(prompt) => {
                    memory = config.memory(shape, &lengths, Some(&(&read).into()));
                    read.bytes().max(shape.cache_bytes(prompt, config.cache.options))
                }
            }
        }
        _ => {
            let prefix = shared()?;
            seconds += prefix.seconds;
            tally.add(&prefix.states, 1)?;
            // The prefix also has what windows have passed, for caches that branch off it.
            shape.cache_bytes(tokens, config.cache.options)
        }
    };
    side_files.extend(texts.map(|texts| tally.tokens(texts)));
    let mut sums = tally.sums(config);
    if let Some(lost) = lost {
        sums.push(MetricSum::new("evicted_mass", lost, sums[0].weight));
    }
    sums.extend(by_head);
    sums.extend(no_numbers);
    seconds += started.elapsed().as_secs_f64();
    let prompt_tokens = sample.prompt.unwrap_or(tokens);
    Ok(SampleResult { sums, seconds, memory, allocated_bytes, prompt_tokens, new_tokens: 0, side_files, own_size })
}

/// The sample with a cache that evicts. Also returns what its heads hold after the prompt's cut, or at the end.
fn bounded(
    model: &LanguageModel,
    sample: &TextSample,
    config: &CacheConfig,
    policy: SizedPolicy,
    prefix: Option<&FullCachePrefix>,
    tally: &mut Tally<'_>,
) -> Result<(Memory, Option<MetricSum>)> {
    let length = sample.tokens.len();
    let recorded = config.cache.rule.reads_future().map(|scope| model.record_attention(&sample.tokens, scope));
    let future = recorded.transpose()?;
    let cut = config.continues(length, sample.prompt);
    let (mut memory, start) =
        config.bounded_memory(model, policy, prefix, (cut, true), length, future.as_deref())?;
    if start > 0 {
        tally.add(&FullCachePrefix::of(prefix, start)?.states.narrow(0, 0, start)?, 1)?;
    }
    let mut by_head = None;
    for part in [start..cut, cut..length] {
        for tokens in sample.tokens[part].chunks(CHUNK) {
            let first = memory.seen() + 1;
            let states = model.read(tokens, &mut memory)?;
            tally.add(&states, first)?;
        }
        if memory.seen() == cut {
            model.cut(&mut memory)?;
            by_head = config.held_by_head(&memory);
        }
    }
    Ok((memory, by_head))
}

/// The paper's baseline: the sample in pieces of `size` tokens.
fn truncated(
    model: &LanguageModel,
    sample: &TextSample,
    (config, size): (&CacheConfig, usize),
    tally: &mut Tally<'_>,
) -> Result<()> {
    for Piece { tokens, start } in pieces(&sample.tokens, sample.bos.is_some(), size) {
        let (expect, text) = (tokens.len(), tokens.len());
        let mut memory = model.new_memory(&MemoryPlan { expect, text, ..MemoryPlan::of_cache(&config.cache) });
        let states = model.read(&tokens, &mut memory)?;
        // The token after the piece is scored in the next one.
        let states = states.narrow(0, 0, tokens.len() - 1)?;
        tally.add(&states, start + 1)?;
    }
    Ok(())
}

/// The sums so far.
struct Tally<'a> {
    model: &'a LanguageModel,
    sample: &'a TextSample,
    /// The full cache's states, if predictions are compared with them.
    prefix: Option<&'a FullCachePrefix>,
    /// Tokens that answer a recall.
    answers: Vec<usize>,
    /// Whether each token of the sample was the most likely one, where that was computed.
    hits: Vec<Option<bool>>,
    /// Positions and NLLs of the scored tokens, ascending.
    nlls: Vec<(usize, f64)>,
    kl: f64,
    same_top: u64,
}

impl<'a> Tally<'a> {
    fn new(model: &'a LanguageModel, sample: &'a TextSample, prefix: Option<&'a FullCachePrefix>) -> Tally<'a> {
        Tally {
            model,
            sample,
            prefix,
            answers: sample.answer_tokens(),
            hits: vec![None; sample.tokens.len()],
            nlls: Vec::new(),
            kl: 0.0,
            same_top: 0,
        }
    }

    /// Scores the tokens that some states predict: those from `first` on, as far as they are to be scored.
    fn add(&mut self, states: &Tensor, first: usize) -> Result<()> {
        let Tally { model, sample, .. } = *self;
        let end = (first + states.dim(0)?).min(sample.scored.end);
        let targets = first.max(sample.scored.start)..end;
        if targets.is_empty() {
            return Ok(());
        }
        let expected = &sample.tokens[targets.clone()];
        let states = states.narrow(0, targets.start - first, targets.len())?;
        let unbounded = match self.prefix {
            Some(prefix) => Some(prefix.reference().narrow(0, targets.start - 1, targets.len())?),
            None => None,
        };
        let here = self.answers.iter().filter(|token| targets.contains(token));
        let here: Vec<usize> = here.map(|token| token - targets.start).collect();
        let scores = model.score(&states, expected, &here, unbounded.as_ref());
        let scores =
            scores.with_context(|| format!("tokens {} to {} of the text", targets.start, targets.end - 1))?;
        for (row, hit) in here.into_iter().zip(scores.hits) {
            self.hits[targets.start + row] = Some(hit);
        }
        self.nlls.extend(targets.zip(scores.nll.into_iter().map(f64::from)));
        self.kl += scores.kl;
        self.same_top += scores.same_top;
        Ok(())
    }

    /// The positions of the tokens that predict the scored ones.
    fn queries(&self) -> impl Iterator<Item = usize> {
        self.nlls.iter().map(|(position, _)| position - 1)
    }

    /// The tokens, with the NLLs of those that were scored.
    fn tokens(&self, texts: &[Arc<str>]) -> SideFile {
        let tokens = &self.sample.tokens;
        let mut nlls = vec![None; tokens.len()];
        self.nlls.iter().for_each(|(position, nll)| nlls[*position] = Some(*nll));
        let mut table = Table::default();
        table.push("position", (0..tokens.len() as u32).collect::<Vec<_>>());
        table.push("token", tokens.clone());
        table.push("text", texts.iter().map(|text| text.to_string()).collect::<Vec<_>>());
        table.push("nll", nlls);
        SideFile { kind: "tokens", table }
    }

    /// The metrics of everything that was scored.
    fn sums(self, config: &CacheConfig) -> Vec<MetricSum> {
        let sum = |nlls: &[(usize, f64)]| nlls.iter().fold(0.0, |sum, (_, nll)| sum + nll);
        let part = |slice: Slice, nlls: &[(usize, f64)]| {
            MetricSum::new("nll", sum(nlls), nlls.len() as f64).of_slice(Some(slice))
        };
        let (nll, weight) = (sum(&self.nlls), self.nlls.len() as f64);
        let mut sums = vec![MetricSum::new("nll", nll, weight)];
        let octaves: Vec<_> = self.nlls.chunk_by(|(a, _), (b, _)| octave_of(*a) == octave_of(*b)).collect();
        // A single range would repeat the whole.
        if octaves.len() > 1 {
            sums.extend(octaves.into_iter().map(|nlls| {
                let first = octave_of(nlls[0].0);
                let slice = match first {
                    0 => Slice::range("position", 0, FIRST_RANGE as u64 - 1),
                    first => octave("position", first),
                };
                part(slice, nlls)
            }));
        }
        // Longer texts are drawn as a curve.
        let sample = self.sample;
        if sample.tokens.len() > WHOLE_OCTAVES {
            sums.extend(self.nlls.chunk_by(|(a, _), (b, _)| piece_of(*a) == piece_of(*b)).map(|nlls| {
                let piece = piece_of(nlls[0].0);
                part(Slice::range("piece", piece.start as u64, piece.end as u64 - 1), nlls)
            }));
        }
        // If some tokens of the words are not scored, the word-level figure would be too good.
        if sample.words > 0 && self.nlls.len() == sample.scored.len() {
            sums.push(MetricSum::new("nll_word", nll, sample.words as f64));
        }
        if config.compare && !config.is_reference() {
            sums.push(MetricSum::new("kl_to_full", self.kl, weight));
            sums.push(MetricSum::new("top1_agreement", self.same_top as f64, weight));
        }
        sums.extend(recall_sums(&sample.recalls, &self.hits));
        sums
    }
}

/// The first positions of a sample are one range; octaves of a few tokens would say little and cost rows.
const FIRST_RANGE: usize = 128;

/// Below this position a piece is an octave, beyond it a sixteenth of one.
const WHOLE_OCTAVES: usize = 4096;

/// The first position of the octave that holds a position.
fn octave_of(position: usize) -> usize {
    if position < FIRST_RANGE { 0 } else { 1 << position.ilog2() }
}

/// The piece that holds a position: few enough for a row each, fine enough for a curve over tens of thousands of tokens.
fn piece_of(position: usize) -> Range<usize> {
    let start = octave_of(position);
    let length = if start == 0 { FIRST_RANGE } else { start };
    if position < WHOLE_OCTAVES {
        return start..start + length;
    }
    let length = length / 16;
    let start = position / length * length;
    start..start + length
}
