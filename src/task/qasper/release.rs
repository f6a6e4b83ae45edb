//! QASPER's original release, version 0.3: one JSON object of articles by arXiv id, each with its questions.
//!
//! The answer of an annotation is chosen as in the release's own evaluator.

use anyhow::{Context, Result};
use indexmap::IndexMap;
use serde::Deserialize;

use crate::task::questions::{MakePrompt, Question, nonblank};

#[derive(Deserialize)]
struct Article {
    title: String,
    #[serde(rename = "abstract")]
    summary: String,
    full_text: Vec<Section>,
    qas: Vec<ArticleQuestion>,
}

#[derive(Deserialize)]
struct Section {
    /// Absent if an article has text before its first heading.
    section_name: Option<String>,
    paragraphs: Vec<String>,
}

#[derive(Deserialize)]
struct ArticleQuestion {
    question: String,
    question_id: String,
    #[serde(default)]
    answers: Vec<Annotation>,
}

#[derive(Deserialize)]
struct Annotation {
    answer: Answer,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    unanswerable: bool,
    extractive_spans: Vec<String>,
    yes_no: Option<bool>,
    free_form_answer: Option<String>,
}

impl Article {
    /// Title, abstract and sections with a blank line between them; a section is its name and its paragraphs, one line
    /// each. Blank paragraphs, figures and tables are left out.
    fn text(&self) -> String {
        let sections = self.full_text.iter().map(|section| {
            let filled = section.paragraphs.iter().filter(|paragraph| !paragraph.trim().is_empty());
            let paragraphs: Vec<&str> = filled.map(String::as_str).collect();
            format!("{}\n{}", section.section_name.as_deref().unwrap_or_default(), paragraphs.join("\n"))
        });
        let parts: Vec<String> = [self.title.clone(), self.summary.clone()].into_iter().chain(sections).collect();
        parts.join("\n\n")
    }
}

impl Answer {
    /// The answer and its kind; `None` if the annotation holds no answer.
    fn read(&self) -> Option<(String, &'static str)> {
        if self.unanswerable {
            return Some(("Unanswerable".to_string(), "unanswerable"));
        }
        if !self.extractive_spans.is_empty() {
            return Some((self.extractive_spans.join(", "), "extractive"));
        }
        match (self.free_form_answer.as_deref(), self.yes_no) {
            (Some(text), _) if !text.is_empty() => Some((text.to_string(), "abstractive")),
            (_, Some(true)) => Some(("Yes".to_string(), "yes_no")),
            (_, Some(false)) => Some(("No".to_string(), "yes_no")),
            _ => None,
        }
    }
}

/// The questions of a file, named by `question_id`, with a reference from each annotator and the kind of the first. Errors
/// call the text `file`.
///
/// # Errors
/// A text that is not such an object, or an annotation without an answer; the question is named.
pub fn read(text: &str, file: &str, prompt: MakePrompt<'_>) -> Result<Vec<Question>> {
    let articles: IndexMap<String, Article> =
        serde_json::from_str(text).with_context(|| format!("{file} is no object of QASPER articles"))?;
    let mut questions = Vec::new();
    for (id, article) in articles {
        let document = article.text();
        for question in article.qas {
            let answers = question.answers.iter().map(|annotation| annotation.answer.read());
            let answers: Vec<(String, &str)> = answers.collect::<Option<_>>().with_context(|| {
                let name = &question.question_id;
                format!("{file}: an annotation of question {name} (article {id}) holds no answer")
            })?;
            questions.push(Question {
                name: question.question_id,
                cluster: id.clone(),
                prompt: prompt(&document, question.question.trim()),
                kind: answers.first().map(|(_, kind)| kind.to_string()),
                references: nonblank(answers.into_iter().map(|(text, _)| text)),
            });
        }
    }
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::questions::bare_prompt;

    /// An article with a question for each list of answers.
    fn file(answers: serde_json::Value) -> String {
        let asked: Vec<serde_json::Value> = answers
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
            .map(|(i, answers)| {
                let answers = answers.as_array().unwrap().iter();
                let answers: Vec<_> = answers.map(|answer| serde_json::json!({"answer": answer})).collect();
                serde_json::json!({"question": format!("Why {i}?"), "question_id": format!("q{i}"),
                    "answers": answers})
            })
            .collect();
        let sections = serde_json::json!([
            {"section_name": "Hunting", "paragraphs": ["Foxes run.", "", " ", "Owls – fly. "]},
            {"section_name": null, "paragraphs": []},
            {"section_name": "Hunting ::: Prey", "paragraphs": ["Mice."]},
        ]);
        let article = serde_json::json!({"title": "On foxes", "abstract": "We run.", "full_text": sections,
            "qas": asked, "figures_and_tables": []});
        // The second id would come first in an order of names.
        let second = serde_json::json!({"title": "", "abstract": "", "full_text": [], "qas": []});
        format!("{{\"2001.1\": {article}, \"1001.2\": {second}}}")
    }

    #[test]
    fn an_article_is_one_text() {
        let text = file(serde_json::json!([[{"yes_no": true}]]));
        let found = read(&text, "x", &bare_prompt).unwrap();
        let document = "On foxes\n\nWe run.\n\nHunting\nFoxes run.\nOwls – fly. \n\n\n\n\nHunting ::: Prey\nMice.";
        assert_eq!((found[0].prompt.document.as_str(), found[0].prompt.after.as_str()), (document, "Why 0?"));
        assert_eq!((found[0].name.as_str(), found[0].cluster.as_str()), ("q0", "2001.1"));
    }

    #[test]
    fn answers_as_the_evaluator_reads_them() {
        let text = file(serde_json::json!([
            // The first that holds wins.
            [{"unanswerable": true, "extractive_spans": ["a"]}],
            [{"unanswerable": false, "extractive_spans": ["a", "b"], "free_form_answer": "c", "yes_no": null}],
            [{"extractive_spans": [], "free_form_answer": "c", "yes_no": true}, {"unanswerable": true}],
            [{"free_form_answer": "", "yes_no": true}, {"yes_no": false}],
            [],
        ]));
        let found = read(&text, "x", &bare_prompt).unwrap();
        let read: Vec<(Vec<&str>, Option<&str>)> = found
            .iter()
            .map(|question| (question.references.iter().map(String::as_str).collect(), question.kind.as_deref()))
            .collect();
        let expected = [
            (vec!["Unanswerable"], Some("unanswerable")),
            (vec!["a, b"], Some("extractive")),
            (vec!["c", "Unanswerable"], Some("abstractive")),
            (vec!["Yes", "No"], Some("yes_no")),
            (vec![], None),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn an_annotation_without_an_answer_is_named() {
        let text = file(serde_json::json!([[{"yes_no": true}], [{"free_form_answer": ""}]]));
        let message = |text: &str| format!("{:#}", read(text, "dev.json", &bare_prompt).unwrap_err());
        let found = message(&text);
        assert!(["dev.json", "q1", "2001.1"].iter().all(|part| found.contains(part)), "{found}");
        let found = message("{\"1\": {\n\"title\": 1}}");
        assert!(found.contains("dev.json") && found.contains("line 2"), "{found}");
    }
}
