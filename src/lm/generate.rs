//! Generation: one token after the other, each read into the memory before the next is chosen.
//!
//! Several texts are generated together, with one product per matrix. A text depends on its own prompt, seed and
//! settings only, not on the other texts, nor on how its prompt was split into reads.

use std::mem;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use candle_core::{Device, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling as Sampler};
use candle_transformers::utils::apply_repeat_penalty;

use super::cache::memory::Memory;
use super::device::attend::{WriterCall, WriterResult};
use super::device::batcher::Member;
use super::files::tokenizer::Tokenizer;
use super::network::transformer::LanguageModel;
use super::score::NO_NUMBERS;
use crate::eviction::ScoreCount;
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

impl GenerationSettings {
    /// Ends texts as lm-evaluation-harness ends answers: also at the tokenizer's end of text, which joins the stop strings, and at
    /// special tokens that a stop string names, because decoded text does not show these.
    #[must_use]
    pub fn ending_as_in_the_harness(mut self, tokenizer: &Tokenizer) -> GenerationSettings {
        self.stop_tokens.extend(tokenizer.end_token());
        self.stop_strings.extend(tokenizer.end_of_text().map(str::to_owned));
        self.stop_tokens.extend(tokenizer.special_among(&self.stop_strings));
        self
    }
}

/// A prompt that has been read.
#[derive(Clone)]
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
    /// Scores of formulas that have decided what left the cache, those of the prompt included.
    pub score_count: ScoreCount,
}

/// Decodes tokens to text.
pub type Decode<'a> = &'a dyn Fn(&[u32]) -> Result<String>;

/// A text being generated.
struct Sequence {
    key: usize,
    memory: Memory,
    /// Logits of the next token.
    logits: Vec<f32>,
    /// The prompt, then the text.
    tokens: Vec<u32>,
    prompt: usize,
    sampler: Option<LogitsProcessor>,
    /// Length of the text in bytes, if a stop string ended it.
    cut: Option<usize>,
    ended: bool,
    max_new_tokens: usize,
    seconds: f64,
}

/// Texts that are generated side by side. Others can join whenever some have ended (continuous batching).
pub struct Generator<'a> {
    model: &'a LanguageModel,
    settings: &'a GenerationSettings,
    decode: Decode<'a>,
    open: Vec<Sequence>,
    /// On a GPU, steps of other generators wait for this one's.
    _writer: Option<Member<'a, WriterCall, WriterResult>>,
}

/// A text that has ended.
pub struct Ended {
    /// Key that the text was added under.
    pub key: usize,
    pub text: Result<Generated>,
    /// Its share of the time of all steps.
    pub seconds: f64,
}

impl<'a> Generator<'a> {
    pub fn new(model: &'a LanguageModel, settings: &'a GenerationSettings, decode: Decode<'a>) -> Generator<'a> {
        let _writer = model.gpu().map(|gpu| gpu.writers().enter());
        Generator { model, settings, decode, open: Vec::new(), _writer }
    }

    /// The number of texts that are being generated.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Adds a text under a key.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn add(&mut self, key: usize, mut prompt: PrefilledPrompt) -> Result<()> {
        let logits = self.model.logits(&prompt.state)?.swap_remove(0);
        // The last token is not read any more.
        prompt.memory.shrink_to_fit(prompt.max_new_tokens.saturating_sub(1));
        let PrefilledPrompt { memory, prompt: tokens, seed, max_new_tokens, .. } = prompt;
        let sampler = match self.settings.sampling {
            Sampling::Greedy => None,
            Sampling::Drawn { temperature, top_k, top_p } => Some(match (top_k, top_p) {
                (None, None) => Sampler::All { temperature },
                (Some(k), None) => Sampler::TopK { k, temperature },
                (None, Some(p)) => Sampler::TopP { p, temperature },
                (Some(k), Some(p)) => Sampler::TopKThenTopP { k, p, temperature },
            }),
        };
        let sampler = sampler.map(|sampling| LogitsProcessor::from_sampling(seed, sampling));
        let (prompt, cut, ended, seconds) = (tokens.len(), None, false, 0.0);
        let own = Sequence { key, memory, logits, tokens, prompt, sampler, cut, ended, max_new_tokens, seconds };
        self.open.push(own);
        Ok(())
    }

    /// Writes a token of every text. Returns those that have ended, also where a text's logits are not numbers.
    ///
    /// # Errors
    /// What [`LanguageModel::step`] reports; no text can go on then.
    pub fn step(&mut self) -> Result<Vec<Ended>> {
        let started = Instant::now();
        let texts = self.open.len() as f64;
        let (mut ended, mut next) = (Vec::new(), Vec::new());
        for mut sequence in std::mem::take(&mut self.open) {
            match sequence.advance(self.settings, self.decode) {
                Ok(Some(token)) => {
                    next.push(token);
                    self.open.push(sequence);
                }
                Ok(None) => ended.push(sequence.finish(self.decode)),
                Err(error) => ended.push(Ended { key: sequence.key, text: Err(error), seconds: sequence.seconds }),
            }
        }
        if !next.is_empty() {
            let mut memories: Vec<&mut Memory> = self.open.iter_mut().map(|text| &mut text.memory).collect();
            let logits = self.model.next_logits(&next, &mut memories)?;
            for (sequence, logits) in self.open.iter_mut().zip(logits) {
                sequence.logits = logits;
            }
        }
        let share = started.elapsed().as_secs_f64() / texts;
        self.open.iter_mut().for_each(|sequence| sequence.seconds += share);
        ended.iter_mut().for_each(|text| text.seconds += share);
        Ok(ended)
    }
}

