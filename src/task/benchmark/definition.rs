//! A task of a file, checked: metrics known, splits named, generation settled.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::cache::CacheYaml;
use super::file::{DatasetKwargs, Field, Sampler, TaskFile, files_of};
use super::filter::{FilterChain, FilterStep};
use super::metric::TaskMetric;
use super::output::OutputType;
use super::reader::Reader;
use super::rows::Dataset;
use super::template::Template;
use crate::lm::Real;
use crate::task::request::{Drawing, GenerationConfig};
use crate::yaml::{self, ConfigError};

/// The examples before a prompt.
#[derive(Clone, Debug)]
pub struct Fewshot {
    pub count: usize,
    pub source: Examples,
    pub sampler: Sampler,
    /// Whether the harness draws one example more, and leaves out the row that is asked (`fewshot_context`).
    pub leaves_out_asked: bool,
}

#[derive(Clone, Debug)]
pub enum Examples {
    Split(String),
    Rows(Vec<Value>),
}

/// A task. It has a field for each thing that a file settles, and most are read in one place only.
#[derive(Clone, Debug)]
pub struct Definition {
    pub task: String,
    /// What its numbers depend on, beside the rows.
    pub canonical: String,
    pub dataset: Dataset,
    /// The rows that are measured.
    pub split: String,
    pub output: OutputType,
    pub description: Option<Template>,
    pub text: Field,
    /// What the text has before and after the context, where there is one.
    pub around: Option<[Template; 2]>,
    pub target: Field,
    pub choices: Option<Field>,
    /// How answers begin.
    pub prefix: Option<Template>,
    pub target_delimiter: String,
    pub fewshot_delimiter: String,
    pub fewshot: Fewshot,
    /// How answers are written where a sweep does not say otherwise.
    pub generation: GenerationConfig,
    /// Named chains; the first is what totals are of. There is at least one.
    pub filters: Vec<FilterChain>,
    pub metrics: Vec<TaskMetric>,
    pub cache: CacheYaml,
    /// The code that makes the rows, where they are in no plain file.
    pub reader: Option<Arc<dyn Reader>>,
    /// How often each row is answered, each time from a seed of its own and named by it; `None`: once, by the row's name.
    pub repeats: Option<usize>,
}

/// The most new tokens of lm-evaluation-harness where a file does not say it.
const MAX_GEN_TOKS: usize = 256;

impl Definition {
    /// The columns that its templates may ask a row for.
    pub fn columns(&self) -> BTreeSet<&str> {
        let Definition { description, text, target, choices, prefix, cache, .. } = self;
        let CacheYaml { context, separator, answer_header, row_length, name, cluster, slices, .. } = cache;
        let fields = [Some(text), Some(target), choices.as_ref()].into_iter().flatten();
        let of_fields =
            fields.filter_map(|field| if let Field::Text(template) = field { Some(template) } else { None });
        let own = [description, prefix, context, separator, answer_header, row_length, name, cluster];
        let more = [&cache.max_gen_toks, &cache.counted].into_iter().chain(own).flatten();
        let templates = of_fields.chain(more).chain(slices.values());
        // A template that is the name of a column stands for that.
        templates.flat_map(|one| one.names().iter().map(String::as_str).chain([one.source()])).collect()
    }

    /// Lets the answer of a row have at most this many tokens, whatever a sweep's default is.
    pub fn limit_answers(&mut self, most: usize) {
        self.cache.max_gen_toks = Template::new(&most.to_string()).ok();
    }

