//! A task of a file, checked: templates compiled, metrics and filters known, splits named.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::cache::{CacheYaml, CutYaml};
use super::file::{TaskFile, files_of};
use super::filter::{Filters, filters};
use super::metric::{TaskMetric, metrics};
use super::reader::{Reader, reader};
use super::template::Template;
use crate::format::did_you_mean;
use crate::task::generation::{Cut, GenerationConfig};
use crate::yaml::{self, ConfigError, Location, Spanned};

/// What is asked of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputType {
    /// It writes an answer.
    GenerateUntil,
    /// The likelihood of each of several choices.
    MultipleChoice,
    /// The likelihood of one text after a prompt.
    Loglikelihood,
    /// The likelihood of a whole text.
    LoglikelihoodRolling,
}

impl OutputType {
    pub const NAMES: [(&str, OutputType); 4] = [
        ("generate_until", OutputType::GenerateUntil),
        ("multiple_choice", OutputType::MultipleChoice),
        ("loglikelihood", OutputType::Loglikelihood),
        ("loglikelihood_rolling", OutputType::LoglikelihoodRolling),
    ];
}

/// A value of a row.
#[derive(Clone, Debug)]
pub enum Field {
    /// A column if the rows have one of that name, otherwise a template.
    Text(Template),
    /// The same for every row.
    Fixed(Value),
}

/// How a prompt and its answer are made of a row.
#[derive(Clone, Debug)]
pub struct Form {
    pub text: Field,
    pub target: Field,
    pub choices: Option<Field>,
    pub prefix: Option<Template>,
    pub target_delimiter: String,
    pub fewshot_delimiter: String,
}

/// The examples before a prompt.
#[derive(Clone, Debug)]
pub struct Fewshot {
    pub count: usize,
    pub form: Form,
    pub source: Examples,
    /// Only these rows of the split.
    pub indices: Option<Vec<usize>>,
    pub sampler: Sampler,
}

#[derive(Clone, Debug)]
pub enum Examples {
    Split(String),
    Rows(Vec<Value>),
    /// The file names neither, and there are no examples.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampler {
    /// Drawn anew for each row, with Python's generator and the seed 1234.
    Default,
    FirstN,
}

/// How answers are written.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    pub until: Vec<String>,
    pub max_new_tokens: Option<usize>,
    pub temperature: f64,
    pub top_k: Option<u64>,
    pub top_p: Option<f64>,
}

/// Where the rows are.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub path: String,
    pub name: Option<String>,
    /// Files by split; an empty split has those of all.
    pub files: BTreeMap<String, Vec<String>>,
    /// The key of the rows in a JSON object.
    pub field: Option<String>,
}

impl Dataset {
    /// The data set as rows name it.
    pub fn name_in_rows(&self) -> String {
        let files: Vec<&str> = self.files.values().flatten().map(String::as_str).collect();
        match (&self.name, files.is_empty()) {
            (_, false) => files.join(" "),
            (Some(name), true) => format!("{} {name}", self.path),
            (None, true) => self.path.clone(),
        }
    }
}

/// What the block `cache:` says, and its templates.
#[derive(Clone, Debug)]
pub struct CacheBlock {
    pub context: Option<Template>,
    pub cut: Cut,
    /// Whether the whole prompt is cut, and not the context alone.
    pub cuts_whole: bool,
    pub separator: Option<Template>,
    pub answer_header: Option<Template>,
    pub length: Option<usize>,
    pub row_length: Option<Template>,
    pub name: Option<Template>,
    pub cluster: Option<Template>,
    pub first_row_names_cluster: bool,
    pub slices: Vec<(String, Template)>,
    pub trivial: Option<Trivial>,
    pub max_new_tokens: Option<Template>,
    pub counted: Option<Template>,
    pub chat_template: bool,
    pub likelihood_after: Option<String>,
    pub long_answers: bool,
    /// Rows are never inside a chat template, whatever the sweep says.
    pub is_plain: bool,
}

