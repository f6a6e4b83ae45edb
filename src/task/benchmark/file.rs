//! Task files as written: the keys of lm-evaluation-harness' own task files, with their meaning there, and the block `cache:`.
//!
//! A file is read strictly, with the files that it includes. What would run Python is refused, and named. [`TaskFile`] has as many
//! fields as the harness has keys.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::cache::CacheYaml;
use super::filter::FilterChain;
use super::metric::TaskMetric;
use super::output::OutputType;
use super::template::Template;
use crate::task::data::files_below;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// The keys of a task file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some keys of the harness mean nothing here")]
#[schemars(title = "A benchmark of tova-bench, or a task of lm-evaluation-harness")]
pub struct TaskFile {
    /// Another file, or several, whose keys hold where this one does not say otherwise.
    pub include: Option<OneOrMore>,
    /// The task's name; in a group, its tasks.
    pub task: Option<Value>,
    /// Only shown by the harness.
    pub task_alias: Option<Value>,
    pub tag: Option<OneOrMore>,
    /// The name of a group of tasks, which `task` lists.
    pub group: Option<Value>,
    pub group_alias: Option<Value>,
    pub aggregate_metric_list: Option<Value>,
    pub metadata: Option<Value>,
    /// `json`, `csv` or `parquet` with `data_files`, or a data set of the hub.
    pub dataset_path: Option<String>,
    /// The configuration of a data set of the hub.
    pub dataset_name: Option<Value>,
    pub dataset_kwargs: Option<DatasetKwargs>,
    pub training_split: Option<String>,
    pub validation_split: Option<String>,
    /// The rows that are measured; without it those of `validation_split`.
    pub test_split: Option<String>,
    /// Where examples are drawn from.
    pub fewshot_split: Option<String>,
    pub fewshot_config: Option<FewshotConfig>,
    /// How many examples a prompt begins with.
    pub num_fewshot: Option<usize>,
    /// Text before everything else.
    pub description: Option<Template>,
    /// The prompt of a row: a column, or a Jinja template.
    pub doc_to_text: Option<Field>,
    /// The right answer: a column or a template; an index of `doc_to_choice`; a list of answers.
    pub doc_to_target: Option<Field>,
    /// The choices: a list, or a column or template that gives one.
    pub doc_to_choice: Option<Field>,
    /// The beginning of every answer.
    pub gen_prefix: Option<Template>,
    /// Between a prompt and its answer.
    pub target_delimiter: Option<String>,
    /// Between examples.
    pub fewshot_delimiter: Option<String>,
    /// What is asked of the model; by default it writes an answer.
    pub output_type: Option<OutputType>,
    pub generation_kwargs: Option<GenerationKwargs>,
    /// Answers of a row, each drawn from a seed of its own; more than 1 needs a temperature above 0.
    pub repeats: Option<NonZeroUsize>,
    /// Named chains of filters, through which a written answer goes before it is scored.
    pub filter_list: Option<Vec<FilterChain>>,
    /// The metrics, each with its options.
    pub metric_list: Option<Vec<TaskMetric>>,
    /// Not used: nothing is decontaminated here.
    pub should_decontaminate: Option<Value>,
    pub doc_to_decontamination_query: Option<Value>,
    pub unsafe_code: Option<bool>,
    /// What lm-evaluation-harness has no word for.
    pub cache: Option<CacheYaml>,
    /// Every key as it is written, for the task's identity and for errors in included files.
    #[serde(skip)]
    written: Written,
}

/// One text, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Value")]
#[schemars(with = "Value")]
pub struct OneOrMore(pub Vec<String>);

impl TryFrom<Value> for OneOrMore {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<OneOrMore, &'static str> {
        let all = if let Value::Array(values) = value { values } else { vec![value] };
        let texts = all.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>();
        texts.map(OneOrMore).ok_or("a text or a list of texts was expected")
    }
}

/// How the harness loads a data set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some keys of the harness mean nothing here")]
pub struct DatasetKwargs {
    pub data_files: Option<DataFiles>,
    /// These have no meaning here.
    pub trust_remote_code: Option<Value>,
    pub verification_mode: Option<Value>,
    pub streaming: Option<Value>,
    pub revision: Option<Value>,
}