    /// Checks a file, whose name is the task's where it has none. The code that makes its rows is left open.
    ///
    /// # Errors
    /// What is missing, contradicts itself or cannot be done here, with its place.
    pub fn check(file: &TaskFile, name: &str) -> Result<Definition, ConfigError> {
        let output = file.output_type.unwrap_or_default();
        let path = file.needed("dataset_path", file.dataset_path.as_ref())?;
        let tested = file.test_split.as_ref().or(file.validation_split.as_ref());
        let split = file.needed("test_split", tested)?;
        if output == OutputType::MultipleChoice {
            file.needed("doc_to_choice", file.doc_to_choice.as_ref())?;
        }
        let text = match &file.doc_to_text {
            Some(Field::Fixed(_)) => {
                return file.refuse("doc_to_text", "`doc_to_text` is not a text", "write a column or a template");
            }
            None if output == OutputType::LoglikelihoodRolling => Field::Fixed(String::new().into()),
            text => file.needed("doc_to_text", text.as_ref())?,
        };
        let fewshot_delimiter = file.fewshot_delimiter.clone().unwrap_or("\n\n".into());
        let cache = file.cache.clone().unwrap_or_default();
        if cache.length.is_some_and(|length| length < 2) {
            return file.refuse("cache", "a `length` has at least 2 tokens", "write a larger number");
        }
        let around = match &cache.context {
            None => None,
            Some(context) => match around(&text, context) {
                Some(around) => Some(around),
                None => {
                    let message = "`context` does not stand in `doc_to_text` once, as it is written";
                    return file.refuse(
                        "cache",
                        message,
                        "write the same column or template in both, outside of blocks",
                    );
                }
            },
        };
        let chains = file.filter_list.clone().unwrap_or_else(|| vec![FilterChain::none()]);
        if chains.is_empty() {
            return file.refuse("filter_list", "`filter_list` is empty", "leave it out");
        }
        let definition = Definition {
            task: file.task.as_ref().and_then(Value::as_str).unwrap_or(name).to_owned(),
            canonical: file.canonical(),
            dataset: dataset(path, file),
            split,
            output,
            description: file.description.clone(),
            text,
            around,
            target: file.needed("doc_to_target", file.doc_to_target.as_ref())?,
            choices: file.doc_to_choice.clone(),
            prefix: file.gen_prefix.clone(),
            target_delimiter: file.target_delimiter.clone().unwrap_or(" ".into()),
            fewshot: fewshot(file),
            generation: generation(file, &fewshot_delimiter, cache.chat_template)?,
            fewshot_delimiter,
            repeats: repeats(file)?,
            filters: chains,
            metrics: metrics(file, output)?,
            reader: None,
            cache,
        };
        match definition.cannot_repeat() {
            Some((message, hint)) => file.refuse("repeats", message, hint),
            None => Ok(definition),
        }
    }

    /// Why its rows cannot be answered more than once, and what to do; `None`: they can, or they are answered once.
    pub fn cannot_repeat(&self) -> Option<(&'static str, &'static str)> {
        self.repeats?;
        let mut steps = self.filters.iter().flat_map(|chain| &chain.filter);
        if self.output != OutputType::GenerateUntil {
            Some(("only written answers can differ", "write `repeats: 1`"))
        } else if steps.any(|step| matches!(step, FilterStep::MajorityVote)) {
            Some((
                "each answer is scored by itself, so that there is no vote",
                "remove the filter `majority_vote`",
            ))
        } else {
            None
        }
    }
}

/// A task file, and its task; of a group whose files are measured together, the group's file and all of them.
pub type Named = (TaskFile, Vec<Definition>);

/// The tasks of a group: one, if the group's file says what makes their rows, and else each by itself.
pub fn of_group(group: TaskFile, tasks: Vec<Named>) -> Vec<Named> {
    if group.cache.as_ref().is_some_and(|cache| cache.rows.is_some()) {
        vec![(group, tasks.into_iter().flat_map(|(_, definitions)| definitions).collect())]
    } else {
        tasks
    }
}

/// What a text has before and after the context: the source of a template, or a column between braces.
fn around(text: &Field, context: &Template) -> Option<[Template; 2]> {
    let Field::Text(text) = text else { return None };
    let context = context.source();
    let written = [context.to_owned(), format!("{{{{{context}}}}}"), format!("{{{{ {context} }}}}")];
    let once = |written: &&String| written.contains("}") && text.source().matches(written.as_str()).count() == 1;
    let (before, after) = text.source().split_once(written.iter().find(once)?)?;
    Some([Template::new(before).ok()?, Template::new(after).ok()?])
}

/// Checks a `metric_list`; without one, the harness' default of the output type.
fn metrics(file: &TaskFile, output: OutputType) -> Result<Vec<TaskMetric>, ConfigError> {
    let metrics = file.metric_list.clone().unwrap_or_else(|| TaskMetric::usual(output));
    if metrics.is_empty() {
        return file.refuse("metric_list", "`metric_list` is a list of metrics", "write [{metric: exact_match}]");
    }
    match metrics.iter().find_map(|metric| metric.fault(output)) {
        Some((message, hint)) => file.refuse("metric_list", message, hint),
        None => Ok(metrics),
    }
}

/// How often each row is answered, where that is more than once.
fn repeats(file: &TaskFile) -> Result<Option<usize>, ConfigError> {
    let Some(count) = file.repeats.filter(|count| count.get() > 1) else { return Ok(None) };
    if count.get() > yaml::MOST_MADE as usize {
        let hint = format!("write a whole number from 1 to {}", yaml::MOST_MADE);
        return file.refuse("repeats", format!("{count} cannot be `repeats`"), hint);
    }
    Ok(Some(count.get()))
}

