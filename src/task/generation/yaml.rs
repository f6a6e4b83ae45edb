//! The settings under `write:` as a sweep file spells them.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::config::{GenerationConfig, Prefill};
use crate::lm::Real;
use crate::yaml::schema::{Named, setting};
use crate::yaml::{Checker, ConfigError, Spanned};

/// How texts are written: `write:` of a task.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("type" = ["object", "null"]))]
pub struct WriteYaml {
    /// How a prompt gets into a bounded cache. `one_shot` needs absolute positions.
    #[serde(default)]
    #[schemars(schema_with = "prefills")]
    pub prefill: Prefill,
    /// With `prefill: one_shot`, whether the cache is cut after the question; false cuts it at the document's end and
    /// reads the question into the small cache.
    #[schemars(extend("default" = true))]
    pub query_aware: Option<Spanned<bool>>,
    /// The most tokens to write; fewer than the task's `length`. The default is the task's own, but no more than half of
    /// `length`.
    #[schemars(range(min = 1, max = u32::MAX))]
    pub max_new_tokens: Option<Spanned<u64>>,
    /// 0 always takes the most likely token; above 0, tokens are drawn. By default 1 for stories, 0 for other tasks.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub temperature: Option<Spanned<f64>>,
    /// Draw only from this many most likely tokens; needs a temperature above 0.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub top_k: Option<Spanned<u64>>,
    /// Draw only from the fewest tokens that together reach this probability; needs a temperature above 0.
    #[schemars(range(min = 0.0, max = 1.0), extend("default" = null))]
    pub top_p: Option<Spanned<f64>>,
    /// Divides the logits of tokens that occurred before; 1 changes nothing.
    #[schemars(range(min = 0.01, max = 100.0), extend("default" = 1.0))]
    pub repetition_penalty: Option<Spanned<f64>>,
    /// Whether requests go through the model's chat template, if it has one. True by default, except for the paper's
    /// story request, which has a frame of its own.
    #[serde(default)]
    pub chat_template: Option<bool>,
    /// Strings that end a text, in addition to the model's own stop tokens, such as "\n".
    #[serde(default)]
    #[schemars(inner(length(min = 1)), extend("type" = ["array", "null"], "default" = []))]
    pub stop: Vec<Spanned<String>>,
}

const PREFILLS: &[Named] = &[
    ("stream", "the prompt goes through the small cache token by token, as the paper defines it"),
    ("one_shot", "the prompt is read whole and the cache cut once, as the paper's code does"),
];

fn prefills(_: &mut SchemaGenerator) -> Schema {
    setting(PREFILLS, "stream", false)
}

impl WriteYaml {
    /// Checks the settings over the task's own defaults. `length` is the number of tokens of prompt and text together.
    pub fn check(
        self,
        checker: Checker<'_>,
        length: usize,
        default: GenerationConfig,
    ) -> Result<GenerationConfig, ConfigError> {
        let real = |what: &str, number: &Option<Spanned<f64>>, least: f64, most: f64| {
            number.as_ref().map(|number| checker.between(what, number, least, most).map(Real)).transpose()
        };
        let most = match &self.max_new_tokens {
            Some(most) => checker.count("`max_new_tokens`", most, 1)?,
            None => default.max_new_tokens.min(length / 2),
        };
        if let Some(number) = self.max_new_tokens.filter(|_| most >= length) {
            return checker.refuse(
                number.referenced,
                format!("{most} new tokens leave no room for a prompt in a length of {length}"),
                "write a smaller number, or a larger `length`",
            );
        }
        let temperature = real("`temperature`", &self.temperature, 0.0, 100.0)?.unwrap_or(default.temperature);
        let top_p = real("`top_p`", &self.top_p, 0.0, 1.0)?;
        let top_k = checker.limit("`top_k`", &self.top_k)?;
        if temperature.0 == 0.0 {
            let useless = [self.top_k.as_ref().map(|k| k.referenced), self.top_p.as_ref().map(|p| p.referenced)];
            if let Some(place) = useless.into_iter().flatten().next() {
                return checker.refuse(
                    place,
                    "at temperature 0 the most likely token is always taken",
                    "write a `temperature` above 0, or leave out `top_k` and `top_p`",
                );
            }
        }
        if let Some(empty) = self.stop.iter().find(|stop| stop.value.is_empty()) {
            return checker.refuse(empty.referenced, "an empty string ends every text", "remove it");
        }
        if let Some(aware) = self.query_aware.as_ref().filter(|aware| !aware.value)
            && self.prefill == Prefill::Stream
        {
            return checker.refuse(
                aware.referenced,
                "`query_aware: false` needs a prompt that is read in one shot",
                "add `prefill: one_shot`, or remove it: a streamed prompt is never cut",
            );
        }
        let penalty = real("`repetition_penalty`", &self.repetition_penalty, 0.01, 100.0)?;
        Ok(GenerationConfig {
            prefill: self.prefill,
            query_aware: self.query_aware.is_none_or(|aware| aware.value),
            max_new_tokens: most,
            temperature,
            top_k,
            top_p,
            repetition_penalty: penalty.unwrap_or(Real(1.0)),
            chat_template: self.chat_template.unwrap_or(default.chat_template),
            stop: self.stop.into_iter().map(|stop| stop.value).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_every_word() {
        crate::yaml::schema::assert_words::<Prefill>(PREFILLS);
    }
}