/// Files by split: a file or a list each. Files without a split are those of `train`, as `datasets` has it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(try_from = "Value")]
#[schemars(with = "Value")]
pub struct DataFiles(pub BTreeMap<String, Vec<String>>);

impl TryFrom<Value> for DataFiles {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<DataFiles, &'static str> {
        let splits = match value {
            Value::Object(splits) => splits.into_iter().collect(),
            files => vec![("train".to_owned(), files)],
        };
        let files = splits.into_iter().map(|(split, files)| Ok((split, OneOrMore::try_from(files)?.0)));
        files.collect::<Result<_, _>>().map(DataFiles)
    }
}

/// A value of a row.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Value")]
#[schemars(with = "Value")]
pub enum Field {
    /// A column if the rows have one of that name, otherwise a template.
    Text(Template),
    /// A value that every row has.
    Fixed(Value),
}

impl TryFrom<Value> for Field {
    type Error = String;

    fn try_from(value: Value) -> Result<Field, String> {
        Ok(match value {
            Value::String(text) => Field::Text(text.try_into()?),
            other => Field::Fixed(other),
        })
    }
}

/// Which examples a row gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sampler {
    /// Drawn anew for each row, with Python's generator and the seed 1234.
    #[default]
    Default,
    /// The first of the split.
    FirstN,
}

/// How examples are chosen.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FewshotConfig {
    pub sampler: Option<Sampler>,
    /// The examples themselves, where no split is named.
    pub samples: Option<Vec<Value>>,
}

/// How answers are written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GenerationKwargs {
    /// Texts that end an answer; null: none. By default what stands between examples.
    #[serde(default, deserialize_with = "even_null")]
    pub until: Option<Value>,
    /// The most tokens of an answer.
    pub max_gen_toks: Option<NonZeroUsize>,
    pub max_new_tokens: Option<NonZeroUsize>,
    pub do_sample: Option<bool>,
    pub temperature: Option<Spanned<f64>>,
    pub top_k: Option<Spanned<u64>>,
    pub top_p: Option<Spanned<f64>>,
    /// Only 1.
    pub num_beams: Option<usize>,
}

/// A value that is there, null too.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The contents of a file, if it is there.
pub type TextOf<'a> = dyn Fn(&Path) -> Option<Result<String, ConfigError>> + 'a;

/// The keys of a file: the value of each, the file that has it, and where it begins.
type Written = BTreeMap<String, (Value, String, Location)>;

/// Keys that change no number, or whose effect is in the rows.
const INERT: &str = "task task_alias tag group group_alias aggregate_metric_list metadata should_decontaminate \
     doc_to_decontamination_query dataset_path dataset_name dataset_kwargs include unsafe_code";

/// The most files that a file includes, those that these include among them.
const MOST_INCLUDES: usize = 100;

impl TaskFile {
    /// Reads a file and those it includes.
    ///
    /// # Errors
    /// A file that cannot be read, that is no YAML of these keys, or that needs Python.
    pub fn read(path: &Path) -> Result<TaskFile, ConfigError> {
        TaskFile::read_by(&|path| path.is_file().then(|| yaml::read_file(path)), path)
    }

    /// Reads a file and those it includes; `text` returns the contents of a file, or `None` where there is none.
    ///
    /// # Errors
    /// A file that cannot be read, that is no YAML of these keys, or that needs Python.
    pub fn read_by(text: &TextOf<'_>, path: &Path) -> Result<TaskFile, ConfigError> {
        let own = text(path).unwrap_or_else(|| yaml::read_file(path))?;
        Ok(*read_in(text, &own, path, &mut 0)?)
    }

    /// What enters ids: the keys that can change a number, in canonical form.
    pub fn canonical(&self) -> String {
        let keys = self.written.iter().filter(|(key, _)| !INERT.split(' ').any(|inert| inert == *key));
        let mut keys: Value = keys.map(|(key, (value, ..))| (key.clone(), value.clone())).collect();
        keys.sort_all_objects();
        keys.to_string()
    }

