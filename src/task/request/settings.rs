//! How a task generates text: the settings of `write:`, as read and as checked.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::lm::{GenerationSettings, Real, Sampling, Tokenizer};
use crate::task::canonical::Setting;
use crate::yaml::{self, ConfigError, Spanned};

pub const MOST_TEMPERATURE: f64 = 100.0;

/// Smallest and largest penalty of tokens that occurred before.
pub const REPETITION_PENALTIES: [f64; 2] = [0.01, 100.0];

/// How texts are generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationConfig {
    /// Where the cache is cut after the prompt, whether it is cut after the question. Otherwise it is cut at the document's end,
    /// and the question's tokens are read with what is left.
    pub query_aware: bool,
    pub max_new_tokens: usize,
    /// 0: always the most likely token.
    pub temperature: Real,
    pub top_k: Option<usize>,
    pub top_p: Option<Real>,
    pub repetition_penalty: Real,
    /// Whether requests go through the model's chat template, if it has one.
    pub chat_template: bool,
    /// Strings that end a text, in addition to the model's own stop tokens.
    pub stop: Vec<String>,
    /// Whether the NLL of the first reference answer is measured too.
    pub answer_nll: bool,
    /// Whether the tokenizer's end of text ends a text too, as in lm-evaluation-harness.
    pub ends_as_in_the_harness: bool,
}

impl GenerationConfig {
    /// Makes the settings of greedy answers of at most `max_new_tokens` tokens, with everything else at its default.
    pub fn greedy(max_new_tokens: usize) -> GenerationConfig {
        GenerationConfig {
            query_aware: true,
            max_new_tokens,
            temperature: Real(0.0),
            top_k: None,
            top_p: None,
            repetition_penalty: Real(1.0),
            chat_template: true,
            stop: Vec::new(),
            answer_nll: false,
            ends_as_in_the_harness: false,
        }
    }

    /// Whether tokens are drawn at random, so that the seed matters.
    pub fn samples(&self) -> bool {
        self.temperature.0 > 0.0
    }

    /// Makes the model's settings of generation; `stop_tokens` end its texts.
    pub fn writing(&self, stop_tokens: Vec<u32>, tokenizer: &Tokenizer) -> GenerationSettings {
        let sampling = match self.samples() {
            false => Sampling::Greedy,
            true => Sampling::Drawn {
                temperature: self.temperature.0,
                top_k: self.top_k,
                top_p: self.top_p.map(|p| p.0),
            },
        };
        let settings = GenerationSettings {
            sampling,
            repetition_penalty: self.repetition_penalty.0 as f32,
            stop_tokens,
            stop_strings: self.stop.clone(),
        };
        if self.ends_as_in_the_harness { settings.ending_as_in_the_harness(tokenizer) } else { settings }
    }

    /// Lists the settings but `query_aware` in a fixed order, for ids and the column `generation`.
    pub fn canonical(&self) -> Vec<Setting> {
        // The absolute value because -0 means 0. There `top_k` and `top_p` are refused.
        let temperature = self.temperature.0.abs().to_string();
        let mut lines = vec![("max_new_tokens", self.max_new_tokens.to_string()), ("temperature", temperature)];
        lines.extend(self.top_k.map(|k| ("top_k", k.to_string())));
        lines.extend(self.top_p.map(|p| ("top_p", p.0.to_string())));
        if self.repetition_penalty.0 != 1.0 {
            lines.push(("repetition_penalty", self.repetition_penalty.0.to_string()));
        }
        lines.push(("chat_template", self.chat_template.to_string()));
        lines.extend(self.stop.iter().map(|stop| ("stop", stop.clone())));
        lines.extend(self.answer_nll.then(|| ("answer_nll", "true".to_string())));
        lines
    }
}