#[derive(Clone, Debug)]
pub enum Trivial {
    Commonest,
    CommonestShared,
    FirstWords,
    Text(Template),
}

/// A task.
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
    pub form: Form,
    pub fewshot: Fewshot,
    pub generation: Generation,
    pub filters: Filters,
    pub metrics: Vec<TaskMetric>,
    pub cache: CacheBlock,
    /// The code that makes the rows, where they are in no plain file.
    pub reader: Option<Arc<dyn Reader>>,
    /// How often each row is answered, each time from a seed of its own and named by it; `None`: once, by the row's name.
    pub repeats: Option<usize>,
}

/// The most new tokens of lm-evaluation-harness where a file does not say it.
pub const MAX_GEN_TOKS: usize = 256;

impl Definition {
    /// How answers are written where a sweep does not say otherwise, but for what the file says of drawing and of stops.
    pub fn greedy(&self) -> GenerationConfig {
        let most = self.generation.max_new_tokens.unwrap_or(MAX_GEN_TOKS);
        GenerationConfig { chat_template: self.cache.chat_template, ..GenerationConfig::greedy(most) }
    }

    /// Lets the answer of a row have at most this many tokens, whatever a sweep's default is.
    pub fn limit_answers(&mut self, most: usize) {
        self.cache.max_new_tokens = Template::new(&most.to_string()).ok();
    }

    /// Checks a file, whose name is the task's where it has none.
    ///
    /// # Errors
    /// What is missing, contradicts itself or cannot be done here, with its place.
    pub fn check(file: &TaskFile, name: &str) -> Result<Definition, ConfigError> {
        file.refuse_python()?;
        let missing =
            |key: &str, hint: &str| yaml::refuse(Location::UNKNOWN, format!("the key `{key}` is missing"), hint);
        let task = file.task.as_ref().map_or(name, |task| task.value.as_str().unwrap_or(name)).to_owned();
        let output = match &file.output_type {
            None => OutputType::GenerateUntil,
            Some(output) => named("output type", output, &OutputType::NAMES)?,
        };
        let Some(path) = &file.dataset_path else {
            return missing(
                "dataset_path",
                "write `dataset_path: json` with `dataset_kwargs: {data_files: rows.jsonl}`",
            );
        };
        let dataset = dataset(&path.value, file)?;
        let split = |split: &Option<Spanned<Option<String>>>| split.as_ref().and_then(|split| split.value.clone());
        let Some(tested) = split(&file.test_split).or_else(|| split(&file.validation_split)) else {
            return missing("test_split", "write the split whose rows are measured, such as `test_split: test`");
        };
        if output == OutputType::MultipleChoice && file.doc_to_choice.is_none() {
            return missing("doc_to_choice", "write the choices: a list, or a column or template that gives one");
        }
        let form = form(file, output)?;
        let fewshot = fewshot(file, &form, &split(&file.fewshot_split), &split(&file.training_split))?;
        let description = file.description.as_ref().and_then(|text| Some((text.value.clone()?, text.referenced)));
        Ok(Definition {
            description: description.map(|(text, place)| template("description", &text, place)).transpose()?,
            generation: generation(file, &form.fewshot_delimiter)?,
            filters: filters(&file.filter_list)?,
            metrics: metrics(&file.metric_list, output)?,
            cache: cache(&file.cache.clone().unwrap_or_default())?,
            reader: file.cache.as_ref().and_then(|cache| cache.rows.as_ref()).map(reader).transpose()?,
            repeats: repeats(file, output)?,
            split: tested,
            canonical: file.canonical(),
            task,
            dataset,
            output,
            form,
            fewshot,
        })
    }
}

