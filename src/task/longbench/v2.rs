//! LongBench v2: questions with four choices, answered by a letter.
//!
//! The reading of answers is that of `pred.py` in THUDM/LongBench.

use anyhow::{Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::task::benchmark::Rows;
use crate::task::data::json_lines;

const LETTERS: [&str; 4] = ["A", "B", "C", "D"];

/// A row, without unused fields: `sub_domain`.
#[derive(Deserialize, Serialize)]
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

/// The first rows of a file: a JSON array as published, or JSON lines. Errors call the text `file`.
///
/// # Errors
/// Text that is neither, a row without a key, or an answer that is none of the four letters; the row is named.
pub fn rows(text: &str, file: &str, most: usize) -> Result<Rows> {
    let read: Vec<(String, Row)> = if text.trim_start().starts_with('[') {
        let rows: Vec<Row> = serde_json::from_str(text).map_err(|error| anyhow!("{file}: {error}"))?;
        rows.into_iter().map(|row| (format!("{file}, row {}", row.id), row)).take(most).collect()
    } else {
        json_lines(text, file).take(most).collect::<Result<_>>()?
    };
    let mut rows = Rows::default();
    for (place, row) in read {
        ensure!(
            LETTERS.contains(&row.answer.as_str()),
            "{place}: the answer is {:?}; it must be A, B, C or D",
            row.answer
        );
        rows.add(serde_json::to_value(row)?, place)?;
    }
    Ok(rows)
}

/// How an answer of the format begins.
const OPENING: &str = "The correct answer is (";

/// The letter that an answer names after the words of the format: the first in brackets, or else the first without.
pub fn letter(answer: &str) -> Option<String> {
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
