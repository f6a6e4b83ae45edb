//! Task files as written: the keys of lm-evaluation-harness' own task files, with their meaning there, and the block `cache:`.
//!
//! A file is read strictly, with the files that it includes. What would run Python is refused, and named.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::cache::CacheYaml;
use super::definition::OutputType;
use super::metric;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// The keys of a task file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "A benchmark of tova-bench, or a task of lm-evaluation-harness")]
pub struct TaskFile {
    /// Another file, or several, whose keys hold where this one does not say otherwise.
    pub include: Option<Spanned<Value>>,
    /// The task's name; in a group, its tasks.
    pub task: Option<Spanned<Value>>,
    /// Only shown by the harness.
    pub task_alias: Option<Value>,
    pub tag: Option<Value>,
    /// The name of a group of tasks, which `task` lists.
    pub group: Option<Value>,
    pub group_alias: Option<Value>,
    pub aggregate_metric_list: Option<Value>,
    pub metadata: Option<Value>,
    /// `json`, `csv` or `parquet` with `data_files`, or a data set of the hub.
    pub dataset_path: Option<Spanned<String>>,
    /// The configuration of a data set of the hub.
    pub dataset_name: Option<Spanned<Value>>,
    /// `data_files`: a file, a list of files, or files by split.
    pub dataset_kwargs: Option<Spanned<Value>>,
    pub training_split: Option<Spanned<Option<String>>>,
    pub validation_split: Option<Spanned<Option<String>>>,
    /// The rows that are measured; without it those of `validation_split`.
    pub test_split: Option<Spanned<Option<String>>>,
    /// Where examples are drawn from.
    pub fewshot_split: Option<Spanned<Option<String>>>,
    /// `sampler`, `samples`, `split`, `fewshot_indices`, and the keys of prompts for examples.
    pub fewshot_config: Option<Spanned<Value>>,
    /// How many examples a prompt begins with.
    pub num_fewshot: Option<Spanned<Option<u64>>>,
    /// Text before everything else.
    pub description: Option<Spanned<Option<String>>>,
    /// The prompt of a row: a column, or a Jinja template. A number, or a template that gives one, is the index of the right
    /// choice where choices are contexts.
    pub doc_to_text: Option<Spanned<Value>>,
    /// The right answer: a column or a template; an index of `doc_to_choice`; a list of answers.
    pub doc_to_target: Option<Spanned<Value>>,
    /// The choices: a list, or a column or template that gives one.
    pub doc_to_choice: Option<Spanned<Value>>,
    /// The beginning of every answer.
    pub gen_prefix: Option<Spanned<Option<String>>>,
    /// Between a prompt and its answer.
    pub target_delimiter: Option<Spanned<String>>,
    /// Between examples.
    pub fewshot_delimiter: Option<Spanned<String>>,
    /// What is asked of the model; by default it writes an answer.
    #[schemars(schema_with = "output_types")]
    pub output_type: Option<Spanned<String>>,
    /// `until`, `max_gen_toks`, `do_sample`, `temperature`, `top_p`, `top_k`.
    pub generation_kwargs: Option<Spanned<Value>>,
    /// Answers of a row, each drawn from a seed of its own; more than 1 needs a temperature above 0.
    pub repeats: Option<Spanned<u64>>,
    /// Named chains of `regex`, `remove_whitespace`, `lowercase`, `uppercase`, `map` and `take_first`.
    pub filter_list: Option<Spanned<Value>>,
    /// The metrics, each with its options.
    #[schemars(schema_with = "metric_list")]
    pub metric_list: Option<Spanned<Value>>,
    /// Not used: nothing is decontaminated here.
    pub should_decontaminate: Option<Value>,
    pub doc_to_decontamination_query: Option<Value>,
    pub process_docs: Option<Spanned<Value>>,
    pub process_results: Option<Spanned<Value>>,
    pub custom_dataset: Option<Spanned<Value>>,
    pub class: Option<Spanned<Value>>,
    pub use_prompt: Option<Spanned<Value>>,
    pub doc_to_image: Option<Spanned<Value>>,
    pub doc_to_audio: Option<Spanned<Value>>,
    pub unsafe_code: Option<Spanned<bool>>,
    /// What lm-evaluation-harness has no word for.
    pub cache: Option<CacheYaml>,
    /// Every key as it is written, for the task's identity and for errors in included files.
    #[serde(skip)]
    #[schemars(skip)]
    pub written: BTreeMap<String, Written>,
}

/// The contents of a file, if it is there.
pub type TextOf<'a> = dyn Fn(&Path) -> Option<Result<String, ConfigError>> + 'a;

/// A key of a file.
#[derive(Clone, Debug)]
pub struct Written {
    pub value: Value,
    pub file: String,
    /// Where its value begins.
    pub line: u64,
}

