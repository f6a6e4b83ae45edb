//! RULER's thirteen synthetic tasks (arXiv 2404.06654, github.com/NVIDIA/RULER), made from a seed for any length and
//! tokenizer: needles of eight kinds, variables, common and coded words, and questions about documents.
//!
//! Prompts are built as RULER's scripts build them, with other random numbers, words and running text, so that their structure is
//! RULER's and their content is not.

mod coded_words;
mod common_words;
mod documents;
mod example;
mod needles;
mod requests;
mod tasks;
#[cfg(test)]
mod tests;
mod variables;
mod words;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use self::documents::Documents;
use self::requests::{Counter, Sources, Wanted};
use self::tasks::{SUBTASKS, Subtask};
use self::words::Essay;
use super::benchmark::{Asked, Benchmark, Definition, Reader, Rows, builtin_definition};
use super::data::{self, DataSource, EMBEDDED, Texts, check_texts};
use super::request::{GenerationConfig, WriteYaml};
use super::spec::TaskSpec;
use crate::lm::ChatTemplate;
use crate::lm::source::expand_home;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// Prompts of each task and length, unless a sweep says otherwise; RULER has 500.
const SAMPLES: usize = 20;
/// The seed of prompts, unless a sweep says otherwise.
const SEED: u64 = 42;

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
    #[schemars(extend("type" = ["array", "null"], "uniqueItems" = true, "default" = [Texts::DEFAULT_LENGTH]))]
    lengths: Vec<Spanned<u64>>,
    /// How many prompts of each task and length; RULER has 500.
    #[schemars(range(min = 1, max = yaml::MOST_MADE), extend("default" = 20))]
    samples: Option<Spanned<u64>>,
    /// The seed of the prompts.
    #[schemars(extend("default" = 42))]
    seed: Option<u64>,
    /// The running text of five of the needle tasks, where RULER has Paul Graham's essays: `embedded`, a folder of `.txt` files
    /// or a `.parquet` file (starting with `./`, `../` or `/`), or a hub data set. By default `embedded`.
    #[schemars(extend("default" = EMBEDDED))]
    haystack: Option<Spanned<String>>,
    /// The file of `qa_1`: SQuAD's `dev-v2.0.json`. By default `qa_1` is left out.
    squad: Option<Spanned<String>>,
    /// The file of `qa_2`: HotpotQA's `hotpot_dev_distractor_v1.json`. By default `qa_2` is left out.
    hotpotqa: Option<Spanned<String>>,
    /// How answers are written; by default greedily, at most as many tokens as RULER lets each task write.
    #[serde(default)]
    write: WriteYaml,
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
        let haystack = self.haystack.as_ref().map_or(Ok(DataSource::Embedded), check_texts)?;
        let shortest = lengths.iter().copied().min().unwrap_or(0);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let own_limit = self.write.max_new_tokens.is_some();
        let most = tasks.iter().map(|task| task.answer).max().unwrap_or(0);
        let generation = self.write.check(shortest, GenerationConfig::greedy(most))?;
        let wanted = Wanted {
            tasks,
            lengths,
            samples: yaml::made("`samples`", &self.samples)?.unwrap_or(SAMPLES),
            seed: self.seed.unwrap_or(SEED),
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
        let haystack = if needs_essay { haystack.to_string() } else { String::new() };
        let [squad, hotpotqa] =
            [&self.squad, &self.hotpotqa].map(|file| file.as_ref().map_or("", |file| &file.value));
        let definitions = definitions(&wanted, [&haystack, squad, hotpotqa])?;
        let texts = definitions.iter().map(|file| file.dataset.path.as_str()).filter(|path| !path.is_empty());
        let texts: Vec<&str> = texts.collect();
        let dataset = if texts.is_empty() { "synthetic".to_owned() } else { texts.join(", ") };
        let task = Benchmark { definitions, over: None, samples: None };
        let spec = TaskSpec::new("ruler", dataset, longest, vec![("answers", limit.to_owned())], task);
        Ok(TaskSpec { generation: Some(generation), selection, ..spec })
    }

    /// The tasks to measure, whose files are there.
    fn tasks(&self) -> Result<Vec<&'static Subtask>, ConfigError> {
        let names = yaml::words("tasks", &self.tasks, &SUBTASKS.each_ref().map(|task| task.name))?;
        let is_there = |task: &Subtask| task.file().is_none_or(|key| self.file(key).is_some());
        let is_chosen =
            |task: &&Subtask| if names.is_empty() { is_there(task) } else { names.contains(&task.name) };
        // In the order of the sweep.
        let mut tasks: Vec<&'static Subtask> = SUBTASKS.iter().filter(is_chosen).collect();
        tasks.sort_by_key(|task| names.iter().position(|name| *name == task.name));
        if let Some(task) = tasks.iter().find(|task| !is_there(task)) {
            let place = self.tasks.iter().find(|name| name.value == task.name).map(|name| name.referenced);
            let message = format!("{} reads a file that is not part of the program", task.name);
            let hint = format!("write its path as `{}`, or leave the task out", task.file().unwrap_or_default());
            return yaml::refuse(place.unwrap_or(Location::UNKNOWN), message, hint);
        }
        Ok(tasks)
    }

    fn file(&self, key: &str) -> Option<&Spanned<String>> {
        if key == "squad" { self.squad.as_ref() } else { self.hotpotqa.as_ref() }
    }
}

