//! The files of a model or data set at one commit, wherever they are: in a folder, in the cache, or on the hub.
//!
//! The cache does not say which files are missing. So completeness is judged by what a checkpoint needs, and for
//! the parts of a table by the count in their names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};

use super::HubError;
use super::download::Downloader;

pub(super) struct Snapshot<'a> {
    pub(super) origin: Origin<'a>,
    /// Place of the snapshot, for error messages.
    pub(super) place: String,
    /// Folder of the snapshot's files, also of those that are not downloaded yet.
    pub(super) folder: PathBuf,
    /// Names of files: all of them on the hub, elsewhere those at the top level.
    pub(super) names: Vec<String>,
    /// Commit on the hub; `None` for a folder.
    pub(super) commit: Option<String>,
}

pub(super) enum Origin<'a> {
    Folder,
    /// Cache, with the reason why the hub cannot or may not be asked.
    Cache(HubError),
    Hub(Downloader<'a>),
}

impl Snapshot<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        match self.origin {
            Origin::Hub(_) => self.names.iter().any(|file| file == name),
            Origin::Folder | Origin::Cache(_) => self.folder.join(name).is_file(),
        }
    }

    /// Path of a file of the snapshot, downloaded first if needed.
    pub(super) fn path(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        if let Origin::Hub(downloader) = &self.origin {
            downloader.fetch(name, &path)?;
        }
        Ok(path)
    }

    /// The names of all files.
    pub(super) fn all_names(&self) -> Vec<String> {
        if matches!(self.origin, Origin::Hub(_)) { self.names.clone() } else { names_below(&self.folder) }
    }

    /// Paths of the files that are `wanted`, in the order of their names in the repository; none is an error.
    pub(super) fn paths_wanted(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
        let is_hub = matches!(self.origin, Origin::Hub(_));
        let mut names = self.all_names();
        names.retain(|name| wanted(name));
        match missing_parts(&names) {
            Some(parts) if names.is_empty() || !is_hub => Err(self.missing(&parts)),
            _ => names.iter().map(|name| self.path(name)).collect(),
        }
    }

    /// Error for `what`, which the snapshot lacks.
    pub(super) fn missing(&self, what: &str) -> Error {
        let what = format!("{} lacks {what}", self.place);
        if let Origin::Cache(cause) = &self.origin {
            return Error::new(cause.clone()).context(what);
        }
        let found = match self.names.as_slice() {
            [] => "is empty".to_owned(),
            [first @ .., _] if first.len() >= 6 => format!("has {}, ...", first[..6].join(", ")),
            all => format!("has {}", all.join(", ")),
        };
        anyhow!("{what}: it {found}")
    }
}

/// The names of a folder's entries, sorted; none if it cannot be read.
pub(super) fn names_in(folder: &Path) -> Vec<String> {
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

/// Says what is missing among files named like `test-00000-of-00003.parquet`, if anything.
fn missing_parts(names: &[String]) -> Option<String> {
    if names.is_empty() {
        return Some("every file wanted".to_owned());
    }
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
        let missing = |names: &[&str]| missing_parts(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(missing(&["data/test-00000-of-00001-29a5.parquet", "README.md", "a-of-b"]), None);
        assert_eq!(missing(&["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"]), None);
        assert_eq!(missing(&["data/test-00000-of-00003.parquet"]).unwrap(), "2 of the 3 parts of data/test");
    }
}
