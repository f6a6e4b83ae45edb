//! What is asked of a model, and how the answer is marked.

mod settings;
mod texts;

pub use settings::{Bos, Perplexity, RANDOM_WORDS, Tail, TaskSpec};
pub use texts::read_text;
