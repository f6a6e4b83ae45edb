//! Problems with a known answer, reasoned about in writing: MATH-500, AIME, or arithmetic made in the program.

mod arithmetic;
mod problems;

use std::sync::Arc;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use super::benchmark::{Asked, Benchmark, Reader, Rows, builtin_definition, check_repeats};
use super::canonical::limit_text;
use super::data::{self, DataSource, EMBEDDED, Texts, check_source, json_files};
use super::embedded::MOST_EMBEDDED_BOOKS;
use super::request::{GenerationConfig, WriteYaml};
use super::spec::TaskSpec;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// Problems with a known answer, such as MATH-500 and AIME: reasoned about in writing, with the answer in a box.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MathYaml {
    /// The problems: `embedded`, a `.jsonl` file or a folder of them (starting with `./`, `../` or `/`), or a hub data
    /// set with such files.
    dataset: Spanned<String>,
    /// Only the first problems; by default all of them, and 16 of the 64 embedded ones.
    problems: Option<Spanned<u64>>,
    /// Answers to each problem, each from a seed of its own; more than 1 needs a temperature above 0.
    #[schemars(range(min = 1, max = yaml::MOST_MADE), extend("default" = 1))]
    draws: Option<Spanned<u64>>,
    /// Tokens of prompt and answer together.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// How answers are written; by default greedily, and as long as `length` leaves room beside a prompt of 1,024 tokens.
    #[serde(default)]
    write: WriteYaml,
}

/// Tokens that are left to a prompt unless the sweep sets `max_new_tokens`. Most problems are far shorter.
const PROMPT_TOKENS: usize = 1024;
/// Problems of `embedded` unless the sweep asks for another number.
const EMBEDDED_PROBLEMS: usize = 16;

impl MathYaml {
    /// Checks every value.
    pub fn check(self) -> Result<TaskSpec, ConfigError> {
        let dataset = check_source(&self.dataset, &[EMBEDDED])?;
        let length = data::length(&self.length)?;
        let is_open = self.write.max_new_tokens.is_none();
        let mut generation = self.write.check(length, GenerationConfig::greedy(length / 2))?;
        if is_open {
            generation.max_new_tokens = length - PROMPT_TOKENS.min(length.div_ceil(2));
        }
        let draws = yaml::made("`draws`", &self.draws)?.unwrap_or(1);
        let place = self.draws.as_ref().map_or(Location::UNKNOWN, |draws| draws.referenced);
        check_repeats(draws, &generation, place)?;
        let problems = yaml::limit("`problems`", &self.problems)?;
        let settings = vec![("length", length.to_string())];
        let selection = vec![("problems", limit_text(problems)), ("draws", draws.to_string())];
        let samples = problems.or(Some(EMBEDDED_PROBLEMS).filter(|_| dataset == DataSource::Embedded));
        let mut definition = builtin_definition("math")?;
        definition.reader = Some(Arc::new(Problems));
        definition.repeats = Some(draws);
        let over = Some(dataset.to_string());
        let task = Benchmark { definitions: vec![Arc::new(definition)], over, samples };
        let spec = TaskSpec::new("math", dataset, length, settings, task);
        Ok(TaskSpec { generation: Some(generation), selection, ..spec })
    }
}

/// Problems with a known answer: published ones, or arithmetic made in the program.
#[derive(Debug)]
pub struct Problems;

impl Reader for Problems {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        match asked.dataset.parse()? {
            DataSource::Embedded => arithmetic::problems(MOST_EMBEDDED_BOOKS),
            source => problems::read(&json_files(&source, asked.context.hub)?),
        }
    }
}
