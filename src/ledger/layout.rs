//! A results folder: its files and their names.
//!
//! ```text
//! cells/<stem>.parquet            complete cells
//! partial/<stem>.<unique>.jsonl   journals of partial cells, one per process that measured them
//! partial/<id>.lock               held while a process measures the cell
//! failed/<stem>.txt               why a cell failed, until it succeeds
//! logs/<stem>/*.parquet           side files of single samples, where a task asks for them
//! ```
//!
//! The id at the end of a stem identifies the cell; the readable rest differs where sweeps call one experiment by different
//! names.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::disk::{make_writable, remove};
use super::identity::{CellId, CellName};

/// A subfolder and the extension of its files.
pub(super) type Part = (&'static str, &'static str);

pub(super) const CELLS: Part = ("cells", "parquet");
pub(super) const PARTIAL: Part = ("partial", "jsonl");
pub(super) const FAILED: Part = ("failed", "txt");
pub(super) const PARTS: [Part; 3] = [CELLS, PARTIAL, FAILED];

// How often this thread has listed a folder.
#[cfg(test)]
thread_local! {
    pub(super) static LISTINGS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A results folder.
#[derive(Clone, Debug)]
pub struct Ledger {
    folder: PathBuf,
}

impl Ledger {
    /// Opens a results folder for a run, creating it if needed.
    ///
    /// # Errors
    /// A folder that cannot be written to, tested by writing a file to each part of it.
    pub fn open(folder: &Path) -> Result<Ledger> {
        // Every cell in work has two files open; the usual limit of 1024 is too low for large sweeps.
        let _ = rlimit::increase_nofile_limit(u64::MAX);
        for (part, _) in PARTS {
            make_writable(&folder.join(part))?;
        }
        let ledger = Ledger { folder: folder.to_path_buf() };
        // A kill may have left them behind.
        let complete = ledger.complete()?;
        ledger.tidy(|id| complete.contains_key(id))?;
        Ok(ledger)
    }

    /// Opens a results folder for reading.
    ///
    /// # Errors
    /// A folder without results.
    pub fn existing(folder: &Path) -> Result<Ledger> {
        ensure!(
            folder.join(CELLS.0).is_dir(),
            "{} is not a results folder: it has no folder `cells`\nhint: `tova-bench run SWEEP` creates one",
            folder.display()
        );
        Ok(Ledger { folder: folder.to_path_buf() })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn part(&self, (part, _): Part) -> PathBuf {
        self.folder().join(part)
    }

    pub(super) fn path(&self, part: Part, name: &CellName) -> PathBuf {
        self.part(part).join(format!("{}.{}", name.stem(), part.1))
    }

    /// The lock of a cell, named by the id alone: sweeps may call the same cell by different names.
    pub(super) fn lock(&self, id: CellId) -> PathBuf {
        self.part(PARTIAL).join(format!("{id}.lock"))
    }

    /// The file of a cell, under whichever readable name it was written.
    pub(super) fn find(&self, part: Part, name: &CellName) -> Result<Option<PathBuf>> {
        let path = self.path(part, name);
        if path.exists() {
            return Ok(Some(path));
        }
        Ok(self.all(part, name.id())?.into_iter().next())
    }

    /// The files of a cell in one subfolder, sorted.
    pub(super) fn all(&self, part: Part, id: CellId) -> Result<Vec<PathBuf>> {
        Ok(self.by_id(part)?.remove(&id.to_string()).unwrap_or_default())
    }

    /// The files of all cells in one subfolder by id, each cell's sorted.
    pub(super) fn by_id(&self, part: Part) -> Result<BTreeMap<String, Vec<PathBuf>>> {
        let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in self.files(part)? {
            if let Some(id) = id_of(&path) {
                found.entry(id.to_owned()).or_default().push(path);
            }
        }
        found.values_mut().for_each(|files| files.sort());
        Ok(found)
    }

    /// The files of one subfolder, without temporary ones, in no order.
    pub(super) fn files(&self, part: Part) -> Result<impl Iterator<Item = PathBuf>> {
        let is_finished = move |path: &PathBuf| {
            !is_hidden(path) && path.extension().is_some_and(|extension| extension == part.1)
        };
        Ok(self.entries(part)?.into_iter().filter(is_finished))
    }

    fn entries(&self, part: Part) -> Result<Vec<PathBuf>> {
        #[cfg(test)]
        LISTINGS.set(LISTINGS.get() + 1);
        let folder = self.part(part);
        let what = || format!("{} cannot be read", folder.display());
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(what)?,
        };
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        paths.collect::<io::Result<_>>().with_context(what)
    }

    /// The complete cells, by id.
    pub(super) fn complete(&self) -> Result<BTreeMap<String, PathBuf>> {
        Ok(self.files(CELLS)?.filter_map(|path| Some((id_of(&path)?.to_owned(), path))).collect())
    }

    /// Removes the journals, locks, messages and temporary files of complete cells. A process that still measures such a cell
    /// will find it complete.
    pub(super) fn tidy(&self, is_complete: impl Fn(&str) -> bool) -> Result<()> {
        for part in PARTS {
            for path in self.entries(part)? {
                let whole = part == CELLS && !is_hidden(&path);
                if !whole && id_of(&path).is_some_and(&is_complete) {
                    remove(&path)?;
                }
            }
        }
        Ok(())
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The id in the name of a cell's file: the digits after the last `__`, to the next dot.
pub(super) fn id_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.rsplit("__").next()?.trim_start_matches('.').split('.').next()
}

/// The stem of a cell's file: readable name and id, without the unique part of a journal.
pub(super) fn stem_of(path: &Path) -> Option<&str> {
    let (name, id) = (path.file_name()?.to_str()?, id_of(path)?);
    name.get(..name.rfind(id)? + id.len())
}

/// Whether a cell holds a judge's verdicts. Their rows repeat columns of the stories, the ids of samples among them.
pub(super) fn is_verdicts(path: &Path) -> bool {
    stem_of(path).is_some_and(|stem| stem.starts_with("judge__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_dots_are_parsed() {
        let id = "0123456789abcdef";
        for (name, stem) in [
            (
                format!("task__Llama-3.2-1B__tova+4__64__{id}.parquet"),
                format!("task__Llama-3.2-1B__tova+4__64__{id}"),
            ),
            (format!("task__m.1__tova__64__{id}.aB3dE6.jsonl"), format!("task__m.1__tova__64__{id}")),
            (format!("task__m__tova__64__{id}.jsonl"), format!("task__m__tova__64__{id}")),
            (format!(".task__m__t__64__{id}.parquet.aB3dE6.tmp"), format!(".task__m__t__64__{id}")),
            (format!("{id}.lock"), id.to_string()),
        ] {
            let path = PathBuf::from("partial").join(&name);
            assert_eq!(id_of(&path), Some(id), "{name}");
            assert_eq!(stem_of(&path), Some(stem.as_str()), "{name}");
        }
    }
}