impl LanguageModel {
    /// Logits after a token of each text. A GPU reads the weights once for the texts of all threads.
    fn next_logits(&self, tokens: &[u32], memories: &mut [&mut Memory]) -> Result<Vec<Vec<f32>>> {
        let Some(gpu) = self.gpu() else { return self.logits(&self.decode(tokens, memories)?) };
        let texts = tokens.iter().zip(memories.iter_mut()).map(|(token, memory)| (*token, mem::take(*memory)));
        let read = gpu.writers().call(texts.collect(), |calls| self.write_together(calls))?;
        let take = |(memory, (own, logits)): (&mut &mut Memory, (Memory, Vec<f32>))| {
            **memory = own;
            logits
        };
        Ok(memories.iter_mut().zip(read).map(take).collect())
    }

    /// Reads the tokens of all calls into their memories. Returns these with the logits, by call.
    fn write_together(&self, calls: Vec<WriterCall>) -> Result<Vec<WriterResult>> {
        let lens: Vec<usize> = calls.iter().map(Vec::len).collect();
        let (tokens, mut memories): (Vec<u32>, Vec<Memory>) = calls.into_iter().flatten().unzip();
        let mut logits = vec![Vec::new(); tokens.len()];
        let mut left: Vec<usize> = (0..tokens.len()).collect();
        while let Some(first) = left.first() {
            // Others would be computed in another type, or elsewhere.
            let like = memories[*first].kind();
            let (same, others): (Vec<usize>, _) = left.iter().partition(|text| memories[**text].kind() == like);
            let of_these = memories.iter_mut().enumerate().filter(|(text, _)| same.contains(text));
            let mut of_these: Vec<&mut Memory> = of_these.map(|(_, memory)| memory).collect();
            let next: Vec<u32> = same.iter().map(|text| tokens[*text]).collect();
            let states = self.decode(&next, &mut of_these)?; // (texts, hidden)
            for (text, own) in same.into_iter().zip(self.logits(&states)?) {
                logits[text] = own;
            }
            left = others;
        }
        let mut read = memories.into_iter().zip(logits);
        Ok(lens.into_iter().map(|len| read.by_ref().take(len).collect()).collect())
    }

    /// Generates a text after each prompt, all side by side.
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
        let mut generator = Generator::new(self, settings, decode);
        for (key, prompt) in prompts.into_iter().enumerate() {
            generator.add(key, prompt)?;
        }
        let mut texts = Vec::new();
        while generator.open() > 0 {
            texts.append(&mut generator.step()?);
        }
        texts.sort_by_key(|text| text.key);
        texts.into_iter().map(|ended| ended.text).collect()
    }
}

impl Sequence {
    /// Whether another token is to be written.
    fn is_open(&self) -> bool {
        !self.ended && self.tokens.len() - self.prompt < self.max_new_tokens
    }

    /// Chooses the next token. Returns it if it is to be read because another follows.
    fn advance(&mut self, settings: &GenerationSettings, decode: Decode<'_>) -> Result<Option<u32>> {
        if self.is_open() {
            let token = self.choose(settings)?;
            self.push(token, settings, decode)?;
        }
        Ok(self.tokens.last().copied().filter(|_| self.is_open()))
    }

    fn choose(&mut self, settings: &GenerationSettings) -> Result<u32> {
        let what = || format!("token {} of the text", self.tokens.len() - self.prompt);
        let row = |logits: &[f32]| Tensor::from_slice(logits, logits.len(), &Device::Cpu);
        let penalised = if settings.repetition_penalty == 1.0 {
            None
        } else {
            let penalised = apply_repeat_penalty(&row(&self.logits)?, settings.repetition_penalty, &self.tokens)?;
            Some(penalised.to_vec1::<f32>()?)
        };
        let logits = penalised.as_deref().unwrap_or(&self.logits);
        ensure!(self.logits.iter().all(|logit| logit.is_finite()), "{} cannot be chosen: {NO_NUMBERS}", what());
        let likeliest = vector::argmax(logits).with_context(what)?;
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

    fn finish(mut self, decode: Decode<'_>) -> Ended {
        let tokens = self.tokens.split_off(self.prompt);
        let text = decode(&tokens).and_then(|mut text| {
            if let Some(cut) = self.cut {
                text.truncate(cut);
            }
            let (cache_bytes, score_count) = (self.memory.bytes(), self.memory.score_count().checked()?);
            Ok(Generated { text, tokens, ended: self.ended, cache_bytes, score_count })
        });
        Ended { key: self.key, text, seconds: self.seconds }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As `handle_stop_sequences` and `stop_sequences_criteria` of the harness, which decodes special tokens too.
    #[test]
    fn answers_end_where_the_harness_ends_them() {
        let special = |id: u32, content: &str| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        };
        let file = json!({
            "version": "1.0",
            "added_tokens": [special(2, "<end>"), special(3, "<turn>"), special(4, "<other>")],
            "model": {"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "unk_token": "<unk>"}
        });
        let parse = |config| Tokenizer::parse(file.to_string().as_bytes(), &config, None).unwrap();
        let settings = GenerationSettings {
            sampling: Sampling::Greedy,
            repetition_penalty: 1.0,
            stop_tokens: vec![1],
            stop_strings: vec!["<turn>".into(), "a".into()],
        };
        let ending = settings.clone().ending_as_in_the_harness(&parse(json!({ "eos_token": "<end>" })));
        assert_eq!((ending.stop_tokens[..2].to_vec(), ending.stop_strings.len()), (vec![1, 2], 3));
        assert!(ending.stop_tokens.contains(&3) && !ending.stop_tokens.contains(&4));
        assert_eq!(ending.stop_strings, ["<turn>", "a", "<end>"]);
        let without = settings.ending_as_in_the_harness(&parse(json!({})));
        assert_eq!((without.stop_tokens, without.stop_strings.len()), (vec![1, 3], 2));
    }
}
