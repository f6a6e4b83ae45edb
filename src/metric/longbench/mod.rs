//! The measures of LongBench (Bai et al. 2024): `LongBench/metrics.py` of THUDM/LongBench, to the last digit that matters.
//!
//! Each compares what a model wrote with one reference. Its measures of Chinese text, which need a splitter of Chinese words,
//! are left out.

mod alike;
mod choice;
mod rouge_l;

use serde::Deserialize;

pub use choice::chosen_letter;

use super::f1::{Letters, best_f1};

/// Comparison of an answer with a reference, as a subset of LongBench does it. All give 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LongBenchMeasure {
    /// `qa_f1_score`: the words that answer and reference share, as SQuAD counts them.
    F1,
    /// `rouge_score`: ROUGE-L of the Python package `rouge` 1.0.1, which is not that of `rouge-score`.
    RougeL,
    /// `classification_score`: one over the number of classes that the answer names, if the right one is among them.
    Class,
    /// `retrieval_score`: the share of the answer's numbers that name the right paragraph.
    Paragraph,
    /// `count_score`: the share of the answer's numbers that are the right number.
    Count,
    /// `code_sim_score`: how alike the first line of code and the right line are, by `fuzz.ratio` of the Python package
    /// `fuzzywuzzy` without `python-Levenshtein`.
    CodeLine,
}

impl LongBenchMeasure {
    /// Scores an answer against one reference. `classes` are the possible answers of a classification.
    pub fn score(self, answer: &str, reference: &str, classes: &[String]) -> f64 {
        match self {
            LongBenchMeasure::F1 => best_f1(answer, &[reference], Letters::AsWritten),
            LongBenchMeasure::RougeL => rouge_l::f_measure(answer, reference),
            LongBenchMeasure::Class => class(answer, reference, classes),
            LongBenchMeasure::Paragraph => paragraph_of(reference).map_or(0.0, |id| share_of(answer, id)),
            LongBenchMeasure::Count => share_of(answer, reference),
            LongBenchMeasure::CodeLine => f64::from(alike::percent(first_code_line(answer), reference)) / 100.0,
        }
    }

    /// Whether a reference is in the form that this measure needs.
    pub fn accepts(self, reference: &str) -> bool {
        self != LongBenchMeasure::Paragraph || paragraph_of(reference).is_some()
    }
}

/// Finds the first line that is not a comment and has no mark of Markdown's code; empty if there is none.
fn first_code_line(answer: &str) -> &str {
    let is_code = |line: &&str| !line.contains(['`', '#']) && !line.contains("//");
    answer.trim_start_matches('\n').split('\n').find(is_code).unwrap_or_default()
}

fn class(answer: &str, reference: &str, classes: &[String]) -> f64 {
    let mut named: Vec<&str> = classes.iter().map(String::as_str).filter(|class| answer.contains(class)).collect();
    // Classes that are part of the right one do not count as named. The original removes them from the list that it
    // walks, and so skips the class after each.
    let mut at = 0;
    while at < named.len() {
        let class = named[at];
        if reference.contains(class) && class != reference {
            let first = named.iter().position(|other| *other == class).unwrap_or(at);
            named.remove(first);
        }
        at += 1;
    }
    if named.contains(&reference) { 1.0 / named.len() as f64 } else { 0.0 }
}

/// Finds the number after the first `Paragraph `.
fn paragraph_of(reference: &str) -> Option<&str> {
    let starts = reference.match_indices("Paragraph ").map(|(at, word)| &reference[at + word.len()..]);
    starts.filter(|rest| rest.starts_with(is_digit)).find_map(|rest| numbers(rest).next())
}

/// Share of the answer's numbers that are spelled like the right one; 0 without numbers.
fn share_of(answer: &str, right: &str) -> f64 {
    let all = numbers(answer).count();
    let hits = numbers(answer).filter(|number| *number == right).count();
    if all == 0 { 0.0 } else { hits as f64 / all as f64 }
}

/// Runs of digits in a text.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_digit(c)).filter(|number| !number.is_empty())
}

/// Whether Python's `\d` matches a character: a decimal digit of any script.
fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || c.is_numeric() && ZEROS.iter().any(|zero| (*zero..zero + 10).contains(&u32::from(c)))
}

/// Zeros of all scripts of Unicode 14 beyond ASCII; the nine other digits follow each.
const ZEROS: [u32; 65] = [
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620,
    0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136, 0x111d0,
    0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60,
    0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];
