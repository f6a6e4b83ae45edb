//! Perplexity and recall of one sample under one cache rule, exactly, sharing what rules have in common.
//!
//! A bounded cache equals the unbounded one until it is full, so the cells of a sample go on from one unbounded
//! reading ([`Topline`]); a cache at least as large as the sample is that reading. Where a cell takes over depends on
//! the cell alone, never on what else the sweep holds: a resumed sweep gives the same bits.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result};

use super::reading::{Reading, Topline};
use super::recall::{self, octave};
use super::samples::Sample;
use crate::eviction::{CacheRule, Positions, SizedPolicy};
use crate::lm::{LanguageModel, Memory, MemoryPlan, Tensor};
use crate::metric::{EVICTED_MASS, KL_TO_FULL, Mark, NLL, NLL_WORD, TOP1_AGREEMENT};

/// What was measured, and what it took.
#[derive(Clone, Debug)]
pub struct Measured {
    pub marks: Vec<Mark>,
    /// Without the shared reading, except for the rule that is that reading.
    pub seconds: f64,
    pub peak_cache_bytes: u64,
    /// What the model wrote, if it was asked to.
    pub output: Option<String>,
    pub prompt_tokens: usize,
    pub new_tokens: usize,
}

/// States, and the tokens of the sample they predict.
struct Segment {
    states: Tensor,
    predicts: Range<usize>,
}

/// Measures one rule on one sample.
///
/// # Errors
/// What the model reports, or a topline that was read for other readings.
pub fn measure(
    model: &LanguageModel,
    sample: &Sample,
    reading: &Reading,
    topline: Option<&Topline>,
) -> Result<Measured> {
    let started = Instant::now();
    let tokens = sample.tokens.len();
    let shared = || {
        topline
            .filter(|topline| topline.read >= reading.needs(tokens))
            .context("the unbounded reading does not reach as far as this rule needs it")
    };
    let mut seconds = 0.0;
    let mut lost = None;
    let (segments, peak_cache_bytes) = match (reading.rule, reading.sized()) {
        (CacheRule::Truncate { size }, _) if size < tokens => pieces(model, sample, size)?,
        (CacheRule::Evict { .. }, Some(policy)) if policy.size() < tokens => {
            let (segment, memory) = bounded(model, sample, reading, policy, topline)?;
            lost = memory.lost().map(|lost| lost.iter().map(|lost| f64::from(*lost)).sum::<f64>());
            (vec![segment], memory.bytes())
        }
        _ => {
            let topline = shared()?;
            seconds += topline.seconds;
            (vec![Segment { states: topline.states.clone(), predicts: 1..tokens + 1 }], topline.memory.bytes())
        }
    };
    let mut marks =
        score(model, sample, reading, &segments, if reading.compare { Some(shared()?) } else { None })?;
    if let Some(lost) = lost {
        marks.push(Mark::new(EVICTED_MASS, lost, tokens as f64));
    }
    seconds += started.elapsed().as_secs_f64();
    Ok(Measured { marks, seconds, peak_cache_bytes, output: None, prompt_tokens: tokens, new_tokens: 0 })
}

/// The sample with a cache that evicts.
fn bounded(
    model: &LanguageModel,
    sample: &Sample,
    reading: &Reading,
    policy: SizedPolicy,
    topline: Option<&Topline>,
) -> Result<(Segment, Memory)> {
    let start = reading.start(sample.tokens.len());
    let measure_loss = reading.compare && reading.positions == Positions::Absolute;
    let fork = topline.filter(|_| start > 0).and_then(|topline| {
        let memory = model.fork(&topline.memory, start, policy, measure_loss)?;
        Some((memory, topline.states.narrow(0, 0, start)))
    });
    let (mut memory, mut states) = match fork {
        Some((memory, states)) => (memory, vec![states?]),
        None if start > 0 => anyhow::bail!("the unbounded reading cannot be continued at token {start}"),
        None => {
            let plan = MemoryPlan {
                positions: reading.positions,
                seed: reading.seed,
                measure_loss,
                ..MemoryPlan::bounded(policy)
            };
            (model.new_memory(&plan), Vec::new())
        }
    };
    states.push(model.read(&sample.tokens[start..], &mut memory)?);
    let states = Tensor::cat(&states, 0)?;
    Ok((Segment { states, predicts: 1..sample.tokens.len() + 1 }, memory))
}

