//! Generation: one token after the other, each read into the memory before the next is chosen.
//!
//! Several texts are generated together, with one product per matrix. A text depends on its own prompt, seed and
//! settings only, not on the other texts, nor on how its prompt was split into reads.

use anyhow::{Context, Result, ensure};
use candle_core::{Device, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling as Sampler};
use candle_transformers::utils::apply_repeat_penalty;

use super::memory::Memory;
use super::transformer::LanguageModel;
use crate::vector;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// The most likely token, the lowest id among equals.
    Greedy,
    /// A token drawn after a softmax at `temperature` from the `top_k` most likely, and of those from the fewest
    /// whose probabilities sum to `top_p`.
    Drawn { temperature: f64, top_k: Option<usize>, top_p: Option<f64> },
}

/// Settings of generation.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationSettings {
    pub sampling: Sampling,
    /// Logits of tokens in the prompt or in the text are divided by this if positive and multiplied if negative
    /// (CTRL, arXiv 1909.05858); 1 changes nothing.
    pub repetition_penalty: f32,
    /// Tokens that end a text; not part of it.
    pub stop_tokens: Vec<u32>,
    /// Strings that end a text; not part of it.
    pub stop_strings: Vec<String>,
}

/// A prompt that has been read.
pub struct PrefilledPrompt {
    pub memory: Memory,
    /// (1, hidden): the state after the prompt's last token.
    pub state: Tensor,
    pub prompt: Vec<u32>,
    /// Seed of the draws.
    pub seed: u64,
    /// The most tokens to write after it.
    pub max_new_tokens: usize,
}

/// A generated text.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    pub text: String,
    /// Without the token that ended it.
    pub tokens: Vec<u32>,
    /// Whether a stop token or string ended it, and not the limit.
    pub ended: bool,
    /// Largest size of the key-value cache, in bytes.
    pub cache_bytes: u64,
}

/// Decodes tokens to text.
pub type Decode<'a> = &'a dyn Fn(&[u32]) -> Result<String>;

/// A text being generated.
struct Sequence {
    memory: Memory,
    /// The prompt, then the text.
    tokens: Vec<u32>,
    prompt: usize,
    sampler: Option<LogitsProcessor>,
    /// Length of the text in bytes, if a stop string ended it.
    cut: Option<usize>,
    ended: bool,
    max_new_tokens: usize,
}

impl LanguageModel {
    /// Generates a text after each prompt.
    ///
    /// # Errors
    /// What [`step`](Self::step) reports, or logits that are not numbers.
    pub fn generate(
        &self,
        prompts: Vec<PrefilledPrompt>,
        settings: &GenerationSettings,
        decode: Decode<'_>,
    ) -> Result<Vec<Generated>> {
        ensure!(!prompts.is_empty(), "there is nothing to generate");
        let states: Vec<&Tensor> = prompts.iter().map(|prompt| &prompt.state).collect();
        let mut logits = self.logits(&Tensor::cat(&states, 0)?)?;
        let sequence = |mut prompt: PrefilledPrompt| {
            // The last token is not read any more.
            prompt.memory.shrink_to_fit(prompt.max_new_tokens.saturating_sub(1));
            Sequence::new(prompt, settings)
        };
        let mut sequences: Vec<Sequence> = prompts.into_iter().map(sequence).collect();
        loop {
            let mut next = Vec::with_capacity(sequences.len());
            let open = sequences.iter_mut().filter(|sequence| sequence.is_open());
            for (sequence, logits) in open.zip(&logits) {
                let token = sequence.choose(logits, settings)?;
                sequence.push(token, settings, decode)?;
                if sequence.is_open() {
                    next.push(token);
                }
            }
            if next.is_empty() {
                break;
            }
            let open = sequences.iter_mut().filter(|sequence| sequence.is_open());
            let mut memories: Vec<&mut Memory> = open.map(|sequence| &mut sequence.memory).collect();
            let states = self.step(&next, &mut memories)?; // (texts, hidden)
            logits = self.logits(&states)?;
        }
        sequences.into_iter().map(|sequence| sequence.finish(decode)).collect()
    }
}

impl Sequence {
    fn new(prompt: PrefilledPrompt, settings: &GenerationSettings) -> Sequence {
        let PrefilledPrompt { memory, prompt: tokens, seed, max_new_tokens, .. } = prompt;
        let sampler = match settings.sampling {
            Sampling::Greedy => None,
            Sampling::Drawn { temperature, top_k, top_p } => Some(match (top_k, top_p) {
                (None, None) => Sampler::All { temperature },
                (Some(k), None) => Sampler::TopK { k, temperature },
                (None, Some(p)) => Sampler::TopP { p, temperature },
                (Some(k), Some(p)) => Sampler::TopKThenTopP { k, p, temperature },
            }),
        };
        let sampler = sampler.map(|sampling| LogitsProcessor::from_sampling(seed, sampling));
        Sequence { memory, prompt: tokens.len(), tokens, sampler, cut: None, ended: false, max_new_tokens }
    }

    /// Whether another token is to be written.
    fn is_open(&self) -> bool {
        !self.ended && self.tokens.len() - self.prompt < self.max_new_tokens
    }

    fn choose(&mut self, logits: &[f32], settings: &GenerationSettings) -> Result<u32> {
        let what = || format!("token {} of the text", self.tokens.len() - self.prompt);
        let row = |logits: &[f32]| Tensor::from_slice(logits, logits.len(), &Device::Cpu);
        let penalised = if settings.repetition_penalty == 1.0 {
            None
        } else {
            let penalised = apply_repeat_penalty(&row(logits)?, settings.repetition_penalty, &self.tokens)?;
            Some(penalised.to_vec1::<f32>()?)
        };
        let logits = penalised.as_deref().unwrap_or(logits);
        let likeliest = vector::argmax(logits).with_context(what).context("the model's logits are not numbers")?;
        match &mut self.sampler {
            None => Ok(likeliest as u32),
            Some(sampler) => Ok(sampler.sample(&row(logits)?)?),
        }
    }

    /// Adds a token, or ends the text.
    fn push(&mut self, token: u32, settings: &GenerationSettings, decode: Decode<'_>) -> Result<()> {
        if settings.stop_tokens.contains(&token) {
            self.ended = true;
            return Ok(());
        }
        self.tokens.push(token);
        if !settings.stop_strings.is_empty() {
            let text = decode(&self.tokens[self.prompt..])?;
            self.cut = settings.stop_strings.iter().filter_map(|stop| text.find(stop.as_str())).min();
            self.ended = self.cut.is_some();
        }
        Ok(())
    }

    fn finish(mut self, decode: Decode<'_>) -> Result<Generated> {
        let tokens = self.tokens.split_off(self.prompt);
        let mut text = decode(&tokens)?;
        if let Some(cut) = self.cut {
            text.truncate(cut);
        }
        Ok(Generated { text, tokens, ended: self.ended, cache_bytes: self.memory.bytes() })
    }
}
