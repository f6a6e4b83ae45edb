//! Stories on request: one prompt per seed, the same for every policy.

use sha2::{Digest, Sha256};

use super::data_source::EMBEDDED;
use super::embedded;
use super::prompt::Prompt;
use super::requests::Request;
use super::settings::{StoryRequest, Storytelling};
use super::story_prompt::{STORY_PROMPT, STORY_REQUEST};

/// What the story of a result row was asked for with: the row's `dataset`, `sample` and `asked`. `None` if the row
/// does not say.
pub fn request_of(dataset: &str, sample: &str, asked: Option<&str>) -> Option<String> {
    match dataset {
        "paper" => Some(STORY_REQUEST.to_owned()),
        EMBEDDED => {
            let number: usize = sample.strip_prefix(SAMPLE)?.parse().ok()?;
            embedded::prompts(number.checked_add(1)?).nth(number)
        }
        _ => Some(asked?.split_once(" request=")?.1.to_owned()),
    }
}

/// Samples are called this and a number, which is added to the seed.
const SAMPLE: &str = "seed-";

/// The requests of a task, and a digest of what they say.
pub(super) fn requests(task: &Storytelling) -> (Vec<Request>, String) {
    let texts: Vec<String> = match &task.request {
        StoryRequest::Paper => vec![STORY_PROMPT.to_owned(); task.stories],
        StoryRequest::Text(text) => vec![text.clone(); task.stories],
        // As its answers follow requests in the pocket model's lessons: after a blank line.
        StoryRequest::Embedded => {
            embedded::prompts(task.stories).map(|request| format!("{request}\n\n")).collect()
        }
    };
    let mut hash = Sha256::new();
    for text in &texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let hex: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let request = |(seed, text): (usize, String)| {
        let name = format!("{SAMPLE}{seed}");
        let prompt = Prompt { after: text, ..Prompt::default() };
        Request {
            cluster: name.clone(),
            name,
            prompt,
            length: task.length,
            draw: seed as u64,
            ..Request::default()
        }
    };
    (texts.into_iter().enumerate().map(request).collect(), format!("sha256:{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::settings::TaskSpec;
    use crate::task::style::Style;

    #[test]
    fn a_row_tells_what_its_story_was_asked_for_with() {
        for request in [StoryRequest::Paper, StoryRequest::Embedded, StoryRequest::Text("Of a request=x.".into())]
        {
            let task = Storytelling { request, stories: 3, length: 99, style: Style::greedy(9) };
            let (requests, _) = requests(&task);
            let spec = TaskSpec::Story(task);
            let asked = spec.asked(Some("0123"));
            for request in requests {
                let told = request_of(&spec.dataset(), &request.name, asked.as_deref()).unwrap();
                assert!(request.prompt.after.contains(&told), "{told}");
            }
        }
        assert_eq!(request_of("request", "seed-1", Some("temperature=1")), None);
        assert_eq!(request_of("embedded", "story", None), None);
    }
}
