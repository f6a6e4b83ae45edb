//! SQuALITY's original release, version 1.3: each line is a story with five questions and four answers to each.

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::release::Release;
use crate::task::data::json_lines;
use crate::task::embedded::{self, Document, DocumentQuestion};

/// SQuALITY (Wang et al. 2022, arXiv 2205.11465).
pub static SQUALITY: Release = Release {
    name: "squality",
    opening: "You are given a story and a question.",
    document_header: "Story:\n",
    files: |split| vec![format!("{split}.jsonl"), format!("v1-3/txt/{split}.jsonl")],
    read,
    embedded: embedded::stories,
};

#[derive(Deserialize)]
struct Story {
    metadata: Metadata,
    document: String,
    questions: Vec<StoryQuestion>,
}

#[derive(Deserialize)]
struct Metadata {
    passage_id: String,
}

#[derive(Deserialize)]
struct StoryQuestion {
    question_text: String,
    question_number: u32,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    response_text: String,
}

/// The stories of a file; questions are named `<passage_id>#<question_number>`. Blank lines around a story do
/// not belong to it, as in ZeroSCROLLS. Errors call the text `file`.
///
/// # Errors
/// A line that is not a story, or a story without text; both are named.
fn read(text: &str, file: &str) -> Result<Vec<Document>> {
    let document = |line: Result<(String, Story)>| -> Result<Document> {
        let (place, Story { metadata: Metadata { passage_id: name }, document, questions }) = line?;
        let text = document.trim().to_string();
        ensure!(!text.is_empty(), "{place}: the story {name} is empty");
        let question = |question: StoryQuestion| DocumentQuestion {
            name: format!("{name}#{}", question.question_number),
            question: question.question_text.trim().to_string(),
            summaries: question.responses.into_iter().map(|response| response.response_text).collect(),
            ..DocumentQuestion::default()
        };
        Ok(Document { questions: questions.into_iter().map(question).collect(), text, name })
    };
    json_lines(text, file).map(document).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn story(id: &str, document: &str) -> String {
        let questions = json!([
            {"question_text": " Who ran? ", "question_number": 1, "responses": [
                {"worker_id": "7", "response_text": "A fox."},
                {"worker_id": "8", "response_text": "The fox ran.\n"},
            ]},
            {"question_text": "Where?", "question_number": 2},
        ]);
        json!({"metadata": {"passage_id": id}, "document": document, "questions": questions}).to_string()
    }

    #[test]
    fn a_story_gives_its_questions() {
        let text = format!("{}\n\n{}\n", story("12", "\n\nÉs: a fox ran.\n"), story("13", "An owl."));
        let found = read(&text, "x").unwrap();
        assert_eq!((found.len(), found[1].name.as_str(), found[0].text.as_str()), (2, "13", "És: a fox ran."));
        let [first, second] = &found[0].questions[..] else { panic!("two questions") };
        assert_eq!((first.name.as_str(), first.question.as_str()), ("12#1", "Who ran?"));
        assert_eq!(first.summaries, ["A fox.", "The fox ran.\n"]);
        assert_eq!((second.name.as_str(), second.summaries.len()), ("12#2", 0));
    }

    #[test]
    fn errors_name_the_bad_line() {
        let cases = [
            (format!("{}\n\n{{\"metadata\": \n", story("12", "A fox.")), ["dev.jsonl, line 3", ""]),
            ("{\"metadata\": {}, \"document\": \"\", \"questions\": []}".into(), ["line 1", "passage_id"]),
            (story("12", " \n"), ["line 1", "12 is empty"]),
        ];
        for (text, words) in cases {
            let found = format!("{:#}", read(&text, "dev.jsonl").unwrap_err());
            assert!(words.iter().all(|word| found.contains(word)), "{found}");
        }
    }
}
