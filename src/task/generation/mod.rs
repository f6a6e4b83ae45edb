//! Generated text: prompts fitted to a model, written under a bounded cache, and scored.
//!
//! Every task that generates uses this. What is asked, and which metrics the answers get, the tasks say themselves with
//! [`Request`] and [`Scorer`].

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