/// Keys that change no number, or whose effect is in the rows.
const INERT: [&str; 14] = [
    "task",
    "task_alias",
    "tag",
    "group",
    "group_alias",
    "aggregate_metric_list",
    "metadata",
    "should_decontaminate",
    "doc_to_decontamination_query",
    "dataset_path",
    "dataset_name",
    "dataset_kwargs",
    "include",
    "unsafe_code",
];

/// The most files that include each other.
const MOST_INCLUDES: usize = 10;

impl TaskFile {
    /// Reads a file and those it includes.
    ///
    /// # Errors
    /// A file that cannot be read, that is no YAML of these keys, or that names a Python function.
    pub fn read(path: &Path) -> Result<TaskFile, ConfigError> {
        TaskFile::read_by(&|path| path.is_file().then(|| yaml::read_file(path)), path)
    }

    /// The same, where `text` gives the contents of a file; `None`: there is no such file.
    ///
    /// # Errors
    /// As [`TaskFile::read`].
    pub fn read_by(text: &TextOf<'_>, path: &Path) -> Result<TaskFile, ConfigError> {
        let own = text(path).unwrap_or_else(|| yaml::read_file(path))?;
        TaskFile::read_in(text, &own, path, MOST_INCLUDES)
    }

    /// Reads the text of a file, and the files that it includes.
    fn read_in(text_of: &TextOf<'_>, text: &str, path: &Path, depth: usize) -> Result<TaskFile, ConfigError> {
        let mut file = TaskFile::parse(text, &path.display().to_string())?;
        let Some(include) = file.include.take() else { return Ok(file) };
        let refuse = |message: String, hint: &str| {
            yaml::refuse(include.referenced, message, hint)
                .map_err(|error| error.in_file(&path.display().to_string()))
        };
        if depth == 0 {
            return refuse("these files include each other".into(), "remove an `include`");
        }
        let names = match &include.value {
            Value::Array(names) => names.clone(),
            name => vec![name.clone()],
        };
        let mut base = TaskFile::default();
        for name in names {
            let Some(name) = name.as_str() else {
                return refuse("`include` names files".into(), "write a path relative to this file");
            };
            let included = path.parent().unwrap_or(Path::new("")).join(name);
            let Some(text) = text_of(&included) else {
                return refuse(
                    format!("{} is not there", included.display()),
                    "write a path relative to this file",
                );
            };
            base = TaskFile::read_in(text_of, &text?, &included, depth - 1)?.over(base);
        }
        Ok(file.over(base))
    }

    /// Reads the text of a file that includes none; errors call it `file`.
    ///
    /// # Errors
    /// As [`TaskFile::read`].
    pub fn parse(text: &str, file: &str) -> Result<TaskFile, ConfigError> {
        if let Some((line, key, function)) = python_function(text) {
            return Err(ConfigError {
                file: file.to_owned(),
                place: Some((line, 1)),
                message: format!("`{key}` is the Python function {function}, which is not run here"),
                hint: instead_of_python(&key).to_owned(),
            });
        }
        let mut read = yaml::parse_yaml::<TaskFile>(text, file)?;
        let keys = yaml::parse_yaml::<BTreeMap<String, Spanned<Value>>>(text, file)?;
        let written = |(key, Spanned { value, referenced }): (String, Spanned<Value>)| {
            (key, Written { value, file: file.to_owned(), line: referenced.line() })
        };
        read.written = keys.into_iter().map(written).collect();
        Ok(read)
    }

    /// What enters ids: the keys that can change a number, in canonical form.
    pub fn canonical(&self) -> String {
        let keys = self.written.iter().filter(|(key, _)| !INERT.contains(&key.as_str()));
        let keys: BTreeMap<&String, &Value> = keys.map(|(key, written)| (key, &written.value)).collect();
        serde_json::to_string(&keys).expect("JSON values are written as JSON")
    }

    /// An error in the values of this file with the name of the file, which may be one that it includes.
    pub fn named(&self, error: ConfigError, own: &str) -> ConfigError {
        if !error.file.is_empty() {
            return error;
        }
        let line = error.place.map_or(0, |(line, _)| line);
        let before = self.written.iter().filter(|(_, written)| written.line <= line);
        // The key that the message names, or else the last one that begins before the place.
        let place =
            before.max_by_key(|(key, written)| (error.message.contains(&format!("`{key}`")), written.line));
        let file = place.map_or(own, |(_, written)| &written.file).to_owned();
        error.in_file(&file)
    }

