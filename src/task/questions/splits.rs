//! Which file of a folder holds a split of a release, by its published name.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use super::release::{Release, Split};

/// Names of a split's rows in ZeroSCROLLS' archives and folders.
pub fn row_files(release: &Release, split: Split) -> [String; 2] {
    [format!("{}/{}.jsonl", release.name, split.name()), format!("{}.jsonl", split.name())]
}

/// The names under which a split is published: ZeroSCROLLS' first, then those of the original release.
fn published(release: &Release, split: Split) -> Vec<String> {
    let rows = row_files(release, split);
    let mut released = (release.files)(split.released_name());
    released.retain(|name| !rows.contains(name));
    rows.into_iter().chain(released).collect()
}

/// The file of a folder that holds a split, or an archive of several.
///
/// # Errors
/// A folder without one; the message names the files that would do.
pub fn in_folder(release: &Release, folder: &Path, split: Split) -> Result<PathBuf> {
    let mut names = published(release, split);
    // ZeroSCROLLS, whose archive this is, has no training set.
    if split != Split::Train {
        names.insert(row_files(release, split).len(), format!("{}.zip", release.name));
    }
    let found = names.iter().map(|name| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        let (split, names) = (split.name(), names.join(", "));
        anyhow!("{} has none of {names} for `split: {split}`", folder.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::questions::{QASPER, SQUALITY};

    fn folder(names: &[&str]) -> tempfile::TempDir {
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
            let folder = folder(&names);
            for (split, name) in Split::ALL.into_iter().zip(names) {
                let found = in_folder(benchmark, folder.path(), split).unwrap();
                assert_eq!(found, folder.path().join(name));
            }
        }
    }

    #[test]
    fn what_would_do_is_named() {
        let folder = folder(&["qasper-train-v0.3.json", "mine.jsonl"]);
        let message = in_folder(&QASPER, folder.path(), Split::Test).unwrap_err().to_string();
        assert!(message.contains("qasper-test-v0.3.json"), "{message}");
        let names = published(&SQUALITY, Split::Train);
        assert_eq!(names, ["squality/train.jsonl", "train.jsonl", "v1-3/txt/train.jsonl"]);
    }
}
