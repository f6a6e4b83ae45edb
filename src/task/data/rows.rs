//! The rows of benchmarks that are published as JSON lines.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;

use super::{DataSource, files_below};
use crate::lm::source::{Hub, expand_home};
use crate::task::spec::PrepareContext;

/// The path of a source, which is a file or a folder; of a data set of the hub that of the file `wanted`.
///
/// # Errors
/// A source that has no such file, or is in the program.
pub fn path_of(source: &DataSource, wanted: &str, context: &PrepareContext<'_>) -> Result<PathBuf> {
    match source {
        DataSource::Path(path) => expand_home(path),
        DataSource::Hub(repo) => {
            let hub = Hub { settings: context.hub, progress: context.progress };
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
    let mut files = files_below(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    ensure!(!files.is_empty(), "{} has no .jsonl file", folder.display());
    Ok(test_or_all(files))
}

fn test_or_all(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_test = |file: &&PathBuf| file.file_name().is_some_and(|name| name == "test.jsonl");
    match files.iter().find(is_test) {
        Some(test) => vec![test.clone()],
        None => files,
    }
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
    use super::*;

    #[test]
    fn a_folder_has_its_test_file_or_all_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let found = || {
            let files = in_folder(folder.path()).unwrap().into_iter();
            files.map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let write = |name: &str| std::fs::write(folder.path().join(name), "{}").unwrap();
        write("notes.txt");
        assert!(in_folder(folder.path()).unwrap_err().to_string().contains("has no .jsonl file"));
        write("ii.jsonl");
        write("i.jsonl");
        assert_eq!(found(), ["i.jsonl", "ii.jsonl"]);
        write("test.jsonl");
        assert_eq!(found(), ["test.jsonl"]);
    }
}
