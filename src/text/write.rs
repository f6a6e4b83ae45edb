//! Texts that continue a prompt.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::{InvalidSettings, TextLength, TextModel};
use crate::eviction::CacheSpec;
use crate::lm::{Generated, GenerationSettings, MemoryPlan, PrefilledPrompt, Sampling};
use crate::task::{MOST_TEMPERATURE, REPETITION_PENALTIES};

/// The most texts side by side, each with a cache of its own.
const MOST_BATCH: usize = 4096;

/// How texts are written.
#[derive(Clone, Debug)]
pub struct WriteSettings {
    /// The most tokens of a text.
    pub max_new_tokens: usize,
    /// 0: always the most likely token.
    pub temperature: f64,
    pub top_k: Option<usize>,
    pub top_p: Option<f64>,
    /// 1 changes nothing.
    pub repetition_penalty: f32,
    /// Strings that end a text.
    pub stop: Vec<String>,
    /// Whether texts go on after the model's own end-of-text tokens.
    pub ignore_eos: bool,
    /// Texts, with consecutive seeds for the policy and for the choice of tokens.
    pub batch: usize,
}

/// Texts, and the time they took.
pub struct Written {
    pub prompt_tokens: usize,
    pub texts: Vec<Generated>,
    pub read_seconds: f64,
    pub write_seconds: f64,
}

impl WriteSettings {
    /// How tokens are chosen.
    ///
    /// # Errors
    /// Numbers that mean nothing.
    pub fn sampling(&self) -> Result<Sampling, InvalidSettings> {
        let WriteSettings { temperature, top_k, top_p, .. } = *self;
        let check = |ok, what: &str, hint: &str| if ok { Ok(()) } else { Err(InvalidSettings::new(what, hint)) };
        check(self.max_new_tokens > 0 && self.batch > 0, "there is nothing to write", "numbers start at 1")?;
        let most = format!("{} texts side by side are more than {MOST_BATCH}", self.batch);
        check(self.batch <= MOST_BATCH, &most, "write them in several commands, with other seeds")?;
        let is_temperature = (0.0..=MOST_TEMPERATURE).contains(&temperature);
        check(is_temperature, "the temperature must be a number from 0 to 100", "try 0.7")?;
        let is_share = top_p.is_none_or(|p| p > 0.0 && p <= 1.0);
        check(is_share, "top_p must be a probability", "write a number above 0, up to 1")?;
        check(top_k != Some(0), "top_k must be at least 1", "leave it out to sample from all tokens")?;
        let [least, most] = REPETITION_PENALTIES.map(|penalty| penalty as f32);
        let is_penalty = self.repetition_penalty >= least && self.repetition_penalty <= most;
        check(is_penalty, "the repetition penalty must be a number from 0.01 to 100", "1 changes nothing")?;
        check(!self.stop.iter().any(String::is_empty), "an empty string ends every text", "leave out the stop")?;
        let is_drawn = temperature > 0.0;
        check(
            is_drawn || (top_k, top_p) == (None, None),
            "nothing is sampled at temperature 0",
            "add a temperature",
        )?;
        Ok(if is_drawn { Sampling::Drawn { temperature, top_k, top_p } } else { Sampling::Greedy })
    }
}

impl TextModel {
    /// The length of a prompt and of what is written after it.
    ///
    /// # Errors
    /// More new tokens than the model has positions.
    pub fn written_length(&self, prompt: &[u32], settings: &WriteSettings) -> Result<TextLength, InvalidSettings> {
        let (most, new) = (self.files.shape.max_positions, settings.max_new_tokens);
        if new > most {
            let message = format!("{new} new tokens are more than the {most} positions of the model");
            return Err(InvalidSettings::new(message, format!("write at most {most} tokens")));
        }
        Ok(TextLength { prompt: Some(prompt.len()), text: prompt.len() + new })
    }

    /// Reads the prompt, at most `chunk` tokens at a time, and writes all texts from there. Under `truncate` only as many last
    /// tokens of it are read as a piece has. Each text is the one that its seed alone gives.
    ///
    /// # Errors
    /// Settings that mean nothing, a prompt that the model cannot read, or an interruption.
    pub fn write(
        &self,
        prompt: &[u32],
        cache: &CacheSpec,
        settings: &WriteSettings,
        chunk: usize,
    ) -> Result<Written> {
        let writing = GenerationSettings {
            sampling: settings.sampling()?,
            repetition_penalty: settings.repetition_penalty,
            stop_tokens: if settings.ignore_eos { Vec::new() } else { self.files.stop_tokens()? },
            stop_strings: settings.stop.clone(),
        };
        self.model.shape().check_cache(cache, self.written_length(prompt, settings)?.text)?;
        let (plan, truncated) = (MemoryPlan::of_cache(cache), cache.rule.piece());
        // Token ids can be continued without a tokenizer.
        let tokenizer = self.tokenizer();
        ensure!(tokenizer.is_ok() || settings.stop.is_empty(), "strings that end a text need a tokenizer");
        let decode =
            |tokens: &[u32]| tokenizer.as_ref().map_or(Ok(String::new()), |tokenizer| tokenizer.written(tokens));
        // The paper cuts prompts too, but keeps the question; here there is none, so the last tokens are kept.
        let prompt = &prompt[prompt.len().saturating_sub(truncated.unwrap_or(prompt.len()))..];
        let length = prompt.len() + settings.max_new_tokens;
        let plan = MemoryPlan { expect: length, text: length, ..plan };

        let started = Instant::now();
        let read = |seed| self.read_prompt(prompt, &MemoryPlan { seed, ..plan }, settings.max_new_tokens, chunk);
        let mut prompts = vec![read(plan.seed)?];
        for number in 1..settings.batch {
            let seed = plan.seed.wrapping_add(number as u64);
            // Where a policy draws numbers, another seed evicts other entries of the prompt.
            let draws = plan.policy.is_some_and(|policy| policy.scores().any(crate::eviction::Score::draws));
            prompts.push(if draws { read(seed)? } else { PrefilledPrompt { seed, ..prompts[0].clone() } });
        }
        let read_seconds = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let texts = self.model.generate(prompts, &writing, &decode)?;
        let write_seconds = started.elapsed().as_secs_f64();
        Ok(Written { prompt_tokens: prompt.len(), texts, read_seconds, write_seconds })
    }

    /// Reads a prompt into a memory of its own, at most `chunk` tokens at a time.
    fn read_prompt(
        &self,
        prompt: &[u32],
        plan: &MemoryPlan<'_>,
        max_new_tokens: usize,
        chunk: usize,
    ) -> Result<PrefilledPrompt> {
        let mut memory = self.model.new_memory(plan);
        let mut state = None;
        for chunk in prompt.chunks(chunk.max(1)) {
            state = Some(self.model.read(chunk, &mut memory)?.narrow(0, chunk.len() - 1, 1)?);
        }
        let state = state.context("there is no token to read")?;
        self.model.cut(&mut memory)?;
        Ok(PrefilledPrompt { memory, state, prompt: prompt.to_vec(), seed: plan.seed, max_new_tokens })
    }
}
