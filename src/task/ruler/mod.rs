//! RULER's thirteen synthetic tasks (arXiv 2404.06654, github.com/NVIDIA/RULER), made from a seed for any length and
//! tokenizer: needles of eight kinds, variables, common and coded words, and questions about documents.
//!
//! Prompts are built as RULER's scripts build them, with other random numbers, words and running text, so that their structure is
//! RULER's and their content is not.

mod coded_words;
mod common_words;
mod documents;
mod example;
mod haystack;
mod needles;
mod requests;
mod score;
mod tasks;
#[cfg(test)]
mod tests;
mod variables;
mod words;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use self::documents::Documents;
use self::haystack::Essay;
use self::requests::{Counter, Sources, Wanted};
use self::tasks::{SUBTASKS, Subtask};
use super::data::{self, DataSource, EMBEDDED, Texts, check_source, text_sources};
use super::generation::{self, GenerationConfig, Scorer, WriteYaml};
use super::prepared::PreparedTask;
use super::spec::{PrepareContext, Task, TaskSpec};
use crate::format::did_you_mean;
use crate::lm::ChatTemplate;
use crate::lm::source::expand_home;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// RULER: facts, variables and words to find in long texts that are made for each length, by task and length.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RulerYaml {
    /// RULER's names of the tasks to measure. By default the eleven that read no file, and those whose file is named.
    #[serde(default)]
    #[schemars(schema_with = "tasks::names")]
    tasks: Vec<Spanned<String>>,
    /// Lengths of prompt and answer together, in tokens; each is measured. By default only 4,096.
    #[serde(default)]
    #[schemars(inner(range(min = 1024, max = u32::MAX)))]
    #[schemars(extend("type" = ["array", "null"], "uniqueItems" = true, "default" = [Texts::DEFAULT_LENGTH]))]
    lengths: Vec<Spanned<u64>>,
    /// How many prompts of each task and length; RULER has 500.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = 20))]
    samples: Option<Spanned<u64>>,
    /// The seed of the prompts.
    #[schemars(extend("default" = 42))]
    seed: Option<u64>,
    /// The running text of five of the needle tasks, where RULER has Paul Graham's essays: `embedded`, a folder of `.txt` files
    /// or a `.parquet` file (starting with `./`, `../` or `/`), or a hub data set. By default `embedded`.
    #[serde(default)]
    #[schemars(schema_with = "haystacks")]
    haystack: Option<Spanned<String>>,
    /// The file of `qa_1`: SQuAD's `dev-v2.0.json`.
    #[schemars(extend("default" = null))]
    squad: Option<Spanned<String>>,
    /// The file of `qa_2`: HotpotQA's `hotpot_dev_distractor_v1.json`.
    #[schemars(extend("default" = null))]
    hotpotqa: Option<Spanned<String>>,
    /// How answers are written; by default greedily, at most as many tokens as RULER lets each task write.
    #[serde(default)]
    write: WriteYaml,
}

/// The schema of the haystack, which may be left out.
fn haystacks(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = text_sources(generator);
    schema.insert("default".to_owned(), EMBEDDED.into());
    schema
}

impl RulerYaml {
    /// Checks every value.
    pub fn check(self) -> Result<TaskSpec, ConfigError> {
        let tasks = self.tasks()?;
        let lengths = match &*self.lengths {
            [] => vec![Texts::DEFAULT_LENGTH],
            lengths => yaml::distinct_counts("lengths", Location::UNKNOWN, lengths, "length", 1024)?,
        };
        let needs_essay = tasks.iter().any(|task| task.needs_essay());
        let haystack = match self.haystack.as_ref() {
            Some(haystack) if needs_essay => check_source(haystack, HAYSTACKS)?,
            Some(haystack) => {
                return yaml::refuse(
                    haystack.referenced,
                    "none of the tasks has running text",
                    "remove `haystack`, or add a task such as niah_single_2",
                );
            }
            None => DataSource::Embedded,
        };
        let shortest = lengths.iter().copied().min().unwrap_or(0);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let own_limit = self.write.max_new_tokens.is_some();
        let most = tasks.iter().map(|task| task.answer).max().unwrap_or(0);
        let generation = self.write.check(shortest, GenerationConfig::greedy(most))?;
        let wanted = Wanted {
            tasks,
            lengths,
            samples: yaml::limit("`samples`", &self.samples)?.unwrap_or(20),
            seed: self.seed.unwrap_or(42),
            answer: own_limit.then_some(generation.max_new_tokens),
        };
        let names: Vec<&str> = wanted.tasks.iter().map(|task| task.name).collect();
        let lengths: Vec<String> = wanted.lengths.iter().map(usize::to_string).collect();
        let selection = vec![
            ("tasks", names.join(",")),
            ("lengths", lengths.join(",")),
            ("samples", wanted.samples.to_string()),
            ("prompt_seed", wanted.seed.to_string()),
        ];
        let limit = if own_limit { "as the sweep says" } else { "as RULER has it" };
        let files = [self.squad, self.hotpotqa].map(|file| file.map(|file| file.value));
        let haystack = needs_essay.then_some(haystack);
        let texts = haystack.iter().map(ToString::to_string).chain(files.iter().flatten().cloned());
        let texts: Vec<String> = texts.collect();
        let dataset = if texts.is_empty() { "synthetic".to_owned() } else { texts.join(", ") };
        let task = Ruler { wanted, haystack, files };
        let spec = TaskSpec::new("ruler", dataset, longest, vec![("answers", limit.to_owned())], task);
        Ok(TaskSpec { generation: Some(generation), selection, ..spec })
    }