/// How often each row is answered, where that is more than once.
fn repeats(file: &TaskFile, output: OutputType) -> Result<Option<usize>, ConfigError> {
    let Some(repeats) = file.repeats.as_ref().filter(|repeats| repeats.value != 1) else { return Ok(None) };
    let refuse = |message: &str, hint: &str| yaml::refuse(repeats.referenced, message, hint);
    let count = yaml::count("`repeats`", repeats, 1)?;
    let filters = file.filter_list.as_ref().map(|list| list.value.to_string()).unwrap_or_default();
    if output != OutputType::GenerateUntil {
        return refuse("only written answers can differ", "write `repeats: 1`");
    }
    if filters.contains("\"majority_vote\"") {
        return refuse(
            "each answer is scored by itself, so that there is no vote",
            "remove the filter `majority_vote`",
        );
    }
    Ok(Some(count))
}

/// The value of a word in a table.
pub fn named<T: Copy>(what: &str, word: &Spanned<String>, table: &[(&str, T)]) -> Result<T, ConfigError> {
    if let Some((_, value)) = table.iter().find(|(name, _)| *name == word.value) {
        return Ok(*value);
    }
    let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
    let near = did_you_mean(&word.value, names.iter().copied());
    yaml::refuse(
        word.referenced,
        format!("unknown {what} `{}`", word.value),
        format!("{near}use {}", names.join(", ")),
    )
}

/// A compiled template, or what is wrong in it.
pub fn template(key: &str, text: &str, place: Location) -> Result<Template, ConfigError> {
    Template::new(text).or_else(|error| {
        yaml::refuse(
            place,
            format!("the template of `{key}` cannot be used: {error:#}"),
            "see Jinja's documentation of templates",
        )
    })
}

fn field(key: &str, value: &Value, place: Location) -> Result<Field, ConfigError> {
    match value {
        Value::String(text) => Ok(Field::Text(template(key, text, place)?)),
        // The choices of a mapping are its values.
        Value::Object(fields) => Ok(Field::Fixed(fields.values().cloned().collect())),
        other => Ok(Field::Fixed(other.clone())),
    }
}

fn form(file: &TaskFile, output: OutputType) -> Result<Form, ConfigError> {
    let of = |key: &'static str, value: &Option<Spanned<Value>>| {
        let value = value.as_ref().filter(|value| !value.value.is_null());
        value.map(|value| field(key, &value.value, value.referenced)).transpose()
    };
    let empty = || Field::Fixed(Value::String(String::new()));
    let missing = |key: &str| {
        yaml::refuse(Location::UNKNOWN, format!("the key `{key}` is missing"), "write a column or a template")
    };
    let text = match of("doc_to_text", &file.doc_to_text)? {
        Some(text) => text,
        None if output == OutputType::LoglikelihoodRolling => empty(),
        None => return missing("doc_to_text"),
    };
    let Some(target) = of("doc_to_target", &file.doc_to_target)? else { return missing("doc_to_target") };
    let prefix = file.gen_prefix.as_ref().and_then(|text| Some((text.value.clone()?, text.referenced)));
    Ok(Form {
        text,
        target,
        choices: of("doc_to_choice", &file.doc_to_choice)?,
        prefix: prefix.map(|(text, place)| template("gen_prefix", &text, place)).transpose()?,
        target_delimiter: file.target_delimiter.as_ref().map_or(" ".into(), |text| text.value.clone()),
        fewshot_delimiter: file.fewshot_delimiter.as_ref().map_or("\n\n".into(), |text| text.value.clone()),
    })
}