/// How texts are written: `write:` of a task.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("type" = ["object", "null"]))]
pub struct WriteYaml {
    /// For policies that cut the prompt: true cuts it after the question, false before it, so that the question is read with the
    /// cut cache.
    #[schemars(extend("default" = true))]
    pub query_aware: Option<Spanned<bool>>,
    /// The most tokens to write; fewer than the task's `length`. The default is the task's own, but no more than half of
    /// `length`.
    pub max_new_tokens: Option<Spanned<u64>>,
    /// 0 always takes the most likely token; above 0, tokens are drawn. By default 1 for stories, 0 for other tasks.
    pub temperature: Option<Spanned<f64>>,
    /// Draw only from this many most likely tokens, by default from all; needs a temperature above 0.
    pub top_k: Option<Spanned<u64>>,
    /// Draw only from the fewest tokens that together reach this probability, by default from all; needs a temperature above 0.
    pub top_p: Option<Spanned<f64>>,
    /// Divides the logits of tokens that occurred before; 1 changes nothing.
    #[schemars(range(min = REPETITION_PENALTIES[0], max = REPETITION_PENALTIES[1]), extend("default" = 1.0))]
    pub repetition_penalty: Option<Spanned<f64>>,
    /// Whether requests go through the model's chat template, if it has one. The paper's story request then loses its
    /// own frame.
    #[schemars(extend("default" = true))]
    pub chat_template: Option<bool>,
    /// Strings that end a text, in addition to the model's own stop tokens, such as "\n".
    #[schemars(inner(length(min = 1)), extend("type" = ["array", "null"], "default" = []))]
    pub stop: Vec<Spanned<String>>,
    /// Also measure `answer_nll`: how likely the first reference answer is after the prompt, whatever is written.
    pub answer_nll: bool,
}

/// How tokens are drawn, within range: of `write:`, and of `generation_kwargs` of a task file.
#[derive(Debug)]
pub struct Drawing {
    pub temperature: Option<Real>,
    pub top_k: Option<usize>,
    pub top_p: Option<Real>,
}

impl Drawing {
    /// Checks what a file says.
    ///
    /// # Errors
    /// A number out of its range.
    pub fn check(
        temperature: &Option<Spanned<f64>>,
        top_k: &Option<Spanned<u64>>,
        top_p: &Option<Spanned<f64>>,
    ) -> Result<Drawing, ConfigError> {
        let real = |what: &str, number: &Option<Spanned<f64>>, most: f64| {
            number.as_ref().map(|number| yaml::between(what, number, 0.0, most).map(Real)).transpose()
        };
        Ok(Drawing {
            temperature: real("`temperature`", temperature, MOST_TEMPERATURE)?,
            top_k: yaml::limit("`top_k`", top_k)?,
            top_p: real("`top_p`", top_p, 1.0)?,
        })
    }
}

impl WriteYaml {
    /// Checks the settings over the task's own defaults. `length` is the number of tokens of prompt and text together.
    pub fn check(self, length: usize, default: GenerationConfig) -> Result<GenerationConfig, ConfigError> {
        let most = match &self.max_new_tokens {
            Some(most) => yaml::count("`max_new_tokens`", most, 1)?,
            None => default.max_new_tokens.min(length / 2),
        };
        if let Some(number) = self.max_new_tokens.filter(|_| most >= length) {
            let message = format!("{most} new tokens leave no room for a prompt in a length of {length}");
            return yaml::refuse(number.referenced, message, "write a smaller number, or a larger `length`");
        }
        let Drawing { temperature, mut top_k, mut top_p } =
            Drawing::check(&self.temperature, &self.top_k, &self.top_p)?;
        let temperature = temperature.unwrap_or(default.temperature);
        let drawn = self.top_k.map(|k| k.referenced).or(self.top_p.map(|p| p.referenced));
        if drawn.is_none() && temperature.0 > 0.0 {
            (top_k, top_p) = (default.top_k, default.top_p);
        }
        if let Some(place) = drawn.filter(|_| temperature.0 == 0.0) {
            let message = "at temperature 0 the most likely token is always taken";
            let hint = "write a `temperature` above 0, or leave out `top_k` and `top_p`";
            return yaml::refuse(place, message, hint);
        }
        if let Some(empty) = self.stop.iter().find(|stop| stop.value.is_empty()) {
            return yaml::refuse(empty.referenced, "an empty string ends every text", "remove it");
        }
        let stop = self.stop.iter().map(|stop| stop.value.clone());
        let [least, most_penalty] = REPETITION_PENALTIES;
        let penalty = self.repetition_penalty.as_ref();
        let penalty = penalty.map(|number| yaml::between("`repetition_penalty`", number, least, most_penalty));
        Ok(GenerationConfig {
            query_aware: self.query_aware.is_none_or(|aware| aware.value),
            max_new_tokens: most,
            temperature,
            top_k,
            top_p,
            repetition_penalty: Real(penalty.transpose()?.unwrap_or(1.0)),
            chat_template: self.chat_template.unwrap_or(default.chat_template),
            stop: if self.stop.is_empty() { default.stop } else { stop.collect() },
            answer_nll: self.answer_nll,
            ends_as_in_the_harness: default.ends_as_in_the_harness,
        })
    }
}