/// The files of what is measured: one of all tasks without a file of questions, and one of each that has one. `paths` are those of
/// the haystack and of the files of questions; empty where nothing is read.
fn definitions(wanted: &Wanted, paths: [&str; 3]) -> Result<Vec<Arc<Definition>>, ConfigError> {
    let names = [("ruler", None), ("ruler_qa_squad", Some("squad")), ("ruler_qa_hotpot", Some("hotpotqa"))];
    let mut found = Vec::new();
    for ((name, file), path) in names.into_iter().zip(paths) {
        let tasks: Vec<_> = wanted.tasks.iter().copied().filter(|task| task.file() == file).collect();
        if !tasks.is_empty() {
            let mut definition = builtin_definition(name)?;
            definition.dataset.path = path.to_owned();
            definition.reader = Some(Arc::new(Wanted { tasks, ..wanted.clone() }));
            found.push(Arc::new(definition));
        }
    }
    Ok(found)
}

/// The options of the reader in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// RULER's names; without options the tasks that read no file.
    tasks: Vec<String>,
}

/// The reader that a file names.
///
/// # Errors
/// An option or a task that is unknown.
pub fn reader(options: Value) -> Result<Arc<dyn Reader>> {
    let tasks: Vec<&Subtask> = if options.is_null() {
        SUBTASKS.iter().filter(|task| task.file().is_none()).collect()
    } else {
        let Options { tasks } = serde_json::from_value(options)?;
        let named =
            |name: &String| Subtask::named(name).with_context(|| format!("`{name}` is none of RULER's tasks"));
        tasks.iter().map(named).collect::<Result<_>>()?
    };
    let is_alone = tasks.len() == 1 || tasks.iter().all(|task| task.file().is_none());
    ensure!(is_alone, "a task that reads a file of questions stands alone");
    Ok(Arc::new(Wanted { tasks, lengths: Vec::new(), samples: SAMPLES, seed: SEED, answer: None }))
}

/// Makes the rows of tasks without a file, or of one that has a file.
impl Reader for Wanted {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        let mut wanted = self.clone();
        if wanted.lengths.is_empty() {
            wanted.lengths.push(asked.spec.length);
        }
        let sources = self.sources(asked)?;
        if let Some(documents) = &sources.documents {
            let (progress, dataset) = (asked.context.hub.progress, &asked.dataset);
            data::note_fewer(progress, dataset, "samples", wanted.samples, documents.len());
        }
        let files = asked.context.files;
        let template = if asked.spec.generation()?.chat_template { files.chat_template()? } else { None };
        let frame = template.as_ref().map(ChatTemplate::format).transpose()?;
        let tokenizer = files.tokenizer()?;
        let tokens = |text: &str| Ok(tokenizer.encode(text)?.ids.len() + usize::from(tokenizer.adds_bos()));
        let counter = Counter { tokens: &tokens, frame: frame.as_ref(), definition: asked.definition };
        requests::rows(&wanted, &sources, &counter)
    }
}

impl Wanted {
    /// What the tasks are made of.
    fn sources(&self, asked: &Asked<'_>) -> Result<Sources> {
        let mut sources = Sources::default();
        let tasks = &self.tasks;
        if tasks.iter().any(|task| task.needs_essay()) {
            let haystack: DataSource = asked.dataset.parse()?;
            let books = data::read_books(&haystack, None, asked.context.hub.settings, asked.context.hub.progress)?;
            sources.essay = Essay::new(&books);
            ensure!(!sources.essay.is_empty(), "the haystack holds no word");
        }
        let file = || expand_home(asked.dataset);
        sources.documents = match tasks.first().and_then(|task| task.file()) {
            Some("squad") => Some(Documents::of_squad(&file()?)?),
            Some(_) => Some(Documents::of_hotpot(&file()?)?),
            None => None,
        };
        Ok(sources)
    }
}
