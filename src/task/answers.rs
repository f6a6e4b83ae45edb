//! Generated answers under one cache rule, and their sums.
//!
//! The requests of a sitting share the beginning of their prompts: it is read once for each rule, and the memory is
//! branched for every question. Answers are then written side by side.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result};

use super::perplexity::Measured;
use super::reading::{Reading, Topline};
use super::requests::{Asked, Requests};
use super::style::Prefill;
use crate::eviction::CacheRule;
use crate::lm::{Generated, LanguageModel, Memory, MemoryPlan, PrefilledPrompt};
use crate::metric::{
    self, DISTINCT_1, DISTINCT_2, DISTINCT_3, EXACT_MATCH, F1, F1_IN_ASCII, F1_TRIVIAL, FOUND, Letters, MetricSum,
    NEW_TOKENS, NLL_FULL_OF_WRITTEN, REPETITION_4, ROUGE_GEO_INSTANCE, ROUGE1, ROUGE1_TRIVIAL, ROUGE2,
    ROUGE2_TRIVIAL, ROUGEL, ROUGEL_TRIVIAL,
};

/// How answers are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// Against summaries: ROUGE.
    Summary,
    /// Against short answers: token F1.
    Answer,
    /// Against words that must stand in it.
    Found,
    /// Against nothing: what a text is like.
    Text,
}

/// Reads what the rules of a sitting share; `None` if they share nothing.
///
/// # Errors
/// What the model reports.
pub(super) fn prefix(
    model: &LanguageModel,
    requests: &Requests,
    sitting: Range<usize>,
    readings: &[Reading],
) -> Result<Option<Topline>> {
    let common = requests.common(sitting.clone());
    let needs = readings.iter().map(|reading| match reading.rule {
        CacheRule::Unbounded => common,
        CacheRule::Truncate { .. } => 0,
        CacheRule::Evict { .. } => reading.start(common),
    });
    let needs = needs.max().unwrap_or(0);
    let tokens = requests.asked.get(sitting.start).map_or(&[][..], |asked| &asked.tokens[..common]);
    Topline::read_to(model, tokens, readings, needs)
}

/// Answers some requests of a sitting under one rule: their indices, each with what was measured or why not.
pub(super) fn answer(
    model: &LanguageModel,
    requests: &Requests,
    marking: Marking,
    (sitting, wanted): (Range<usize>, &[usize]),
    reading: &Reading,
    topline: Option<&Topline>,
) -> Vec<(usize, Result<Measured>)> {
    let started = Instant::now();
    let mut results = Vec::new();
    let mut ready = Vec::new();
    let prompt = match prefix_memory(model, requests, sitting, reading, topline) {
        Ok(prompt) => prompt,
        Err(error) => return each(wanted, &error),
    };
    for &index in wanted {
        match begin(model, requests, &requests.asked[index], reading, &prompt) {
            Ok(start) => ready.push((index, start)),
            Err(error) => results.push((index, Err(error))),
        }
    }
    if ready.is_empty() {
        return results;
    }
    let (indices, starts): (Vec<usize>, Vec<(PrefilledPrompt, u64)>) = ready.into_iter().unzip();
    let (starts, peaks): (Vec<PrefilledPrompt>, Vec<u64>) = starts.into_iter().unzip();
    let prompts: Vec<Vec<u32>> = starts.iter().map(|start| start.prompt.clone()).collect();
    let written = match model.generate(starts, &requests.writing, &|tokens| requests.tokenizer.decode(tokens)) {
        Ok(written) => written,
        Err(error) => {
            results.extend(each(&indices, &error));
            return results;
        }
    };
    let seconds = (started.elapsed().as_secs_f64() + topline_seconds(reading, topline)) / indices.len() as f64;
    for (((index, written), peak), prompt) in indices.into_iter().zip(written).zip(peaks).zip(prompts) {
        let sums = sums(model, &requests.asked[index], marking, &prompt, &written);
        results.push((
            index,
            sums.map(|sums| Measured {
                sums,
                seconds,
                peak_cache_bytes: peak.max(written.cache_bytes),
                prompt_tokens: prompt.len(),
                new_tokens: written.tokens.len(),
                side_files: Vec::new(),
            }),
        ));
    }
    results
}

