//! Stories on request: one prompt for each seed, the same for every policy.

use anyhow::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use super::data::{self, EMBEDDED, Texts, digest_of};
use super::embedded;
use super::generation;
use super::prepared::PreparedTask;
use super::request::{GenerationConfig, Prompt, Request, Scorer, WriteYaml, by_slice};
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
    #[schemars(range(min = 1, max = yaml::MOST_MADE), extend("default" = 100))]
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
        let stories = yaml::made("`stories`", &self.stories)?.unwrap_or(100);
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
        let (requests, digest) = requests(spec, self.stories, has_template);
        data::note_fewer(context.hub.progress, &spec.dataset, "requests", self.stories, requests.len());
        generation::prepare(spec, context, requests, digest, Box::new(Diversity))
    }
}

/// Stories are compared with no other, but with what the full cache makes of them.
struct Diversity;

impl Scorer for Diversity {
    fn score(&self, text: &str, request: &Request) -> Result<Vec<MetricSum>> {
        let values = metric::diversity(text).into_iter();
        Ok(values.flat_map(|(metric, value)| by_slice(request, metric, value)).collect())
    }

    fn reads_again(&self) -> bool {
        true
    }
}

/// The paper's request for a story, word for word (table 4), as judges see it.
pub const STORY_REQUEST: &str = "Write a very long story (at least 4,000 words). The story should include at least 20 \
                                 named characters, spans 3 countries and 9 cities, at least 10 chapters and should \
                                 have a lot of plot twists.";

/// The request of the story in a result row, from the row's columns `dataset`, `sample` and `generation`. `None` if the row
/// does not have it.
pub fn request_of(dataset: &str, sample: &str, generation: Option<&str>) -> Option<String> {
    match dataset {
        PAPER => Some(STORY_REQUEST.to_owned()),
        EMBEDDED => {
            let number: usize = sample.strip_prefix(SAMPLE)?.parse().ok()?;
            embedded::prompts(number.checked_add(1)?).nth(number)
        }
        _ => Some(generation?.split_once(" request=")?.1.to_owned()),
    }
}

/// Samples are named by this and a number, which is added to the seed.
const SAMPLE: &str = "seed-";

/// The requests of a task, and a digest of them. `has_template`: the model's chat template goes around them.
fn requests(spec: &TaskSpec, stories: usize, has_template: bool) -> (Vec<Request>, String) {
    let texts: Vec<String> = match (spec.dataset.as_str(), &spec.request) {
        (_, Some(request)) => vec![request.clone(); stories],
        // The pocket model was trained on stories that follow their request after a blank line.
        (EMBEDDED, _) => embedded::prompts(stories).map(|request| format!("{request}\n\n")).collect(),
        // The frame below is that of another tuning; a model with a template was not tuned on both.
        _ if has_template => vec![STORY_REQUEST.to_owned(); stories],
        // The form that the paper's story model was tuned on.
        _ => vec![format!("### Instruction:\n{STORY_REQUEST}\n\n### Response:\n"); stories],
    };
    let digest = digest_of(&texts);
    let request = |(seed, text): (usize, String)| {
        let name = format!("{SAMPLE}{seed}");
        Request {
            cluster: name.clone(),
            name,
            prompt: Prompt { after: text, ..Prompt::default() },
            length: spec.length,
            seed: seed as u64,
            ..Request::default()
        }
    };
    (texts.into_iter().enumerate().map(request).collect(), digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_request_has_one_frame() {
        let spec = TaskSpec::new("story", PAPER, 99, Vec::new(), Story { stories: 1 });
        let (plain, digest) = requests(&spec, 1, true);
        assert_eq!(plain[0].prompt.whole(), STORY_REQUEST);
        let (framed, other) = requests(&spec, 1, false);
        let expected = format!("### Instruction:\n{STORY_REQUEST}\n\n### Response:\n");
        assert_eq!(framed[0].prompt.whole(), expected);
        assert_ne!(digest, other);
    }

    #[test]
    fn a_row_has_the_request_of_its_story() {
        for (dataset, request) in [(PAPER, None), (EMBEDDED, None), ("request", Some("Of a request=x.".into()))] {
            let generation = Some(GenerationConfig::greedy(9));
            let spec = TaskSpec::new("story", dataset, 99, Vec::new(), Story { stories: 3 });
            let spec = TaskSpec { generation, request, ..spec };
            let generation = spec.generation_settings(Some("0123")).into_iter();
            let generation =
                generation.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
            for has_template in [true, false] {
                for request in requests(&spec, 3, has_template).0 {
                    let found = request_of(dataset, &request.name, Some(&generation)).unwrap();
                    assert!(request.prompt.after.contains(&found), "{found}");
                }
            }
        }
        assert_eq!(request_of("request", "seed-1", Some("temperature=1")), None);
        assert_eq!(request_of("embedded", "story", None), None);
    }
}
