//! What is asked of a model, and how the answer is marked.
//!
//! Knows texts, their cutting and the marks of an answer; which experiments exist, and where their results go, is not
//! known here.

mod perplexity;
mod recall;
mod samples;
mod settings;
mod texts;

pub use perplexity::{Measured, Reading, Topline, measure};
pub use recall::AskedFor;
pub use samples::{Sample, cut, resolve_bos};
pub use settings::{Bos, DataSource, EMBEDDED, EMBEDDED_QUESTIONS, Perplexity, RANDOM_WORDS, Tail, TaskSpec};
pub use texts::{Book, MOST_EMBEDDED_BOOKS, digest, read_books, read_text};
