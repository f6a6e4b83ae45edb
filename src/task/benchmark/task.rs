//! A benchmark in a sweep: `- benchmark: ./my-task.yaml`.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::definition::{self, Definition, Examples, MAX_GEN_TOKS, OutputType, Trivial};
use super::filter::filtered;
use super::metric::{self, Choice};
use super::prompt::{Prompts, Question, RowPrompt};
use super::rows::{self, Rows};
use super::template::Template;
use super::{builtin, python, rolling};
use crate::lm::Real;
use crate::lm::source::expand_home;
use crate::metric::MetricSum;
use crate::task::canonical::list;
use crate::task::data::{self, Texts, digest_of};
use crate::task::generation::{
    self, Continued, GenerationConfig, Likelihood, Prompt, Request, Scorer, WriteYaml, by_slice,
};
use crate::task::prepared::PreparedTask;
use crate::task::qasper::commonest_answer;
use crate::task::spec::{PrepareContext, Setting, Task, TaskSpec, limit_text};
use crate::task::squality::first_words;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// A benchmark that a file describes: the file or name alone, or with keys.
#[derive(Debug)]
pub struct BenchmarkYaml {
    keys: Keys,
}

impl JsonSchema for BenchmarkYaml {
    fn schema_name() -> Cow<'static, str> {
        Keys::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Keys::json_schema(generator);
        // The file or the name alone.
        schema.insert("type".into(), serde_json::json!(["object", "string"]));
        schema
    }
}

/// A benchmark that a file describes, in the words of lm-evaluation-harness: the file or a built-in name, or these keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// A task file (ending in `.yaml` or `.yml`), or the name of a built-in one: `tova-bench list benchmarks`.
    task: Spanned<String>,
    /// Rows in place of those that the file names: a file, a folder, or a data set of the hub.
    #[serde(default)]
    dataset: Option<String>,
    /// Examples before each prompt, in place of the file's own number.
    #[schemars(range(min = 0, max = 1000), extend("default" = null))]
    num_fewshot: Option<Spanned<u64>>,
    /// Only the first rows; null: all of them.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    samples: Option<Spanned<u64>>,
    /// Tokens of prompt and answer together; the default is the file's, or 4,096.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = null))]
    length: Option<Spanned<u64>>,
    /// How answers are written; by default as the file says.
    #[serde(default)]
    write: WriteYaml,
}

impl<'de> Deserialize<'de> for BenchmarkYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BenchmarkYaml, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
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
        Ok(BenchmarkYaml { keys: deserializer.deserialize_any(Either)? })
    }
}

impl BenchmarkYaml {
    /// Reads the file and checks every value; a group gives several tasks.
    ///
    /// # Errors
    /// A file that is missing or cannot be used, or a value out of its range.
    pub fn check(self) -> Result<Vec<TaskSpec>, ConfigError> {
        let Keys { task, dataset, num_fewshot, samples, length, write } = self.keys;
        let samples = yaml::limit("`samples`", &samples)?;
        let length = length.as_ref().map(|length| yaml::count("`length`", length, 2)).transpose()?;
        let fewshot = num_fewshot.as_ref().map(|count| yaml::count("`num_fewshot`", count, 0)).transpose()?;
        let definitions = named(&task)?;
        let spec = |mut definition: Definition| {
            definition.fewshot.count = fewshot.unwrap_or(definition.fewshot.count);
            if let (Some(count), Examples::None) = (&num_fewshot, &definition.fewshot.source)
                && count.value > 0
            {
                let hint = "write `fewshot_split` in the task file";
                return yaml::refuse(count.referenced, "the task has no split to draw examples from", hint);
            }
            spec(definition, dataset.clone(), samples, length, write.clone())
        };
        definitions.into_iter().map(spec).collect()
    }
}

/// The tasks of a file or of a built-in name.
fn named(task: &Spanned<String>) -> Result<Vec<Definition>, ConfigError> {
    let is_file = task.value.ends_with(".yaml") || task.value.ends_with(".yml");
    if !is_file {
        return builtin::read(task);
    }
    let path = expand_home(&task.value).unwrap_or_else(|_| task.value.clone().into());
    definition::read(Path::new(&path))
}