fn fewshot(
    file: &TaskFile,
    form: &Form,
    split: &Option<String>,
    training: &Option<String>,
) -> Result<Fewshot, ConfigError> {
    let count = file.num_fewshot.as_ref().and_then(|count| count.value).unwrap_or(0) as usize;
    let mut fewshot = Fewshot {
        count,
        form: form.clone(),
        source: split.clone().map_or(Examples::None, Examples::Split),
        indices: None,
        sampler: Sampler::Default,
    };
    let config = file.fewshot_config.as_ref().filter(|config| !config.value.is_null());
    let mut rows = None;
    if let Some(Spanned { value, referenced }) = config {
        let refuse = |message: String, hint: &str| yaml::refuse(*referenced, message, hint);
        let Some(keys) = value.as_object() else {
            return refuse("`fewshot_config` has keys and values".into(), "write {sampler: first_n}");
        };
        for (key, value) in keys {
            let text = || value.as_str().map(str::to_owned);
            match (key.as_str(), value) {
                (_, Value::Null) => {}
                ("sampler", Value::String(name)) if name == "first_n" => fewshot.sampler = Sampler::FirstN,
                ("sampler", Value::String(name)) if name == "default" => {}
                ("sampler", other) => {
                    return refuse(format!("`{other}` is no sampler"), "write default or first_n");
                }
                ("split", Value::String(name)) => fewshot.source = Examples::Split(name.clone()),
                ("samples", Value::Array(samples)) => rows = Some(samples.clone()),
                ("fewshot_indices", Value::Array(indices)) => {
                    fewshot.indices = indices.iter().map(|index| Some(index.as_u64()? as usize)).collect();
                }
                ("doc_to_text", value) => fewshot.form.text = field(key, value, *referenced)?,
                ("doc_to_target", value) => fewshot.form.target = field(key, value, *referenced)?,
                ("doc_to_choice", value) => fewshot.form.choices = Some(field(key, value, *referenced)?),
                ("gen_prefix", Value::String(text)) => {
                    fewshot.form.prefix = Some(template(key, text, *referenced)?)
                }
                ("target_delimiter", Value::String(text)) => fewshot.form.target_delimiter = text.clone(),
                ("fewshot_delimiter", Value::String(text)) => fewshot.form.fewshot_delimiter = text.clone(),
                _ => {
                    let known = "sampler, split, samples, fewshot_indices, doc_to_text, doc_to_target, doc_to_choice, gen_prefix, \
                                 target_delimiter, fewshot_delimiter";
                    return refuse(
                        format!(
                            "`{key}: {}` has no meaning in `fewshot_config`",
                            text().unwrap_or_else(|| value.to_string())
                        ),
                        &format!("its keys are {known}"),
                    );
                }
            }
        }
    }
    if let (Some(rows), Examples::None) = (rows, &fewshot.source) {
        fewshot.source = Examples::Rows(rows);
    }
    // The harness falls back to the rows of training, and draws from those that are measured where there are none.
    if matches!(fewshot.source, Examples::None) {
        let fallback = training.clone().or_else(|| file.validation_split.as_ref()?.value.clone());
        fewshot.source = fallback.map_or(Examples::None, Examples::Split);
    }
    if count > 0 && matches!(fewshot.source, Examples::None) {
        let place = file.num_fewshot.as_ref().map_or(Location::UNKNOWN, |count| count.referenced);
        return yaml::refuse(
            place,
            "there is nothing to draw examples from",
            "write `fewshot_split`, or `num_fewshot: 0`",
        );
    }
    Ok(fewshot)
}

