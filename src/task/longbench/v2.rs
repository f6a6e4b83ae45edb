//! LongBench v2: questions with four choices, answered by a letter.
//!
//! The zero-shot prompt and the reading of answers are those of `prompts/0shot.txt` and `pred.py` in THUDM/LongBench.

use anyhow::{Result, anyhow, ensure};
use serde::Deserialize;

use super::rows::request;
use crate::task::data::json_lines;
use crate::task::generation::{Prompt, Request, Scorer};

/// The most tokens of an answer.
pub const MAX_NEW_TOKENS: usize = 128;

const LETTERS: [&str; 4] = ["A", "B", "C", "D"];

/// A row, without unused fields: `sub_domain`.
#[derive(Deserialize)]
struct Row {
    #[serde(rename = "_id")]
    id: String,
    domain: String,
    difficulty: String,
    length: String,
    question: String,
    #[serde(rename = "choice_A")]
    a: String,
    #[serde(rename = "choice_B")]
    b: String,
    #[serde(rename = "choice_C")]
    c: String,
    #[serde(rename = "choice_D")]
    d: String,
    answer: String,
    context: String,
}

/// The requests of the first rows of a file: a JSON array as published, or JSON lines. Errors call the text `file`.
///
/// # Errors
/// Text that is neither, a row without a key, or an answer that is none of the four letters; the row is named.
pub fn requests(text: &str, file: &str, most: usize) -> Result<Vec<Request>> {
    let rows: Vec<(String, Row)> = if text.trim_start().starts_with('[') {
        let rows: Vec<Row> = serde_json::from_str(text).map_err(|error| anyhow!("{file}: {error}"))?;
        rows.into_iter().map(|row| (format!("{file}, row {}", row.id), row)).take(most).collect()
    } else {
        json_lines(text, file).take(most).collect::<Result<_>>()?
    };
    rows.into_iter().map(|(place, row)| of_row(row, &place)).collect()
}

fn of_row(row: Row, place: &str) -> Result<Request> {
    ensure!(
        LETTERS.contains(&row.answer.as_str()),
        "{place}: the answer is {:?}; it must be A, B, C or D",
        row.answer
    );
    let slices = vec![
        format!("difficulty:{}", row.difficulty),
        format!("length:{}", row.length),
        format!("domain:{}", row.domain),
    ];
    let prompt = Prompt { document: filled(&row), ..Prompt::default() };
    let classes = LETTERS.map(str::to_owned).to_vec();
    Ok(Request { references: vec![row.answer], classes, slices, ..request(row.id, &row.context, prompt) })
}

/// The prompt of a row. Each mark is replaced after the ones before it, also in what these brought, as the original does.
fn filled(row: &Row) -> String {
    let parts = [
        ("$DOC$", &row.context),
        ("$Q$", &row.question),
        ("$C_A$", &row.a),
        ("$C_B$", &row.b),
        ("$C_C$", &row.c),
        ("$C_D$", &row.d),
    ];
    parts.into_iter().fold(PROMPT.to_owned(), |text, (mark, part)| text.replace(mark, stripped(part)))
}

/// Python's `str.strip`, which also takes four separators of ASCII that are not white space to Unicode.
fn stripped(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\x1c'..='\x1f'))
}

const PROMPT: &str = "Please read the following text and answer the question below.\n\n<text>\n$DOC$\n</text>\n\n\
                      What is the correct answer to this question: $Q$\nChoices:\n(A) $C_A$\n(B) $C_B$\n(C) $C_C$\n\
                      (D) $C_D$\n\nFormat your response as follows: \"The correct answer is (insert answer here)\".";

/// By the letter that a text names, and by the likelihood of the letter after the words of the format.
pub fn scorer() -> Scorer {
    Scorer { likelihood_after: Some(OPENING), ..Scorer::new(score) }
}

/// How an answer of the format begins.
const OPENING: &str = "The correct answer is (";

/// The metric of an answer, and what a guess among the four choices would reach.
fn score(text: &str, request: &Request) -> Vec<(&'static str, f64)> {
    let is_right = letter(text).is_some_and(|letter| request.references.contains(&letter));
    vec![("accuracy", f64::from(u8::from(is_right))), ("accuracy_chance", 0.25)]
}

/// The letter that an answer names after the words of the format: the first in brackets, or else the first without.
fn letter(answer: &str) -> Option<String> {
    // They make letters bold.
    let answer = answer.replace('*', "");
    let named = |words: &str, closing: &str| {
        let rests = answer.match_indices(words).map(|(at, _)| &answer[at + words.len()..]);
        let letter = |rest: &str| {
            let letter = rest.get(..1).filter(|letter| LETTERS.contains(letter))?;
            rest[1..].starts_with(closing).then(|| letter.to_owned())
        };
        rests.into_iter().find_map(letter)
    };
    named(OPENING, ")").or_else(|| named("The correct answer is ", ""))
}