/// The shared reading counts where it is the rule's own.
fn topline_seconds(reading: &Reading, topline: Option<&Topline>) -> f64 {
    let own = reading.rule == CacheRule::Unbounded;
    topline.filter(|_| own).map_or(0.0, |topline| topline.seconds)
}

/// One error for several requests.
fn each(wanted: &[usize], error: &anyhow::Error) -> Vec<(usize, Result<Measured>)> {
    let again = |_: &usize| crate::lm::clone_error(error);
    wanted.iter().map(|index| (*index, Err(again(index)))).collect()
}

/// A memory that has read what all prompts of a sitting begin with.
struct Prompted {
    memory: Option<Memory>,
    read: usize,
}

fn prefix_memory(
    model: &LanguageModel,
    requests: &Requests,
    sitting: Range<usize>,
    reading: &Reading,
    topline: Option<&Topline>,
) -> Result<Prompted> {
    let common = requests.common(sitting.clone());
    let first = &requests.asked[sitting.start];
    let all = &requests.asked[sitting];
    let longest = all.iter().map(|asked| asked.tokens.len()).max().unwrap_or(0);
    let expect = longest + requests.writing.max_new_tokens;
    let reaches = |read: usize| {
        topline
            .filter(|topline| topline.read >= read)
            .context("the unbounded reading does not reach as far as this rule needs it")
    };
    let (mut memory, start) = match (reading.rule, reading.sized()) {
        // Its prompts are cut each for itself.
        (CacheRule::Truncate { .. }, _) => return Ok(Prompted { memory: None, read: 0 }),
        (CacheRule::Evict { .. }, Some(policy)) => {
            let start = reading.start(common);
            if start > 0 {
                let fork = model.fork(&reaches(start)?.memory, start, policy, false);
                (fork.context("the unbounded reading cannot be continued")?, start)
            } else {
                let plan = MemoryPlan {
                    positions: reading.positions,
                    seed: reading.seed,
                    one_shot: reading.prefill == Prefill::OneShot,
                    expect,
                    ..MemoryPlan::bounded(policy)
                };
                (model.new_memory(&plan), 0)
            }
        }
        _ if common > 0 => return Ok(Prompted { memory: Some(reaches(common)?.memory.clone()), read: common }),
        _ => (model.new_memory(&MemoryPlan { expect, ..MemoryPlan::unbounded() }), 0),
    };
    // A cache that is cut before its question is cut where the shortest document ends at the latest.
    let shortest = all.iter().map(|asked| asked.document).min().unwrap_or(0);
    let common = if cuts_early(reading) { common.min(shortest) } else { common };
    if common > start {
        model.read(&first.tokens[start..common], &mut memory)?;
    }
    Ok(Prompted { memory: Some(memory), read: common })
}

/// Whether the cache is cut at the document's end.
fn cuts_early(reading: &Reading) -> bool {
    reading.prefill == Prefill::OneShot && !reading.query_aware && reading.sized().is_some()
}

/// Reads the rest of a prompt. Also tells the largest size of the cache so far, in bytes.
fn begin(
    model: &LanguageModel,
    requests: &Requests,
    asked: &Asked,
    reading: &Reading,
    prompt: &Prompted,
) -> Result<(PrefilledPrompt, u64)> {
    let seed = reading.seed.wrapping_add(asked.request.draw);
    let cut_to = |size: usize| requests.truncated(asked, size);
    let tokens = match reading.rule {
        CacheRule::Truncate { size } => cut_to(size)?,
        _ => asked.tokens.clone(),
    };
    let mut memory = match &prompt.memory {
        Some(memory) => memory.clone(),
        None => {
            let expect = tokens.len() + requests.writing.max_new_tokens;
            model.new_memory(&MemoryPlan { expect, ..MemoryPlan::unbounded() })
        }
    };
    let mut read = prompt.read;
    let mut peak = 0;
    if cuts_early(reading) {
        if asked.document > read {
            model.read(&tokens[read..asked.document], &mut memory)?;
            read = asked.document;
        }
        peak = memory.bytes();
        model.cut(&mut memory);
    }
    let states = model.read(&tokens[read..], &mut memory)?; // (rows, hidden)
    let state = states.narrow(0, tokens.len() - read - 1, 1)?;
    if reading.prefill == Prefill::OneShot && reading.query_aware && reading.sized().is_some() {
        peak = memory.bytes();
        model.cut(&mut memory);
    }
    peak = peak.max(memory.bytes());
    Ok((PrefilledPrompt { memory, state, prompt: tokens, seed }, peak))
}