fn spec(
    definition: Definition,
    over: Option<String>,
    samples: Option<usize>,
    length: Option<usize>,
    write: WriteYaml,
) -> Result<TaskSpec, ConfigError> {
    let length = length.or(definition.cache.length).unwrap_or(Texts::DEFAULT_LENGTH);
    // A task's name lives as long as the program, which has only those of its sweep.
    let name: &'static str = Box::leak(definition.task.clone().into_boxed_str());
    let dataset = over.clone().unwrap_or_else(|| definition.dataset.name_in_rows());
    let of_file = &definition.generation;
    let default = GenerationConfig {
        temperature: Real(of_file.temperature),
        chat_template: definition.cache.chat_template,
        ..GenerationConfig::greedy(of_file.max_new_tokens.unwrap_or(MAX_GEN_TOKS))
    };
    let (draws, stops) = (write.top_k.is_some() || write.top_p.is_some(), !write.stop.is_empty());
    let mut generation = write.check(length, default)?;
    if !draws && generation.samples() {
        (generation.top_k, generation.top_p) = (of_file.top_k.map(|k| k as usize), of_file.top_p.map(Real));
    }
    if !stops {
        generation.stop = of_file.until.clone();
    }
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
    let task = Benchmark { definition: Arc::new(definition), over, samples };
    let spec = TaskSpec::new(name, dataset, length, settings, task);
    Ok(TaskSpec { generation: (!is_rolling).then_some(generation), selection, ..spec })
}

#[derive(Debug)]
struct Benchmark {
    definition: Arc<Definition>,
    over: Option<String>,
    samples: Option<usize>,
}

impl Task for Benchmark {
    fn prepare(&self, spec: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let definition = &self.definition;
        let read = |split: &str| rows::read(&definition.dataset, self.over.as_deref(), split, context);
        let rows = read(&definition.split)?;
        let examples = match &definition.fewshot.source {
            _ if definition.fewshot.count == 0 => Vec::new(),
            Examples::Split(split) if *split == definition.split => rows.rows.clone(),
            Examples::Split(split) => read(split).context("the examples")?.rows,
            Examples::Rows(rows) => rows.clone(),
            Examples::None => Vec::new(),
        };
        let asked = self.samples.unwrap_or(0);
        data::note_fewer(context.progress, &spec.dataset, "rows", asked, rows.rows.len());
        let mut prompts = Prompts::new(definition, &rows, examples)?;
        let mut requests = Vec::new();
        for at in 0..rows.rows.len().min(self.samples.unwrap_or(usize::MAX)) {
            let request = request(&mut prompts, definition, &rows, at).with_context(|| rows.places[at].clone())?;
            requests.push(Request { length: spec.length, ..request });
        }
        gather(&mut requests)?;
        add_trivial(definition, &mut requests);
        let digest = digest(&requests);
        if definition.output == OutputType::LoglikelihoodRolling {
            return rolling::prepare(definition, spec, context, requests, digest);
        }
        generation::prepare(spec, context, requests, digest, scorer(definition.clone()))
    }
}

