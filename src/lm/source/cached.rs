//! A snapshot in the cache, used when the hub cannot or may not be asked.
//!
//! The cache does not say which files are missing. So completeness is judged by what a checkpoint needs, and for
//! the parts of a table by the count in their names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result};

use super::checkpoint::{Snapshot, names_in};
use super::repo_request::RepoRequest;
use super::{HubError, HubSettings};

pub(super) struct CachedSnapshot<'a> {
    pub(super) settings: &'a HubSettings,
    pub(super) request: &'a RepoRequest,
    pub(super) folder: PathBuf,
    pub(super) commit: String,
    /// Why the hub did not help, if it was asked.
    pub(super) cause: Option<&'a str>,
}

impl CachedSnapshot<'_> {
    /// The files wanted, by their names in the repository, sorted.
    pub(super) fn names_wanted(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut names = Vec::new();
        walk(&self.folder, "", &mut names);
        names.retain(|name| wanted(name));
        match missing_parts(&names) {
            Some(parts) => Err(self.missing(&parts)),
            None if names.is_empty() => Err(self.missing("every file wanted")),
            None => Ok(names),
        }
    }
}

impl Snapshot for CachedSnapshot<'_> {
    fn has(&self, name: &str) -> bool {
        self.folder.join(name).is_file()
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        Ok(self.folder.join(name))
    }

    fn names(&self) -> Vec<String> {
        names_in(&self.folder)
    }

    fn describe(&self) -> String {
        format!("the cache of {}", self.request)
    }

    fn missing(&self, name: &str) -> Error {
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

/// The error for a file that is not in the cache while HF_HUB_OFFLINE is set.
pub(super) fn not_cached(settings: &HubSettings, request: &RepoRequest, file: &str) -> Error {
    HubError::Offline { file: file.to_owned(), what: request.to_string(), cache: settings.cache_dir.clone() }
        .into()
}

/// Every file below a folder, by its path relative to the folder, sorted.
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

/// Parts that are missing, of files named like `test-00000-of-00003.parquet`.
fn missing_parts(names: &[String]) -> Option<String> {
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
    fn missing_parts_of_a_table_are_noticed() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(missing_parts(&names(&["data/test-00000-of-00001-29a5.parquet", "README.md", "a-of-b"])), None);
        assert_eq!(missing_parts(&names(&["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"])), None);
        let one = missing_parts(&names(&["data/test-00000-of-00003.parquet"]));
        assert_eq!(one.unwrap(), "2 of the 3 parts of data/test");
    }
}
