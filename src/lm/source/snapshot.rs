//! The files of a model or data set at one commit, wherever they are: in a folder, in the cache, or on the hub.
//!
//! The cache does not say which files are missing. So completeness is judged by what a checkpoint needs, and for
//! the parts of a table by the count in their names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow, ensure};
use hf_hub::Repo;

use super::checkpoint::{INDEX, SINGLE};
use super::download::HubSnapshot;
use super::error::HubError;
use super::repo::{check_inside, shown};

pub(super) enum Snapshot<'a> {
    Folder(&'a Path),
    /// Used when the hub cannot or may not be asked.
    Cache(CachedSnapshot<'a>),
    Hub(HubSnapshot<'a>),
}

pub(super) struct CachedSnapshot<'a> {
    pub(super) repo: &'a Repo,
    pub(super) cache_dir: &'a Path,
    pub(super) folder: PathBuf,
    pub(super) commit: String,
    /// Why the hub did not help, if it was asked.
    pub(super) cause: Option<String>,
}

impl Snapshot<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Snapshot::Folder(folder) => folder.join(name).is_file(),
            Snapshot::Cache(cached) => cached.folder.join(name).is_file(),
            Snapshot::Hub(hub) => hub.names.iter().any(|file| file == name),
        }
    }

    /// The path of a file it has, which is downloaded first if needed.
    pub(super) fn path(&self, name: &str) -> Result<PathBuf> {
        match self {
            Snapshot::Folder(folder) => Ok(folder.join(name)),
            Snapshot::Cache(cached) => Ok(cached.folder.join(name)),
            Snapshot::Hub(hub) => Ok(hub.fetch(name)?),
        }
    }

    /// Names at the top level, for error messages.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Snapshot::Folder(folder) => names_in(folder),
            Snapshot::Cache(cached) => names_in(&cached.folder),
            Snapshot::Hub(hub) => hub.names.clone(),
        }
    }

    /// The files `wanted`, by their names in the repository; none is an error.
    pub(super) fn names_wanted(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut names = match self {
            Snapshot::Folder(folder) => names_below(folder),
            Snapshot::Cache(cached) => names_below(&cached.folder),
            Snapshot::Hub(hub) => hub.names.clone(),
        };
        names.retain(|name| wanted(name));
        names.iter().try_for_each(|name| check_inside(name))?;
        if let Snapshot::Hub(hub) = self {
            let all = first_six(&hub.names);
            ensure!(!names.is_empty(), "{} has none of the files wanted: it has {all}", self.describe());
            return Ok(names);
        }
        match missing_parts(&names) {
            Some(parts) => Err(self.missing(&parts)),
            None if names.is_empty() => Err(self.missing("every file wanted")),
            None => Ok(names),
        }
    }

    /// Where it is, for error messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Snapshot::Folder(folder) => folder.display().to_string(),
            Snapshot::Cache(cached) => format!("the cache of {}", shown(cached.repo)),
            Snapshot::Hub(hub) => shown(hub.repo),
        }
    }

    /// The error for a file it should have.
    pub(super) fn missing(&self, name: &str) -> Error {
        match self {
            Snapshot::Folder(folder) => {
                let found = match names_in(folder).as_slice() {
                    [] => "it is empty".to_owned(),
                    names => format!("it has {}", first_six(names)),
                };
                let index = if name == SINGLE { format!(" and no {INDEX}") } else { String::new() };
                anyhow!(
                    "{} has no {name}{index} ({found}): name a folder as transformers' `save_pretrained` writes it",
                    folder.display()
                )
            }
            Snapshot::Cache(CachedSnapshot { repo, cause: Some(cause), .. }) => {
                Error::msg(cause.clone()).context(format!("{name} of {} is not cached", shown(repo)))
            }
            Snapshot::Cache(cached) => HubError::Offline {
                file: name.to_owned(),
                what: shown(cached.repo),
                cache: cached.cache_dir.to_owned(),
            }
            .into(),
            Snapshot::Hub(hub) => anyhow!(
                "{} has no {name}, so it is no checkpoint as transformers writes it: choose another repository or \
                 revision",
                shown(hub.repo)
            ),
        }
    }

    /// The commit on the hub; a folder has none.
    pub(super) fn commit(&self) -> Option<&str> {
        match self {
            Snapshot::Folder(_) => None,
            Snapshot::Cache(cached) => Some(&cached.commit),
            Snapshot::Hub(hub) => Some(&hub.commit),
        }
    }
}

/// The names of a folder's entries, sorted; none if it cannot be read.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Every file below a folder, by its path relative to the folder, sorted.
fn names_below(folder: &Path) -> Vec<String> {
    let below = |name: String| {
        let path = folder.join(&name);
        if path.is_dir() {
            names_below(&path).into_iter().map(|inner| format!("{name}/{inner}")).collect()
        } else {
            Vec::from_iter(path.is_file().then_some(name))
        }
    };
    names_in(folder).into_iter().flat_map(below).collect()
}

fn first_six(names: &[String]) -> String {
    format!("{}{}", names[..names.len().min(6)].join(", "), if names.len() > 6 { ", ..." } else { "" })
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
