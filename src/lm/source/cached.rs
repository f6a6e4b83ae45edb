//! A snapshot in the cache, when the hub cannot or may not be asked.
//!
//! The cache knows what it has and not what it lacks, so completeness is judged by what a checkpoint needs, and for the
//! parts of a table by the count in their names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result};

use super::checkpoint::{Snapshot, names_in};
use super::repo_request::RepoRequest;
use super::{HubError, HubSettings};

/// A snapshot in the cache, when the hub is not asked.
pub(super) struct CachedSnapshot<'a> {
    pub(super) settings: &'a HubSettings,
    pub(super) request: &'a RepoRequest,
    pub(super) snapshot: PathBuf,
    pub(super) commit: String,
    /// Why the hub is not asked, if it was tried.
    pub(super) cause: Option<&'a str>,
}

impl CachedSnapshot<'_> {
    /// The files wanted, by their names in the repository, sorted.
    pub(super) fn names_wanted(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut names = Vec::new();
        walk(&self.snapshot, "", &mut names);
        names.retain(|name| wanted(name));
        // The cache does not say what is missing, but the parts of a table are counted in their names.
        match incomplete(&names) {
            Some(part) => Err(self.lacks(&part)),
            None if names.is_empty() => Err(self.lacks("every file wanted")),
            None => Ok(names),
        }
    }
}

impl Snapshot for CachedSnapshot<'_> {
    fn holds(&self, name: &str) -> bool {
        self.snapshot.join(name).is_file()
    }

    fn take(&self, name: &str) -> Result<PathBuf> {
        Ok(self.snapshot.join(name))
    }

    fn names(&self) -> Vec<String> {
        names_in(&self.snapshot)
    }

    fn place(&self) -> String {
        format!("the cache of {}", self.request)
    }

    fn lacks(&self, name: &str) -> Error {
        match self.cause {
            Some(cause) => {
                Error::msg(cause.to_owned()).context(format!("{name} of {} is not cached", self.request))
            }
            None => not_cached(self.settings, self.request, name),
        }
    }

    fn commit(&self) -> Option<String> {
        Some(self.commit.clone())
    }
}

/// The error of a file that is wished for offline.
pub(super) fn not_cached(settings: &HubSettings, request: &RepoRequest, file: &str) -> Error {
    HubError::Offline { file: file.to_owned(), what: request.to_string(), cache: settings.cache_dir.clone() }
        .into()
}

/// Every file below a folder, by its name relative to the folder, sorted.
fn walk(folder: &Path, prefix: &str, names: &mut Vec<String>) {
    for name in names_in(folder) {
        let path = folder.join(&name);
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            walk(&path, &format!("{name}/"), names);
        } else if path.is_file() {
            names.push(name);
        }
    }
}

/// The first part that lacks, of files named `test-00000-of-00003.parquet`.
fn incomplete(names: &[String]) -> Option<String> {
    let mut tables: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    for name in names {
        let Some((start, rest)) = name.split_once("-of-") else { continue };
        let Some((table, part)) = start.rsplit_once('-') else { continue };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let (Ok(_), Ok(parts)) = (part.parse::<usize>(), digits.parse()) {
            *tables.entry((table, parts)).or_default() += 1;
        }
    }
    let ((table, parts), have) = tables.into_iter().find(|((_, parts), have)| have < parts)?;
    Some(format!("{} of the {parts} parts of {table}", parts - have))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_a_part_missing_is_noticed() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(incomplete(&names(&["data/test-00000-of-00001-29a5.parquet", "README.md", "a-of-b"])), None);
        assert_eq!(incomplete(&names(&["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"])), None);
        assert_eq!(
            incomplete(&names(&["data/test-00000-of-00003.parquet"])).unwrap(),
            "2 of the 3 parts of data/test"
        );
    }
}
