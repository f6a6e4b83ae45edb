//! The settings of stories as a sweep file spells them.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Story, StoryRequest};
use crate::lm::Real;
use crate::task::data::{self, EMBEDDED, Texts};
use crate::task::embedded::MOST_EMBEDDED_PROMPTS;
use crate::task::generation::{GenerationConfig, WriteYaml};
use crate::task::spec::TaskSpec;
use crate::yaml::{Checker, ConfigError, Spanned};

/// Stories on request, one for each seed; `tova-bench judge` compares those of a bounded cache with the full one's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("type" = ["object", "null"]))]
pub struct StoryYaml {
    /// What is requested: `paper` (the paper's request), `embedded` (requests in the program), or a request of your own.
    #[schemars(regex(pattern = r"\S"), extend("default" = "paper", "examples" = ["paper", "embedded"]))]
    request: Option<Spanned<String>>,
    /// How many stories, each from a seed of its own. At most 1,000 with `request: embedded`.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = 100))]
    stories: Option<Spanned<u64>>,
    /// Tokens of request and story together.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// How stories are written; by default drawn at temperature 1.
    #[serde(default)]
    write: WriteYaml,
}

impl StoryYaml {
    /// Checks every value.
    pub fn check(self, checker: Checker<'_>) -> Result<TaskSpec, ConfigError> {
        let length = data::length(checker, &self.length)?;
        let request = match self.request {
            None => StoryRequest::Paper,
            Some(request) => match request.value.as_str() {
                "paper" => StoryRequest::Paper,
                EMBEDDED => StoryRequest::Embedded,
                text if text.trim().is_empty() => {
                    return checker.refuse(
                        request.referenced,
                        format!("`{text}` asks for nothing"),
                        "write what the story is about",
                    );
                }
                text => StoryRequest::Text(text.to_string()),
            },
        };
        if let (StoryRequest::Embedded, Some(stories)) = (&request, &self.stories)
            && stories.value > MOST_EMBEDDED_PROMPTS as u64
        {
            return checker.refuse(
                stories.referenced,
                format!("`{EMBEDDED}` has no {} story requests", stories.value),
                format!("ask for at most {MOST_EMBEDDED_PROMPTS}"),
            );
        }
        let default = GenerationConfig {
            // The paper does not say how its stories were drawn.
            temperature: Real(1.0),
            // Its request has a frame of its own.
            chat_template: request != StoryRequest::Paper,
            ..GenerationConfig::greedy(length.saturating_sub(256).max(1))
        };
        Ok(TaskSpec::new(Story {
            request,
            // As many as the paper has.
            stories: checker.limit("`stories`", &self.stories)?.unwrap_or(100),
            generation: self.write.check(checker, length, default)?,
            length,
        }))
    }
}
