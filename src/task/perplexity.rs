//! Perplexity and recall of one sample under one cache rule, exactly, sharing what rules have in common.
//!
//! A bounded cache equals the unbounded one until it is full, so the cells of a sample go on from one unbounded
//! reading ([`Topline`]); a cache at least as large as the sample is that reading. Where a cell takes over depends on
//! the cell alone, never on what else the sweep holds: a resumed sweep gives the same bits. A bounded cache scores
//! what it has read before it reads on, so a long text takes no more memory than a short one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result};

use super::reading::{Reading, Topline};
use super::recall::{self, octave};
use super::samples::Sample;
use crate::columns::Table;
use crate::eviction::{CacheRule, Positions, SizedPolicy};
use crate::lm::{LanguageModel, Memory, MemoryPlan, Tensor};
use crate::metric::{EVICTED_MASS, KL_TO_FULL, MetricSum, NLL, NLL_WORD, TOP1_AGREEMENT};

/// What was measured, and what it took.
#[derive(Clone, Debug)]
pub struct Measured {
    pub sums: Vec<MetricSum>,
    /// Without the shared reading, except for the rule that is that reading.
    pub seconds: f64,
    pub peak_cache_bytes: u64,
    pub prompt_tokens: usize,
    pub new_tokens: usize,
    /// Tables kept beside the rows.
    pub side_files: Vec<SideFile>,
}

/// A table of a sample that is no row.
#[derive(Clone, Debug)]
pub struct SideFile {
    /// What stands in the file's name after the sample's; may be empty.
    pub kind: &'static str,
    pub table: Table,
}

/// Tokens a bounded cache reads before they are scored and their states dropped.
pub const AT_ONCE: usize = 4096;

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
    let mut tally = Tally::new(model, sample, if reading.compare { Some(shared()?) } else { None });
    let peak_cache_bytes = match (reading.rule, reading.sized()) {
        (CacheRule::Truncate { size }, _) if size < tokens => pieces(model, sample, size, &mut tally)?,
        (CacheRule::Evict { .. }, Some(policy)) if policy.size() < tokens => {
            let memory = bounded(model, sample, reading, policy, topline, &mut tally)?;
            lost = memory.lost().map(|lost| lost.iter().map(|lost| f64::from(*lost)).sum::<f64>());
            memory.bytes()
        }
        _ => {
            let topline = shared()?;
            seconds += topline.seconds;
            tally.add(&topline.states, 1)?;
            topline.memory.bytes()
        }
    };
    let mut sums = tally.sums(reading);
    if let Some(lost) = lost {
        sums.push(MetricSum::new(EVICTED_MASS, lost, tokens as f64));
    }
    seconds += started.elapsed().as_secs_f64();
    let side_files = Vec::new();
    Ok(Measured { sums, seconds, peak_cache_bytes, prompt_tokens: tokens, new_tokens: 0, side_files })
}

/// The sample with a cache that evicts.
fn bounded(
    model: &LanguageModel,
    sample: &Sample,
    reading: &Reading,
    policy: SizedPolicy,
    topline: Option<&Topline>,
    tally: &mut Tally<'_>,
) -> Result<Memory> {
    let start = reading.start(sample.tokens.len());
    let measure_loss = reading.compare && reading.positions == Positions::Absolute;
    let fork = topline.filter(|_| start > 0).and_then(|topline| {
        let memory = model.fork(&topline.memory, start, policy, measure_loss)?;
        Some((memory, topline.states.narrow(0, 0, start)))
    });
    let mut memory = match fork {
        Some((memory, states)) => {
            tally.add(&states?, 1)?;
            memory
        }
        None if start > 0 => anyhow::bail!("the unbounded reading cannot be continued at token {start}"),
        None => {
            let plan = MemoryPlan {
                positions: reading.positions,
                seed: reading.seed,
                measure_loss,
                ..MemoryPlan::bounded(policy)
            };
            model.new_memory(&plan)
        }
    };
    for tokens in sample.tokens[start..].chunks(AT_ONCE) {
        let first = memory.seen() + 1;
        let states = model.read(tokens, &mut memory)?;
        tally.add(&states, first)?;
    }
    Ok(memory)
}

/// The paper's baseline: the sample in pieces of `size` tokens, each with an empty cache. Returns the bytes of the
/// largest.
fn pieces(model: &LanguageModel, sample: &Sample, size: usize, tally: &mut Tally<'_>) -> Result<u64> {
    let lead = usize::from(sample.bos.is_some());
    let text = &sample.tokens[lead..];
    let mut bytes = 0;
    for (index, piece) in text.chunks(size - lead).enumerate() {
        let tokens: Vec<u32> = sample.bos.into_iter().chain(piece.iter().copied()).collect();
        let mut memory = model.new_memory(&MemoryPlan { expect: tokens.len(), ..MemoryPlan::unbounded() });
        let states = model.read(&tokens, &mut memory)?;
        // What comes after the piece is scored in the next one.
        let states = states.narrow(0, 0, tokens.len() - 1)?;
        tally.add(&states, index * (size - lead) + 1)?;
        bytes = bytes.max(memory.bytes());
    }
    Ok(bytes)
}

