//! Needle in a haystack: one fact in a long text, asked for at the end.

mod requests;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use super::canonical::list;
use super::data::{self, DataSource, Texts, check_source, limit_embedded, text_sources};
use super::generation::{self, GenerationConfig, Request, Scorer, WriteYaml};
use super::prepared::PreparedTask;
use super::spec::{PrepareContext, Task, TaskSpec};
use crate::yaml::{self, ConfigError, Location, Spanned};

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
        let forms =
            "embedded, a folder of .txt files or a .parquet file (starting with ./, ../ or /), or a hub data set";
        let dataset = check_source(&self.dataset, forms)?;
        let lengths = match &*self.lengths {
            [] => vec![Texts::DEFAULT_LENGTH],
            lengths => yaml::distinct_counts("lengths", Location::UNKNOWN, lengths, "length", 2)?,
        };
        let depths = match &*self.depths {
            [] => vec![0, 25, 50, 75, 100],
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
        let texts = limit_embedded(&dataset, "`texts`", &self.texts)?.unwrap_or(10);
        let generation = Some(self.write.check(shortest, GenerationConfig::greedy(32))?);
        let mut selection =
            vec![("lengths", list(&lengths)), ("depths", list(&depths)), ("texts", texts.to_string())];
        if let Some(Fact { needle, question, answer }) = &self.fact {
            let parts = [("needle", needle), ("question", question), ("answer", answer)];
            selection.extend(parts.map(|(key, value)| (key, value.escape_default().to_string())));
        }
        let name = dataset.to_string();
        let task = Needle { dataset, lengths, depths, texts, fact: self.fact };
        let spec = TaskSpec::new("needle", name, longest, Vec::new(), task);
        Ok(TaskSpec { generation, selection, ..spec })
    }
}

/// One fact in a long text, asked for at the end.
#[derive(Clone, Debug)]
struct Needle {
    dataset: DataSource,
    lengths: Vec<usize>,
    depths: Vec<usize>,
    texts: usize,
    /// `None`: one of many made-up facts.
    fact: Option<Fact>,
}

impl Task for Needle {
    fn prepare(&self, spec: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let tokenizer = context.files.tokenizer()?;
        let books = data::read_books(&self.dataset, Some(self.texts), context.hub, context.progress)?;
        data::note_fewer(context.progress, &self.dataset, "texts", self.texts, books.len());
        let requests = requests::requests(self, &books, &tokenizer, spec.generation()?.max_new_tokens)?;
        let scorer = Scorer::new(found);
        generation::prepare(spec, context, requests, data::digest(&books), scorer)
    }
}

/// Whether an answer contains a reference, in any case of letters.
fn found(text: &str, request: &Request) -> Vec<(&'static str, f64)> {
    let text = text.to_lowercase();
    let found = request.references.iter().any(|answer| text.contains(&answer.to_lowercase()));
    vec![("found", f64::from(u8::from(found)))]
}
