//! The task of a question benchmark in a sweep: its settings, over the file of its prompts and metrics.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use super::files::read_rows;
use super::reader::Questions;
use super::release::{PromptStyle, Release, Split};
use crate::task::benchmark::{Benchmark, Definition, Rows, builtin_definition, requests_of};
use crate::task::canonical::limit_text;
use crate::task::data::{self, EMBEDDED, Texts, check_source};
use crate::task::request::{Request, WriteYaml};
use crate::task::spec::TaskSpec;
use crate::yaml::{self, ConfigError, Spanned};

/// Questions about documents.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionsYaml {
    /// Where documents and questions come from: `embedded`, a file (ending in `.json`, `.jsonl` or `.zip`) or folder
    /// (starting with `./`, `../` or `/`) of the original release or of ZeroSCROLLS, or a hub data set with ZeroSCROLLS'
    /// archives, such as `tau/zero_scrolls`.
    dataset: Spanned<String>,
    /// Which published part of the benchmark; chooses among the files of a folder or an archive.
    #[schemars(extend("default" = "test"))]
    split: Option<Split>,
    /// Whose wording the prompts have.
    #[schemars(extend("default" = "zeroscrolls"))]
    prompt: Option<PromptStyle>,
    /// Tokens of prompt and answer together; a prompt that is too long loses its document's end.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// Only the first documents; by default all of them, and 8 of the 64 embedded ones.
    documents: Option<Spanned<u64>>,
    /// Only the first questions of each document; by default all of them.
    questions: Option<Spanned<u64>>,
    /// How answers are written; by default greedily, with the benchmark's own limit of tokens.
    #[serde(default)]
    write: WriteYaml,
}

impl QuestionsYaml {
    /// Checks the settings of a release.
    ///
    /// # Errors
    /// A value out of its range, or a data set without questions.
    pub fn check(self, release: &'static Release) -> Result<TaskSpec, ConfigError> {
        let name = release.name;
        let dataset = check_source(&self.dataset, &[EMBEDDED])?;
        let length = data::length(&self.length)?;
        let style = self.prompt.unwrap_or_default();
        let mut definition = definition(release, style)?;
        let generation = Some(self.write.check(length, definition.generation.clone())?);
        let documents = yaml::limit("`documents`", &self.documents)?;
        let questions = yaml::limit("`questions`", &self.questions)?;
        let split = self.split.unwrap_or(Split::Test).name();
        let settings = vec![("prompt", style.name().to_string()), ("length", length.to_string())];
        let selection = vec![
            ("split", split.to_string()),
            ("documents", limit_text(documents)),
            ("questions", limit_text(questions)),
        ];
        definition.split = split.to_string();
        definition.reader = Some(Arc::new(Questions { release, documents, questions }));
        let over = Some(dataset.to_string());
        let task = Benchmark { definitions: vec![Arc::new(definition)], over, samples: None };
        let spec = TaskSpec::new(name, dataset, length, settings, task);
        Ok(TaskSpec { generation, selection, ..spec })
    }
}

/// The file with a benchmark's prompts and metrics.
fn definition(release: &Release, style: PromptStyle) -> Result<Definition, ConfigError> {
    let ending = if style == PromptStyle::Paper { "_paper" } else { "" };
    builtin_definition(&format!("{}{ending}", release.name))
}

/// The requests of rows, in one wording, with the rows of one document one after the other.
///
/// # Errors
/// A row that the file has no prompt for.
pub fn requests(release: &Release, style: PromptStyle, rows: &Rows) -> Result<Vec<Request>> {
    requests_of(&definition(release, style)?, rows)
}

/// Reads the questions of a release, as [`read_rows`] does, and makes requests of them.
///
/// # Errors
/// As [`read_rows`].
pub fn read_questions(release: &Release, path: &Path, split: Split, style: PromptStyle) -> Result<Vec<Request>> {
    requests(release, style, &read_rows(release, path, split)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::questions::{QASPER, SQUALITY, prompt};

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
            let prompt = |style| prompt(benchmark, style, "A fox ran.", "Who ran?");
            let own = prompt(PromptStyle::ZeroScrolls);
            assert_eq!(own.without_header().whole(), format!("{before}A fox ran.{question}"));
            assert_eq!(own.whole(), format!("{before}A fox ran.{question}\n\nAnswer:\n"));
            let paper = prompt(PromptStyle::Paper).whole();
            assert_eq!(paper, format!("A fox ran.\n\n{instruction}{question}\n\nAnswer:"));
        }
    }
}