    /// An error in the value of a key, where that is written; of one that is missing, in the whole file.
    ///
    /// # Errors
    /// Always.
    pub fn refuse<T>(
        &self,
        key: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, ConfigError> {
        let Some((_, file, place)) = self.written.get(key) else {
            return yaml::refuse(Location::UNKNOWN, message, hint);
        };
        yaml::refuse(*place, message, hint).map_err(|error| error.in_file(file))
    }

    /// A value that the task cannot do without.
    ///
    /// # Errors
    /// There is none.
    pub fn needed<T: Clone>(&self, key: &str, value: Option<&T>) -> Result<T, ConfigError> {
        let missing = || {
            self.refuse(key, format!("the key `{key}` is missing"), "write it; docs/task-files.md has an example")
        };
        value.cloned().map_or_else(missing, Ok)
    }

    /// The tasks of a group; `None` if the file is one task.
    pub fn group(&self) -> Option<&Value> {
        let task = self.task.as_ref()?;
        (task.is_array() || self.group.is_some() && self.doc_to_text.is_none()).then_some(task)
    }

    /// Whether a group means this task by a name: its own or a tag.
    pub fn is_called(&self, name: &str) -> bool {
        let is_own = self.task.as_ref().is_some_and(|task| task.as_str() == Some(name));
        is_own || self.tag.as_ref().is_some_and(|tags| tags.0.iter().any(|tag| tag == name))
    }
}

/// Makes a task file of keys that were read. `text` is what they were read from, if they are from one file.
///
/// # Errors
/// A key or a value that a task file does not have, with its place in the text.
fn typed(keys: &Value, text: Option<&str>, file: &str) -> Result<Box<TaskFile>, ConfigError> {
    // YAML, which JSON is too, knows the place of a mistake, and lets a number stand for a text.
    let again = |_| yaml::parse_yaml(&text.map_or_else(|| keys.to_string(), str::to_owned), file);
    TaskFile::deserialize(keys).or_else(again).map(Box::new)
}

/// Reads a file's text: its keys go before those of the files that it includes, which `included` counts. Files are boxed, because each
/// file that another includes takes a frame of the stack.
fn read_in(
    text_of: &TextOf<'_>,
    text: &str,
    path: &Path,
    included: &mut usize,
) -> Result<Box<TaskFile>, ConfigError> {
    let file = path.display().to_string();
    if let Some((number, line)) = python_function(text) {
        return Err(ConfigError {
            file,
            place: Some((number, 1)),
            message: format!("`{line}` is Python, which is not run here"),
            hint: "write a Jinja template over the columns of a row, or prepare the rows once and name their file"
                .into(),
        });
    }
    let keys = yaml::parse_yaml::<BTreeMap<String, Spanned<Value>>>(text, &file)?;
    let own = typed(&keys.iter().map(|(key, own)| (key.clone(), own.value.clone())).collect(), Some(text), &file)?;
    let place = keys.get("include").map_or(Location::UNKNOWN, |value| value.referenced);
    let refuse =
        |message: String, hint: &str| yaml::refuse(place, message, hint).map_err(|error| error.in_file(&file));
    let mut written = Written::new();
    for name in own.include.iter().flat_map(|files| &files.0) {
        *included += 1;
        if *included > MOST_INCLUDES {
            let message = format!("more than {MOST_INCLUDES} files are included, or these include each other");
            return refuse(message, "remove an `include`");
        }
        let other = path.parent().unwrap_or(Path::new("")).join(name);
        let Some(text) = text_of(&other) else {
            let message = format!("{} is not there", other.display());
            return refuse(message, "write a path relative to this file");
        };
        written.extend(read_in(text_of, &text?, &other, included)?.written);
    }
    let keys = keys.into_iter().filter(|(key, _)| key != "include");
    written.extend(keys.map(|(key, Spanned { value, referenced })| (key, (value, file.clone(), referenced))));
    let merged = || written.iter().map(|(key, (value, ..))| (key.clone(), value.clone())).collect();
    let mut whole = if own.include.is_some() { typed(&merged(), None, &file)? } else { own };
    whole.written = written;
    Ok(whole)
}

/// The first line with a `!function` outside comments, and its number.
fn python_function(text: &str) -> Option<(u64, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.into_iter().find(|(_, line)| !line.starts_with('#') && line.contains("!function"))
}

/// The `.yaml` and `.yml` files of a folder and its folders, in the order of their names.
pub fn files_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = files_below(folder)?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "yaml" || ending == "yml"));
    Ok(files)
}
