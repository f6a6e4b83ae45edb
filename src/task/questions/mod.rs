//! SQuALITY and QASPER: questions about documents, answered in writing.
//!
//! Their prompts and metrics are files in `configs/benchmarks/`. This module reads what is published of them (the original releases
//! and ZeroSCROLLS' rows, in archives too), and has the options of a sweep.

mod files;
mod qasper;
mod reader;
mod release;
mod squality;
mod task;
mod zeroscrolls;

pub use qasper::QASPER;
pub use release::{PromptStyle, Release, Split};
pub use squality::SQUALITY;
pub use task::read_questions;
pub(super) use task::{OPTIONS, choose};

#[cfg(test)]
pub use task::requests;

/// The prompt of a question about a document.
#[cfg(test)]
pub fn prompt(release: &Release, style: PromptStyle, text: &str, question: &str) -> super::request::Prompt {
    use super::embedded::{Document, DocumentQuestion};
    let question = DocumentQuestion { question: question.into(), ..DocumentQuestion::default() };
    let document = Document { name: "d".into(), text: text.into(), questions: vec![question] };
    let rows = release::rows(vec![document], "test").unwrap();
    requests(release, style, &rows).unwrap().remove(0).prompt
}
