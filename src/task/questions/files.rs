//! Files of questions: finds the split in a folder or an archive, and recognises the format by the contents.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::release::{self, Release, Split};
use super::zeroscrolls;
use crate::task::benchmark::Rows;
use crate::task::data::text_of;

/// Reads the questions of a release as rows, in the order of the file: those of [`release::rows`] or of [`zeroscrolls::rows`].
///
/// `path` may be a file of ZeroSCROLLS' rows or of the benchmark's original release, a `.zip` of the hub's
/// `tau/zero_scrolls`, or a folder that holds one of them under its published name. `split` chooses among the files of a
/// folder or an archive; a file is read whole.
///
/// # Errors
/// A path that holds none of these, a broken line, or no question at all. Messages name file and line.
pub fn read_rows(release: &Release, path: &Path, split: Split) -> Result<Rows> {
    let found = if path.is_dir() { in_folder(release, path, split)? } else { path.to_path_buf() };
    let (text, file) = text_of(&found, &row_files(release, split))?;
    // The original releases have no such key.
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let is_row = serde_json::from_str::<Value>(first).is_ok_and(|row| row.get("input").is_some());
    let rows = if is_row {
        zeroscrolls::rows(&text, &file, release)
    } else {
        (release.read)(&text, &file).and_then(|documents| release::rows(documents, &file))
    };
    let rows = rows.with_context(|| format!("what can be read for {} is in docs/sweeps.md", release.name))?;
    ensure!(!rows.rows.is_empty(), "{file} holds no question");
    Ok(rows)
}

/// Names of a split's rows in ZeroSCROLLS' archives and folders.
fn row_files(release: &Release, split: Split) -> [String; 2] {
    [format!("{}/{}.jsonl", release.name, split.name()), format!("{}.jsonl", split.name())]
}

