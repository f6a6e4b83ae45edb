//! QASPER: questions about scientific articles, with short answers.

mod release;

use std::collections::{BTreeMap, BTreeSet};

use super::embedded;
use super::generation::{Request, f1_scorer};
use super::questions::{Benchmark, Release, Wording};

/// QASPER (Dasigi et al. 2021), as in ZeroSCROLLS.
pub static QASPER: Benchmark = Benchmark {
    name: "qasper",
    about: "QASPER: questions about scientific articles, answered in at most 128 tokens by default and scored with F1.",
    wording: Wording {
        opening: "You are given a scientific article and a question.",
        instruction: "Answer the question as concisely as you can, using a single phrase or sentence if possible. If \
                      the question cannot be answered based on the information in the article, write \
                      \"unanswerable\". If the question is a yes/no question, answer \"yes\", \"no\", or \
                      \"unanswerable\".",
        document_header: "Article:\n",
        separator: "... [The rest of the article is omitted]",
    },
    max_new_tokens: 128,
    scorer: f1_scorer,
    trivial: commonest_answer,
    release: Release {
        format: "the JSON object of QASPER v0.3 (articles by arXiv id)",
        files: |split| vec![format!("qasper-{split}-v0.3.json")],
        // Every arXiv id has digits, and no key of a row has.
        matches: |keys| keys.iter().all(|key| key.contains(|c: char| c.is_ascii_digit())),
        read: release::read,
    },
    embedded: embedded::articles,
};

/// For every question the reference that answers most questions, the alphabetically first of equals.
pub(super) fn commonest_answer(questions: &[Request]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for question in questions {
        let different: BTreeSet<&str> = question.references.iter().map(String::as_str).collect();
        different.into_iter().for_each(|answer| *counts.entry(answer).or_default() += 1);
    }
    let commonest = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    let commonest = commonest.map(|(answer, _)| answer.to_owned()).unwrap_or_default();
    vec![commonest; questions.len()]
}