/// The paper's baseline: the sample in pieces of `size` tokens, each with an empty cache.
fn pieces(model: &LanguageModel, sample: &Sample, size: usize) -> Result<(Vec<Segment>, u64)> {
    let lead = usize::from(sample.bos.is_some());
    let text = &sample.tokens[lead..];
    let mut segments = Vec::new();
    let mut bytes = 0;
    for (index, piece) in text.chunks(size - lead).enumerate() {
        let tokens: Vec<u32> = sample.bos.into_iter().chain(piece.iter().copied()).collect();
        let mut memory = model.new_memory(&MemoryPlan { expect: tokens.len(), ..MemoryPlan::unbounded() });
        let states = model.read(&tokens, &mut memory)?;
        // The state after the piece's i-th token predicts the sample's token `first + i`.
        let first = index * (size - lead) + 1;
        segments.push(Segment { states, predicts: first..first + tokens.len() });
        bytes = bytes.max(memory.bytes());
    }
    Ok((segments, bytes))
}

/// Marks of the sample's scored tokens.
fn score(
    model: &LanguageModel,
    sample: &Sample,
    reading: &Reading,
    segments: &[Segment],
    topline: Option<&Topline>,
) -> Result<Vec<Mark>> {
    let (mut nll, mut scored, mut kl, mut same_top) = (0.0, 0usize, 0.0, 0u64);
    let asked = sample.answer_tokens();
    let mut hits = vec![None; sample.tokens.len()];
    let mut parts: BTreeMap<usize, [f64; 2]> = BTreeMap::new();
    for Segment { states, predicts } in segments {
        // The last state of a segment predicts what comes after it, which another segment, or nobody, scores.
        let last = (predicts.end - 1).min(sample.tokens.len());
        let targets = predicts.start.max(sample.scored.start)..last.min(sample.scored.end);
        if targets.is_empty() {
            continue;
        }
        let expected = &sample.tokens[targets.clone()];
        let states = states.narrow(0, targets.start - predicts.start, targets.len())?;
        let unbounded = match topline {
            Some(topline) => Some(topline.states.narrow(0, targets.start - 1, targets.len())?),
            None => None,
        };
        let here = asked.iter().filter(|token| targets.contains(token));
        let here: Vec<usize> = here.map(|token| token - targets.start).collect();
        let scores = model.score(&states, expected, &here, unbounded.as_ref())?;
        for (row, hit) in here.into_iter().zip(scores.hits) {
            hits[targets.start + row] = Some(hit);
        }
        for (position, nll) in targets.clone().zip(&scores.nll) {
            let [sum, tokens] = parts.entry(part(position)).or_default();
            *sum += f64::from(*nll);
            *tokens += 1.0;
        }
        nll += scores.nll.iter().map(|nll| f64::from(*nll)).sum::<f64>();
        kl += scores.divergence.kl;
        same_top += scores.divergence.same_top;
        scored += targets.len();
    }
    let weight = scored as f64;
    let mut marks = vec![Mark::new(NLL, nll, weight)];
    // One part alone would say the same again.
    if parts.len() > 1 {
        marks.extend(parts.into_iter().map(|(first, [nll, tokens])| {
            let name = if first == 0 { format!("0-{}", FIRST_PART - 1) } else { octave(first) };
            Mark { group: Some(format!("position:{name}")), ..Mark::new(NLL, nll, tokens) }
        }));
    }
    // Words whose tokens are not all scored would make the word-level figure too good.
    if sample.words > 0 && scored == sample.scored.len() {
        marks.push(Mark::new(NLL_WORD, nll, sample.words as f64));
    }
    if reading.compare && reading.rule != CacheRule::Unbounded {
        marks.push(Mark::new(KL_TO_FULL, kl, weight));
        marks.push(Mark::new(TOP1_AGREEMENT, same_top as f64, weight));
    }
    marks.extend(recall::marks(&sample.recalls, &hits));
    Ok(marks)
}

/// The first positions of a sample are one part: octaves of a few tokens would say little and cost rows.
const FIRST_PART: usize = 128;

/// Where the part of a position begins.
fn part(position: usize) -> usize {
    if position < FIRST_PART { 0 } else { 1 << position.ilog2() }
}
