//! Where questions come from: files of the benchmarks, the hub, or made-up worlds.

use anyhow::{Result, bail};

use super::data_source::DataSource;
use super::embedded;
use super::question::{Benchmark, Question};
use super::settings::Answering;
use super::source::read_questions;
use crate::lm::source::{DownloadProgress, Hub, HubSettings, expand_home};

/// Documents of `embedded` unless the sweep asks for another number.
const EMBEDDED_DOCUMENTS: usize = 8;
/// Questions about each of them, likewise.
const EMBEDDED_QUESTIONS: usize = 8;

/// The questions of a task, those of a document one after the other.
///
/// # Errors
/// Files that are missing or of another shape; the message names the file and the row.
pub(super) fn read(task: &Answering, hub: &HubSettings, progress: &dyn DownloadProgress) -> Result<Vec<Question>> {
    match &task.dataset {
        DataSource::Embedded => Ok(embedded_questions(task)),
        DataSource::Path(path) => read_questions(task.benchmark, &expand_home(path)?, task.split, task.prompt),
        DataSource::Hub(repo) => {
            let archive = format!("{}.zip", task.benchmark.name());
            let files = Hub::new(hub, progress)?.dataset_files(repo, None, |name| name == archive)?.files;
            let [file] = files.as_slice() else { bail!("{repo} has no {archive}, as ZeroSCROLLS has it") };
            read_questions(task.benchmark, file, task.split, task.prompt)
        }
        DataSource::EmbeddedQuestions | DataSource::RandomWords => {
            bail!("{} holds no questions for {}", task.dataset, task.benchmark.name())
        }
    }
}

fn embedded_questions(task: &Answering) -> Vec<Question> {
    let documents = task.documents.unwrap_or(EMBEDDED_DOCUMENTS);
    let each = task.questions.unwrap_or(EMBEDDED_QUESTIONS);
    let question = |document: &str, text: &str, number: usize, question: &str, references, kind| Question {
        name: format!("{document}#{number}"),
        cluster: document.to_owned(),
        prompt: task.benchmark.prompt(task.prompt, text, question),
        references,
        kind,
    };
    match task.benchmark {
        Benchmark::Qasper => embedded::articles(documents, each)
            .flat_map(|article| {
                let asked = article.questions.into_iter().zip(1..);
                let made = asked.map(|(asked, number)| {
                    let kind = Some(asked.kind);
                    question(&article.name, &article.text, number, &asked.question, asked.answers, kind)
                });
                made.collect::<Vec<_>>()
            })
            .collect(),
        Benchmark::Squality => embedded::stories(documents, each)
            .flat_map(|story| {
                let asked = story.questions.into_iter().zip(1..);
                let made = asked.map(|(asked, number)| {
                    question(&story.name, &story.text, number, &asked.question, asked.summaries, None)
                });
                made.collect::<Vec<_>>()
            })
            .collect(),
    }
}
