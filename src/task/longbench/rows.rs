//! The rows of LongBench and LongBench-E.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::subsets::Subset;
use crate::metric::LongBenchMeasure;
use crate::task::data::digest_of;
use crate::task::data::json_lines;
use crate::task::generation::{Cut, Prompt, Request};

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

/// The requests of a subset's first rows. Errors call the text `file`.
///
/// # Errors
/// A line that is not a row, a row without what its subset's measure needs, or without a length where slices by length are
/// `by_length`; file and line are named.
pub fn requests(subset: &Subset, text: &str, file: &str, by_length: bool, most: usize) -> Result<Vec<Request>> {
    let rows = json_lines::<Row>(text, file).take(most);
    rows.map(|row| row.and_then(|(place, row)| of_row(subset, row, &place, by_length))).collect()
}

fn of_row(subset: &Subset, row: Row, place: &str, by_length: bool) -> Result<Request> {
    let name = subset.name;
    for answer in &row.answers {
        ensure!(
            subset.measure.accepts(answer),
            "{place}: the answer {answer:?} names no `Paragraph` and its number"
        );
    }
    let classes = row.all_classes.unwrap_or_default();
    ensure!(
        subset.measure != LongBenchMeasure::Class || !classes.is_empty(),
        "{place}: `all_classes` is empty, and answers of {name} are compared with them"
    );
    let mut slices = vec![format!("subset:{name}")];
    if by_length {
        let length = row.length.with_context(|| format!("{place}: `length` is missing"))?;
        let class = length_class(length);
        slices.extend([format!("length:{class}"), format!("subset and length:{name} {class}")]);
    }
    let prompt = Prompt { document: subset.filled(&row.context, &row.input), ..Prompt::default() };
    Ok(Request {
        question_at: subset.prompt.find("{context}").map(|at| at + row.context.len()),
        references: row.answers,
        classes,
        slices,
        max_new_tokens: Some(subset.max_new_tokens),
        is_plain: subset.is_plain,
        ..request(format!("{name}/{}", row.id), &row.context, prompt)
    })
}

/// A request that loses its middle, as all of LongBench do. Its cluster is that of its context.
pub fn request(name: String, context: &str, prompt: Prompt) -> Request {
    Request { name, cluster: digest_of([context]), prompt, cut: Cut::Middle, ..Request::default() }
}

/// The classes of `scorer_e` in `eval.py`, in words.
fn length_class(words: u64) -> &'static str {
    match words {
        ..4000 => "0-4k",
        4000..8000 => "4-8k",
        _ => "8k+",
    }
}

/// Puts requests about one context one after the other, and names their cluster after the first of them.
pub fn gather(requests: &mut [Request]) {
    let mut firsts: HashMap<String, (usize, String)> = HashMap::new();
    let mut order = HashMap::new();
    for request in &mut *requests {
        let next = firsts.len();
        let (at, name) = firsts.entry(request.cluster.clone()).or_insert_with(|| (next, request.name.clone()));
        order.insert(request.name.clone(), *at);
        request.cluster = name.clone();
    }
    requests.sort_by_key(|request| order.get(&request.name).copied());
}