/// What a row asks.
fn request(prompts: &mut Prompts<'_>, definition: &Definition, rows: &Rows, at: usize) -> Result<Request> {
    let row = &rows.rows[at];
    let question = prompts.question(row)?;
    let block = &definition.cache;
    let text = |template: &Template| prompts.value(template, row).map(|value| python::str(&value));
    let optional = |template: &Option<Template>| template.as_ref().map(text).transpose();
    let name = optional(&block.name)?.unwrap_or_else(|| at.to_string());
    let context = optional(&block.context)?;
    let cluster = optional(&block.cluster)?.or(context.as_ref().map(|context| digest_of([context])));
    let most = optional(&block.max_new_tokens)?;
    let most = most
        .map(|most| most.parse().with_context(|| format!("max_gen_toks: `{most}` is no number")))
        .transpose()?;
    let trivial = match &block.trivial {
        Some(Trivial::Text(template)) => text(template)?,
        _ => String::new(),
    };
    let slices = block.slices.iter().map(|(name, template)| Ok(format!("{name}:{}", text(template)?)));
    let Question { prompts: texts, target, choices, right_context } = question;
    let request = Request {
        cluster: cluster.unwrap_or_else(|| name.clone()),
        slices: slices.collect::<Result<_>>()?,
        max_new_tokens: most,
        cut: block.cut,
        keeps_header: true,
        trivial,
        name,
        ..Request::default()
    };
    let form = &definition.form;
    let targets = || match &target {
        Value::Array(targets) => targets.iter().map(python::str).collect(),
        Value::Number(at) if !choices.is_empty() => {
            at.as_u64().and_then(|at| choices.get(at as usize)).into_iter().cloned().collect::<Vec<String>>()
        }
        one => vec![python::str(one)],
    };
    let only = |texts: Vec<RowPrompt>| prompt(texts.into_iter().next(), context.as_deref(), &block.separator);
    Ok(match definition.output {
        OutputType::GenerateUntil => Request { prompt: only(texts)?, references: targets(), ..request },
        OutputType::LoglikelihoodRolling => {
            // What is counted stands behind the text itself.
            let counted = optional(&block.counted)?;
            Request { references: targets().into_iter().take(1).chain(counted).collect(), ..request }
        }
        OutputType::Loglikelihood => {
            let references = targets();
            let continuations =
                references.iter().take(1).map(|text| Continued { context: String::new(), text: text.clone() });
            Request {
                prompt: only(texts)?,
                continuations: continuations.collect(),
                references,
                right: vec![0],
                ..request
            }
        }
        OutputType::MultipleChoice => {
            ensure!(!choices.is_empty(), "there are no choices");
            let right = match right_context {
                Some(right) => vec![right],
                None => right(&target, &choices),
            };
            let after = |text: &str| [form.target_delimiter.as_str(), text].concat();
            let (prompt, continuations) = if right_context.is_some() {
                let target = after(&targets().into_iter().next().unwrap_or_default());
                let before = texts.first().map(|text| text.before.clone()).unwrap_or_default();
                let of = |text: RowPrompt| Continued {
                    context: [text.text, text.prefix].concat(),
                    text: target.clone(),
                };
                (Prompt { before, ..Prompt::default() }, texts.into_iter().map(of).collect())
            } else {
                let of = |choice: &String| Continued { context: String::new(), text: after(choice) };
                (only(texts)?, choices.iter().map(of).collect())
            };
            let references = right.iter().filter_map(|at| choices.get(*at).cloned()).collect();
            Request { prompt, continuations, references, classes: choices, right, ..request }
        }
    })
}

/// The indices of the right choices.
fn right(target: &Value, choices: &[String]) -> Vec<usize> {
    let one = |target: &Value| match target {
        Value::Number(at) => at.as_i64().and_then(|at| usize::try_from(at).ok()),
        Value::String(text) => choices.iter().position(|choice| choice == text),
        Value::Bool(is) => Some(usize::from(*is)),
        _ => None,
    };
    match target {
        Value::Array(targets) => targets.iter().filter_map(one).collect(),
        target => one(target).into_iter().collect(),
    }
}

/// A row's prompt in the parts that cutting treats differently.
fn prompt(text: Option<RowPrompt>, context: Option<&str>, separator: &str) -> Result<Prompt> {
    let RowPrompt { before, text, prefix } = text.context("there is no prompt")?;
    let separator = separator.to_owned();
    let (own, document, rest) = match context.filter(|context| !context.is_empty()) {
        None => (text.as_str(), "", ""),
        Some(context) => {
            let (own, rest) =
                text.split_once(context).context("`context` does not stand in doc_to_text as it is")?;
            (own, context, rest)
        }
    };
    let header = prefix.len();
    Ok(Prompt {
        before: before + own,
        document: document.into(),
        after: rest.to_owned() + &prefix,
        separator,
        header,
    })
}

/// Puts rows of one cluster one after the other, and refuses two of one name.
fn gather(requests: &mut [Request]) -> Result<()> {
    let mut order: HashMap<String, usize> = HashMap::new();
    let mut names = BTreeSet::new();
    for request in &*requests {
        let next = order.len();
        order.entry(request.cluster.clone()).or_insert(next);
        ensure!(
            names.insert(&request.name),
            "two rows are named {}; results could not tell them apart",
            request.name
        );
    }
    requests.sort_by_key(|request| order[&request.cluster]);
    Ok(())
}