/// Marks of one answer. The first is always the number of tokens written, and carries the text.
fn sums(
    model: &LanguageModel,
    asked: &Asked,
    marking: Marking,
    prompt: &[u32],
    written: &Generated,
) -> Result<Vec<MetricSum>> {
    let text = written.text.as_str();
    let references = &asked.request.references;
    let output = Some(written.text.clone());
    let mut sums = vec![MetricSum { output, ..MetricSum::new(NEW_TOKENS, written.tokens.len() as f64, 1.0) }];
    let mut compared: Vec<(&'static str, f64)> = Vec::new();
    match marking {
        _ if references.is_empty() && marking != Marking::Text => {}
        Marking::Summary => {
            let rouge = metric::best_rouge(text, references);
            compared.extend([(ROUGE1, rouge.one), (ROUGE2, rouge.two), (ROUGEL, rouge.l)]);
            compared.push((ROUGE_GEO_INSTANCE, rouge.geometric_mean()));
            let trivial = metric::best_rouge(&asked.request.trivial, references);
            compared.push((ROUGE1_TRIVIAL, trivial.one));
            compared.push((ROUGE2_TRIVIAL, trivial.two));
            compared.push((ROUGEL_TRIVIAL, trivial.l));
        }
        Marking::Answer => {
            compared.push((F1, metric::best_f1(text, references, Letters::AsWritten)));
            compared.push((F1_IN_ASCII, metric::best_f1(text, references, Letters::Ascii)));
            compared.push((F1_TRIVIAL, metric::best_f1(&asked.request.trivial, references, Letters::AsWritten)));
            let exact = metric::best_exact_match(text, references, Letters::AsWritten);
            compared.push((EXACT_MATCH, f64::from(u8::from(exact))));
        }
        Marking::Found => {
            let text = text.to_lowercase();
            let found = references.iter().any(|answer| text.contains(&answer.to_lowercase()));
            compared.push((FOUND, f64::from(u8::from(found))));
        }
        Marking::Text => {
            let found = metric::diversity(text);
            let distinct = [DISTINCT_1, DISTINCT_2, DISTINCT_3].into_iter().zip(found.distinct);
            compared.extend(distinct.filter_map(|(name, share)| Some((name, share?))));
            compared.extend(found.repetition_4.map(|share| (REPETITION_4, share)));
            if !written.tokens.is_empty() {
                let nll = unbounded_nll(model, prompt, &written.tokens)?;
                sums.push(MetricSum::new(NLL_FULL_OF_WRITTEN, nll, written.tokens.len() as f64));
            }
        }
    }
    for (metric, value) in compared {
        let parts = asked.request.groups.iter().map(|group| Some(group.clone()));
        let all = std::iter::once(None).chain(parts);
        sums.extend(all.map(|group| MetricSum { group, ..MetricSum::new(metric, value, 1.0) }));
    }
    Ok(sums)
}

/// NLL in nats of a written text under the model with an unbounded cache.
fn unbounded_nll(model: &LanguageModel, prompt: &[u32], written: &[u32]) -> Result<f64> {
    let tokens = [prompt, written].concat();
    let mut memory = model.new_memory(&MemoryPlan { expect: tokens.len(), ..MemoryPlan::unbounded() });
    let states = model.read(&tokens[..tokens.len() - 1], &mut memory)?;
    let states = states.narrow(0, prompt.len() - 1, written.len())?;
    Ok(model.nll(&states, written)?.into_iter().map(f64::from).sum())
}
