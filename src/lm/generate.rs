//! Text out: one token after the other, each read into the memory before the next is chosen.
//!
//! Several texts are written side by side with one product per matrix. A text depends on its own prompt, seed and
//! settings alone: not on the texts beside it, nor on how its prompt was cut into reads.

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
    /// The most likely, the lowest id among equals.
    Greedy,
    /// Drawn after a softmax at `temperature` from the `top_k` most likely, and of those from the fewest that reach
    /// a probability of `top_p` together.
    Drawn { temperature: f64, top_k: Option<usize>, top_p: Option<f64> },
}

/// Settings of a written text.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationSettings {
    pub sampling: Sampling,
    /// Logits of tokens that stand in the prompt or were written are divided by this where positive and multiplied
    /// where negative (CTRL, arXiv 1909.05858); 1 changes nothing.
    pub repetition_penalty: f32,
    pub max_new_tokens: usize,
    /// Tokens that end a text and are no part of it.
    pub stop_tokens: Vec<u32>,
    /// Strings that end a text and are no part of it.
    pub stop_strings: Vec<String>,
}

/// A text about to be written: its prompt is read.
pub struct PrefilledPrompt {
    pub memory: Memory,
    /// (1, hidden): the state after the prompt's last token.
    pub state: Tensor,
    pub prompt: Vec<u32>,
    /// Decides every draw.
    pub seed: u64,
}

/// A written text.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    pub text: String,
    /// Without the token that ended it.
    pub tokens: Vec<u32>,
    /// Whether the model ended it, by a token or a string, before the limit did.
    pub ended: bool,
    /// Largest size of the key-value cache, in bytes.
    pub cache_bytes: u64,
}

/// Makes text of tokens.
pub type Decode<'a> = &'a dyn Fn(&[u32]) -> Result<String>;

/// A text in the making.
struct Sequence {
    memory: Memory,
    /// The prompt, then what was written.
    tokens: Vec<u32>,
    prompt: usize,
    sampler: Option<LogitsProcessor>,
    /// Bytes of the text if a string ended it.
    cut: Option<usize>,
    ended: bool,
}

impl LanguageModel {
    /// Writes texts side by side; `decode` makes text of tokens.
    ///
    /// # Errors
    /// What [`step`](Self::step) reports, or logits that are not numbers.
    pub fn generate(
        &self,
        starts: Vec<PrefilledPrompt>,
        writing: &GenerationSettings,
        decode: Decode<'_>,
    ) -> Result<Vec<Generated>> {
        ensure!(!starts.is_empty(), "there is nothing to write");
        let states: Vec<&Tensor> = starts.iter().map(|start| &start.state).collect();
        let mut logits = self.logits(&Tensor::cat(&states, 0)?)?;
        let sequence = |mut start: PrefilledPrompt| {
            // The last token is written, and not read any more.
            self.shrink_to_fit(&mut start.memory, writing.max_new_tokens.saturating_sub(1));
            Sequence::new(start, writing)
        };
        let mut sequences: Vec<Sequence> = starts.into_iter().map(sequence).collect();
        let mut open: Vec<usize> = (0..sequences.len()).collect();
        for written in 1..=writing.max_new_tokens {
            let mut next = Vec::with_capacity(open.len());
            let mut going = Vec::with_capacity(open.len());
            for (&index, logits) in open.iter().zip(&logits) {
                let sequence = &mut sequences[index];
                let token = sequence.choose(logits, writing)?;
                if sequence.takes(token, writing, decode)? {
                    next.push(token);
                    going.push(index);
                }
            }
            open = going;
            if open.is_empty() || written == writing.max_new_tokens {
                break;
            }
            let mut memories: Vec<&mut Memory> = Vec::with_capacity(open.len());
            let waiting = sequences.iter_mut().enumerate().filter(|(index, _)| open.binary_search(index).is_ok());
            memories.extend(waiting.map(|(_, sequence)| &mut sequence.memory));
            let states = self.step(&next, &mut memories)?; // (texts, hidden)
            logits = self.logits(&states)?;
        }
        sequences.into_iter().map(|sequence| sequence.finish(decode)).collect()
    }
}

impl Sequence {
    fn new(start: PrefilledPrompt, writing: &GenerationSettings) -> Sequence {
        let PrefilledPrompt { memory, prompt: tokens, seed, .. } = start;
        let sampler = match writing.sampling {
            Sampling::Greedy => None,
            Sampling::Drawn { temperature, top_k, top_p } => Some(match (top_k, top_p) {
                (None, None) => Sampler::All { temperature },
                (Some(k), None) => Sampler::TopK { k, temperature },
                (None, Some(p)) => Sampler::TopP { p, temperature },
                (Some(k), Some(p)) => Sampler::TopKThenTopP { k, p, temperature },
            }),
        };
        let sampler = sampler.map(|sampling| LogitsProcessor::from_sampling(seed, sampling));
        Sequence { memory, prompt: tokens.len(), tokens, sampler, cut: None, ended: false }
    }

    fn choose(&mut self, logits: &[f32], writing: &GenerationSettings) -> Result<u32> {
        let what = || format!("token {} of the text", self.tokens.len() - self.prompt);
        let penalised = if writing.repetition_penalty == 1.0 {
            None
        } else {
            let row = Tensor::from_slice(logits, logits.len(), &Device::Cpu)?;
            Some(apply_repeat_penalty(&row, writing.repetition_penalty, &self.tokens)?.to_vec1::<f32>()?)
        };
        let logits = penalised.as_deref().unwrap_or(logits);
        let likeliest = vector::argmax(logits).with_context(what).context("the model's logits are not numbers")?;
        match &mut self.sampler {
            None => Ok(likeliest as u32),
            Some(sampler) => Ok(sampler.sample(&Tensor::from_slice(logits, logits.len(), &Device::Cpu)?)?),
        }
    }

    /// Whether the text goes on after this token.
    fn takes(&mut self, token: u32, writing: &GenerationSettings, decode: Decode<'_>) -> Result<bool> {
        if writing.stop_tokens.contains(&token) {
            self.ended = true;
            return Ok(false);
        }
        self.tokens.push(token);
        if !writing.stop_strings.is_empty() {
            let text = decode(&self.tokens[self.prompt..])?;
            let found = writing.stop_strings.iter().filter_map(|stop| text.find(stop.as_str()));
            self.cut = found.min();
            self.ended = self.cut.is_some();
        }
        Ok(!self.ended)
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
