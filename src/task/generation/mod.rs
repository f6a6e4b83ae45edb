//! Generated text: prompts fitted to a model, written under a bounded cache, and scored.
//!
//! Tasks bring their prompts as [`Request`]s, and their metrics as a [`Scorer`].

mod generate;
mod measure;
mod prompt;
mod prompts;
mod settings;
mod tokens;

pub use generate::prepare;
pub use prompt::{Cut, Prompt};
pub use prompts::{Likelihood, Request, Scorer, by_slice};
pub use settings::{GenerationConfig, MOST_TEMPERATURE, Prefill, REPETITION_PENALTIES, WriteYaml};
pub use tokens::{TokenAnswer, TokenRequest, TokenSettings, answer_tokens};
