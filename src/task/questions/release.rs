//! What is published of a benchmark of questions: its files and how they are read.

use anyhow::Result;
use serde_json::json;

use crate::task::benchmark::Rows;
use crate::task::embedded::Document;

/// A benchmark of questions about documents, as it is published. Its prompts and metrics are in the file of its name in
/// `configs/benchmarks/`.
#[derive(Debug)]
pub struct Release {
    /// The name in YAML, result rows and ZeroSCROLLS' files.
    pub name: &'static str,
    /// The first sentence of an input of ZeroSCROLLS. Rows of other tasks begin otherwise.
    pub opening: &'static str,
    /// The line before the document in an input of ZeroSCROLLS.
    pub document_header: &'static str,
    /// Names of a split's files, given [`Split::released_name`].
    pub files: fn(split: &str) -> Vec<String>,
    /// Reads the text of a file; errors call it `file`.
    pub read: fn(text: &str, file: &str) -> Result<Vec<Document>>,
    /// Made-up questions in the program: `each` questions about each of `documents` texts.
    pub embedded: fn(documents: usize, each: usize) -> Vec<Document>,
}

/// Whose wording a prompt has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptStyle {
    /// ZeroSCROLLS' own (Shaham et al. 2023, appendix A): the instruction first, then the document under a header.
    ZeroScrolls,
    // The paper does not say how a cut document is marked; as it cuts "as in Shaham et al.", ZeroSCROLLS' separator is used.
    /// The paper's (table 4): the document first, then the instruction.
    Paper,
}

/// A published part of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The training set, only in the original releases.
    Train,
    /// Called dev in the original releases.
    Validation,
    /// The test set.
    Test,
}

impl PromptStyle {
    /// The name in YAML and cell ids.
    pub fn name(self) -> &'static str {
        ["zeroscrolls", "paper"][self as usize]
    }
}

impl Split {
    /// All of them.
    pub const ALL: [Split; 3] = [Split::Train, Split::Validation, Split::Test];

    /// The name in YAML and in ZeroSCROLLS' files.
    pub fn name(self) -> &'static str {
        ["train", "validation", "test"][self as usize]
    }

    /// The name in the files of original releases.
    pub fn released_name(self) -> &'static str {
        if self == Split::Validation { "dev" } else { self.name() }
    }
}

/// The rows of documents, one for each question: `name`, `cluster` (the document's name), `document`, `question`, `answers`, and
/// `kind` where the question has one. `from` names the file.
///
/// # Errors
/// More rows than a task may have.
pub fn rows(documents: Vec<Document>, from: &str) -> Result<Rows> {
    let mut rows = Rows::default();
    for Document { name: cluster, text, questions } in documents {
        for question in questions {
            let place = format!("{from}, question {}", question.name);
            let answers = nonblank([question.answers, question.summaries].concat());
            let mut row = json!({
                "name": question.name, "cluster": cluster, "document": text, "question": question.question, "answers": answers,
            });
            if let Some(kind) = question.kind {
                row["kind"] = kind.into();
            }
            rows.add(row, place)?;
        }
    }
    Ok(rows)
}

/// The answers that are not blank.
pub fn nonblank(answers: impl IntoIterator<Item = String>) -> Vec<String> {
    answers.into_iter().filter(|answer| !answer.trim().is_empty()).collect()
}