fn dataset(path: &str, file: &TaskFile) -> Result<Dataset, ConfigError> {
    let name = file.dataset_name.as_ref().filter(|name| !name.value.is_null());
    let name = name.map(|name| super::python::str(&name.value));
    let mut dataset = Dataset { path: path.to_owned(), name, files: BTreeMap::new(), field: None };
    let Some(Spanned { value, referenced }) =
        file.dataset_kwargs.as_ref().filter(|kwargs| !kwargs.value.is_null())
    else {
        return Ok(dataset);
    };
    let refuse = |message: String, hint: &str| yaml::refuse(*referenced, message, hint);
    let Some(keys) = value.as_object() else {
        return refuse("`dataset_kwargs` has keys and values".into(), "write {data_files: rows.jsonl}");
    };
    let list = |files: &Value| -> Option<Vec<String>> {
        match files {
            Value::String(file) => Some(vec![file.clone()]),
            Value::Array(files) => files.iter().map(|file| file.as_str().map(str::to_owned)).collect(),
            _ => None,
        }
    };
    for (key, value) in keys {
        match (key.as_str(), value) {
            ("data_files", Value::Object(splits)) => {
                for (split, files) in splits {
                    let Some(files) = list(files) else {
                        return refuse(
                            format!("`data_files` of {split} are no files"),
                            "write a path, or a list of them",
                        );
                    };
                    dataset.files.insert(split.clone(), files);
                }
            }
            ("data_files", files) => match list(files) {
                // Files without a split are those of `train`, as `datasets` has it.
                Some(files) => drop(dataset.files.insert("train".into(), files)),
                None => return refuse("`data_files` are no files".into(), "write a path, or a list of them"),
            },
            ("data_dir", Value::String(folder)) => dataset.name = Some(folder.clone()),
            ("field", Value::String(field)) => dataset.field = Some(field.clone()),
            (
                "trust_remote_code" | "download_mode" | "verification_mode" | "streaming" | "revision" | "token",
                _,
            ) => {}
            _ => {
                return refuse(
                    format!("`{key}` of `dataset_kwargs` is not understood"),
                    "use data_files, data_dir or field; other data sets are made by Python: write their rows to a file",
                );
            }
        }
    }
    Ok(dataset)
}

fn generation(file: &TaskFile, delimiter: &str) -> Result<Generation, ConfigError> {
    let mut generation = Generation { until: vec![delimiter.to_owned()], ..Generation::default() };
    let Some(Spanned { value, referenced }) =
        file.generation_kwargs.as_ref().filter(|kwargs| !kwargs.value.is_null())
    else {
        return Ok(generation);
    };
    let refuse = |message: String, hint: &str| yaml::refuse(*referenced, message, hint);
    let empty = Map::new();
    let keys = value.as_object().unwrap_or(&empty);
    let mut samples = None;
    for (key, value) in keys {
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
        match (key.as_str(), value, number) {
            ("until", Value::String(stop), _) => generation.until = vec![stop.clone()],
            ("until", Value::Array(stops), _) => {
                generation.until = stops.iter().map(super::python::str).collect();
            }
            ("until", Value::Null, _) => generation.until = Vec::new(),
            ("max_gen_toks" | "max_new_tokens" | "max_tokens" | "max_completion_tokens", _, Some(most))
                if most >= 1.0 =>
            {
                let is_first = key == "max_gen_toks" || generation.max_new_tokens.is_none();
                generation.max_new_tokens = Some(most as usize).filter(|_| is_first).or(generation.max_new_tokens);
            }
            ("do_sample", Value::Bool(sample), _) => samples = Some(*sample),
            ("temperature", _, Some(temperature)) => generation.temperature = temperature,
            ("top_p", _, Some(top_p)) => generation.top_p = Some(top_p),
            ("top_k", _, Some(top_k)) => generation.top_k = Some(top_k as u64),
            (_, Value::Null, _) | ("num_beams" | "num_return_sequences", _, Some(1.0)) => {}
            _ => {
                return refuse(
                    format!("`{key}: {value}` of `generation_kwargs` is not understood"),
                    "use until, max_gen_toks, do_sample, temperature, top_k and top_p",
                );
            }
        }
    }
    // Without `do_sample`, a temperature above 0 samples.
    if samples == Some(false) {
        generation.temperature = 0.0;
    }
    if generation.temperature == 0.0 {
        if samples == Some(true) && !keys.contains_key("temperature") {
            generation.temperature = 1.0;
        } else {
            (generation.top_k, generation.top_p) = (None, None);
        }
    }
    generation.until.retain(|stop| !stop.is_empty());
    Ok(generation)
}

