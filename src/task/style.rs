//! How a task writes: the settings under `write:`, and how its prompts get into a cache.

use crate::lm::{GenerationSettings, Real, Sampling};

/// How a prompt gets into a bounded cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefill {
    /// Token by token in effect: the cache never holds more than its size. The paper's definition.
    #[default]
    Stream,
    /// Whole, with an unbounded cache that is cut once, by the attention of the prompt's last token. The paper's
    /// released code.
    OneShot,
}

impl Prefill {
    /// The name YAML, cell ids and result rows use.
    pub fn name(self) -> &'static str {
        match self {
            Prefill::Stream => "stream",
            Prefill::OneShot => "one_shot",
        }
    }
}

/// How texts are written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Style {
    pub prefill: Prefill,
    /// Whether a cache that is cut once is cut after the question; otherwise it is cut at the document's end, and
    /// the question is read into the small cache. One and the same with `prefill: stream`.
    pub query_aware: bool,
    pub max_new_tokens: usize,
    /// 0: the most likely token, always.
    pub temperature: Real,
    pub top_k: Option<usize>,
    pub top_p: Option<Real>,
    pub repetition_penalty: Real,
    /// Whether a request goes through the model's chat template, if it has one.
    pub chat_template: bool,
    /// Strings that end a text, beside the model's own tokens for that.
    pub stop: Vec<String>,
}

impl Style {
    /// Greedy, with everything else at its default.
    pub fn greedy(max_new_tokens: usize) -> Style {
        Style {
            prefill: Prefill::Stream,
            query_aware: true,
            max_new_tokens,
            temperature: Real(0.0),
            top_k: None,
            top_p: None,
            repetition_penalty: Real(1.0),
            chat_template: true,
            stop: Vec::new(),
        }
    }

    /// Whether a seed decides what is written.
    pub fn draws(&self) -> bool {
        self.temperature.0 > 0.0
    }

    /// The same for the model's writing, with the tokens that end its texts.
    pub fn writing(&self, stop_tokens: Vec<u32>) -> GenerationSettings {
        let sampling = match self.draws() {
            false => Sampling::Greedy,
            true => Sampling::Drawn {
                temperature: self.temperature.0,
                top_k: self.top_k,
                top_p: self.top_p.map(|p| p.0),
            },
        };
        GenerationSettings {
            sampling,
            repetition_penalty: self.repetition_penalty.0 as f32,
            max_new_tokens: self.max_new_tokens,
            stop_tokens,
            stop_strings: self.stop.clone(),
        }
    }

    /// What can change a text, in a fixed order, without what the cache alone can notice.
    pub(super) fn canonical(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("max_new_tokens", self.max_new_tokens.to_string())];
        if self.draws() {
            lines.push(("temperature", self.temperature.0.to_string()));
            lines.extend(self.top_k.map(|k| ("top_k", k.to_string())));
            lines.extend(self.top_p.map(|p| ("top_p", p.0.to_string())));
        } else {
            lines.push(("temperature", "0".into()));
        }
        if self.repetition_penalty.0 != 1.0 {
            lines.push(("repetition_penalty", self.repetition_penalty.0.to_string()));
        }
        lines.push(("chat_template", self.chat_template.to_string()));
        lines.extend(self.stop.iter().map(|stop| ("stop", stop.escape_default().to_string())));
        lines
    }
}
