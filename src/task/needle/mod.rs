//! Needle in a haystack: one fact in a long text, asked for at the end.

mod requests;
mod yaml;

use anyhow::Result;

pub use yaml::NeedleYaml;

use super::data::{self, DataSource};
use super::generation::{GenerationConfig, GenerationSamples, Request, Scorer};
use super::prepared::PreparedTask;
use super::spec::{PrepareContext, Task, TaskSpec};
use crate::eviction::CacheRule;

/// One fact in a long text, asked for at the end.
#[derive(Clone, Debug, PartialEq)]
struct Needle {
    /// The texts that the fact is hidden in.
    dataset: DataSource,
    /// Tokens of prompt and answer together, BOS included.
    lengths: Vec<usize>,
    /// The position of the fact in the text, in percent from the start.
    depths: Vec<usize>,
    /// Texts for every length and depth.
    texts: usize,
    /// `None`: one of many made-up facts.
    fact: Option<Fact>,
    generation: GenerationConfig,
}

/// A fact to hide, the question about it, and what an answer must contain.
#[derive(Clone, Debug, PartialEq)]
struct Fact {
    needle: String,
    question: String,
    answer: String,
}

impl Task for Needle {
    fn name(&self) -> &'static str {
        "needle"
    }

    fn dataset(&self) -> String {
        self.dataset.to_string()
    }

    fn length(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    fn canonical(&self) -> String {
        let Needle { lengths, depths, texts, .. } = self;
        let mut text = format!("lengths={lengths:?}\ndepths={depths:?}\ntexts={texts}\n");
        if let Some(Fact { needle, question, answer }) = &self.fact {
            for (key, value) in [("needle", needle), ("question", question), ("answer", answer)] {
                text += &format!("{key}={}\n", value.escape_default());
            }
        }
        text
    }

    fn generation(&self) -> Option<&GenerationConfig> {
        Some(&self.generation)
    }

    fn for_rule(&self, rule: CacheRule) -> Option<TaskSpec> {
        let generation = self.generation.for_rule(rule)?;
        Some(TaskSpec::new(Needle { generation, ..self.clone() }))
    }

    fn prepare(&self, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let tokenizer = context.files.tokenizer()?;
        let books = data::read_books(&self.dataset, Some(self.texts), context.hub, context.progress)?;
        let requests = requests::requests(self, &books, &tokenizer)?;
        let scorer = Scorer { score: found, needs_references: true, rescore: false };
        GenerationSamples::prepare(context, requests, data::digest(&books), scorer, &self.generation)
    }
}

/// Whether an answer contains a reference, in any case of letters.
fn found(text: &str, request: &Request) -> Vec<(&'static str, f64)> {
    let text = text.to_lowercase();
    let found = request.references.iter().any(|answer| text.contains(&answer.to_lowercase()));
    vec![("found", f64::from(u8::from(found)))]
}