    /// The keys of this file, and those of another that it has not.
    fn over(self, base: TaskFile) -> TaskFile {
        let mut written = base.written;
        written.extend(self.written);
        macro_rules! each {
            ($($key:ident),+ $(,)?) => { TaskFile { written, $($key: self.$key.or(base.$key)),+ } };
        }
        each!(
            include,
            task,
            task_alias,
            tag,
            group,
            group_alias,
            aggregate_metric_list,
            metadata,
            dataset_path,
            dataset_name,
            dataset_kwargs,
            training_split,
            validation_split,
            test_split,
            fewshot_split,
            fewshot_config,
            num_fewshot,
            description,
            doc_to_text,
            doc_to_target,
            doc_to_choice,
            gen_prefix,
            target_delimiter,
            fewshot_delimiter,
            output_type,
            generation_kwargs,
            repeats,
            filter_list,
            metric_list,
            should_decontaminate,
            doc_to_decontamination_query,
            process_docs,
            process_results,
            custom_dataset,
            class,
            use_prompt,
            doc_to_image,
            doc_to_audio,
            unsafe_code,
            cache,
        )
    }

    /// The names of the tasks of a group; `None` if the file is one task.
    pub fn group(&self) -> Option<(&Value, Location)> {
        let task = self.task.as_ref()?;
        let is_group = task.value.is_array() || self.group.is_some() && self.doc_to_text.is_none();
        is_group.then_some((&task.value, task.referenced))
    }

    /// Refuses what only the harness can do, with what to write instead where there is something.
    ///
    /// # Errors
    /// The first such key.
    pub fn refuse_python(&self) -> Result<(), ConfigError> {
        for (key, value) in [
            ("custom_dataset", &self.custom_dataset),
            ("class", &self.class),
            ("process_docs", &self.process_docs),
            ("process_results", &self.process_results),
            ("use_prompt", &self.use_prompt),
            ("doc_to_image", &self.doc_to_image),
            ("doc_to_audio", &self.doc_to_audio),
        ] {
            if let Some(value) = value.as_ref().filter(|value| !value.value.is_null()) {
                return yaml::refuse(
                    value.referenced,
                    format!("`{key}` needs the harness itself"),
                    instead_of_python(key),
                );
            }
        }
        if let Some(code) = self.unsafe_code.as_ref().filter(|code| code.value) {
            return yaml::refuse(
                code.referenced,
                "answers of this task are run as programs",
                "choose another task",
            );
        }
        Ok(())
    }
}

fn output_types(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": OutputType::NAMES.map(|(name, _)| name)})
}

fn metric_list(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> = metric::KINDS.iter().map(|(name, ..)| *name).collect();
    let metric = json!({"type": "object", "required": ["metric"], "properties": {"metric": {"enum": names}}});
    json_schema!({"type": ["array", "null"], "items": metric})
}

/// The first `!function` of a file outside comments: its line, its key and the function.
fn python_function(text: &str) -> Option<(u64, String, String)> {
    let mut last_key = String::new();
    for (number, line) in text.lines().enumerate() {
        let content = line.trim_start().trim_start_matches("- ");
        if content.starts_with('#') {
            continue;
        }
        if let Some((key, _)) = content.split_once(':') {
            last_key = key.trim().trim_matches(['"', '\'']).to_owned();
        }
        let Some((before, function)) = content.split_once("!function") else { continue };
        // Inside a text it means nothing.
        if before.contains(['"', '\'']) && !before.trim_end().ends_with(':') {
            continue;
        }
        let function = function.split_whitespace().next().unwrap_or_default();
        return Some((number as u64 + 1, last_key, function.to_owned()));
    }
    None
}

/// What to write where the harness would run Python.
fn instead_of_python(key: &str) -> &'static str {
    match key {
        "process_docs" => {
            "write its work as templates in doc_to_text, doc_to_target and doc_to_choice, or prepare the rows with it once \
             and name their file"
        }
        "process_results" | "metric" | "aggregation" => {
            "choose among the metrics of `tova-bench list benchmarks`, with a filter_list before them"
        }
        "doc_to_text" | "doc_to_target" | "doc_to_choice" | "samples" | "list_fewshot_samples" => {
            "write it as a Jinja template over the columns of a row"
        }
        "sampler" => "write `sampler: first_n` or leave it out",
        "custom_dataset" | "class" => {
            "write the rows to a file and name it: `dataset_path: json` with `dataset_kwargs: {data_files: rows.jsonl}`"
        }
        "doc_to_image" | "doc_to_audio" => "choose a task of text: models here read text only",
        "use_prompt" => "write the prompt as doc_to_text",
        _ => "write it as a template or a value; Python is not run here",
    }
}

/// The `.yaml` and `.yml` files of a folder and its folders, in the order of their names.
pub fn files_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir()? {
            let entry = entry?;
            // Links are not followed, so that a circle of them ends.
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if entry.path().extension().is_some_and(|ending| ending == "yaml" || ending == "yml") {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
