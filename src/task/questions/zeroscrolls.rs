//! ZeroSCROLLS' rows: whole prompts, with indices of the document and the question in them.
//!
//! The indices count Unicode characters.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::release::{Release, nonblank};
use crate::task::benchmark::Rows;
use crate::task::data::json_lines;

/// A line, without unused fields: `pid`, and `inner_docs_start_indices` of tasks with many documents.
#[derive(Deserialize)]
struct Row {
    id: String,
    input: String,
    /// Absent if the answers are not published. Each further reference has a row of its own with the same id.
    output: Option<String>,
    /// All references at once, `output` among them, as some copies have them.
    outputs: Option<Vec<String>>,
    document_start_index: Option<i64>,
    document_end_index: Option<i64>,
    query_start_index: Option<i64>,
    query_end_index: Option<i64>,
    /// Spelled as in the files.
    truncation_seperator: Option<String>,
}

/// The line before a question.
const QUESTION_HEADER: &str = "Question:\n";

/// The questions of a file as rows: `name` (the row's `id`), `cluster`, `document`, `question` and `answers`, and the parts of the
/// input, byte for byte: `before`, `context`, `after` (which ends with `header`), and `separator` where the row has one.
/// Questions about the same document share its first question's name as their cluster. Errors call the text `file`.
///
/// # Errors
/// A line that is not a row, indices that are missing or do not fit the text, a row of another task, or an id with two
/// prompts; file, line and id are named.
pub fn rows(text: &str, file: &str, release: &Release) -> Result<Rows> {
    let mut rows = Rows::default();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut clusters: HashMap<String, String> = HashMap::new();
    for line in json_lines::<Row>(text, file) {
        let (place, row) = line?;
        let place_and_id = || format!("{place}, id {}", row.id);
        let mut columns = columns(&row, release).with_context(place_and_id)?;
        let answers = nonblank(row.outputs.clone().unwrap_or_else(|| row.output.clone().into_iter().collect()));
        let document = columns["document"].as_str().unwrap_or_default().to_owned();
        columns["name"] = row.id.as_str().into();
        columns["cluster"] = clusters.entry(document).or_insert_with(|| row.id.clone()).as_str().into();
        let Some(same) = known.get(&row.id) else {
            columns["answers"] = answers.into();
            known.insert(row.id.clone(), rows.rows.len());
            rows.add(columns, place_and_id())?;
            continue;
        };
        let question = &mut rows.rows[*same];
        columns["answers"] = question["answers"].clone();
        if *question != columns {
            bail!(
                "{place}: the id {} belongs to another prompt already; rows may share an id only to give further \
                 references",
                row.id
            );
        }
        if let Value::Array(all) = &mut question["answers"] {
            all.extend(answers.into_iter().map(Value::String));
        }
    }
    Ok(rows)
}

/// The parts of a row's input, its document and its question.
fn columns(row: &Row, release: &Release) -> Result<Value> {
    let input = row.input.as_str();
    let [document_start, document_end, query_start, query_end] = places(row)?;
    let Release { name, opening, document_header, .. } = release;
    ensure!(
        input.starts_with(opening),
        "this is not a row of {name}, whose inputs begin \"{opening}\"; it begins {:?}",
        input.chars().take(60).collect::<String>()
    );
    // The header may belong to the document, or to the text before it.
    let has_header = input[document_start..document_end].starts_with(document_header);
    let document_start = if has_header { document_start + document_header.len() } else { document_start };
    let (before, document) = (&input[..document_start], &input[document_start..document_end]);
    ensure!(
        before.ends_with(document_header),
        "document_start_index does not point to the header {:?} of {name}'s documents or behind it",
        document_header.trim_end()
    );
    ensure!(!document.is_empty(), "the document is empty");
    // The gap is a blank line, the header that of the answer.
    let (gap, query, header) =
        (&input[document_end..query_start], &input[query_start..query_end], &input[query_end..]);
    let question = query.strip_prefix(QUESTION_HEADER).unwrap_or(query).trim();
    // A whole prompt has the gap before its question; a cut one has the separator, which ends with a gap.
    let (separator, of_document, of_question) = match row.truncation_seperator.as_deref() {
        None => (None, "", gap),
        Some(separator) => match separator.strip_suffix(gap) {
            Some(separator) => (Some(separator), "", gap),
            None => (Some(separator), gap, ""),
        },
    };
    let mut columns = json!({
        "document": document, "question": question, "before": before, "context": format!("{document}{of_document}"),
        "after": format!("{of_question}{query}{header}"), "header": header,
    });
    if let Some(separator) = separator {
        columns["separator"] = separator.into();
    }
    Ok(columns)
}

