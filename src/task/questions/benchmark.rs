//! What a question benchmark is: its name, the wording of its prompts, its files and its metrics.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use schemars::{Schema, SchemaGenerator};
use serde::Deserialize;

use super::files::nonblank;
use crate::task::data::digest_of;
use crate::task::embedded::{Document, DocumentQuestion};
use crate::task::generation::{Prompt, Request, Scorer};
use crate::yaml::schema::{Named, setting};

/// A benchmark of questions about documents.
pub struct Benchmark {
    /// The name in YAML, result rows and ZeroSCROLLS' files.
    pub name: &'static str,
    /// What a sweep's schema says of it.
    pub about: &'static str,
    pub wording: Wording,
    /// The most tokens of an answer, by default.
    pub max_new_tokens: usize,
    pub scorer: fn() -> Scorer,
    /// An answer to each question that needs no reading, for comparison.
    pub trivial: fn(&[Request]) -> Vec<String>,
    /// The format of the original release.
    pub release: Release,
    /// Made-up questions in the program: `each` questions about each of `documents` texts.
    pub embedded: fn(documents: usize, each: usize) -> Vec<Document>,
}

/// The texts around document and question, as ZeroSCROLLS has them.
pub struct Wording {
    /// The first sentence of a prompt. Rows of other tasks begin otherwise.
    pub opening: &'static str,
    pub instruction: &'static str,
    /// The line before the document.
    pub document_header: &'static str,
    /// The text between the end of a cut document and a blank line.
    pub separator: &'static str,
}

/// The files of a benchmark's original release.
pub struct Release {
    /// The format in words, for errors.
    pub format: &'static str,
    /// Names of a split's files, given [`Split::released_name`].
    pub files: fn(split: &str) -> Vec<String>,
    /// Whether a file is in this format, by the keys of its first JSON object.
    pub matches: fn(keys: &BTreeSet<String>) -> bool,
    /// Reads the text of a file; errors call it `file`.
    pub read: fn(text: &str, file: &str) -> Result<Vec<Document>>,
}

/// Whose wording a prompt has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum PromptStyle {
    /// That of ZeroSCROLLS (Shaham et al. 2023, appendix A): the instruction first, then the document under a header.
    #[serde(rename = "zeroscrolls")]
    ZeroScrolls,
    /// That of the paper (table 4): the document first, then the instruction. The paper does not say how a cut document is
    /// marked; as it cuts "as in Shaham et al.", ZeroSCROLLS' separator is used.
    #[serde(rename = "paper")]
    Paper,
}

/// A published part of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Not part of ZeroSCROLLS.
    Train,
    /// Called `dev` in the original releases.
    Validation,
    Test,
}

impl PromptStyle {
    /// The words in YAML, in the order of the variants.
    pub const WORDS: &[Named] = &[
        ("zeroscrolls", "ZeroSCROLLS' own: the instruction first, then the document under a header"),
        ("paper", "the paper's: the document first, then the instruction"),
    ];

    /// The name in YAML and cell ids.
    pub fn name(self) -> &'static str {
        PromptStyle::WORDS[self as usize].0
    }

    pub fn schema(_: &mut SchemaGenerator) -> Schema {
        setting(PromptStyle::WORDS, "zeroscrolls", true)
    }
}

impl Split {
    /// The words in YAML, in the order of the variants.
    pub const WORDS: &[Named] = &[
        ("train", "the training set, only in the original releases"),
        ("validation", "called dev in the original releases"),
        ("test", "the test set"),
    ];
    /// All of them.
    pub const ALL: [Split; 3] = [Split::Train, Split::Validation, Split::Test];

    /// The name in YAML and in ZeroSCROLLS' files.
    pub fn name(self) -> &'static str {
        Split::WORDS[self as usize].0
    }

    /// The name in the files of original releases.
    pub fn released_name(self) -> &'static str {
        if self == Split::Validation { "dev" } else { self.name() }
    }

    pub fn schema(_: &mut SchemaGenerator) -> Schema {
        setting(Split::WORDS, "test", true)
    }
}

/// The line before a question, in either style.
pub const QUESTION_HEADER: &str = "Question:\n";

