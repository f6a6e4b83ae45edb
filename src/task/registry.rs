//! Every task: what reads its settings, and what checks them; and the code that task files may name to make their rows.

use std::path::Path;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::benchmark::{BenchmarkYaml, Maker, Readers, ShortYaml};
use super::spec::TaskSpec;
use super::{benchmark, longbench, math, needle, perplexity, questions, retention, ruler, story, timing};
use crate::yaml::{ConfigError, Location, Spanned};

/// One task, named by its only key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = one_key)]
pub enum TaskYaml {
    Perplexity(perplexity::PerplexityYaml),
    Retention(retention::RetentionYaml),
    /// SQuALITY, short for `benchmark: {task: squality}`: questions about stories, answered in at most 512 tokens by default.
    Squality(ShortYaml),
    /// QASPER, short for `benchmark: {task: qasper}`: questions about scientific articles, answered in at most 128 tokens by default.
    Qasper(ShortYaml),
    Story(story::StoryYaml),
    /// One fact in a long text, asked for at the end, by length and depth; short for `benchmark: {task: needle}`.
    Needle(ShortYaml),
    /// LongBench, short for `benchmark: {task: longbench}`: questions, summaries, examples to follow, retrieval and code.
    LongBench(ShortYaml),
    /// Problems reasoned about in writing, such as MATH-500 and AIME; short for `benchmark: {task: math}`.
    Math(ShortYaml),
    /// RULER, short for `benchmark: {task: ruler}`: facts, variables and words to find in long texts, by task and length.
    Ruler(ShortYaml),
    /// A benchmark that a file describes, in the words of lm-evaluation-harness: the file or a built-in name, or these keys.
    Benchmark(Spanned<BenchmarkYaml>),
    Timing(timing::TimingYaml),
}

impl TaskYaml {
    /// Checks the settings. A file of several benchmarks gives several tasks.
    ///
    /// # Errors
    /// A value out of its range, or two that contradict each other, with the place in the file.
    pub fn check(self) -> Result<Vec<TaskSpec>, ConfigError> {
        let short = |keys: ShortYaml, task: &str| keys.0.check(Some(task), Location::UNKNOWN, READERS);
        let one = match self {
            TaskYaml::Perplexity(settings) => settings.check(),
            TaskYaml::Retention(settings) => settings.check(),
            TaskYaml::Story(settings) => settings.check(),
            TaskYaml::Timing(settings) => settings.check(),
            TaskYaml::Squality(keys) => return short(keys, "squality"),
            TaskYaml::Qasper(keys) => return short(keys, "qasper"),
            TaskYaml::Needle(keys) => return short(keys, "needle"),
            TaskYaml::LongBench(keys) => return short(keys, "longbench"),
            TaskYaml::Math(keys) => return short(keys, "math"),
            TaskYaml::Ruler(keys) => return short(keys, "ruler"),
            TaskYaml::Benchmark(keys) => return keys.value.0.check(None, keys.referenced, READERS),
        };
        Ok(vec![one?])
    }
}

/// The code that makes the rows of a task file, by its name under `rows` of the block `cache:`.
pub(super) const READERS: Readers = &[
    Maker {
        name: "squality",
        options: questions::OPTIONS,
        choose: |keys, chosen| questions::choose(&questions::SQUALITY, keys, chosen),
    },
    Maker {
        name: "qasper",
        options: questions::OPTIONS,
        choose: |keys, chosen| questions::choose(&questions::QASPER, keys, chosen),
    },
    Maker { name: "ruler", options: ruler::OPTIONS, choose: ruler::choose },
    Maker {
        name: "longbench",
        options: &[],
        choose: |_, chosen| chosen.read_by(longbench::Subset { is_optional: false }),
    },
    Maker { name: "longbench_v2", options: &[], choose: |_, chosen| chosen.read_by(longbench::V2) },
    Maker { name: "longbench_subsets", options: longbench::OPTIONS, choose: longbench::choose },
    Maker { name: "math", options: &[], choose: math::choose },
    Maker { name: "needle", options: needle::OPTIONS, choose: needle::choose },
];

/// The names of the tasks in a task file.
///
/// # Errors
/// Why it cannot be measured here.
pub fn check_benchmark(path: &Path) -> Result<Vec<String>, ConfigError> {
    benchmark::check(path, READERS)
}

/// Turns a choice between objects of one key each into one object that must have exactly one key. Editors then report
/// what is wrong inside a task, and not that the entry matches none of them.
fn one_key(schema: &mut Schema) {
    let object = schema.ensure_object();
    let Some(Value::Array(choices)) = object.remove("oneOf") else { return };
    let mut properties = Map::new();
    for mut choice in choices {
        let description = choice.get_mut("description").map(Value::take);
        if let Some(Value::Object(mut only)) = choice.get_mut("properties").map(Value::take) {
            if let (Some(description), Some(settings)) = (description, only.values_mut().next()) {
                settings["description"] = description;
            }
            properties.extend(only);
        }
    }
    object.insert("type".into(), json!("object"));
    object.insert("properties".into(), Value::Object(properties));
    object.insert("additionalProperties".into(), json!(false));
    object.insert("minProperties".into(), json!(1));
    object.insert("maxProperties".into(), json!(1));
}
