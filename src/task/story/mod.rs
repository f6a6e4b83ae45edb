//! Stories on request: one prompt for each seed, the same for every policy.

mod requests;
mod yaml;

use anyhow::Result;

pub use requests::{STORY_REQUEST, request_of};
pub use yaml::StoryYaml;

use super::data::EMBEDDED;
use super::generation::{GenerationConfig, GenerationSamples, Scorer};
use super::prepared::PreparedTask;
use super::spec::{PrepareContext, Setting, Task, TaskSpec};
use crate::eviction::CacheRule;
use crate::metric;

/// Stories on request, one for each seed.
#[derive(Clone, Debug, PartialEq)]
struct Story {
    request: StoryRequest,
    stories: usize,
    /// Tokens of request and story together, BOS included.
    length: usize,
    generation: GenerationConfig,
}

/// What a story is requested with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StoryRequest {
    /// The paper's request, table 4.
    Paper,
    /// Requests in the program, one for each story.
    Embedded,
    Text(String),
}

impl Task for Story {
    fn name(&self) -> &'static str {
        "story"
    }

    fn dataset(&self) -> String {
        let name = match &self.request {
            StoryRequest::Paper => "paper",
            StoryRequest::Embedded => EMBEDDED,
            StoryRequest::Text(_) => "request",
        };
        name.to_string()
    }

    fn length(&self) -> usize {
        self.length
    }

    fn canonical(&self) -> String {
        format!("stories={}\nlength={}\n", self.stories, self.length)
    }

    fn generation(&self) -> Option<&GenerationConfig> {
        Some(&self.generation)
    }

    fn row_settings(&self, mut settings: Vec<Setting>) -> Vec<Setting> {
        if let StoryRequest::Text(text) = &self.request {
            settings.push(("request", text.clone()));
        }
        settings
    }

    fn for_rule(&self, rule: CacheRule) -> Option<TaskSpec> {
        let generation = self.generation.for_rule(rule)?;
        Some(TaskSpec::new(Story { generation, ..self.clone() }))
    }

    fn prepare(&self, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let (requests, digest) = self.requests();
        let scorer = Scorer { score: |text, _| metric::diversity(text), needs_references: false, rescore: true };
        GenerationSamples::prepare(context, requests, digest, scorer, &self.generation)
    }
}
