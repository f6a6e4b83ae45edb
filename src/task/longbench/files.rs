//! LongBench's files, in a folder, in the archive of the hub, or named themselves; and the rows of LongBench and LongBench-E.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;

use super::Version;
use crate::task::benchmark::Rows;
use crate::task::data::{is_archive, json_lines, names, text_of};

/// The archive of LongBench and LongBench-E on the hub.
pub const ARCHIVE: &str = "data.zip";

/// The file of LongBench v2.
pub const V2_FILE: &str = "data.json";

/// The name of a subset's file.
pub fn file_name(subset: &str, version: Version) -> String {
    format!("{subset}{}.jsonl", if version == Version::E { "_e" } else { "" })
}

/// The places of a file of a folder or archive.
fn places(file: &str) -> [String; 2] {
    [file.to_owned(), format!("data/{file}")]
}

/// The path of a file of this name, or of the archive that holds it: `path` itself, or what is in that folder. `None`: there is none.
///
/// # Errors
/// An archive that is damaged.
pub fn find(path: &Path, file: &str) -> Result<Option<PathBuf>> {
    if path.is_file() && !is_archive(path) {
        return Ok(Some(path.to_path_buf()).filter(|path| path.ends_with(file)));
    }
    let places = places(file);
    if let Some(found) = places.iter().map(|place| path.join(place)).find(|found| found.is_file()) {
        return Ok(Some(found));
    }
    let archive = if is_archive(path) { path.to_path_buf() } else { path.join(ARCHIVE) };
    if !archive.is_file() {
        return Ok(None);
    }
    let listed = names(&archive)?;
    Ok(Some(archive).filter(|_| places.iter().any(|place| listed.contains(place))))
}

/// The text of a file, and its name for errors.
///
/// # Errors
/// A file that is not there, or cannot be read.
pub fn read(path: &Path, file: &str) -> Result<(String, String)> {
    let found = find(path, file)?.with_context(|| format!("{} has no {file}", path.display()))?;
    text_of(&found, &places(file))
}

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
