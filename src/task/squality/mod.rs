//! SQuALITY: questions about stories, answered in a paragraph.

mod release;

use super::embedded;
use super::generation::{Request, rouge_scorer};
use super::questions::{Benchmark, Release, Wording};

/// SQuALITY (Wang et al. 2022), as in ZeroSCROLLS.
pub static SQUALITY: Benchmark = Benchmark {
    name: "squality",
    about: "SQuALITY: questions about stories, answered in at most 512 tokens by default and scored with ROUGE.",
    wording: Wording {
        opening: "You are given a story and a question.",
        instruction: "Answer the question in a paragraph.",
        document_header: "Story:\n",
        separator: "... [The rest of the story is omitted]",
    },
    max_new_tokens: 512,
    scorer: rouge_scorer,
    trivial: first_words,
    release: Release {
        format: "lines of SQuALITY v1.3 (`document`, `questions`)",
        files: |split| vec![format!("{split}.jsonl"), format!("v1-3/txt/{split}.jsonl")],
        matches: |keys| keys.contains("questions"),
        read: release::read,
    },
    embedded: embedded::stories,
};

/// The first words of each document, as many as its references have on average.
pub(super) fn first_words(questions: &[Request]) -> Vec<String> {
    let words = |text: &String| text.split_whitespace().count();
    let first_words = |question: &Request| {
        let references = question.references.iter().map(words).sum::<usize>();
        let count = references.checked_div(question.references.len()).unwrap_or(0);
        question.prompt.document.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
    };
    questions.iter().map(first_words).collect()
}
