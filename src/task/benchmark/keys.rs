//! The keys of a benchmark in a sweep, `- benchmark: {task: qasper, ...}` or the short form `- qasper: {...}`: those of every task, and
//! the options of the code that makes a task's rows.

use std::fmt;

use schemars::{JsonSchema, Schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::task::data::Texts;
use crate::task::request::WriteYaml;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// Every key. Those from `split` on are options: each belongs to the tasks whose rows code makes that has it, and stands in a task
/// file below the name of that code too.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// A task file (ending in `.yaml` or `.yml`), or the name of a built-in one: `tova-bench list benchmarks`.
    pub task: Option<Spanned<String>>,
    /// The data in place of those that the task file names, which are the default: a file, a folder, a data set of the hub, or for some
    /// tasks `embedded`.
    pub dataset: Option<Spanned<String>>,
    /// Examples before each prompt, in place of the file's own number, which is the default.
    pub num_fewshot: Option<Spanned<u64>>,
    /// Only the first rows of each file; by default all of them, and 16 of the 64 embedded problems of `math`. Of `ruler`, the prompts of
    /// each task and length, by default 20.
    pub samples: Option<Spanned<u64>>,
    /// Answers to each row, each from a seed of its own; more than 1 needs a temperature above 0. The default is the file's, or 1.
    #[schemars(range(min = 1, max = yaml::MOST_MADE))]
    pub repeats: Option<Spanned<u64>>,
    /// Tokens of prompt and answer together; the default is the file's, or 4,096.
    #[schemars(range(min = 2, max = u32::MAX))]
    pub length: Option<Spanned<u64>>,
    /// How answers are written; by default as the file says.
    pub write: WriteYaml,
    /// Of `squality` and `qasper`: which published part, `train`, `validation` or `test`; chooses among the files of a folder or an archive.
    /// By default `test`.
    #[schemars(extend("enum" = ["train", "validation", "test", null]))]
    pub split: Option<Spanned<String>>,
    /// Of `squality` and `qasper`: whose wording the prompts have, `zeroscrolls` or `paper` (the paper's, table 4: the document first, then
    /// the instruction). By default `zeroscrolls`.
    #[schemars(extend("enum" = ["zeroscrolls", "paper", null]))]
    pub prompt: Option<Spanned<String>>,
    /// Of `squality` and `qasper`: only the first documents; by default all of them, and 8 of the 64 embedded ones.
    pub documents: Option<Spanned<u64>>,
    /// Of `squality` and `qasper`: only the first questions of each document; by default all of them.
    pub questions: Option<Spanned<u64>>,
    /// Of `longbench`: which of the three benchmarks, `v1`, `e` (LongBench-E) or `v2`. By default `v1`.
    #[schemars(extend("enum" = ["v1", "e", "v2", null]))]
    pub version: Option<Spanned<String>>,
    /// Of `longbench`: the subsets to measure; by default all English and code ones that the data set has. Version 2 has none.
    #[schemars(extend("uniqueItems" = true))]
    pub subsets: Option<Vec<Spanned<String>>>,
    /// Of `needle` and `ruler`: lengths of prompt and answer together, in tokens, each of which is measured. By default only `length`.
    #[schemars(extend("uniqueItems" = true))]
    pub lengths: Option<Vec<Spanned<u64>>>,
    /// Of `needle`: the positions of the fact, in percent of the text, from 0, its beginning, to 100, its end. By default 0, 25, 50, 75, 100.
    #[schemars(extend("uniqueItems" = true))]
    pub depths: Option<Vec<Spanned<u64>>>,
    /// Of `needle`: how many texts for each length and depth; by default 10.
    #[schemars(range(min = 1, max = u32::MAX))]
    pub texts: Option<Spanned<u64>>,
    /// Of `needle`: a fact of your own; by default one of many made-up facts.
    pub fact: Option<Fact>,
    /// Of `ruler`: RULER's names of the tasks to measure. By default the eleven that read no file, and those whose file is named.
    #[schemars(extend("uniqueItems" = true))]
    pub tasks: Option<Vec<Spanned<String>>>,
    /// Of `ruler`: the seed of the prompts; by default 42.
    pub seed: Option<Spanned<u64>>,
    /// Of `ruler`: the file of `qa_1`, SQuAD's `dev-v2.0.json`. By default `qa_1` is left out.
    pub squad: Option<Spanned<String>>,
    /// Of `ruler`: the file of `qa_2`, HotpotQA's `hotpot_dev_distractor_v1.json`. By default `qa_2` is left out.
    pub hotpotqa: Option<Spanned<String>>,
}

/// A fact to hide and to ask for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// The sentence put into the text.
    pub needle: Spanned<String>,
    /// The question at the end.
    pub question: String,
    /// What an answer must contain to count as right.
    pub answer: String,
}

