//! A benchmark in a sweep: `- benchmark: ./my-task.yaml`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::definition::{self, Definition, Examples, Named};
use super::keys::Keys;
use super::output::OutputType;
use super::prompt::Prompts;
use super::reader::{self, Asked, Chosen, Readers};
use super::request::{add_trivial, digest, gather, name_clusters, request};
use super::rows::{self, Rows};
use super::score::ByFile;
use super::{builtin, python, rolling};
use crate::lm::Real;
use crate::lm::source::{expand_home, is_path};
use crate::task::canonical::{Setting, limit_text};
use crate::task::data::{self, digest_of};
use crate::task::generation;
use crate::task::prepared::PreparedTask;
use crate::task::request::{GenerationConfig, Request};
use crate::task::spec::{PrepareContext, Task, TaskSpec};
use crate::yaml::{self, ConfigError, Location, Spanned};

impl Keys {
    /// Reads the task's file and checks every value; a group gives several tasks, unless its files are measured together. `name` is the
    /// task of a short form, and `place` that of a task that is written alone.
    ///
    /// # Errors
    /// A file that is missing or cannot be used, or a value out of its range.
    pub(in crate::task) fn check(
        self,
        name: Option<&str>,
        place: Location,
        readers: Readers,
    ) -> Result<Vec<TaskSpec>, ConfigError> {
        if let (Some(name), Some(task)) = (name, &self.task) {
            let message = format!("`{name}` is the task already");
            return yaml::refuse(
                task.referenced,
                message,
                "remove `task`, or write `- benchmark:` in place of it",
            );
        }
        let task = match self.task.clone() {
            Some(task) if task.referenced != Location::UNKNOWN => task,
            alone => {
                let value = alone.map_or_else(|| name.unwrap_or_default().to_owned(), |task| task.value);
                Spanned { value, referenced: place }
            }
        };
        let of_task = |named: Named| spec(named, self.clone(), task.referenced, readers);
        named(&task)?.into_iter().map(of_task).collect()
    }
}

/// The names of a file's tasks.
///
/// # Errors
/// Why it cannot be measured here.
pub fn check(path: &Path, readers: Readers) -> Result<Vec<String>, ConfigError> {
    let name = |named: Named| Ok(chosen(named, Keys::default(), readers)?.0);
    definition::read(path)?.into_iter().map(name).collect()
}

/// Tokens that are left to a prompt where long answers are the point and the sweep does not set `max_new_tokens`.
const PROMPT_TOKENS: usize = 1024;

/// The name of a task, and what its file and the keys of a sweep come to.
fn chosen((file, definitions): Named, keys: Keys, readers: Readers) -> Result<(String, Chosen), ConfigError> {
    let group = file.group.as_ref().and_then(|group| group.as_str());
    let name = group.filter(|_| file.group().is_some()).unwrap_or(&definitions[0].task).to_owned();
    let over = keys.dataset.as_ref().map(|dataset| dataset.value.clone());
    let first = &definitions[0].dataset;
    let own = if definitions.len() > 1 { first.path.clone() } else { first.name_in_rows() };
    let mut chosen = Chosen {
        dataset: over.clone().unwrap_or(own),
        over,
        samples: yaml::limit("`samples`", &keys.samples)?,
        lengths: None,
        settings: Vec::new(),
        selection: Vec::new(),
        definitions,
    };
    let fewshot = keys.num_fewshot.as_ref().map(|count| yaml::count("`num_fewshot`", count, 0)).transpose()?;
    let repeats = yaml::made("`repeats`", &keys.repeats)?;
    for definition in &mut chosen.definitions {
        definition.fewshot.count = fewshot.unwrap_or(definition.fewshot.count);
        if let (Some(repeats), Some(given)) = (repeats, &keys.repeats) {
            definition.repeats = Some(repeats).filter(|count| *count > 1);
            if let Some((message, hint)) = definition.cannot_repeat() {
                return yaml::refuse(given.referenced, message, hint);
            }
        }
    }
    reader::choose(readers, &file, keys, &mut chosen)?;
    Ok((name, chosen))
}

