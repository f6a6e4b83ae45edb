//! QASPER's original release, version 0.3: one JSON object of articles by arXiv id, each with its questions.
//!
//! The answer of an annotation is chosen as in the release's own evaluator.

use anyhow::{Context, Result};
use indexmap::IndexMap;
use serde::Deserialize;

use super::release::Release;
use crate::task::embedded::{self, Document, DocumentQuestion};

/// QASPER (Dasigi et al. 2021, arXiv 2105.03011).
pub static QASPER: Release = Release {
    name: "qasper",
    opening: "You are given a scientific article and a question.",
    document_header: "Article:\n",
    files: |split| vec![format!("qasper-{split}-v0.3.json")],
    read,
    embedded: embedded::articles,
};

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

/// The articles of a file. Questions are named by `question_id`, with a reference from each annotator and the kind of the
/// first. Errors call the text `file`.
///
/// # Errors
/// A text that is not such an object, or an annotation without an answer; the question is named.
fn read(text: &str, file: &str) -> Result<Vec<Document>> {
    let articles: IndexMap<String, Article> =
        serde_json::from_str(text).with_context(|| format!("{file} is not an object of QASPER articles"))?;
    let document = |(id, article): (String, Article)| -> Result<Document> {
        let text = article.text();
        let question = |question: ArticleQuestion| -> Result<DocumentQuestion> {
            let ArticleQuestion { question, question_id: name, answers } = question;
            let answers = answers.iter().map(|annotation| annotation.answer.read());
            let answers: Vec<(String, &str)> = answers.collect::<Option<_>>().with_context(|| {
                format!("{file}: an annotation of question {name} (article {id}) holds no answer")
            })?;
            Ok(DocumentQuestion {
                name,
                question: question.trim().to_string(),
                kind: answers.first().map(|(_, kind)| kind.to_string()),
                answers: answers.into_iter().map(|(text, _)| text).collect(),
                ..DocumentQuestion::default()
            })
        };
        let questions = article.qas.into_iter().map(question).collect::<Result<_>>()?;
        Ok(Document { name: id, text, questions })
    };
    articles.into_iter().map(document).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An article with a question for each list of answers. The id of the second article would come first in an order of
    /// names.
    fn file(answers: &[Value]) -> String {
        let question = |(i, answers): (usize, &Value)| {
            let answers = answers.as_array().unwrap().iter().map(|answer| json!({"answer": answer}));
            json!({"question": " Why? ", "question_id": format!("q{i}"), "answers": answers.collect::<Vec<_>>()})
        };
        let sections = json!([
            {"section_name": "Hunting", "paragraphs": ["Foxes run.", "", " ", "Owls – fly. "]},
            {"section_name": null, "paragraphs": []},
            {"section_name": "Hunting ::: Prey", "paragraphs": ["Mice."]},
        ]);
        let questions: Vec<Value> = answers.iter().enumerate().map(question).collect();
        let article = json!({"title": "On foxes", "abstract": "We run.", "full_text": sections, "qas": questions});
        let second = json!({"title": "", "abstract": "", "full_text": [], "qas": [], "figures_and_tables": []});
        format!("{{\"2001.1\": {article}, \"1001.2\": {second}}}")
    }

    #[test]
    fn articles_are_texts_with_answers_as_the_evaluator_reads_them() {
        let cases = [
            // The first that holds wins.
            (json!([{"unanswerable": true, "extractive_spans": ["a"]}]), &["Unanswerable"][..], "unanswerable"),
            (
                json!([{"unanswerable": false, "extractive_spans": ["a", "b"], "free_form_answer": "c", "yes_no": null}]),
                &["a, b"],
                "extractive",
            ),
            (
                json!([{"extractive_spans": [], "free_form_answer": "c", "yes_no": true}, {"unanswerable": true}]),
                &["c", "Unanswerable"],
                "abstractive",
            ),
            (json!([{"free_form_answer": "", "yes_no": true}, {"yes_no": false}]), &["Yes", "No"], "yes_no"),
            (json!([]), &[], ""),
        ];
        let found = read(&file(&cases.each_ref().map(|(answers, ..)| answers.clone())), "x").unwrap();
        let text = "On foxes\n\nWe run.\n\nHunting\nFoxes run.\nOwls – fly. \n\n\n\n\nHunting ::: Prey\nMice.";
        assert_eq!((found[0].name.as_str(), found[0].text.as_str()), ("2001.1", text));
        assert_eq!(found[1].name, "1001.2");
        assert_eq!((found[0].questions[0].name.as_str(), found[0].questions[0].question.as_str()), ("q0", "Why?"));
        for (question, (_, answers, kind)) in found[0].questions.iter().zip(cases) {
            assert_eq!(question.answers, answers);
            assert_eq!(question.kind.as_deref().unwrap_or_default(), kind);
        }
    }

    #[test]
    fn broken_articles_are_named() {
        let message = |text: &str| format!("{:#}", read(text, "dev.json").unwrap_err());
        let found = message(&file(&[json!([{"yes_no": true}]), json!([{"free_form_answer": ""}])]));
        assert!(["dev.json", "q1", "2001.1"].iter().all(|part| found.contains(part)), "{found}");
        let found = message("{\"1\": {\n\"title\": 1}}");
        assert!(found.contains("dev.json") && found.contains("line 2"), "{found}");
    }
}
