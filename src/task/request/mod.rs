//! What is asked of a model: a prompt, how its answer is written, and how that is scored.
//!
//! Tasks bring their prompts as [`Request`]s, and their metrics as a [`Scorer`].

mod prompt;
mod settings;

use anyhow::Result;
use serde::Serialize;

use crate::metric::{MetricSum, Slice};
pub(super) use prompt::shared;
pub use prompt::{Cut, Fitted, Prompt};
pub use settings::{Drawing, GenerationConfig, MOST_TEMPERATURE, REPETITION_PENALTIES, WriteYaml};

/// Why a sample cannot be measured, whatever else is: it is counted, and nothing else of its cell is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unmeasurable(pub String);

/// What a task measures of answers.
pub trait Scorer: Send + Sync {
    /// The metrics of a text, given its request: whole and by slice.
    ///
    /// # Errors
    /// A text that cannot be scored.
    fn score(&self, _text: &str, _request: &Request) -> Result<Vec<MetricSum>> {
        Ok(Vec::new())
    }

    /// The metrics of a request whose continuations are compared, from how likely each is.
    fn choose(&self, _likelihoods: &[Likelihood], _request: &Request) -> Vec<MetricSum> {
        Vec::new()
    }

    /// Whether the model with the full cache reads the text again, for the metric `nll_written`.
    fn reads_again(&self) -> bool {
        false
    }

    /// Whether long texts are the point: the metric `cut_off` says that one reached its limit of tokens without an end.
    fn is_long(&self) -> bool {
        false
    }
}

/// How likely a continuation is after its prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// Its logarithm, in nats.
    pub log: f64,
    /// Whether each of its tokens was the likeliest.
    pub is_greedy: bool,
}

/// A metric of an answer as a whole, and for each slice it counts for.
pub fn by_slice(request: &Request, metric: &'static str, value: f64) -> impl Iterator<Item = MetricSum> {
    let slices = std::iter::once(None).chain(request.slices.iter().cloned().map(Some));
    slices.map(move |slice| MetricSum::new(metric, value, 1.0).of_slice(slice))
}

/// One prompt, and what is known about its answer. Most tasks set a few of the many fields, and leave the others at their defaults.
/// The JSON, of which ids are made, has what data say: settings have a place of their own there, how prompts are cut and framed shows in
/// their tokens, and the trivial answer, which may follow from all requests together, is scored anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Request {
    /// The sample's name, such as `63477#2` for a question about a story.
    pub name: String,
    /// The document.
    pub cluster: String,
    pub prompt: Prompt,
    /// Why its prompt cannot be asked of a model.
    #[serde(skip)]
    pub unmeasurable: Option<Unmeasurable>,
    /// Correct answers; empty if none are published.
    pub references: Vec<String>,
    /// The classes that an answer may name, where the benchmark lists them.
    pub classes: Vec<String>,
    /// An answer that needs no reading, for comparison; empty if there is none.
    #[serde(skip)]
    pub trivial: String,
    /// The slices that the answer counts for.
    pub slices: Vec<Slice>,
    /// Tokens of prompt and answer together, BOS included.
    #[serde(skip)]
    pub length: usize,
    /// Added to the sweep's seed.
    #[serde(skip)]
    pub seed: u64,
    /// The most tokens to write, where it is not the task's `max_new_tokens`.
    #[serde(skip)]
    pub max_new_tokens: Option<usize>,
    /// What a document loses that is too long.
    #[serde(skip)]
    pub cut: Cut,
    /// Where the question begins, in bytes of a document that holds it too.
    #[serde(skip)]
    pub question_at: Option<usize>,
    /// Never inside a chat template.
    #[serde(skip)]
    pub is_plain: bool,
    /// Whether the answer's header begins the answer inside a chat template too, instead of being left out.
    #[serde(skip)]
    pub keeps_header: bool,
    /// What the prompt begins with, as messages before the request: each a role and its text. A chat template has them in place of
    /// the first [`Request::preface`] bytes.
    #[serde(skip)]
    pub messages: Vec<(&'static str, String)>,
    #[serde(skip)]
    pub preface: usize,
    /// Bytes at the beginning of the answer's header and of each continuation that a chat template leaves out.
    #[serde(skip)]
    pub delimiters: [usize; 2],
    /// After these words the likeliest of the classes is found, beside the answer that is written, for the metric
    /// `accuracy_likelihood`.
    #[serde(skip)]
    pub likelihood_after: Option<String>,
    /// Texts whose likelihoods after the prompt are compared; where there are none, an answer is written.
    pub continuations: Vec<String>,
    /// The indices of the right classes.
    pub right: Vec<usize>,
    /// Which of the files that are measured together it is of.
    #[serde(skip)]
    pub part: usize,
}
