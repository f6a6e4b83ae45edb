//! The settings of question benchmarks as a sweep file spells them.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::benchmark::{Benchmark, PromptStyle, Split};
use super::task::Questions;
use crate::task::data::{self, DataSource, Texts, check_source, limit_embedded, question_sources};
use crate::task::generation::{GenerationConfig, WriteYaml};
use crate::task::spec::TaskSpec;
use crate::yaml::schema::{Named, setting};
use crate::yaml::{Checker, ConfigError, Spanned};

/// Questions about documents.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionsYaml {
    /// Where documents and questions come from: `embedded`, a file or folder of the original release or of
    /// ZeroSCROLLS (starting with `./`, `../` or `/`), or a hub data set with ZeroSCROLLS' archives, such as
    /// `tau/zero_scrolls`.
    #[schemars(schema_with = "question_sources")]
    dataset: Spanned<String>,
    /// Which published part of the benchmark.
    #[serde(default)]
    #[schemars(schema_with = "splits")]
    split: Option<Split>,
    /// Whose wording the prompts have.
    #[serde(default)]
    #[schemars(schema_with = "prompts")]
    prompt: Option<PromptStyle>,
    /// Tokens of prompt and answer together; a prompt that is too long loses its document's end.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// Only the first documents; null: all of them. At most 64 of the embedded ones.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    documents: Option<Spanned<u64>>,
    /// Only the first questions of each document; null: all of them.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    questions: Option<Spanned<u64>>,
    /// How answers are written; by default greedily, with the benchmark's own limit of tokens.
    #[serde(default)]
    write: WriteYaml,
}

const SPLITS: &[Named] = &[("validation", "called dev in the original releases"), ("test", "the test set")];
const PROMPTS: &[Named] = &[
    ("zeroscrolls", "ZeroSCROLLS' own: the instruction first, then the document under a header"),
    ("paper", "the paper's: the document first, then the instruction"),
];

fn splits(_: &mut SchemaGenerator) -> Schema {
    setting(SPLITS, "test", true)
}

fn prompts(_: &mut SchemaGenerator) -> Schema {
    setting(PROMPTS, "zeroscrolls", true)
}

impl QuestionsYaml {
    /// Checks the settings of a benchmark.
    ///
    /// # Errors
    /// A value out of its range, or a data set without questions.
    pub fn check(self, benchmark: &'static Benchmark, checker: Checker<'_>) -> Result<TaskSpec, ConfigError> {
        let name = benchmark.name;
        let forms = format!(
            "embedded, a file or folder of {name} (starting with ./, ../ or /), or a hub data set with {name}.zip, \
             such as tau/zero_scrolls"
        );
        let dataset = check_source(checker, &self.dataset, &forms)?;
        if matches!(dataset, DataSource::EmbeddedQuestions | DataSource::RandomWords) {
            return checker.refuse(
                self.dataset.referenced,
                format!("`{dataset}` holds no questions for {name}"),
                format!("use {forms}"),
            );
        }
        let length = data::length(checker, &self.length)?;
        let default = GenerationConfig::greedy(benchmark.max_new_tokens);
        Ok(TaskSpec::new(Questions {
            benchmark,
            documents: limit_embedded(checker, &dataset, "`documents`", &self.documents)?,
            dataset,
            split: self.split.unwrap_or(Split::Test),
            prompt: self.prompt.unwrap_or(PromptStyle::ZeroScrolls),
            questions: checker.limit("`questions`", &self.questions)?,
            generation: self.write.check(checker, length, default)?,
            length,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::schema::assert_words;

    #[test]
    fn the_schema_has_every_word() {
        assert_words::<Split>(SPLITS);
        assert_words::<PromptStyle>(PROMPTS);
    }
}
