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

use anyhow::{Result, ensure};

use self::documents::Documents;
use self::requests::{Counter, Sources, Wanted};
use self::tasks::{SUBTASKS, Subtask};
use self::words::Essay;
use super::benchmark::{Asked, Chosen, Definition, Keys, Reader, Rows, builtin_definition};
use super::data::{self, Books, DataSource, Texts, check_texts};
use crate::lm::ChatTemplate;
use crate::lm::source::expand_home;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// Prompts of each task and length, unless a sweep says otherwise; RULER has 500.
const SAMPLES: usize = 20;
/// The seed of prompts, unless a sweep says otherwise.
const SEED: u64 = 42;

/// The options of `rows: ruler`.
pub const OPTIONS: &[&str] = &["lengths", "tasks", "seed", "squad", "hotpotqa"];

/// The files of tasks that read a file of questions.
const OF_QUESTIONS: [(&str, &str); 2] = [("squad", "ruler_qa_squad"), ("hotpotqa", "ruler_qa_hotpot")];

/// Settles which tasks are made, at which lengths: those without a file of questions by the task's own file, the others by one each.
///
/// # Errors
/// A value out of its range, a task that is unknown, or one whose file is not named.
pub fn choose(keys: &Keys, chosen: &mut Chosen) -> Result<(), ConfigError> {
    keys.dataset.as_ref().map(check_texts).transpose()?;
    let named = keys.tasks.as_deref().unwrap_or_default();
    let tasks = tasks(keys, named)?;
    let lengths = keys.lengths(1024, Texts::DEFAULT_LENGTH)?;
    let samples = yaml::made("`samples`", &keys.samples)?.unwrap_or(SAMPLES);
    let seed = keys.seed.as_ref().map_or(SEED, |seed| seed.value);
    let names: Vec<&str> = tasks.iter().map(|task| task.name).collect();
    let texts: Vec<String> = lengths.iter().map(usize::to_string).collect();
    chosen.selection.extend([
        ("tasks", names.join(",")),
        ("lengths", texts.join(",")),
        ("samples", samples.to_string()),
        ("prompt_seed", seed.to_string()),
    ]);
    let wanted = Wanted { tasks, lengths, samples, seed, answer: None };
    chosen.samples = None;
    chosen.lengths = Some(wanted.lengths.clone());
    let own = chosen.definitions.remove(0);
    // A task file that names one task with a file of questions reads it as its data set.
    if let [task] = &wanted.tasks[..]
        && task.file().is_some_and(|file| path_of_file(keys, file).is_none())
    {
        chosen.definitions.push(Definition { reader: Some(Arc::new(wanted)), ..own });
        return Ok(());
    }
    let mut paths = Vec::new();
    let files = [(None, None)].into_iter().chain(OF_QUESTIONS.map(|(file, name)| (Some(file), Some(name))));
    for (file, name) in files {
        let tasks: Vec<_> = wanted.tasks.iter().copied().filter(|task| task.file() == file).collect();
        if tasks.is_empty() {
            continue;
        }
        let mut definition = name.map_or_else(|| Ok(own.clone()), builtin_definition)?;
        let path = match file.and_then(|file| path_of_file(keys, file)) {
            Some(path) => path.value.clone(),
            None if tasks.iter().any(|task| task.needs_essay()) => chosen.dataset.clone(),
            None => String::new(),
        };
        paths.extend(Some(path.clone()).filter(|path| !path.is_empty()));
        definition.dataset.path = path;
        definition.generation.max_new_tokens = tasks.iter().map(|task| task.answer).max().unwrap_or(0);
        definition.reader = Some(Arc::new(Wanted { tasks, ..wanted.clone() }));
        chosen.definitions.push(definition);
    }
    chosen.over = None;
    chosen.dataset = if paths.is_empty() { "synthetic".to_owned() } else { paths.join(", ") };
    Ok(())
}

/// The path of a file of questions, by its key.
fn path_of_file<'k>(keys: &'k Keys, file: &str) -> Option<&'k Spanned<String>> {
    if file == "squad" { keys.squad.as_ref() } else { keys.hotpotqa.as_ref() }
}

/// The tasks to measure, in the order of the sweep; without names those whose files are there.
fn tasks(keys: &Keys, named: &[Spanned<String>]) -> Result<Vec<&'static Subtask>, ConfigError> {
    let names = yaml::words("tasks", named, &SUBTASKS.each_ref().map(|task| task.name))?;
    let is_there = |task: &Subtask| task.file().is_none_or(|file| path_of_file(keys, file).is_some());
    let is_chosen = |task: &&Subtask| if names.is_empty() { is_there(task) } else { names.contains(&task.name) };
    let mut tasks: Vec<&'static Subtask> = SUBTASKS.iter().filter(is_chosen).collect();
    tasks.sort_by_key(|task| names.iter().position(|name| *name == task.name));
    let missing = |name: &&Spanned<String>| Subtask::named(&name.value).is_some_and(|task| !is_there(task));
    match named.iter().find(missing) {
        // A task file that names one reads it as its data set.
        Some(name) if tasks.len() > 1 || name.referenced != Location::UNKNOWN => {
            let file = Subtask::named(&name.value).and_then(Subtask::file).unwrap_or_default();
            let message = format!("{} reads a file that is not part of the program", name.value);
            yaml::refuse(name.referenced, message, format!("write its path as `{file}`, or leave the task out"))
        }
        _ => Ok(tasks),
    }
}

/// Makes the rows of tasks without a file, or of one that has a file.
impl Reader for Wanted {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        let generation = asked.spec.generation()?;
        // The sweep's limit is that of every row.
        let answer = asked.definition.cache.max_gen_toks.is_none().then_some(generation.max_new_tokens);
        let wanted = Wanted { answer, ..self.clone() };
        let sources = self.sources(asked)?;
        if let Some(documents) = &sources.documents {
            let (progress, dataset) = (asked.context.hub.progress, &asked.dataset);
            data::note_fewer(progress, dataset, "samples", wanted.samples, documents.len());
        }
        let files = asked.context.files;
        let template = if generation.chat_template { files.chat_template()? } else { None };
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
            let books =
                data::read_books(&haystack, &Books::All, asked.context.hub.settings, asked.context.hub.progress)?;
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