/// The file of a folder that holds a split, or an archive of several.
///
/// # Errors
/// A folder without one; the message names the files that would do.
fn in_folder(release: &Release, folder: &Path, split: Split) -> Result<PathBuf> {
    // ZeroSCROLLS, whose archive this is, has no training set.
    let archive = Some(format!("{}.zip", release.name)).filter(|_| split != Split::Train);
    let names = row_files(release, split).into_iter().chain(archive);
    let names: Vec<String> = names.chain((release.files)(split.released_name())).collect();
    let found = names.iter().map(|name| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        let (split, names) = (split.name(), names.join(", "));
        anyhow!("{} has none of {names} for `split: {split}`", folder.display())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::zeroscrolls::tests::row;
    use super::*;
    use crate::task::data::archive;
    use crate::task::questions::{QASPER, SQUALITY};

    fn rows() -> String {
        row("a", "pid", Value::Null).to_string()
    }

    fn story() -> String {
        let question = json!([{"question_text": "Who ran?", "question_number": 1}]);
        json!({"metadata": {"passage_id": "7"}, "document": "A fox ran.", "questions": question}).to_string()
    }

    fn article() -> String {
        let question = json!([{"question": "Who ran?", "question_id": "q", "answers": []}]);
        let article = json!({"title": "On foxes", "abstract": "We run.", "full_text": [], "qas": question});
        format!("{{\n  \"2001.1\": {article}\n}}\n")
    }

    fn read(release: &Release, path: &Path) -> Result<Rows> {
        read_rows(release, path, Split::Validation)
    }

    /// A folder with one file.
    fn folder(name: &str, contents: impl AsRef<[u8]>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, contents).unwrap();
        folder
    }

    #[test]
    fn formats_are_recognised_by_their_contents() {
        let cases = [
            (&SQUALITY, "squality/validation.jsonl", rows().into_bytes(), "a"),
            (&SQUALITY, "validation.jsonl", format!("\u{feff}\n{}\n\n", rows()).into_bytes(), "a"),
            (&SQUALITY, "squality.zip", archive("squality/validation.jsonl", &rows()), "a"),
            (&SQUALITY, "squality.zip", archive("validation.jsonl", &rows()), "a"),
            (&SQUALITY, "dev.jsonl", story().into_bytes(), "7#1"),
            (&SQUALITY, "v1-3/txt/dev.jsonl", story().into_bytes(), "7#1"),
            (&QASPER, "qasper-dev-v0.3.json", article().into_bytes(), "q"),
        ];
        for (benchmark, name, contents, expected) in cases {
            let folder = folder(name, contents);
            for path in [folder.path().to_path_buf(), folder.path().join(name)] {
                let rows = read(benchmark, &path).unwrap().rows;
                assert_eq!((rows.len(), rows[0]["name"].as_str()), (1, Some(expected)), "{}", path.display());
            }
        }
    }

    #[test]
    fn missing_and_foreign_files_are_named() {
        let cases: [(&Release, &str, Vec<u8>, &str); 11] = [
            (&QASPER, "x.json", story().into(), "not an object of QASPER articles"),
            (&SQUALITY, "x.json", article().into(), "x.json, line 1: EOF"),
            (&QASPER, "x.json", rows().into(), "not a row of qasper"),
            (&QASPER, "x.json", "{\"text\": \"x\"}".into(), "what can be read for qasper"),
            (&QASPER, "x.json", "{}".into(), "holds no question"),
            (&SQUALITY, "x.json", " \n".into(), "holds no question"),
            (&SQUALITY, "x.json", "[1]".into(), "x.json, line 1"),
            (&SQUALITY, "x.json", format!("{}\n\n{{\n", story()).into(), "x.json, line 3"),
            (&SQUALITY, "x.json", b"{\"\xff".into(), "byte 2"),
            (&SQUALITY, "x.jsonl", format!("\n{}\n{}\n", &story()[..60], story()).into(), "x.jsonl, line 2: "),
            (&SQUALITY, "x.zip", archive("squality/test.jsonl", "{}"), "but squality/test.jsonl"),
        ];
        for (benchmark, name, contents, expected) in cases {
            let folder = folder(name, contents);
            let found = format!("{:#}", read(benchmark, &folder.path().join(name)).unwrap_err());
            assert!(found.contains(expected) && found.contains(name), "{expected}: {found}");
        }
        let empty = tempfile::tempdir().unwrap();
        for (path, names) in [("", ["qasper.zip", "qasper-dev-v0.3.json"]), ("no.json", ["no.json", ""])] {
            let found = format!("{:#}", read(&QASPER, &empty.path().join(path)).unwrap_err());
            assert!(names.iter().all(|name| found.contains(name)), "{found}");
        }
    }

    fn with_files(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "{}").unwrap();
        }
        folder
    }

    #[test]
    fn each_split_has_its_file() {
        let qasper = ["qasper-train-v0.3.json", "qasper-dev-v0.3.json", "qasper-test-v0.3.json"];
        let squality = ["train.jsonl", "v1-3/txt/dev.jsonl", "test.jsonl"];
        for (benchmark, names) in [(&QASPER, qasper), (&SQUALITY, squality)] {
            let folder = with_files(&names);
            for (split, name) in Split::ALL.into_iter().zip(names) {
                let found = in_folder(benchmark, folder.path(), split).unwrap();
                assert_eq!(found, folder.path().join(name));
            }
        }
    }

    #[test]
    fn what_would_do_is_named() {
        let folder = with_files(&["qasper-train-v0.3.json", "mine.jsonl"]);
        let message = in_folder(&QASPER, folder.path(), Split::Test).unwrap_err().to_string();
        assert!(message.contains("qasper-test-v0.3.json"), "{message}");
        let message = in_folder(&SQUALITY, folder.path(), Split::Train).unwrap_err().to_string();
        assert!(message.contains("none of squality/train.jsonl, train.jsonl,"), "{message}");
        assert!(message.contains("v1-3/txt/train.jsonl") && !message.contains("squality.zip"), "{message}");
    }
}
