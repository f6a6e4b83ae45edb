//! The settings of the needle task as a sweep file spells them.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Fact, Needle};
use crate::task::data::{Texts, check_source, limit_embedded, text_sources};
use crate::task::generation::{GenerationConfig, WriteYaml};
use crate::task::spec::TaskSpec;
use crate::yaml::{Checker, ConfigError, Location, Spanned};

/// One fact in a long text, asked for at the end: by the text's length and the fact's depth.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NeedleYaml {
    /// The texts around the fact: `embedded`, a folder of `.txt` files or a `.parquet` file (starting with `./`, `../`
    /// or `/`), or a hub data set.
    #[schemars(schema_with = "text_sources")]
    dataset: Spanned<String>,
    /// Lengths of prompt and answer together, in tokens; each is measured. By default only 4,096.
    #[serde(default)]
    #[schemars(inner(range(min = 2, max = u32::MAX)))]
    #[schemars(extend("type" = ["array", "null"], "uniqueItems" = true, "default" = [Texts::DEFAULT_LENGTH]))]
    lengths: Vec<Spanned<u64>>,
    /// The positions of the fact, in percent of the text: 0 is its beginning, 100 its end.
    #[serde(default)]
    #[schemars(inner(range(min = 0, max = 100)))]
    #[schemars(extend("type" = ["array", "null"], "uniqueItems" = true, "default" = [0, 25, 50, 75, 100]))]
    depths: Vec<Spanned<u64>>,
    /// How many texts for each length and depth.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = 10))]
    texts: Option<Spanned<u64>>,
    /// A fact of your own; null: one of many made-up facts.
    #[schemars(extend("default" = null))]
    fact: Option<FactYaml>,
    /// How answers are written; by default greedily, at most 32 tokens.
    #[serde(default)]
    write: WriteYaml,
}

/// A fact to hide and to ask for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FactYaml {
    /// The sentence put into the text.
    needle: String,
    /// The question at the end.
    question: String,
    /// What an answer must contain to count as right.
    answer: String,
}

impl NeedleYaml {
    /// Checks every value.
    pub fn check(self, checker: Checker<'_>) -> Result<TaskSpec, ConfigError> {
        let forms =
            "embedded, a folder of .txt files or a .parquet file (starting with ./, ../ or /), or a hub data set";
        let dataset = check_source(checker, &self.dataset, forms)?;
        let lengths = match &*self.lengths {
            [] => vec![Texts::DEFAULT_LENGTH],
            lengths => checker.distinct_counts("lengths", Location::UNKNOWN, lengths, "length", 2)?,
        };
        let depths = match &*self.depths {
            [] => vec![0, 25, 50, 75, 100],
            depths => checker.distinct_counts("depths", Location::UNKNOWN, depths, "depth", 0)?,
        };
        if let Some(depth) = self.depths.iter().find(|depth| depth.value > 100) {
            return checker.refuse(
                depth.referenced,
                format!("a depth of {} percent is beyond the text", depth.value),
                "write depths from 0 (the text's beginning) to 100 (its end)",
            );
        }
        let shortest = lengths.iter().copied().min().unwrap_or(0);
        Ok(TaskSpec::new(Needle {
            texts: limit_embedded(checker, &dataset, "`texts`", &self.texts)?.unwrap_or(10),
            dataset,
            lengths,
            depths,
            fact: self.fact.map(|FactYaml { needle, question, answer }| Fact { needle, question, answer }),
            generation: self.write.check(checker, shortest, GenerationConfig::greedy(32))?,
        }))
    }
}