/// Name of an option, and where it is written.
type Given = (&'static str, Location);

impl Keys {
    /// Lists the options that are written.
    pub fn options(&self) -> Vec<Given> {
        fn one<T>(name: &'static str, value: &Option<Spanned<T>>) -> Option<Given> {
            Some((name, value.as_ref()?.referenced))
        }
        fn list<T>(name: &'static str, value: &Option<Vec<Spanned<T>>>) -> Option<Given> {
            Some((name, value.as_ref()?.first()?.referenced))
        }
        let options = [
            one("split", &self.split),
            one("prompt", &self.prompt),
            one("documents", &self.documents),
            one("questions", &self.questions),
            one("version", &self.version),
            list("subsets", &self.subsets),
            list("lengths", &self.lengths),
            list("depths", &self.depths),
            one("texts", &self.texts),
            self.fact.as_ref().map(|fact| ("fact", fact.needle.referenced)),
            list("tasks", &self.tasks),
            one("seed", &self.seed),
            one("squad", &self.squad),
            one("hotpotqa", &self.hotpotqa),
        ];
        options.into_iter().flatten().collect()
    }

    /// Takes options from a task file where these keys have none.
    #[must_use]
    pub fn over(self, file: Keys) -> Keys {
        Keys {
            split: self.split.or(file.split),
            prompt: self.prompt.or(file.prompt),
            documents: self.documents.or(file.documents),
            questions: self.questions.or(file.questions),
            version: self.version.or(file.version),
            subsets: self.subsets.or(file.subsets),
            lengths: self.lengths.or(file.lengths),
            depths: self.depths.or(file.depths),
            texts: self.texts.or(file.texts),
            fact: self.fact.or(file.fact),
            tasks: self.tasks.or(file.tasks),
            seed: self.seed.or(file.seed),
            squad: self.squad.or(file.squad),
            hotpotqa: self.hotpotqa.or(file.hotpotqa),
            ..self
        }
    }

    /// The lengths to measure, each of at least `least` tokens; without any, `default`.
    ///
    /// # Errors
    /// A length that is too small, or `length` beside `lengths`.
    pub fn lengths(&self, least: u32, default: usize) -> Result<Vec<usize>, ConfigError> {
        let one = self.length.as_ref().map(|length| yaml::count("`length`", length, least)).transpose()?;
        match (self.lengths.as_deref().unwrap_or_default(), one) {
            ([], one) => Ok(vec![one.unwrap_or(default)]),
            (lengths, None) => yaml::distinct_counts("lengths", Location::UNKNOWN, lengths, "length", least),
            ([first, ..], Some(_)) => {
                yaml::refuse(first.referenced, "`length` is one of `lengths` already", "leave out one of them")
            }
        }
    }

    /// The length of a task whose file says `own`.
    ///
    /// # Errors
    /// A length that is too small, or `length` beside `lengths`.
    pub fn longest(&self, own: Option<u32>) -> Result<usize, ConfigError> {
        let default = own.map_or(Texts::DEFAULT_LENGTH, |length| length as usize);
        Ok(self.lengths(2, default)?.into_iter().max().unwrap_or(default))
    }
}

/// A benchmark in a sweep: a file or a built-in name alone, or keys with `task`.
#[derive(Debug, JsonSchema)]
#[schemars(transform = needs_task)]
pub struct BenchmarkYaml(pub Keys);

/// The keys of a task that a sweep names by itself, as in `- qasper: {...}`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transform = has_task)]
pub struct ShortYaml(pub Keys);

fn needs_task(schema: &mut Schema) {
    schema.insert("type".into(), json!(["object", "string"]));
    schema.insert("required".into(), json!(["task"]));
}

fn has_task(schema: &mut Schema) {
    schema.insert("type".into(), json!(["object", "null"]));
    if let Some(properties) = schema.get_mut("properties").and_then(|keys| keys.as_object_mut()) {
        properties.remove("task");
    }
}

impl<'de> Deserialize<'de> for BenchmarkYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BenchmarkYaml, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = BenchmarkYaml;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a task file, a name, or keys with `task`")
            }

            fn visit_str<E>(self, task: &str) -> Result<BenchmarkYaml, E> {
                let task = Spanned { value: task.to_owned(), referenced: Location::UNKNOWN };
                Ok(BenchmarkYaml(Keys { task: Some(task), ..Keys::default() }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BenchmarkYaml, A::Error> {
                let keys = Keys::deserialize(MapAccessDeserializer::new(map))?;
                if keys.task.is_none() {
                    return Err(serde::de::Error::missing_field("task"));
                }
                Ok(BenchmarkYaml(keys))
            }
        }
        deserializer.deserialize_any(Read)
    }
}
