//! The requests of stories, and how result rows name them.

use super::PAPER;
use crate::task::data::{EMBEDDED, digest_of};
use crate::task::embedded;
use crate::task::generation::{Prompt, Request};
use crate::task::spec::TaskSpec;

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
pub(super) fn requests(spec: &TaskSpec, stories: usize, has_template: bool) -> (Vec<Request>, String) {
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
    use super::super::Story;
    use super::*;
    use crate::task::generation::GenerationConfig;

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
            let generation = spec.generation_settings(Some("0123"));
            for has_template in [true, false] {
                for request in requests(&spec, 3, has_template).0 {
                    let found = request_of(dataset, &request.name, generation.as_deref()).unwrap();
                    assert!(request.prompt.after.contains(&found), "{found}");
                }
            }
        }
        assert_eq!(request_of("request", "seed-1", Some("temperature=1")), None);
        assert_eq!(request_of("embedded", "story", None), None);
    }
}