/// A task of a sweep. `place` is that of its name.
fn spec(named: Named, keys: Keys, place: Location, readers: Readers) -> Result<TaskSpec, ConfigError> {
    let Keys { write, samples, repeats: given, .. } = keys.clone();
    let (name, chosen) = chosen(named, keys.clone(), readers)?;
    let Chosen { mut definitions, dataset, over, samples: first_rows, lengths, settings: own, mut selection } =
        chosen;
    let longest = lengths.iter().flatten().copied().max();
    let longest = longest.map_or_else(|| keys.longest(definitions[0].cache.length), Ok)?;
    let shortest = lengths.iter().flatten().copied().min().unwrap_or(longest);
    if let Some(aware) = write.query_aware.as_ref().filter(|aware| !aware.value)
        && definitions.iter().any(|definition| definition.cache.context.is_none())
    {
        let message = format!("a prompt of `{name}` is one text, whose question is not marked");
        let hint = "remove `query_aware`: the cache is cut after the whole prompt";
        return yaml::refuse(aware.referenced, message, hint);
    }
    // The limit of a file or a row gives way to the sweep's own.
    let own_limits = write.max_new_tokens.is_none();
    let mut default = definitions[0].generation.clone();
    default.max_new_tokens = definitions.iter().map(|file| file.generation.max_new_tokens).max().unwrap_or(0);
    default.chat_template = definitions.iter().any(|file| file.generation.chat_template);
    let mut generation = write.check(shortest, default)?;
    if own_limits && definitions[0].cache.long_answers {
        generation.max_new_tokens = shortest - PROMPT_TOKENS.min(shortest.div_ceil(2));
    }
    let place = given.as_ref().map_or(place, |repeats| repeats.referenced);
    let repeats = definitions[0].repeats.unwrap_or(1);
    check_repeats(repeats, &generation, place)?;
    let output = definitions[0].output;
    if output != OutputType::GenerateUntil {
        generation =
            GenerationConfig { max_new_tokens: 0, stop: Vec::new(), temperature: Real(0.0), ..generation };
    }
    let files = digest_of(definitions.iter().map(|definition| &definition.canonical));
    let mut settings: Vec<Setting> =
        vec![("benchmark", files), ("num_fewshot", definitions[0].fewshot.count.to_string())];
    if lengths.is_none() {
        settings.push(("length", longest.to_string()));
    }
    settings.extend(own);
    let several = definitions.len() > 1;
    if several || definitions[0].cache.max_gen_toks.is_some() {
        settings.push(("limits", if own_limits { "subset" } else { "sweep" }.to_owned()));
    }
    for definition in &mut definitions {
        if !own_limits {
            definition.cache.max_gen_toks = None;
        } else if several && definition.cache.max_gen_toks.is_none() {
            definition.limit_answers(definition.generation.max_new_tokens.min(generation.max_new_tokens));
        }
    }
    if !selection.iter().any(|(key, _)| *key == "samples") && (samples.is_some() || selection.is_empty()) {
        selection.push(("samples", limit_text(yaml::limit("`samples`", &samples)?)));
    }
    if repeats > 1 {
        selection.push(("repeats", repeats.to_string()));
    }
    // A task's name lives as long as the program, which has only those of its sweep.
    let name: &'static str = Box::leak(name.into_boxed_str());
    let definitions = definitions.into_iter().map(Arc::new).collect();
    let spec =
        TaskSpec::new(name, dataset, longest, settings, Benchmark { definitions, over, samples: first_rows });
    let generation = (output != OutputType::LoglikelihoodRolling).then_some(generation);
    Ok(TaskSpec { generation, selection, ..spec })
}

/// Refuses several answers of a row that would all be the same.
///
/// # Errors
/// At temperature 0 they are.
fn check_repeats(count: usize, generation: &GenerationConfig, place: Location) -> Result<(), ConfigError> {
    if count <= 1 || generation.samples() {
        return Ok(());
    }
    let message = format!("at temperature 0 all {count} answers of a row are the same");
    yaml::refuse(place, message, "write a `temperature` above 0 under `write`, or ask for one answer")
}

/// The tasks of a file or of a built-in name.
fn named(task: &Spanned<String>) -> Result<Vec<Named>, ConfigError> {
    let is_file = task.value.ends_with(".yaml") || task.value.ends_with(".yml");
    if !is_file && (builtin::all().any(|(name, _)| *name == task.value) || !is_path(&task.value)) {
        return builtin::read(task);
    }
    let path = expand_home(&task.value).unwrap_or_else(|_| task.value.clone().into());
    if !path.is_file() {
        let hint = "write its path from the working directory, not from the sweep's folder";
        return yaml::refuse(task.referenced, format!("there is no task file {}", path.display()), hint);
    }
    definition::read(&path)
}

