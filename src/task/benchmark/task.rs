//! A benchmark in a sweep: `- benchmark: ./my-task.yaml`.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::definition::{self, Definition, Examples};
use super::file::TaskFile;
use super::output::OutputType;
use super::prompt::Prompts;
use super::reader::{Asked, Readers};
use super::request::{add_trivial, digest, gather, name_clusters, request};
use super::rows::{self, Rows};
use super::score::ByFile;
use super::{builtin, python, rolling};
use crate::lm::Real;
use crate::lm::source::{expand_home, is_path};
use crate::task::canonical::{Setting, limit_text};
use crate::task::data::{self, Texts, digest_of};
use crate::task::generation;
use crate::task::prepared::PreparedTask;
use crate::task::request::{GenerationConfig, Request, WriteYaml};
use crate::task::spec::{PrepareContext, Task, TaskSpec};
use crate::yaml::{self, ConfigError, Location, Spanned};

/// A benchmark that a file describes, in the words of lm-evaluation-harness: the file or a built-in name, or these keys.
#[derive(Debug, JsonSchema)]
pub struct BenchmarkYaml(Keys);

/// The keys, where they are written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("type" = ["object", "string"]))]
struct Keys {
    /// A task file (ending in `.yaml` or `.yml`), or the name of a built-in one: `tova-bench list benchmarks`.
    task: Spanned<String>,
    /// Rows in place of those that the file names by default: a file, a folder, or a data set of the hub.
    dataset: Option<String>,
    /// Examples before each prompt, in place of the file's own number, which is the default.
    num_fewshot: Option<Spanned<u64>>,
    /// Only the first rows; by default all of them.
    samples: Option<Spanned<u64>>,
    /// Tokens of prompt and answer together; the default is the file's, or 4,096.
    length: Option<Spanned<u64>>,
    /// How answers are written; by default as the file says.
    #[serde(default)]
    write: WriteYaml,
}

impl<'de> Deserialize<'de> for BenchmarkYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BenchmarkYaml, D::Error> {
        let Spanned { value: Either(mut keys), referenced } = Spanned::<Either>::deserialize(deserializer)?;
        if keys.task.referenced == Location::UNKNOWN {
            keys.task.referenced = referenced;
        }
        Ok(BenchmarkYaml(keys))
    }
}

/// The keys, also of a file or name alone.
struct Either(Keys);

impl<'de> Deserialize<'de> for Either {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Either, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a task file, a name, or keys with `task`")
            }

            fn visit_str<E>(self, task: &str) -> Result<Keys, E> {
                let task = Spanned { value: task.to_owned(), referenced: Location::UNKNOWN };
                let write = WriteYaml::default();
                Ok(Keys { task, dataset: None, num_fewshot: None, samples: None, length: None, write })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Keys, A::Error> {
                Keys::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(Read).map(Either)
    }
}

impl BenchmarkYaml {
    /// Reads the file and checks every value; a group gives several tasks.
    ///
    /// # Errors
    /// A file that is missing or cannot be used, or a value out of its range.
    pub(in crate::task) fn check(self, readers: Readers) -> Result<Vec<TaskSpec>, ConfigError> {
        let Keys { task, dataset, num_fewshot, samples, length, write } = self.0;
        let samples = yaml::limit("`samples`", &samples)?;
        let length = length.as_ref().map(|length| yaml::count("`length`", length, 2)).transpose()?;
        let fewshot = num_fewshot.as_ref().map(|count| yaml::count("`num_fewshot`", count, 0)).transpose()?;
        let of_task = |(file, definition): (TaskFile, Definition)| {
            let mut definition = definition.with_reader(&file, readers)?;
            definition.fewshot.count = fewshot.unwrap_or(definition.fewshot.count);
            let own_length = definition.cache.length.map(|length| length as usize);
            let length = length.or(own_length).unwrap_or(Texts::DEFAULT_LENGTH);
            let mut generation = write.clone().check(length, definition.generation.clone())?;
            check_repeats(definition.repeats.unwrap_or(1), &generation, task.referenced)?;
            let is_rolling = definition.output == OutputType::LoglikelihoodRolling;
            if definition.output != OutputType::GenerateUntil {
                generation =
                    GenerationConfig { max_new_tokens: 0, stop: Vec::new(), temperature: Real(0.0), ..generation };
            }
            let settings: Vec<Setting> = vec![
                ("benchmark", digest_of([&definition.canonical])),
                ("num_fewshot", definition.fewshot.count.to_string()),
                ("length", length.to_string()),
            ];
            let selection = vec![("samples", limit_text(samples))];
            // A task's name lives as long as the program, which has only those of its sweep.
            let name: &'static str = Box::leak(definition.task.clone().into_boxed_str());
            let over = dataset.clone();
            let dataset = over.clone().unwrap_or_else(|| definition.dataset.name_in_rows());
            let task = Benchmark { definitions: vec![Arc::new(definition)], over, samples };
            let spec = TaskSpec::new(name, dataset, length, settings, task);
            Ok(TaskSpec { generation: (!is_rolling).then_some(generation), selection, ..spec })
        };
        named(&task)?.into_iter().map(of_task).collect()
    }
}

/// Refuses several answers of a row that would all be the same.
///
/// # Errors
/// At temperature 0 they are.
pub fn check_repeats(count: usize, generation: &GenerationConfig, place: Location) -> Result<(), ConfigError> {
    if count <= 1 || generation.samples() {
        return Ok(());
    }
    let message = format!("at temperature 0 all {count} answers of a row are the same");
    yaml::refuse(place, message, "write a `temperature` above 0 under `write`, or ask for one answer")
}

/// The tasks of a file or of a built-in name, each with its file.
fn named(task: &Spanned<String>) -> Result<Vec<(TaskFile, Definition)>, ConfigError> {
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
