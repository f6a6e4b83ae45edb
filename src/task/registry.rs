//! Every task: what reads its settings, and what checks them; and the code that task files may name to make their rows.

use std::path::Path;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::benchmark::{Readers, without};
use super::questions::{self, Questions, QuestionsYaml};
use super::spec::TaskSpec;
use super::{benchmark, longbench, math, needle, perplexity, retention, ruler, story, timing};
use crate::yaml::ConfigError;

/// One task, named by its only key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = one_key)]
pub enum TaskYaml {
    Perplexity(perplexity::PerplexityYaml),
    Retention(retention::RetentionYaml),
    /// SQuALITY: questions about stories, answered in at most 512 tokens by default and scored with ROUGE.
    Squality(QuestionsYaml),
    /// QASPER: questions about scientific articles, answered in at most 128 tokens by default and scored with F1.
    Qasper(QuestionsYaml),
    Story(story::StoryYaml),
    Needle(needle::NeedleYaml),
    LongBench(longbench::LongBenchYaml),
    Math(math::MathYaml),
    Ruler(ruler::RulerYaml),
    Benchmark(benchmark::BenchmarkYaml),
    Timing(timing::TimingYaml),
}

impl TaskYaml {
    /// Checks the settings. A file of several benchmarks gives several tasks.
    ///
    /// # Errors
    /// A value out of its range, or two that contradict each other, with the place in the file.
    pub fn check(self) -> Result<Vec<TaskSpec>, ConfigError> {
        let one = match self {
            TaskYaml::Perplexity(settings) => settings.check(),
            TaskYaml::Retention(settings) => settings.check(),
            TaskYaml::Squality(settings) => settings.check(&questions::SQUALITY),
            TaskYaml::Qasper(settings) => settings.check(&questions::QASPER),
            TaskYaml::Story(settings) => settings.check(),
            TaskYaml::Needle(settings) => settings.check(),
            TaskYaml::LongBench(settings) => settings.check(),
            TaskYaml::Math(settings) => settings.check(),
            TaskYaml::Ruler(settings) => settings.check(),
            TaskYaml::Benchmark(settings) => return settings.check(READERS),
            TaskYaml::Timing(settings) => settings.check(),
        };
        Ok(vec![one?])
    }
}

/// The code that makes the rows of a task file, by its name under `rows` of the block `cache:`.
pub(super) const READERS: Readers = &[
    ("squality", |options| without(options, Questions::of(&questions::SQUALITY))),
    ("qasper", |options| without(options, Questions::of(&questions::QASPER))),
    ("ruler", ruler::reader),
    ("longbench", |options| without(options, longbench::Subset { is_optional: false })),
    ("longbench_v2", |options| without(options, longbench::V2)),
    ("math", |options| without(options, math::Problems)),
    ("needle", needle::reader),
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

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use crate::task::data::Tail;
    use crate::task::longbench::Version;
    use crate::task::{PromptStyle, Split};

    #[test]
    fn names_are_those_that_are_read() {
        fn check<T: DeserializeOwned>(words: &[&'static str], name: fn(T) -> &'static str) {
            for word in words {
                assert_eq!(name(serde_json::from_value((*word).into()).unwrap()), *word);
            }
        }
        check(&["drop", "keep"], Tail::name);
        check(&["train", "validation", "test"], Split::name);
        check(&["zeroscrolls", "paper"], PromptStyle::name);
        check(&["v1", "e", "v2"], Version::name);
    }
}
