//! Generated text: prompts fitted to a model, written under a bounded cache, and scored.
//!
//! Tasks bring their prompts as [`Request`]s, and their metrics as a [`Scorer`].

mod config;
mod generate;
mod prompt;
mod prompts;
mod scorer;
mod yaml;

pub use config::{GenerationConfig, Prefill};
pub use generate::GenerationSamples;
pub use prompt::Prompt;
pub use prompts::Request;
pub use scorer::{F1, ROUGE, Scorer};
pub use yaml::WriteYaml;
