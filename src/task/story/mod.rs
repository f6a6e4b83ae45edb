//! Stories on request: one prompt for each seed, the same for every policy.

mod requests;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Deserialize;

pub use requests::{STORY_REQUEST, request_of};

use super::data::{self, EMBEDDED, Texts};
use super::generation::{self, GenerationConfig, Request, Scorer, WriteYaml, by_slice};
use super::prepared::PreparedTask;
use super::spec::{PrepareContext, Task, TaskSpec};
use crate::lm::Real;
use crate::metric::{self, MetricSum};
use crate::yaml::{self, ConfigError, Spanned};

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
    pub fn check(self) -> Result<TaskSpec, ConfigError> {
        let length = data::length(&self.length)?;
        if let Some(blank) = self.request.as_ref().filter(|request| request.value.trim().is_empty()) {
            let message = format!("`{}` asks for nothing", blank.value);
            return yaml::refuse(blank.referenced, message, "write what the story is about");
        }
        let (dataset, request) = match self.request.as_ref().map(|request| request.value.as_str()) {
            None | Some(PAPER) => (PAPER, None),
            Some(EMBEDDED) => (EMBEDDED, None),
            Some(text) => ("request", Some(text.to_string())),
        };
        let default = GenerationConfig {
            // The paper does not say how its stories were drawn.
            temperature: Real(1.0),
            ..GenerationConfig::greedy(length.saturating_sub(256).max(1))
        };
        // As many as the paper has.
        let stories = yaml::limit("`stories`", &self.stories)?.unwrap_or(100);
        let generation = Some(self.write.check(length, default)?);
        let settings = vec![("length", length.to_string())];
        let selection = vec![("stories", stories.to_string())];
        let spec = TaskSpec::new("story", dataset, length, settings, Story { stories });
        Ok(TaskSpec { generation, request, selection, ..spec })
    }
}

/// The data set of the paper's request, table 4.
const PAPER: &str = "paper";

#[derive(Debug)]
struct Story {
    stories: usize,
}

impl Task for Story {
    fn prepare(&self, spec: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let has_template = spec.generation()?.chat_template && context.files.chat_template()?.is_some();
        let (requests, digest) = requests::requests(spec, self.stories, has_template);
        data::note_fewer(context.progress, &spec.dataset, "requests", self.stories, requests.len());
        generation::prepare(spec, context, requests, digest, Box::new(Diversity))
    }
}

/// Stories are compared with no other, but with what the full cache makes of them.
struct Diversity;

impl Scorer for Diversity {
    fn score(&self, text: &str, request: &Request) -> Vec<MetricSum> {
        let values = metric::diversity(text).into_iter();
        values.flat_map(|(metric, value)| by_slice(request, metric, value)).collect()
    }

    fn reads_again(&self) -> bool {
        true
    }
}
