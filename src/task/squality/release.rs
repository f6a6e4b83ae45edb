//! SQuALITY's original release, version 1.3: each line is a story with five questions and four answers to each.

use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::task::questions::{MakePrompt, Question, json_lines, nonblank};

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

/// The questions of a file, named `<passage_id>#<question_number>`. Blank lines around a story do not belong to it, as in
/// ZeroSCROLLS. Errors call the text `file`.
///
/// # Errors
/// A line that is not a story, or a story without text; both are named.
pub fn read(text: &str, file: &str, prompt: MakePrompt<'_>) -> Result<Vec<Question>> {
    let mut questions = Vec::new();
    for line in json_lines(text, file) {
        let (place, Story { metadata, document, questions: of_story }) = line?;
        let document = document.trim();
        let cluster = metadata.passage_id;
        ensure!(!document.is_empty(), "{place}: the story {cluster} is empty");
        questions.extend(of_story.into_iter().map(|question| Question {
            name: format!("{cluster}#{}", question.question_number),
            cluster: cluster.clone(),
            prompt: prompt(document, question.question_text.trim()),
            references: nonblank(question.responses.into_iter().map(|response| response.response_text)),
            kind: None,
        }));
    }
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::questions::bare_prompt;

    fn story(id: &str, document: &str) -> String {
        let questions = serde_json::json!([
            {"question_text": " Who ran? ", "question_number": 1, "responses": [
                {"worker_id": "7", "uid": "u", "response_text": "A fox."},
                {"worker_id": "8", "uid": "v", "response_text": "The fox ran.\n"},
            ]},
            {"question_text": "Where?", "question_number": 2, "responses": []},
        ]);
        let metadata = serde_json::json!({"passage_id": id, "uid": "x", "license": "none"});
        serde_json::json!({"metadata": metadata, "document": document, "questions": questions}).to_string()
    }

    #[test]
    fn a_story_gives_its_questions() {
        let text = format!("{}\n\n{}\n", story("12", "\n\nÉs: a fox ran.\n"), story("13", "An owl."));
        let found = read(&text, "x", &bare_prompt).unwrap();
        let names: Vec<&str> = found.iter().map(|question| question.name.as_str()).collect();
        assert_eq!(names, ["12#1", "12#2", "13#1", "13#2"]);
        assert_eq!(found[1].cluster, "12");
        assert_eq!(found[0].references, ["A fox.", "The fox ran.\n"]);
        assert!(found[1].references.is_empty());
        assert_eq!(
            (found[0].prompt.document.as_str(), found[0].prompt.after.as_str()),
            ("És: a fox ran.", "Who ran?")
        );
    }

    #[test]
    fn errors_name_the_bad_line() {
        let message = |text: &str| format!("{:#}", read(text, "dev.jsonl", &bare_prompt).unwrap_err());
        let found = message(&format!("{}\n\n{{\"metadata\": \n", story("12", "A fox.")));
        assert!(found.contains("dev.jsonl, line 3"), "{found}");
        let found = message("{\"metadata\": {}, \"document\": \"\", \"questions\": []}");
        assert!(found.contains("line 1") && found.contains("passage_id"), "{found}");
        let found = message(&story("12", " \n"));
        assert!(found.contains("line 1") && found.contains("12 is empty"), "{found}");
    }
}
