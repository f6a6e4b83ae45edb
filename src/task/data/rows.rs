//! The rows of benchmarks that are published as JSON lines.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;

use super::{DataSource, utf8};
use crate::bounded_read;
use crate::lm::source::{Hub, expand_home};
use crate::task::spec::PrepareContext;

/// The most bytes of a file: a thousand times the size of MATH-500's.
const MOST_BYTES: u64 = 1 << 29;

/// A row of a file.
#[derive(Debug)]
pub struct JsonRow<R> {
    pub row: R,
    /// The file and line, for errors.
    pub place: String,
    /// Of its file, counting from 0.
    pub number: usize,
    /// The file's name without its ending, where there are several: they may count their rows anew.
    pub file: Option<String>,
}

/// The `.jsonl` files of a source, which is a file, a folder or a data set on the hub: its `test.jsonl`, or where there is none
/// all of them in the order of their names.
///
/// # Errors
/// A source without such files.
pub fn json_files(source: &DataSource, context: &PrepareContext<'_>) -> Result<Vec<PathBuf>> {
    match source {
        DataSource::Path(path) => {
            let path = expand_home(path)?;
            if path.is_dir() { in_folder(&path) } else { Ok(vec![path]) }
        }
        DataSource::Hub(repo) => {
            let hub = Hub { settings: context.hub, progress: context.progress };
            let files = hub.dataset_files(repo, |name| name.ends_with(".jsonl"))?;
            ensure!(!files.is_empty(), "{repo} has no .jsonl file");
            Ok(test_or_all(files))
        }
        other => bail!("{other} has no rows"),
    }
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    let mut files = Vec::new();
    for entry in folder.read_dir().with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "{} has no .jsonl file", folder.display());
    files.sort();
    Ok(test_or_all(files))
}

fn test_or_all(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_test = |file: &&PathBuf| file.file_name().is_some_and(|name| name == "test.jsonl");
    match files.iter().find(is_test) {
        Some(test) => vec![test.clone()],
        None => files,
    }
}

/// The rows of files, at least one of each.
///
/// # Errors
/// A file that cannot be read or has no row, or a broken line; file and line are named.
pub fn json_rows<R: DeserializeOwned>(files: &[PathBuf]) -> Result<Vec<JsonRow<R>>> {
    let mut rows = Vec::new();
    for path in files {
        let name = path.display().to_string();
        let bytes =
            bounded_read::bytes(path, MOST_BYTES).with_context(|| format!("cannot read the rows of {name}"))?;
        let text = utf8(bytes, &name)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let file = path.file_stem().filter(|_| files.len() > 1).map(|stem| stem.to_string_lossy().into_owned());
        let before = rows.len();
        for (number, line) in json_lines(text, &name).enumerate() {
            let (place, row) = line?;
            rows.push(JsonRow { row, place, number, file: file.clone() });
        }
        ensure!(rows.len() > before, "{name} has no rows");
    }
    Ok(rows)
}

/// The JSON values of a text's lines, each with the file and line that errors name. Blank lines are skipped.
pub fn json_lines<'a, T: DeserializeOwned>(
    text: &'a str,
    file: &'a str,
) -> impl Iterator<Item = Result<(String, T)>> + 'a {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(move |(index, line)| {
        let place = format!("{file}, line {}", index + 1);
        match serde_json::from_str(line) {
            Ok(value) => Ok((place, value)),
            // The library's line number is that within this one line.
            Err(error) => {
                Err(anyhow!("{place}: {}", error.to_string().replace(" at line 1 column", " at column")))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_folder_has_its_test_file_or_all_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let found = || {
            let rows = json_rows::<Value>(&in_folder(folder.path()).unwrap()).unwrap();
            rows.into_iter().map(|row| (row.file.unwrap_or_default(), row.row.to_string())).collect::<Vec<_>>()
        };
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("notes.txt", "");
        assert!(in_folder(folder.path()).unwrap_err().to_string().contains("has no .jsonl file"));
        write("ii.jsonl", "2\n\n3");
        write("i.jsonl", "\u{feff}1\n");
        assert_eq!(found(), [("i", "1"), ("ii", "2"), ("ii", "3")].map(|(file, row)| (file.into(), row.into())));
        write("test.jsonl", "4");
        assert_eq!(found(), [(String::new(), "4".to_owned())]);
    }

    #[test]
    fn unreadable_rows_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        for (text, expected) in [("1\n{", "x.jsonl, line 2: EOF"), ("\n", "x.jsonl has no rows")] {
            std::fs::write(&path, text).unwrap();
            let error = json_rows::<Value>(std::slice::from_ref(&path)).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
