//! A text's NLLs, and which entries survive it.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{InvalidSettings, TextModel};
use crate::eviction::{CacheSpec, Eviction};
use crate::lm::{MemoryPlan, ReadStats};
use crate::task::{CHUNK, Piece, pieces};

/// What reading one text gives.
#[derive(Default)]
pub struct Scored {
    /// Negative log-likelihood of every token after the first, in nats; `None` for the first of a piece, which nothing predicts.
    pub nll: Vec<Option<f32>>,
    /// Positions of the tokens that survive the last: (layers)(groups)(entries)
    pub survivors: Vec<Vec<Vec<u32>>>,
    /// (layers)(evictions), where they are asked for.
    pub evictions: Vec<Vec<Eviction>>,
    pub seconds: f64,
    pub read: ReadStats,
    pub cache_bytes: u64,
}

/// How a text is read.
#[derive(Clone, Copy, Debug)]
pub struct ScoreSettings {
    /// The first tokens that are the prompt, after which the cache is cut if the policy's schedule says so.
    pub prompt: Option<usize>,
    /// The most tokens read at a time; results do not depend on it.
    pub chunk: usize,
    /// Whether evictions are recorded.
    pub log: bool,
}

impl TextModel {
    /// Reads tokens under a cache; under `truncate` in pieces, each with an empty memory. Survivors of a text in pieces are those of the last piece.
    ///
    /// # Errors
    /// A token outside the vocabulary, a text that is too long for the model, a schedule without a prompt or that the model's layers
    /// cannot have, or an interruption.
    pub fn score(
        &self,
        tokens: &[u32],
        cache: &CacheSpec,
        ScoreSettings { prompt, chunk, log }: ScoreSettings,
    ) -> Result<Scored> {
        ensure!(!tokens.is_empty(), "there is no token to read");
        self.model.shape().check_cache(cache, tokens.len())?;
        let plan = MemoryPlan { log, ..MemoryPlan::of_cache(cache) };
        let truncated = cache.rule.piece();
        let cuts = cache.rule.awaits_prompt();
        let prompt = match prompt {
            Some(prompt) if prompt == 0 || prompt > tokens.len() => {
                let message = format!("a prompt of {prompt} tokens does not fit a text of {}", tokens.len());
                return Err(
                    InvalidSettings::new(message, "the prompt is the text's first tokens, 1 at least").into()
                );
            }
            Some(prompt) if cuts => prompt,
            None if cuts => {
                let message = "the policy cuts or protects the prompt, and there is none";
                return Err(InvalidSettings::new(message, "say how many of the text's first tokens it has").into());
            }
            // Other schedules read a prompt as any text.
            _ => tokens.len(),
        };
        let bos = truncated.is_some() && self.begin_with_bos(tokens);
        let started = Instant::now();
        let mut scored = Scored::default();
        for (index, piece) in pieces(tokens, bos, truncated.unwrap_or(tokens.len()).max(2)).enumerate() {
            if index > 0 && !bos {
                scored.nll.push(None);
            }
            self.read_piece(&piece, bos, &plan, (prompt, chunk), &mut scored)?;
        }
        scored.seconds = started.elapsed().as_secs_f64();
        Ok(scored)
    }

    /// Reads a piece with an empty memory.
    fn read_piece(
        &self,
        Piece { tokens, start: offset }: &Piece,
        bos: bool,
        plan: &MemoryPlan<'_>,
        (prompt, chunk): (usize, usize),
        scored: &mut Scored,
    ) -> Result<()> {
        let model = &self.model;
        let knows = plan.policy.filter(|policy| policy.score.reads_future());
        let future = knows.map(|policy| model.record_attention(tokens, policy.scope)).transpose()?;
        let text = tokens.len();
        // A prompt that will be cut is held whole.
        let cuts = plan.policy.is_some_and(|policy| policy.awaits_prompt());
        let expect = if cuts { prompt } else { plan.expect };
        let plan = MemoryPlan { text, expect, future: future.as_deref(), ..*plan };
        let mut memory = model.new_memory(&plan);
        let mut start = 0;
        while start < text {
            let part = if start < prompt { prompt.min(text) } else { text };
            let end = start.saturating_add(chunk.max(1)).min(part);
            let states = model.read(&tokens[start..end], &mut memory)?;
            let targets = &tokens[start + 1..(end + 1).min(tokens.len())];
            if !targets.is_empty() {
                let nll = model.nll(&states.narrow(0, 0, targets.len())?, targets)?;
                scored.nll.extend(nll.into_iter().map(Some));
            }
            if cuts && end == prompt {
                scored.cache_bytes = memory.bytes();
                model.cut(&mut memory)?;
            }
            start = end;
            if plan.log {
                let log = memory.take_log();
                scored.evictions.resize(log.len(), Vec::new());
                scored.evictions.iter_mut().zip(log).for_each(|(all, new)| all.extend(new));
            }
        }
        memory.score_count().checked()?;
        let in_text = |&position: &u32| if bos && position == 0 { 0 } else { position + *offset as u32 };
        let shifted = |born: &&[u32]| born.iter().map(in_text).collect();
        scored.survivors = memory.survivors().iter().map(|groups| groups.iter().map(shifted).collect()).collect();
        scored.read = memory.stats();
        scored.cache_bytes = scored.cache_bytes.max(memory.bytes());
        Ok(())
    }
}

impl Scored {
    /// Tokens read at a time, unless somebody asks for other numbers; results do not depend on it.
    pub const CHUNK: usize = CHUNK;

    /// Every eviction as (step, layer, head, position), layer by layer. The head is 0 where a layer decides as one.
    pub fn eviction_rows(&self) -> impl Iterator<Item = [u32; 4]> {
        let layers = (0..).zip(&self.evictions);
        layers.flat_map(|(layer, log)| log.iter().map(move |one| [one.step, layer, one.group, one.victim]))
    }
}
