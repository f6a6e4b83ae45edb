//! The options of a question benchmark, over the file of its prompts and metrics.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::files::read_rows;
use super::reader::Questions;
use super::release::{PromptStyle, Release, Split};
use crate::task::benchmark::{Chosen, Definition, Keys, Rows, builtin_definition, requests_of};
use crate::task::canonical::limit_text;
use crate::task::data::{EMBEDDED, check_source};
use crate::task::request::Request;
use crate::yaml::{self, ConfigError};

/// The options of `rows: squality` and `rows: qasper`.
pub const OPTIONS: &[&str] = &["split", "prompt", "documents", "questions"];

/// Settles which questions of a release are asked, and in whose wording.
///
/// # Errors
/// A value out of its range, or a data set without questions.
pub fn choose(release: &'static Release, keys: &Keys, chosen: &mut Chosen) -> Result<(), ConfigError> {
    keys.dataset.as_ref().map(|dataset| check_source(dataset, &[EMBEDDED])).transpose()?;
    let definition = &mut chosen.definitions[0];
    if let Some(split) = yaml::word("split", &keys.split, &Split::ALL.map(Split::name))? {
        definition.split = split.to_owned();
    }
    let split = definition.split.clone();
    if definition.task == release.name {
        let style = yaml::word(
            "prompt",
            &keys.prompt,
            &[PromptStyle::ZeroScrolls, PromptStyle::Paper].map(PromptStyle::name),
        )?;
        if style == Some(PromptStyle::Paper.name()) {
            *definition = Definition { split: split.clone(), ..self::definition(release, PromptStyle::Paper)? };
        }
        chosen.settings.push(("prompt", style.unwrap_or(PromptStyle::ZeroScrolls.name()).to_owned()));
    } else if let Some(prompt) = &keys.prompt {
        let hint = format!("remove it, or ask for the task `{}`", release.name);
        return yaml::refuse(prompt.referenced, format!("`{}` has its own wording", definition.task), hint);
    }
    let documents = yaml::limit("`documents`", &keys.documents)?;
    let questions = yaml::limit("`questions`", &keys.questions)?;
    chosen.definitions[0].reader = Some(Arc::new(Questions { release, documents, questions }));
    chosen.selection.extend([
        ("split", split),
        ("documents", limit_text(documents)),
        ("questions", limit_text(questions)),
    ]);
    Ok(())
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
/// A path that holds no questions, or a broken line; file and line are named.
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
