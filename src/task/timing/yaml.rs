//! The settings of the timing task as a sweep file spells them.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::settings::Timing;
use crate::task::data::{self, Texts};
use crate::task::spec::TaskSpec;
use crate::yaml::{Checker, ConfigError, Spanned};

/// Bytes of a cache, largest batch and tokens/s of prefill and decoding, on random tokens. Not for `truncate`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimingYaml {
    /// The memory that weights and the caches of the largest batch may take together: a number and a unit (B, kB, MB, GB,
    /// TB, KiB, MiB, GiB, TiB), such as `8 GiB`.
    #[schemars(schema_with = "memory")]
    memory: Spanned<String>,
    /// Tokens of a sequence, its prompt included.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// Tokens of the prompt; fewer than `length`.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = Timing::DEFAULT_PROMPT))]
    prompt: Option<Spanned<u64>>,
    /// How often everything is timed; the report shows medians.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = Timing::DEFAULT_REPEATS))]
    repeats: Option<Spanned<u64>>,
    /// Steps decoded before each clock starts.
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = Timing::DEFAULT_WARM_UP))]
    warm_up: Option<Spanned<u64>>,
}

fn memory(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": r"^([0-9]+\.?[0-9]*|\.[0-9]+)\s*(B|[kMGT]B|[KMGT]iB)$",
        "examples": ["8 GiB", "32 GB"],
    })
}

impl TimingYaml {
    /// Checks every value.
    pub fn check(self, checker: Checker<'_>) -> Result<TaskSpec, ConfigError> {
        let Ok(memory) = self.memory.value.parse() else {
            return checker.refuse(
                self.memory.referenced,
                format!("`{}` is no amount of memory", self.memory.value),
                "write a number and a unit, such as 8 GiB or 32 GB: the limit for weights and caches together",
            );
        };
        let length = data::length(checker, &self.length)?;
        let prompt = checker.limit("`prompt`", &self.prompt)?;
        if let Some(number) = self.prompt.as_ref().filter(|_| prompt.is_some_and(|prompt| prompt >= length)) {
            return checker.refuse(
                number.referenced,
                format!("a prompt of {} leaves nothing to decode in a length of {length}", number.value),
                "write a smaller number, or a larger `length`",
            );
        }
        let warm_up = self.warm_up.as_ref().map(|steps| checker.count("`warm_up`", steps, 0)).transpose()?;
        Ok(TaskSpec::new(Timing {
            length,
            prompt: prompt.unwrap_or(Timing::DEFAULT_PROMPT.min(length / 2)),
            memory,
            repeats: checker.limit("`repeats`", &self.repeats)?.unwrap_or(Timing::DEFAULT_REPEATS),
            warm_up: warm_up.unwrap_or(Timing::DEFAULT_WARM_UP),
        }))
    }
}
