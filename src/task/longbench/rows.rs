//! The rows of LongBench and LongBench-E.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;

use crate::task::benchmark::Rows;
use crate::task::data::json_lines;

/// A line, without unused fields: `dataset`, `language`.
#[derive(Deserialize)]
struct Row {
    #[serde(rename = "_id")]
    id: String,
    input: String,
    context: String,
    answers: Vec<String>,
    all_classes: Option<Vec<String>>,
    /// Words of the context.
    length: Option<u64>,
}

/// The rows of a subset. Errors call the text `file`. The columns `length` and `subset_and_length` are empty unless slices
/// by length are wanted (`by_length`).
///
/// # Errors
/// A line that is not a row, or a row without a length that is needed; file and line are named.
pub fn rows(subset: &str, text: &str, file: &str, by_length: bool) -> Result<Rows> {
    let mut rows = Rows::default();
    for line in json_lines::<Row>(text, file) {
        let (place, Row { id, input, context, answers, all_classes, length }) = line?;
        let class = if by_length {
            length_class(length.with_context(|| format!("{place}: `length` is missing"))?)
        } else {
            ""
        };
        let both = if by_length { format!("{subset} {class}") } else { String::new() };
        let row = json!({
            "name": format!("{subset}/{id}"), "subset": subset, "length": class, "subset_and_length": both,
            "context": context, "input": input, "answers": answers, "all_classes": all_classes.unwrap_or_default(),
        });
        rows.add(row, place)?;
    }
    Ok(rows)
}

/// The classes of `scorer_e` in `eval.py`, in words.
fn length_class(words: u64) -> &'static str {
    match words {
        ..4000 => "0-4k",
        4000..8000 => "4-8k",
        _ => "8k+",
    }
}
