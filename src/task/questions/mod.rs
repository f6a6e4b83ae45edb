//! Questions about documents, answered in writing: what all such benchmarks share.
//!
//! A benchmark is a folder with a [`Benchmark`] (its wording, metrics and files) and a line in the registry. This module
//! has the settings, the reading of ZeroSCROLLS' rows and of archives, and the limits of documents and questions.

mod archive;
mod benchmark;
mod files;
mod splits;
mod task;
mod zeroscrolls;

#[cfg(test)]
pub use archive::tests;
pub use archive::{names, unpack};
pub use benchmark::{Benchmark, PromptStyle, Release, Split, Wording, questions_digest};
pub use files::read_questions;
pub use task::QuestionsYaml;