impl Benchmark {
    /// The questions about some documents.
    pub fn requests(&self, style: PromptStyle, documents: Vec<Document>) -> Vec<Request> {
        let of_document = |Document { name: cluster, text, questions }| {
            let request = move |question: DocumentQuestion| Request {
                name: question.name,
                cluster: String::clone(&cluster),
                prompt: self.prompt(style, &text, &question.question),
                references: nonblank([question.answers, question.summaries].concat()),
                slices: question.kind.iter().map(|kind| format!("kind:{kind}")).collect(),
                ..Request::default()
            };
            questions.into_iter().map(request)
        };
        documents.into_iter().flat_map(of_document).collect()
    }

    /// The prompt of a question about a document.
    pub fn prompt(&self, style: PromptStyle, document: &str, question: &str) -> Prompt {
        let Wording { opening, instruction, document_header, separator } = self.wording;
        // ZeroSCROLLS ends its prompts with a newline; the paper prints none.
        let (before, between, header) = match style {
            PromptStyle::ZeroScrolls => {
                (format!("{opening} {instruction}\n\n{document_header}"), String::new(), "\n\nAnswer:\n")
            }
            PromptStyle::Paper => (String::new(), format!("{instruction}\n\n"), "\n\nAnswer:"),
        };
        Prompt {
            before,
            document: document.to_string(),
            after: format!("\n\n{between}{QUESTION_HEADER}{question}{header}"),
            separator: separator.to_string(),
            header: header.len(),
        }
    }
}

impl fmt::Debug for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The digest of all prompts and references.
pub fn questions_digest(questions: &[Request]) -> String {
    let parts = questions.iter().flat_map(|Request { name, cluster, prompt, references, slices, .. }| {
        let Prompt { before, document, after, separator, header } = prompt;
        let counts = format!("{header} {}", references.len());
        let kind = slices.iter().find_map(|slice| slice.strip_prefix("kind:")).unwrap_or_default();
        let texts = [name, cluster, before, document, after, separator, &counts].map(String::clone);
        texts.into_iter().chain(references.iter().cloned()).chain([kind.to_string()])
    });
    digest_of(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{QASPER, SQUALITY};

    #[test]
    fn both_styles_word_for_word() {
        let paragraph = "Answer the question in a paragraph.";
        let concise = "Answer the question as concisely as you can, using a single phrase or sentence if possible. If \
                       the question cannot be answered based on the information in the article, write \
                       \"unanswerable\". If the question is a yes/no question, answer \"yes\", \"no\", or \
                       \"unanswerable\".";
        let cases = [
            (&SQUALITY, format!("You are given a story and a question. {paragraph}\n\nStory:\n"), paragraph),
            (
                &QASPER,
                format!("You are given a scientific article and a question. {concise}\n\nArticle:\n"),
                concise,
            ),
        ];
        let question = "\n\nQuestion:\nWho ran?";
        for (benchmark, before, instruction) in cases {
            let prompt = |style| benchmark.prompt(style, "A fox ran.", "Who ran?");
            let own = prompt(PromptStyle::ZeroScrolls);
            assert_eq!(own.without_header().whole(), format!("{before}A fox ran.{question}"));
            assert_eq!(own.whole(), format!("{before}A fox ran.{question}\n\nAnswer:\n"));
            let paper = prompt(PromptStyle::Paper).whole();
            assert_eq!(paper, format!("A fox ran.\n\n{instruction}{question}\n\nAnswer:"));
        }
    }

    #[test]
    fn the_digest_depends_on_every_part_and_its_border() {
        let question = Request {
            name: "a".into(),
            cluster: "c".into(),
            prompt: SQUALITY.prompt(PromptStyle::Paper, "A fox ran.", "Who ran?"),
            references: vec!["x".into(), "y".into()],
            ..Request::default()
        };
        let one = questions_digest(std::slice::from_ref(&question));
        assert!(one.starts_with("sha256:") && one.len() == 7 + 16);
        let changes: [fn(&mut Request); 7] = [
            |question| question.name.push('b'),
            |question| question.references = vec!["xy".into()],
            |question| question.cluster.push('d'),
            |question| question.slices.push("kind:yes_no".into()),
            |question| question.prompt.separator.clear(),
            |question| question.prompt.header = 0,
            |question| question.prompt.document.push('!'),
        ];
        for change in changes {
            let mut other = question.clone();
            change(&mut other);
            assert_ne!(one, questions_digest(&[other]));
        }
    }
}