/// The sums over a sample's scored tokens, in the making.
struct Tally<'a> {
    model: &'a LanguageModel,
    sample: &'a Sample,
    /// What every prediction is compared with.
    topline: Option<&'a Topline>,
    /// Tokens that answer a recall, and whether each token of the sample was the most likely one.
    asked: Vec<usize>,
    hits: Vec<Option<bool>>,
    nll: f64,
    scored: usize,
    kl: f64,
    same_top: u64,
    /// NLL and tokens by octave of the position, and by piece of an octave.
    octaves: BTreeMap<usize, [f64; 2]>,
    pieces: BTreeMap<usize, [f64; 2]>,
}

impl<'a> Tally<'a> {
    fn new(model: &'a LanguageModel, sample: &'a Sample, topline: Option<&'a Topline>) -> Tally<'a> {
        Tally {
            model,
            sample,
            topline,
            asked: sample.answer_tokens(),
            hits: vec![None; sample.tokens.len()],
            nll: 0.0,
            scored: 0,
            kl: 0.0,
            same_top: 0,
            octaves: BTreeMap::new(),
            pieces: BTreeMap::new(),
        }
    }

    /// Scores what some states predict: the sample's tokens from `first` on, as far as they are to be scored.
    fn add(&mut self, states: &Tensor, first: usize) -> Result<()> {
        let Tally { model, sample, .. } = *self;
        let end = (first + states.dim(0)?).min(sample.scored.end);
        let targets = first.max(sample.scored.start)..end;
        if targets.is_empty() {
            return Ok(());
        }
        let expected = &sample.tokens[targets.clone()];
        let states = states.narrow(0, targets.start - first, targets.len())?;
        let unbounded = match self.topline {
            Some(topline) => Some(topline.states.narrow(0, targets.start - 1, targets.len())?),
            None => None,
        };
        let here = self.asked.iter().filter(|token| targets.contains(token));
        let here: Vec<usize> = here.map(|token| token - targets.start).collect();
        let scores = model.score(&states, expected, &here, unbounded.as_ref())?;
        for (row, hit) in here.into_iter().zip(scores.hits) {
            self.hits[targets.start + row] = Some(hit);
        }
        for (position, nll) in targets.clone().zip(scores.nll) {
            let nll = f64::from(nll);
            self.nll += nll;
            let parts = [(&mut self.octaves, octave_of(position)), (&mut self.pieces, piece_of(position).start)];
            for (sums, part) in parts {
                let [sum, tokens] = sums.entry(part).or_default();
                *sum += nll;
                *tokens += 1.0;
            }
        }
        self.kl += scores.divergence.kl;
        self.same_top += scores.divergence.same_top;
        self.scored += targets.len();
        Ok(())
    }

    fn sums(self, reading: &Reading) -> Vec<MetricSum> {
        let Tally { sample, nll, scored, .. } = self;
        let weight = scored as f64;
        let mut sums = vec![MetricSum::new(NLL, nll, weight)];
        let part = |group: String, [nll, tokens]: [f64; 2]| MetricSum {
            group: Some(group),
            ..MetricSum::new(NLL, nll, tokens)
        };
        // One part alone would say the same again.
        if self.octaves.len() > 1 {
            sums.extend(self.octaves.into_iter().map(|(first, sums)| {
                let name = if first == 0 { format!("0-{}", FIRST_PART - 1) } else { octave(first) };
                part(format!("position:{name}"), sums)
            }));
        }
        // Of a text that is longer a curve is drawn.
        if sample.tokens.len() > WHOLE_OCTAVES {
            sums.extend(self.pieces.into_iter().map(|(first, sums)| {
                let piece = piece_of(first);
                part(format!("piece:{}-{}", piece.start, piece.end - 1), sums)
            }));
        }
        // Words whose tokens are not all scored would make the word-level figure too good.
        if sample.words > 0 && scored == sample.scored.len() {
            sums.push(MetricSum::new(NLL_WORD, nll, sample.words as f64));
        }
        if reading.compare && reading.rule != CacheRule::Unbounded {
            sums.push(MetricSum::new(KL_TO_FULL, self.kl, weight));
            sums.push(MetricSum::new(TOP1_AGREEMENT, self.same_top as f64, weight));
        }
        sums.extend(recall::sums(&sample.recalls, &self.hits));
        sums
    }
}

/// The first positions of a sample are one part: octaves of a few tokens would say little and cost rows.
const FIRST_PART: usize = 128;

/// Below this position a piece is an octave, from here on a sixteenth of one.
const WHOLE_OCTAVES: usize = 4096;

/// Where the octave of a position begins.
fn octave_of(position: usize) -> usize {
    if position < FIRST_PART { 0 } else { 1 << position.ilog2() }
}

/// The piece a position is in: few enough for a row each, fine enough for a curve over tens of thousands of tokens.
fn piece_of(position: usize) -> Range<usize> {
    let start = octave_of(position);
    let length = if start == 0 { FIRST_PART } else { start };
    if position < WHOLE_OCTAVES {
        return start..start + length;
    }
    let length = length / 16;
    let start = position / length * length;
    start..start + length
}
