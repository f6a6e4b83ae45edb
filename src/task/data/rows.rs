//! The rows of benchmarks that are published as JSON lines.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;

use super::{DataSource, files_below};
use crate::lm::source::{Hub, expand_home};

/// The path of a source, which is a file or a folder; of a data set of the hub that of the file `wanted`.
///
/// # Errors
/// A source that has no such file, or is in the program.
pub fn path_of(source: &DataSource, wanted: &str, hub: &Hub<'_>) -> Result<PathBuf> {
    match source {
        DataSource::Path(path) => expand_home(path),
        DataSource::Hub(repo) => {
            let found = hub.dataset_files(repo, |name| name == wanted)?.pop();
            found.with_context(|| format!("{repo} has no {wanted}, as it is published"))
        }
        other => bail!("{other} holds no {wanted}"),
    }
}

/// The `.jsonl` files of a source, which is a file, a folder or a data set on the hub: its `test.jsonl`, or where there is none
/// all of them in the order of their names.
///
/// # Errors
/// A source without such files.
pub fn json_files(source: &DataSource, hub: &Hub<'_>) -> Result<Vec<PathBuf>> {
    let files = match source {
        DataSource::Path(path) => {
            let path = expand_home(path)?;
            if !path.is_dir() {
                return Ok(vec![path]);
            }
            files_below(&path).with_context(|| format!("cannot read the folder {}", path.display()))?
        }
        DataSource::Hub(repo) => hub.dataset_files(repo, |name| name.ends_with(".jsonl"))?,
        other => bail!("{other} has no rows"),
    };
    test_or_all(files).with_context(|| format!("{source} has no .jsonl file"))
}

/// Returns `test.jsonl` if it is among the files, else all `.jsonl` files; `None` without any.
fn test_or_all(mut files: Vec<PathBuf>) -> Option<Vec<PathBuf>> {
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    let test = files.iter().find(|file| file.ends_with("test.jsonl")).cloned();
    test.map(|test| vec![test]).or((!files.is_empty()).then_some(files))
}

/// The JSON values of a text's lines, each with the file and line that errors name. Blank lines are skipped.
pub fn json_lines<'a, T: DeserializeOwned>(
    text: &'a str,
    file: &'a str,
) -> impl Iterator<Item = Result<(String, T)>> + 'a {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(move |(index, line)| {
        let place = format!("{file}, line {}", index + 1);
        check_length(line, &place)?;
        match serde_json::from_str(line) {
            Ok(value) => Ok((place, value)),
            // The library's line number is that within this one line.
            Err(error) => {
                Err(anyhow!("{place}: {}", error.to_string().replace(" at line 1 column", " at column")))
            }
        }
    })
}

/// The most bytes of a row, sixteen times which its values may take: a context of ten million tokens.
const MOST_OF_ROW: usize = 1 << 26;

/// Refuses the text of a row that is too long.
///
/// # Errors
/// It is.
pub fn check_length(row: &str, place: &str) -> Result<()> {
    ensure!(row.len() <= MOST_OF_ROW, "{place}: a row has more than {MOST_OF_ROW} bytes; is it one row?");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_its_test_file_or_all_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let found = || {
            let files = test_or_all(files_below(folder.path()).unwrap()).unwrap().into_iter();
            files.map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let write = |name: &str| std::fs::write(folder.path().join(name), "{}").unwrap();
        write("notes.txt");
        assert_eq!(test_or_all(files_below(folder.path()).unwrap()), None);
        write("ii.jsonl");
        write("i.jsonl");
        assert_eq!(found(), ["i.jsonl", "ii.jsonl"]);
        write("test.jsonl");
        assert_eq!(found(), ["test.jsonl"]);
    }
}
