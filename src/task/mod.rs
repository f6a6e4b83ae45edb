//! What is asked of a model, and how the answer is marked.

mod settings;

pub use settings::{Bos, Perplexity, RANDOM_WORDS, Tail, TaskSpec};