/// Adds the answers that need no reading, where they follow from all rows or from the context.
fn add_trivial(definition: &Definition, requests: &mut [Request]) {
    let trivial = match &definition.cache.trivial {
        Some(Trivial::Commonest) => commonest_answer(requests),
        Some(Trivial::FirstWords) => first_words(requests),
        // That of a template is a row's own.
        Some(Trivial::Text(_)) | None => return,
    };
    for (request, trivial) in requests.iter_mut().zip(trivial) {
        request.trivial = trivial;
    }
}

/// The digest of all that prompts and scores depend on.
fn digest(requests: &[Request]) -> String {
    let parts = requests.iter().flat_map(|request| {
        let Request { name, cluster, prompt, references, classes, slices, continuations, right, .. } = request;
        let Prompt { before, document, after, separator, header } = prompt;
        let counts = format!(
            "{header} {} {} {} {} {}",
            references.len(),
            classes.len(),
            slices.len(),
            continuations.len(),
            list(right)
        );
        let texts = [name, cluster, before, document, after, separator, &counts].map(String::clone);
        let asked = continuations.iter().flat_map(|Continued { context, text }| [context.clone(), text.clone()]);
        let lists = [references, classes, slices].map(|list| list.iter().cloned()).into_iter().flatten();
        texts.into_iter().chain(lists).chain(asked).collect::<Vec<_>>()
    });
    digest_of(parts)
}

/// How answers and choices are scored.
fn scorer(definition: Arc<Definition>) -> Scorer {
    let of_choices = definition.clone();
    let choose = move |likelihoods: &[Likelihood], request: &Request| choose(&of_choices, likelihoods, request);
    let score = move |text: &str, request: &Request| score(&definition, text, request);
    Scorer { score: Arc::new(score), choose: Arc::new(choose), ..Scorer::new(|_, _| Vec::new()) }
}

/// The metrics of a written answer: of what the first filter leaves, and of each filter as a slice where there are several.
fn score(definition: &Definition, text: &str, request: &Request) -> Vec<MetricSum> {
    let mut sums = Vec::new();
    for (at, (name, chain)) in definition.filters.iter().enumerate() {
        let answer = filtered(chain, text);
        for metric in &definition.metrics {
            for (id, value) in metric::of_answer(metric, &answer, request) {
                if at == 0 {
                    sums.extend(by_slice(request, id, value));
                }
                if definition.filters.len() > 1 {
                    sums.push(MetricSum::new(id, value, 1.0).of_slice(Some(format!("filter:{name}"))));
                }
            }
        }
    }
    if definition.cache.trivial.is_some() {
        for metric in &definition.metrics {
            let trivial = metric::of_answer(metric, &request.trivial, request);
            let guessed = trivial.into_iter().filter_map(|(id, value)| Some((metric::guess_of(id)?, value)));
            sums.extend(guessed.flat_map(|(id, value)| by_slice(request, id, value)));
        }
    }
    sums
}

/// The metrics of likelihoods. The first carries the likeliest choice.
fn choose(definition: &Definition, likelihoods: &[Likelihood], request: &Request) -> Vec<MetricSum> {
    let length = |text: &String| (text.chars().count(), text.len());
    let choices: Vec<Choice> = likelihoods
        .iter()
        .enumerate()
        .map(|(at, likelihood)| Choice {
            log: likelihood.log,
            is_greedy: likelihood.is_greedy,
            length: request.classes.get(at).map_or((1, 1), length),
        })
        .collect();
    let mut sums = Vec::new();
    for metric in &definition.metrics {
        let scored = match definition.output {
            OutputType::Loglikelihood => metric::of_target(metric, &choices),
            _ => metric::of_choices(metric, &choices, &request.right),
        };
        if let Some((id, value, weight)) = scored {
            sums.extend(by_slice(request, id, value).map(|sum| MetricSum { weight, ..sum }));
        }
    }
    let likeliest = metric::likeliest(&choices).and_then(|at| request.classes.get(at).cloned());
    if let Some(first) = sums.first_mut() {
        first.output = likeliest;
    }
    // Of the right choice; those of all go with it.
    let right = request.right.first().and_then(|at| likelihoods.get(*at));
    let all: Vec<f64> = likelihoods.iter().map(|likelihood| likelihood.log).collect();
    let output = serde_json::to_string(&all).ok();
    sums.extend(right.map(|right| MetricSum { output, ..MetricSum::new("loglikelihood", right.log, 1.0) }));
    sums
}
