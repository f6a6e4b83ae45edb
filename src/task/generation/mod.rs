//! Generated text: prompts fitted to a model, written under a bounded cache, and scored.

mod generate;
mod measure;
mod prompts;
mod tokens;

pub use generate::prepare;
#[cfg(test)]
pub use prompts::framed;
pub use tokens::{TokenAnswer, TokenRequest, TokenSettings, answer_tokens};