fn fewshot(file: &TaskFile) -> Fewshot {
    let config = file.fewshot_config.clone().unwrap_or_default();
    // The harness falls back to the rows of training, and draws from those that are measured where there are none.
    let splits = [&file.training_split, &file.validation_split, &file.test_split];
    let source = match (file.fewshot_split.clone(), config.samples) {
        (Some(split), _) => Examples::Split(split),
        (None, Some(rows)) => Examples::Rows(rows),
        (None, None) => Examples::Split(splits.into_iter().flatten().next().cloned().unwrap_or_default()),
    };
    let leaves_out_asked = file.fewshot_split == file.test_split;
    let sampler = config.sampler.unwrap_or_default();
    Fewshot { count: file.num_fewshot.unwrap_or(0), source, sampler, leaves_out_asked }
}

fn dataset(path: String, file: &TaskFile) -> Dataset {
    let DatasetKwargs { data_files, .. } = file.dataset_kwargs.clone().unwrap_or_default();
    let name = file.dataset_name.as_ref().map(super::python::str);
    Dataset { path, name, files: data_files.unwrap_or_default().0 }
}

fn generation(file: &TaskFile, delimiter: &str, chat_template: bool) -> Result<GenerationConfig, ConfigError> {
    let kwargs = file.generation_kwargs.clone().unwrap_or_default();
    let mut stop = match &kwargs.until {
        None => vec![delimiter.to_owned()],
        Some(Value::Null) => Vec::new(),
        Some(Value::Array(stops)) => stops.iter().map(super::python::str).collect(),
        Some(stop) => vec![super::python::str(stop)],
    };
    stop.retain(|stop| !stop.is_empty());
    if kwargs.num_beams.is_some_and(|number| number != 1) {
        return file.refuse("generation_kwargs", "there is one beam", "remove `num_beams`");
    }
    // Their places are those of a copy.
    let drawing = Drawing::check(&kwargs.temperature, &kwargs.top_k, &kwargs.top_p)
        .or_else(|error| file.refuse("generation_kwargs", error.message, error.hint))?;
    let temperature = drawing.temperature.unwrap_or(Real(0.0));
    if kwargs.do_sample == Some(true) && temperature.0 == 0.0 {
        let hint = "write a `temperature` above 0, or `do_sample: false`";
        return file.refuse("generation_kwargs", "nothing can be sampled at temperature 0", hint);
    }
    // Without `do_sample`, a temperature above 0 samples.
    let temperature = if kwargs.do_sample == Some(false) { Real(0.0) } else { temperature };
    let is_drawn = temperature.0 > 0.0;
    let most = kwargs.max_gen_toks.or(kwargs.max_new_tokens).map_or(MAX_GEN_TOKS, usize::from);
    Ok(GenerationConfig {
        temperature,
        top_k: drawing.top_k.filter(|_| is_drawn),
        top_p: drawing.top_p.filter(|_| is_drawn),
        stop,
        chat_template,
        ends_as_in_the_harness: true,
        ..GenerationConfig::greedy(most)
    })
}

/// The tasks of a file: one, or those of a group, which are looked for in its folder.
///
/// # Errors
/// What is missing, contradicts itself or cannot be done here; the error names the file.
pub fn read(path: &Path) -> Result<Vec<Named>, ConfigError> {
    let file = TaskFile::read(path)?;
    let Some(tasks) = file.group().cloned() else { return Ok(vec![of_file(file, path)?]) };
    let folder = path.parent().unwrap_or(Path::new("."));
    // A file that cannot be read is that of another task, or is missed below.
    let others = files_of(folder).unwrap_or_default().into_iter().filter(|other| other != path);
    let others: Vec<_> = others.filter_map(|path| Some((TaskFile::read(&path).ok()?, path))).collect();
    let mut found = Vec::new();
    for task in tasks.as_array().into_iter().flatten() {
        let name = task
            .as_str()
            .or(task["task"].as_str().filter(|_| task.as_object().is_some_and(|task| task.len() == 1)));
        let Some(name) = name else {
            return file.refuse("task", "a group lists the names of its tasks", "write [one, another]");
        };
        let before = found.len();
        for (file, path) in others.iter().filter(|(file, _)| file.is_called(name)) {
            found.push(of_file(file.clone(), path)?);
        }
        if found.len() == before {
            let message = format!("no file in {} that can be read is the task {name}", folder.display());
            return file.refuse("task", message, "name its file by itself, to see what is wrong with it");
        }
    }
    Ok(of_group(file, found))
}

fn of_file(file: TaskFile, path: &Path) -> Result<Named, ConfigError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let definition =
        Definition::check(&file, &name).map_err(|error| error.in_file(&path.display().to_string()))?;
    Ok((file, vec![definition]))
}
