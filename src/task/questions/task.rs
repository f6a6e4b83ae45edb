//! The task of a question benchmark.

use std::collections::HashMap;

use anyhow::{Result, bail};

use super::benchmark::{Benchmark, PromptStyle, Question, Split, questions_digest};
use super::files::read_questions;
use crate::eviction::CacheRule;
use crate::lm::source::{Hub, expand_home};
use crate::task::data::DataSource;
use crate::task::generation::{GenerationConfig, GenerationSamples, Request};
use crate::task::prepared::PreparedTask;
use crate::task::spec::{PrepareContext, Setting, Task, TaskSpec, limit_text};

/// Documents of `embedded` unless the sweep sets another number.
const EMBEDDED_DOCUMENTS: usize = 8;
/// Questions about each of them unless the sweep sets another number.
const EMBEDDED_QUESTIONS: usize = 8;

/// Questions about documents, answered in writing.
#[derive(Clone, Debug, PartialEq)]
pub struct Questions {
    pub benchmark: &'static Benchmark,
    pub dataset: DataSource,
    pub split: Split,
    pub prompt: PromptStyle,
    /// Tokens of prompt and answer together, BOS included; the document's end is cut to fit.
    pub length: usize,
    /// Only the first documents; `None`: all.
    pub documents: Option<usize>,
    /// Only the first questions of each document; `None`: all.
    pub questions: Option<usize>,
    pub generation: GenerationConfig,
}

impl Task for Questions {
    fn name(&self) -> &'static str {
        self.benchmark.name
    }

    fn dataset(&self) -> String {
        self.dataset.to_string()
    }

    fn length(&self) -> usize {
        self.length
    }

    fn canonical(&self) -> String {
        format!(
            "split={}\nprompt={}\nlength={}\ndocuments={}\nquestions={}\n",
            self.split.name(),
            self.prompt.name(),
            self.length,
            limit_text(self.documents),
            limit_text(self.questions),
        )
    }

    fn generation(&self) -> Option<&GenerationConfig> {
        Some(&self.generation)
    }

    fn row_settings(&self, of_generation: Vec<Setting>) -> Vec<Setting> {
        [vec![("prompt", self.prompt.name().to_string())], of_generation].concat()
    }

    fn for_rule(&self, rule: CacheRule) -> Option<TaskSpec> {
        let generation = self.generation.for_rule(rule)?;
        Some(TaskSpec::new(Questions { generation, ..self.clone() }))
    }

    fn prepare(&self, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let mut questions = self.read(context)?;
        limit(&mut questions, self.documents, self.questions);
        let digest = questions_digest(&questions);
        let trivial = (self.benchmark.trivial)(&questions);
        let requests = questions.into_iter().zip(trivial).map(|(question, trivial)| Request {
            trivial,
            slices: question.kind.into_iter().map(|kind| format!("kind:{kind}")).collect(),
            name: question.name,
            cluster: question.cluster,
            prompt: question.prompt,
            references: question.references,
            length: self.length,
            seed: 0,
        });
        let (requests, scorer) = (requests.collect(), self.benchmark.scorer);
        GenerationSamples::prepare(context, requests, digest, scorer, &self.generation)
    }
}

impl Questions {
    /// The questions, those about a document one after the other.
    fn read(&self, context: &PrepareContext<'_>) -> Result<Vec<Question>> {
        let Questions { benchmark, split, prompt, .. } = *self;
        match &self.dataset {
            DataSource::Path(path) => read_questions(benchmark, &expand_home(path)?, split, prompt),
            DataSource::Hub(repo) => {
                let archive = format!("{}.zip", benchmark.name);
                let hub = Hub::new(context.hub, context.progress);
                let files = hub.dataset_files(repo, |name| name == archive)?;
                let [file] = files.as_slice() else { bail!("{repo} has no {archive}, as ZeroSCROLLS has it") };
                read_questions(benchmark, file, split, prompt)
            }
            DataSource::Embedded => {
                let documents = self.documents.unwrap_or(EMBEDDED_DOCUMENTS);
                let each = self.questions.unwrap_or(EMBEDDED_QUESTIONS);
                let prompt = |document: &str, question: &str| benchmark.prompt(prompt, document, question);
                Ok((benchmark.embedded)(documents, each, &prompt))
            }
            DataSource::EmbeddedQuestions | DataSource::RandomWords => {
                bail!("{} holds no questions for {}", self.dataset, benchmark.name)
            }
        }
    }
}

/// Keeps the first documents, and of each the first questions.
fn limit(questions: &mut Vec<Question>, documents: Option<usize>, each: Option<usize>) {
    // The number of each document, and how many of its questions were seen.
    let mut seen: HashMap<String, (usize, usize)> = HashMap::new();
    questions.retain(|question| {
        let number = seen.len();
        let (number, questions) = seen.entry(question.cluster.clone()).or_insert((number, 0));
        *questions += 1;
        *number < documents.unwrap_or(usize::MAX) && *questions <= each.unwrap_or(usize::MAX)
    });
}