    /// The tasks to measure, whose files are there.
    fn tasks(&self) -> Result<Vec<&'static Subtask>, ConfigError> {
        let mut named = Vec::new();
        for name in &self.tasks {
            let Some(task) = Subtask::named(&name.value) else {
                let all = SUBTASKS.each_ref().map(|task| task.name);
                return yaml::refuse(
                    name.referenced,
                    format!("`{}` is none of RULER's tasks", name.value),
                    format!("{}use {}", did_you_mean(&name.value, all), all.join(", ")),
                );
            };
            if let Some(key) = task.file().filter(|key| self.file(key).is_none()) {
                return yaml::refuse(
                    name.referenced,
                    format!("{} reads a file that is not part of the program", task.name),
                    format!("write its path as `{key}`, or leave the task out"),
                );
            }
            named.push((task.name, name.referenced));
        }
        let tasks: Vec<&'static Subtask> = if named.is_empty() {
            SUBTASKS.iter().filter(|task| task.file().is_none_or(|key| self.file(key).is_some())).collect()
        } else {
            let names = yaml::distinct("tasks", Location::UNKNOWN, named, |name| (*name).to_owned())?;
            names.into_iter().filter_map(Subtask::named).collect()
        };
        for key in ["squad", "hotpotqa"] {
            let Some(file) = self.file(key) else { continue };
            if !matches!(file.value.parse(), Ok(DataSource::Path(_))) {
                return yaml::refuse(
                    file.referenced,
                    format!("`{}` is no path of a file", file.value),
                    "write one that starts with ./, ../ or / or ends in .json",
                );
            }
            if tasks.iter().all(|task| task.file() != Some(key)) {
                return yaml::refuse(
                    file.referenced,
                    format!("no task reads the file `{key}`"),
                    "remove it, or add qa_1 (squad) or qa_2 (hotpotqa) to `tasks`",
                );
            }
        }
        Ok(tasks)
    }

    fn file(&self, key: &str) -> Option<&Spanned<String>> {
        if key == "squad" { self.squad.as_ref() } else { self.hotpotqa.as_ref() }
    }
}

const HAYSTACKS: &str =
    "embedded, a folder of .txt files or a .parquet file (starting with ./, ../ or /), or a hub data set";

/// RULER's tasks.
#[derive(Debug)]
struct Ruler {
    wanted: Wanted,
    /// `None`: no task needs one.
    haystack: Option<DataSource>,
    /// SQuAD's and HotpotQA's.
    files: [Option<String>; 2],
}

impl Task for Ruler {
    fn prepare(&self, spec: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let books = match &self.haystack {
            Some(haystack) => data::read_books(haystack, None, context.hub, context.progress)?,
            None => Vec::new(),
        };
        let [squad, hotpot] = &self.files;
        let sources = Sources {
            essay: Essay::new(&books),
            squad: squad.as_ref().map(|file| Documents::of_squad(&expand_home(file)?)).transpose()?,
            hotpot: hotpot.as_ref().map(|file| Documents::of_hotpot(&expand_home(file)?)).transpose()?,
        };
        anyhow::ensure!(self.haystack.is_none() || !sources.essay.is_empty(), "the haystack holds no word");
        for (documents, file) in [&sources.squad, &sources.hotpot].into_iter().zip(&self.files) {
            let (Some(documents), Some(file)) = (documents, file) else { continue };
            let there = documents.len();
            data::note_fewer(
                context.progress,
                &DataSource::Path(file.clone()),
                "samples",
                self.wanted.samples,
                there,
            );
        }
        let template = if spec.generation()?.chat_template { context.files.chat_template()? } else { None };
        let frame = template.as_ref().map(ChatTemplate::format).transpose()?;
        let tokenizer = context.files.tokenizer()?;
        let tokens = |text: &str| Ok(tokenizer.encode(text)?.ids.len() + usize::from(tokenizer.adds_bos()));
        let counter = Counter { tokens: &tokens, frame: frame.as_ref() };
        let requests = requests::requests(&self.wanted, &sources, &counter)?;
        let of_books = data::digest(&books);
        let documents = [&sources.squad, &sources.hotpot].into_iter().flatten().flat_map(Documents::parts);
        let digest = data::digest_of(std::iter::once(&of_books).chain(documents));
        let scorer = Scorer::new(score::score);
        generation::prepare(spec, context, requests, digest, scorer)
    }
}
