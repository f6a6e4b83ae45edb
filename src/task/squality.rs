//! SQuALITY's original release: a story a line, five questions about it, four answers to each.
//!
//! Knows version 1.3 of its lines; prompts are worded elsewhere.

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::question::{Benchmark, PromptStyle, Question};
use super::source::{json_lines, make_room, said};

#[derive(Deserialize)]
struct Story {
    metadata: Metadata,
    document: String,
    questions: Vec<Asked>,
}

#[derive(Deserialize)]
struct Metadata {
    passage_id: String,
}

#[derive(Deserialize)]
struct Asked {
    question_text: String,
    question_number: u32,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    response_text: String,
}

/// The questions of a file, named `<passage_id>#<question_number>`. Blank lines around a story are no part of it,
/// as in ZeroSCROLLS. `file` is what errors call the text.
///
/// # Errors
/// A line that is no story, or a story without text; both are named.
pub(super) fn questions(text: &str, file: &str, style: PromptStyle) -> Result<Vec<Question>> {
    let (mut questions, mut held) = (Vec::new(), 0);
    for line in json_lines(text, file) {
        let (place, Story { metadata, document, questions: asked }) = line?;
        let document = document.trim();
        let cluster = metadata.passage_id;
        ensure!(!document.is_empty(), "{place}: the story {cluster} is empty");
        asked.iter().try_for_each(|_| make_room(&mut held, document, file))?;
        questions.extend(asked.into_iter().map(|asked| Question {
            name: format!("{cluster}#{}", asked.question_number),
            cluster: cluster.clone(),
            prompt: Benchmark::Squality.prompt(style, document, asked.question_text.trim()),
            references: said(asked.responses.into_iter().map(|response| response.response_text)),
            kind: None,
        }));
    }
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let found = questions(&text, "x", PromptStyle::ZeroScrolls).unwrap();
        let names: Vec<&str> = found.iter().map(|question| question.name.as_str()).collect();
        assert_eq!(names, ["12#1", "12#2", "13#1", "13#2"]);
        assert_eq!(found[1].cluster, "12");
        assert_eq!(found[0].references, ["A fox.", "The fox ran.\n"]);
        assert!(found[1].references.is_empty());
        let prompt = Benchmark::Squality.prompt(PromptStyle::ZeroScrolls, "És: a fox ran.", "Who ran?");
        assert_eq!(found[0].prompt, prompt);
    }

    #[test]
    fn bad_lines_are_named() {
        let message = |text: &str| format!("{:#}", questions(text, "dev.jsonl", PromptStyle::Paper).unwrap_err());
        let found = message(&format!("{}\n\n{{\"metadata\": \n", story("12", "A fox.")));
        assert!(found.contains("dev.jsonl, line 3"), "{found}");
        let found = message("{\"metadata\": {}, \"document\": \"\", \"questions\": []}");
        assert!(found.contains("line 1") && found.contains("passage_id"), "{found}");
        let found = message(&story("12", " \n"));
        assert!(found.contains("line 1") && found.contains("12 is empty"), "{found}");
    }
}
