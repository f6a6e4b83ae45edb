//! The task of a question benchmark: its settings, and the requests made of its questions.

use std::collections::HashMap;

use anyhow::{Result, bail};
use schemars::JsonSchema;
use serde::Deserialize;

use super::benchmark::{Benchmark, PromptStyle, Split, questions_digest};
use super::files::read_questions;
use super::splits;
use crate::lm::source::{Hub, expand_home};
use crate::task::data::{self, DataSource, Texts, check_source, limit_embedded, question_sources};
use crate::task::generation::{self, GenerationConfig, Request, WriteYaml};
use crate::task::prepared::PreparedTask;
use crate::task::spec::{PrepareContext, Task, TaskSpec, limit_text};
use crate::yaml::{self, ConfigError, Spanned};

/// Questions about documents.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionsYaml {
    /// Where documents and questions come from: `embedded`, a file (ending in `.json`, `.jsonl` or `.zip`) or folder
    /// (starting with `./`, `../` or `/`) of the original release or of ZeroSCROLLS, or a hub data set with ZeroSCROLLS'
    /// archives, such as `tau/zero_scrolls`.
    #[schemars(schema_with = "question_sources")]
    dataset: Spanned<String>,
    /// Which published part of the benchmark; chooses among the files of a folder or an archive.
    #[serde(default)]
    #[schemars(schema_with = "Split::schema")]
    split: Option<Split>,
    /// Whose wording the prompts have.
    #[serde(default)]
    #[schemars(schema_with = "PromptStyle::schema")]
    prompt: Option<PromptStyle>,
    /// Tokens of prompt and answer together; a prompt that is too long loses its document's end.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// Only the first documents; null: all of them. At most 64 of the embedded ones.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    documents: Option<Spanned<u64>>,
    /// Only the first questions of each document; null: all of them.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    questions: Option<Spanned<u64>>,
    /// How answers are written; by default greedily, with the benchmark's own limit of tokens.
    #[serde(default)]
    write: WriteYaml,
}

impl QuestionsYaml {
    /// Checks the settings of a benchmark.
    ///
    /// # Errors
    /// A value out of its range, or a data set without questions.
    pub fn check(self, benchmark: &'static Benchmark) -> Result<TaskSpec, ConfigError> {
        let name = benchmark.name;
        let forms = format!(
            "embedded, a file or folder of {name} (starting with ./, ../ or /), or a hub data set with {name}.zip, \
             such as tau/zero_scrolls"
        );
        let dataset = check_source(&self.dataset, &forms)?;
        if matches!(dataset, DataSource::EmbeddedQuestions | DataSource::RandomWords) {
            return yaml::refuse(
                self.dataset.referenced,
                format!("`{dataset}` holds no questions for {name}"),
                format!("use {forms}"),
            );
        }
        let length = data::length(&self.length)?;
        let default = GenerationConfig::greedy(benchmark.max_new_tokens);
        let generation = Some(self.write.check(length, default)?);
        let task = Questions {
            benchmark,
            documents: limit_embedded(&dataset, "`documents`", &self.documents)?,
            dataset,
            split: self.split,
            prompt: self.prompt.unwrap_or(PromptStyle::ZeroScrolls),
            questions: yaml::limit("`questions`", &self.questions)?,
        };
        let settings = vec![("prompt", task.prompt.name().to_string()), ("length", length.to_string())];
        let selection = vec![
            ("split", task.split.unwrap_or(DEFAULT_SPLIT).name().to_string()),
            ("documents", limit_text(task.documents)),
            ("questions", limit_text(task.questions)),
        ];
        let spec = TaskSpec::new(name, task.dataset.clone(), length, settings, task);
        Ok(TaskSpec { generation, selection, ..spec })
    }
}

const DEFAULT_SPLIT: Split = Split::Test;
/// Documents of `embedded` unless the sweep sets another number.
const EMBEDDED_DOCUMENTS: usize = 8;
/// Questions about each of them unless the sweep sets another number.
const EMBEDDED_QUESTIONS: usize = 8;

/// Questions about documents, answered in writing.
#[derive(Debug)]
struct Questions {
    benchmark: &'static Benchmark,
    dataset: DataSource,
    /// As the sweep says, if it does.
    split: Option<Split>,
    prompt: PromptStyle,
    documents: Option<usize>,
    /// Of each document.
    questions: Option<usize>,
}

impl Task for Questions {
    fn prepare(&self, spec: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let mut requests = self.read(context)?;
        limit(&mut requests, self.documents, self.questions);
        self.note_fewer(&requests, context);
        let digest = questions_digest(&requests);
        let trivial = (self.benchmark.trivial)(&requests);
        for (request, trivial) in requests.iter_mut().zip(trivial) {
            (request.trivial, request.length) = (trivial, spec.length);
        }
        generation::prepare(spec, context, requests, digest, (self.benchmark.scorer)())
    }
}

impl Questions {
    /// Says what the data set has less of than the sweep asks for.
    fn note_fewer(&self, requests: &[Request], context: &PrepareContext<'_>) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        requests.iter().for_each(|request| *counts.entry(&request.cluster).or_default() += 1);
        let asked = self.documents.unwrap_or(0);
        data::note_fewer(context.progress, &self.dataset, "documents", asked, counts.len());
        let asked = self.questions.unwrap_or(0);
        let fewer = counts.values().filter(|count| **count < asked).count();
        if fewer > 0 {
            let (dataset, all) = (&self.dataset, counts.len());
            context.progress.note(&format!(
                "{dataset}: {fewer} of {all} documents have fewer than the {asked} questions asked for"
            ));
        }
    }

    /// The questions, those about a document one after the other.
    fn read(&self, context: &PrepareContext<'_>) -> Result<Vec<Request>> {
        let Questions { benchmark, prompt, .. } = *self;
        let split = self.split.unwrap_or(DEFAULT_SPLIT);
        match &self.dataset {
            DataSource::Path(path) => {
                let path = expand_home(path)?;
                if self.split.is_some() && path.is_file() {
                    splits::check(benchmark, &path, split)?;
                }
                read_questions(benchmark, &path, split, prompt)
            }
            DataSource::Hub(repo) => {
                let archive = format!("{}.zip", benchmark.name);
                let hub = Hub { settings: context.hub, progress: context.progress };
                let files = hub.dataset_files(repo, |name| name == archive)?;
                let [file] = files.as_slice() else { bail!("{repo} has no {archive}, as ZeroSCROLLS has it") };
                read_questions(benchmark, file, split, prompt)
            }
            DataSource::Embedded => {
                let documents = self.documents.unwrap_or(EMBEDDED_DOCUMENTS);
                let each = self.questions.unwrap_or(EMBEDDED_QUESTIONS);
                Ok(benchmark.requests(prompt, (benchmark.embedded)(documents, each)))
            }
            DataSource::EmbeddedQuestions | DataSource::RandomWords => {
                bail!("{} holds no questions for {}", self.dataset, benchmark.name)
            }
        }
    }
}

/// Keeps the first documents, and of each the first questions.
fn limit(questions: &mut Vec<Request>, documents: Option<usize>, each: Option<usize>) {
    // The number of each document, and how many of its questions were seen.
    let mut seen: HashMap<String, (usize, usize)> = HashMap::new();
    questions.retain(|question| {
        let number = seen.len();
        let (number, questions) = seen.entry(question.cluster.clone()).or_insert((number, 0));
        *questions += 1;
        *number < documents.unwrap_or(usize::MAX) && *questions <= each.unwrap_or(usize::MAX)
    });
}