/// A task of a sweep: one file, or several that are measured together, such as the subsets of LongBench.
#[derive(Debug)]
pub struct Benchmark {
    pub definitions: Vec<Arc<Definition>>,
    /// Rows in place of those that the files name.
    pub over: Option<String>,
    /// Only the first rows of each file.
    pub samples: Option<usize>,
}

impl Task for Benchmark {
    fn prepare(&self, spec: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let mut requests = Vec::new();
        for (part, definition) in self.definitions.iter().enumerate() {
            let of_part = self.requests(definition, spec, context)?.into_iter();
            requests.extend(of_part.map(|request| {
                let length = if request.length == 0 { spec.length } else { request.length };
                Request { part, length, ..request }
            }));
        }
        gather(&mut requests)?;
        name_clusters(&self.definitions, &mut requests);
        let digest = digest(&requests);
        if let [definition] = &self.definitions[..]
            && definition.output == OutputType::LoglikelihoodRolling
        {
            return rolling::prepare(definition, spec, context, requests, digest);
        }
        generation::prepare(spec, context, requests, digest, Box::new(ByFile(self.definitions.clone())))
    }
}

impl Benchmark {
    /// What the rows of one file ask.
    fn requests(
        &self,
        definition: &Definition,
        spec: &TaskSpec,
        context: &PrepareContext<'_>,
    ) -> Result<Vec<Request>> {
        let over = self.over.as_deref();
        let read = |split: &str| match &definition.reader {
            None => rows::read(definition, over, split, context),
            Some(reader) => {
                let dataset = over.unwrap_or(&definition.dataset.path);
                reader.rows(&Asked { dataset, split, definition, spec, context })
            }
        };
        let rows = read(&definition.split)?;
        if rows.rows.is_empty() {
            return Ok(Vec::new());
        }
        let examples = match &definition.fewshot.source {
            _ if definition.fewshot.count == 0 => Rows::default(),
            Examples::Split(split) if *split == definition.split => rows.clone(),
            Examples::Split(split) => read(split).context("the examples")?,
            Examples::Rows(rows) => Rows { rows: rows.clone(), ..Rows::default() },
        };
        let asked = self.samples.unwrap_or(0);
        data::note_fewer(context.hub.progress, &spec.dataset, "rows", asked, rows.rows.len());
        let requests = of_rows(definition, &rows, examples, self.samples)?;
        // Rows that code makes may be of a test whose answers are not published.
        let needs_targets = definition.reader.is_none() && definition.output == OutputType::GenerateUntil;
        let metric = python::str(&json!(definition.metrics[0].kind));
        ensure!(
            !needs_targets || requests.iter().any(|request| !request.references.is_empty()),
            "no row has a target, with which the metric `{metric}` compares answers"
        );
        Ok(requests)
    }
}

/// The requests of rows without examples; those of one cluster follow each other.
///
/// # Errors
/// A row that gives no request, or two of one name.
pub fn requests_of(definition: &Definition, rows: &Rows) -> Result<Vec<Request>> {
    let mut requests = of_rows(definition, rows, Rows::default(), None)?;
    gather(&mut requests)?;
    Ok(requests)
}

/// The most answers that are drawn, several for each row.
const MOST_ANSWERS: usize = 1_000_000;

fn of_rows(definition: &Definition, rows: &Rows, examples: Rows, samples: Option<usize>) -> Result<Vec<Request>> {
    let mut prompts = Prompts::new(definition, rows, examples);
    let mut requests = Vec::new();
    let count = rows.rows.len().min(samples.unwrap_or(usize::MAX));
    let answers = count.saturating_mul(definition.repeats.unwrap_or(1));
    ensure!(
        definition.repeats.is_none() || answers <= MOST_ANSWERS,
        "{answers} answers to {count} rows are more than {MOST_ANSWERS}; ask for fewer of each, or limit `samples`"
    );
    for at in 0..count {
        let request = request(&mut prompts, definition, rows, at).with_context(|| rows.places[at].clone())?;
        let Some(draws) = definition.repeats else {
            requests.push(request);
            continue;
        };
        // More draws or more rows leave the others' seeds as they are.
        requests.extend((0..draws).map(|draw| Request {
            name: format!("{}#{draw}", request.name),
            seed: ((draw as u64) << 32) + at as u64,
            ..request.clone()
        }));
    }
    add_trivial(definition, &mut requests);
    Ok(requests)
}