/// The four indices of a row, in bytes of its input.
fn places(row: &Row) -> Result<[usize; 4]> {
    let ends: Vec<usize> = row.input.char_indices().map(|(byte, _)| byte).chain([row.input.len()]).collect();
    let indices = [row.document_start_index, row.document_end_index, row.query_start_index, row.query_end_index];
    let byte = |index: Option<i64>| ends.get(usize::try_from(index?).ok()?).copied();
    match indices.map(byte) {
        // Only a question may begin where the part before it ends.
        [Some(a), Some(b), Some(c), Some(d)] if a < b && b <= c && c < d => Ok([a, b, c, d]),
        _ => bail!(
            "expected 0 <= document_start_index < document_end_index <= query_start_index < query_end_index <= {}, in \
             characters of `input`, and found {indices:?}",
            ends.len() - 1
        ),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::task::questions::{PromptStyle, SQUALITY, prompt, requests};
    use crate::task::request::Request;

    const DOCUMENT: &str = "Élan – 狐 ran 🦊 home.";

    /// A row of a made-up story with one field changed, its places found by counting characters.
    pub(in crate::task) fn row(id: &str, field: &str, value: Value) -> Value {
        let input = prompt(&SQUALITY, PromptStyle::ZeroScrolls, DOCUMENT, "Who ran, ünd why?").whole();
        let at = |part: &str| input[..input.find(part).unwrap()].chars().count();
        let mut row = json!({
            "id": id, "pid": format!("{id}_0"), "input": input, "output": "A fox.",
            "document_start_index": at("Story:"), "document_end_index": at("\n\nQuestion:"),
            "query_start_index": at("Question:"), "query_end_index": at("\n\nAnswer:"),
            "truncation_seperator": "... [The rest of the story is omitted]\n\n",
            "inner_docs_start_indices": [1, 2],
        });
        row[field] = value;
        row
    }

    fn plain(id: &str) -> Value {
        row(id, "pid", Value::Null)
    }

    fn read(rows: &[Value], style: PromptStyle) -> Result<Vec<Request>> {
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        requests(&SQUALITY, style, &super::rows(&text, "test.jsonl", &SQUALITY)?)
    }

    fn message(rows: &[Value]) -> String {
        format!("{:#}", read(rows, PromptStyle::ZeroScrolls).unwrap_err())
    }

    #[test]
    fn prompts_are_cut_at_the_indices() {
        let behind_header = plain("a")["document_start_index"].as_u64().unwrap() + "Story:\n".len() as u64;
        let same = [
            plain("a"),
            row("a", "document_start_index", json!(behind_header)),
            row("a", "truncation_seperator", Value::Null),
        ];
        for style in [PromptStyle::ZeroScrolls, PromptStyle::Paper] {
            for row in &same {
                let found = read(std::slice::from_ref(row), style).unwrap();
                assert_eq!(found[0].prompt, prompt(&SQUALITY, style, DOCUMENT, "Who ran, ünd why?"));
                assert_eq!(found[0].references, ["A fox."]);
            }
        }
        let found = message(&[row("a", "document_start_index", json!(behind_header + 1))]);
        assert!(found.contains("Story:"), "{found}");
    }

    #[test]
    fn an_odd_separator_is_kept_as_it_is() {
        let odd = row("a", "truncation_seperator", json!(" [cut] "));
        let prompt = read(std::slice::from_ref(&odd), PromptStyle::ZeroScrolls).unwrap().remove(0).prompt;
        assert_eq!(prompt.whole(), odd["input"].as_str().unwrap());
        let cut = [prompt.separator.as_str(), &prompt.after].concat();
        assert_eq!(cut, " [cut] Question:\nWho ran, ünd why?\n\nAnswer:\n");
        assert!(prompt.without_header().whole().ends_with("ünd why?"));
    }

    #[test]
    fn rows_with_one_id_are_one_question() {
        let rows =
            [plain("a"), row("b", "output", Value::Null), plain("a"), row("c", "outputs", json!([" ", "y", "z"]))];
        let found = read(&rows, PromptStyle::ZeroScrolls).unwrap();
        let found: Vec<_> =
            found.iter().map(|q| (q.name.as_str(), q.cluster.as_str(), q.references.len())).collect();
        assert_eq!(found, [("a", "a", 2), ("b", "a", 0), ("c", "a", 2)]);
        let mut other = plain("a");
        other["input"] = json!(other["input"].as_str().unwrap().replace("ran", "sat"));
        let error = message(&[plain("a"), other]);
        assert!(error.contains("test.jsonl, line 2") && error.contains("another prompt"), "{error}");
    }

    #[test]
    fn errors_name_the_bad_index() {
        let characters = plain("a")["input"].as_str().unwrap().chars().count();
        let cases = [
            ("document_start_index", json!(-1)),
            ("document_end_index", Value::Null),
            ("document_end_index", json!(3)),
            ("query_start_index", json!(80)),
            ("query_end_index", json!(characters + 1)),
            ("query_end_index", json!(i64::MAX)),
        ];
        for (field, value) in cases {
            let message = message(&[row("a", field, value)]);
            let parts = ["test.jsonl, line 1, id a", field, "expected 0 <=", &characters.to_string()];
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
        let message = message(&[row("a", "query_end_index", json!("twelve"))]);
        assert!(message.contains("test.jsonl, line 1") && message.contains("twelve"), "{message}");
    }
}
