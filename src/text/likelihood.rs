//! What lm-evaluation-harness asks of a model: how likely continuations and whole texts are, and answers to prompts.

use anyhow::Result;

use super::{InvalidSettings, TextModel};

use crate::lm::{GenerationSettings, Sampling};
use crate::task::{CacheConfig, RollingText, TokenAnswer, TokenRequest, TokenSettings, answer_tokens};

/// Prompts in tokens that are measured together.
pub struct TextRequests {
    pub requests: Vec<TokenRequest>,
    /// The most tokens of a prompt and what follows it.
    pub length: usize,
    /// Strings that end an answer, in addition to the model's own end-of-text tokens.
    pub stop: Vec<String>,
}

impl TextModel {
    /// Reads each prompt under a cache, and measures from what is left of it how likely its continuations are, or writes an
    /// answer, greedily. The numbers are those of a sweep's task that has the same tokens.
    ///
    /// # Errors
    /// A model without a tokenizer, an empty stop, prompts that are too long or empty, or an interruption.
    pub fn answer(&self, requests: TextRequests, config: &CacheConfig) -> Result<Vec<TokenAnswer>> {
        let TextRequests { requests, length, stop: stop_strings } = requests;
        self.model.shape().check_cache(&config.cache, length)?;
        if stop_strings.iter().any(String::is_empty) {
            return Err(InvalidSettings::new("an empty string ends every text", "leave out the stop").into());
        }
        let tokenizer = self.tokenizer()?;
        let stop_tokens = self.files.stop_tokens()?;
        let writing =
            GenerationSettings { sampling: Sampling::Greedy, repetition_penalty: 1.0, stop_tokens, stop_strings };
        let writing = writing.ending_as_in_the_harness(tokenizer);
        let bos = tokenizer.bos().ok();
        answer_tokens(&self.model, tokenizer, requests, TokenSettings { config, length, writing, bos })
    }

    /// The log-likelihood in nats of a text's tokens, in windows of `length` tokens as lm-evaluation-harness cuts them, each with an
    /// empty cache. The first begins with the [prefix token](Self::prefix_token).
    ///
    /// # Errors
    /// A length without a token, tokens outside the vocabulary, a length that is too long for the model, or an interruption.
    pub fn rolling_likelihood(&self, text: &[u32], length: usize, config: &CacheConfig) -> Result<f64> {
        if length == 0 {
            return Err(InvalidSettings::new("a window has at least one token", "use a larger length").into());
        }
        if config.cuts() {
            let message = "the policy cuts or protects the prompt, and a text read in windows has none";
            return Err(InvalidSettings::new(message, "use another schedule, or another task").into());
        }
        let windows = RollingText::new(text, self.prefix_token()?, length, ("", ""));
        Ok(-windows.read(&self.model, config)?.nll)
    }
}
