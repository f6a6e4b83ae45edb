//! The requests of stories, and how result rows name them.

use super::{Story, StoryRequest};
use crate::task::data::{EMBEDDED, digest_of};
use crate::task::embedded;
use crate::task::generation::{Prompt, Request};

/// The paper's request for a story, word for word (table 4), as judges see it.
pub const STORY_REQUEST: &str = "Write a very long story (at least 4,000 words). The story should include at least 20 \
                                 named characters, spans 3 countries and 9 cities, at least 10 chapters and should \
                                 have a lot of plot twists.";

/// The request of the story in a result row, from the row's columns `dataset`, `sample` and `generation`. `None` if the row
/// does not have it.
pub fn request_of(dataset: &str, sample: &str, generation: Option<&str>) -> Option<String> {
    match dataset {
        "paper" => Some(STORY_REQUEST.to_owned()),
        EMBEDDED => {
            let number: usize = sample.strip_prefix(SAMPLE)?.parse().ok()?;
            embedded::prompts(number.checked_add(1)?).nth(number)
        }
        _ => Some(generation?.split_once(" request=")?.1.to_owned()),
    }
}

/// Samples are named by this and a number, which is added to the seed.
const SAMPLE: &str = "seed-";

impl Story {
    /// The requests, and a digest of them.
    pub(super) fn requests(&self, length: usize) -> (Vec<Request>, String) {
        let texts: Vec<String> = match &self.request {
            // The form that the paper's story model was tuned on.
            StoryRequest::Paper => {
                vec![format!("### Instruction:\n{STORY_REQUEST}\n\n### Response:\n"); self.stories]
            }
            StoryRequest::Text(text) => vec![text.clone(); self.stories],
            // The pocket model was trained on stories that follow their request after a blank line.
            StoryRequest::Embedded => {
                embedded::prompts(self.stories).map(|request| format!("{request}\n\n")).collect()
            }
        };
        let digest = digest_of(&texts);
        let request = |(seed, text): (usize, String)| {
            let name = format!("{SAMPLE}{seed}");
            Request {
                cluster: name.clone(),
                name,
                prompt: Prompt { after: text, ..Prompt::default() },
                length,
                seed: seed as u64,
                ..Request::default()
            }
        };
        (texts.into_iter().enumerate().map(request).collect(), digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::generation::GenerationConfig;

    #[test]
    fn a_row_has_the_request_of_its_story() {
        for request in [StoryRequest::Paper, StoryRequest::Embedded, StoryRequest::Text("Of a request=x.".into())]
        {
            let story = Story { request, stories: 3 };
            let (requests, _) = story.requests(99);
            let spec = story.spec(99, GenerationConfig::greedy(9));
            let generation = spec.generation_settings(Some("0123"));
            for request in requests {
                let found = request_of(&spec.dataset, &request.name, generation.as_deref()).unwrap();
                assert!(request.prompt.after.contains(&found), "{found}");
            }
        }
        assert_eq!(request_of("request", "seed-1", Some("temperature=1")), None);
        assert_eq!(request_of("embedded", "story", None), None);
    }
}