fn cache(yaml: &CacheYaml) -> Result<CacheBlock, ConfigError> {
    let of = |key: &str, text: &Option<Spanned<String>>| {
        text.as_ref().map(|text| template(key, &text.value, text.referenced)).transpose()
    };
    let context = of("context", &yaml.context)?;
    let default = if context.is_some() { Cut::End } else { Cut::Start };
    let trivial = yaml.trivial.as_ref().map(|text| match text.value.as_str() {
        "commonest" => Ok(Trivial::Commonest),
        "commonest_shared" => Ok(Trivial::CommonestShared),
        "first_words" => Ok(Trivial::FirstWords),
        _ => template("trivial", &text.value, text.referenced).map(Trivial::Text),
    });
    let slices =
        yaml.slices.iter().map(|(name, text)| Ok((name.clone(), template(name, &text.value, text.referenced)?)));
    Ok(CacheBlock {
        cut: yaml.cut.map_or(default, Cut::from),
        cuts_whole: yaml.cut == Some(CutYaml::MiddleOfPrompt),
        separator: of("separator", &yaml.separator)?,
        answer_header: of("answer_header", &yaml.answer_header)?,
        length: yaml.length.as_ref().map(|length| yaml::count("`length`", length, 2)).transpose()?,
        row_length: of("row_length", &yaml.row_length)?,
        name: of("name", &yaml.name)?,
        cluster: of("cluster", &yaml.cluster)?,
        first_row_names_cluster: yaml.first_row_names_cluster.unwrap_or(false),
        slices: slices.collect::<Result<_, ConfigError>>()?,
        trivial: trivial.transpose()?,
        max_new_tokens: of("max_gen_toks", &yaml.max_gen_toks)?,
        counted: of("counted", &yaml.counted)?,
        chat_template: yaml.chat_template.unwrap_or(false),
        likelihood_after: yaml.likelihood_after.clone(),
        long_answers: yaml.long_answers.unwrap_or(false),
        is_plain: false,
        context,
    })
}

/// The tasks of a file: one, or those of a group, which are looked for in its folder.
///
/// # Errors
/// As [`Definition::check`]; the error names the file.
pub fn read(path: &Path) -> Result<Vec<Definition>, ConfigError> {
    let file = TaskFile::read(path)?;
    let name = path.display().to_string();
    let Some((tasks, place)) = file.group() else { return Ok(vec![of_file(&file, path)?]) };
    let refuse =
        |message: String, hint: &str| yaml::refuse(place, message, hint).map_err(|error| error.in_file(&name));
    let mut names = Vec::new();
    for task in tasks.as_array().map(Vec::as_slice).unwrap_or_default() {
        match (task.as_str(), task["task"].as_str(), task.as_object().map(Map::len)) {
            (Some(name), ..) | (_, Some(name), Some(1)) => names.push(name.to_owned()),
            _ => return refuse("a group lists the names of its tasks".into(), "write [one, another]"),
        }
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let files = match files_of(folder) {
        Ok(files) => files,
        Err(error) => return refuse(format!("its folder cannot be read: {error}"), "check the folder"),
    };
    // Files of other tasks may be unreadable here, and do not matter.
    let known =
        files.iter().filter(|other| *other != path).filter_map(|path| Some((path, TaskFile::read(path).ok()?)));
    let known: Vec<_> = known.collect();
    let mut found = Vec::new();
    for name in names {
        let is_it = |(_, file): &&(&PathBuf, TaskFile)| {
            let is_named = |value: &Value| {
                value.as_str() == Some(&name)
                    || value.as_array().is_some_and(|tags| tags.contains(&Value::from(name.as_str())))
            };
            file.task.as_ref().is_some_and(|task| task.value.as_str() == Some(&name))
                || file.tag.as_ref().is_some_and(is_named)
        };
        let mut tasks = known.iter().filter(is_it).peekable();
        if tasks.peek().is_none() {
            return refuse(
                format!("no file in {} is the task {name}", folder.display()),
                "name its file by itself",
            );
        }
        for (path, file) in tasks {
            found.push(of_file(file, path)?);
        }
    }
    Ok(found)
}

fn of_file(file: &TaskFile, path: &Path) -> Result<Definition, ConfigError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Definition::check(file, &name).map_err(|error| file.named(error, &path.display().to_string()))
}
