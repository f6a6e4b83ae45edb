//! Needle in a haystack: one fact in a long text, asked for at the end.

mod rows;

use std::sync::Arc;

use anyhow::{Result, ensure};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::benchmark::{Asked, Benchmark, Reader, Rows, builtin_definition};
use super::canonical::list;
use super::data::{self, DataSource, Texts, check_texts};
use super::generation::{GenerationConfig, WriteYaml};
use super::spec::TaskSpec;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// One fact in a long text, asked for at the end: by the text's length and the fact's depth.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NeedleYaml {
    /// The texts around the fact: `embedded`, a folder of `.txt` files or a `.parquet` file (starting with `./`, `../`
    /// or `/`), or a hub data set.
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
    fact: Option<Fact>,
    /// How answers are written; by default greedily, at most 32 tokens.
    #[serde(default)]
    write: WriteYaml,
}

/// A fact to hide and to ask for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fact {
    /// The sentence put into the text.
    needle: String,
    /// The question at the end.
    question: String,
    /// What an answer must contain to count as right.
    answer: String,
}

impl NeedleYaml {
    /// Checks every value.
    pub fn check(self) -> Result<TaskSpec, ConfigError> {
        let dataset = check_texts(&self.dataset)?;
        let lengths = match &*self.lengths {
            [] => vec![Texts::DEFAULT_LENGTH],
            lengths => yaml::distinct_counts("lengths", Location::UNKNOWN, lengths, "length", 2)?,
        };
        let depths = match &*self.depths {
            [] => DEPTHS.to_vec(),
            depths => yaml::distinct_counts("depths", Location::UNKNOWN, depths, "depth", 0)?,
        };
        if let Some(depth) = self.depths.iter().find(|depth| depth.value > 100) {
            return yaml::refuse(
                depth.referenced,
                format!("a depth of {} percent is beyond the text", depth.value),
                "write depths from 0 (the text's beginning) to 100 (its end)",
            );
        }
        let shortest = lengths.iter().copied().min().unwrap_or(0);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let texts = yaml::limit("`texts`", &self.texts)?.unwrap_or(TEXTS);
        let generation = Some(self.write.check(shortest, GenerationConfig::greedy(32))?);
        let mut selection =
            vec![("lengths", list(&lengths)), ("depths", list(&depths)), ("texts", texts.to_string())];
        if let Some(Fact { needle, question, answer }) = &self.fact {
            let parts = [("needle", needle), ("question", question), ("answer", answer)];
            selection.extend(parts.map(|(key, value)| (key, value.escape_default().to_string())));
        }
        let mut definition = builtin_definition("needle")?;
        let hides = Needles { lengths, depths, texts, fact: self.fact };
        definition.reader = Some(Arc::new(hides));
        let over = Some(dataset.to_string());
        let task = Benchmark { definitions: vec![Arc::new(definition)], over, samples: None };
        let spec = TaskSpec::new("needle", dataset, longest, Vec::new(), task);
        Ok(TaskSpec { generation, selection, ..spec })
    }
}

/// Facts to hide: the options of the rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Needles {
    /// Tokens of prompt and answer together.
    lengths: Vec<usize>,
    /// In percent of the text.
    depths: Vec<usize>,
    texts: usize,
    /// `None`: one of many made-up facts.
    fact: Option<Fact>,
}

/// The depths that are measured unless others are asked for.
const DEPTHS: [usize; 5] = [0, 25, 50, 75, 100];
/// Texts unless another number is asked for.
const TEXTS: usize = 10;

impl Default for Needles {
    fn default() -> Needles {
        Needles { lengths: vec![Texts::DEFAULT_LENGTH], depths: DEPTHS.to_vec(), texts: TEXTS, fact: None }
    }
}

/// Makes rows that ask for a fact hidden in a text, by length and depth.
///
/// # Errors
/// Options that are unknown or out of range.
pub fn reader(options: Value) -> Result<Arc<dyn Reader>> {
    let needles: Needles = if options.is_null() { Needles::default() } else { serde_json::from_value(options)? };
    ensure!(needles.depths.iter().all(|depth| *depth <= 100), "`depths` are from 0 to 100 percent of a text");
    let is_some = !needles.lengths.is_empty() && !needles.depths.is_empty() && needles.texts > 0;
    ensure!(is_some, "`lengths`, `depths` and `texts` name at least one each");
    Ok(Arc::new(needles))
}

impl Reader for Needles {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        let Asked { definition, spec, context, .. } = *asked;
        let dataset: DataSource = asked.dataset.parse()?;
        let tokenizer = context.files.tokenizer()?;
        let books = data::read_books(&dataset, Some(self.texts), context.hub, context.progress)?;
        data::note_fewer(context.progress, &dataset, "texts", self.texts, books.len());
        rows::rows(self, definition, &books, &tokenizer, spec.generation()?.max_new_tokens)
    }
}
