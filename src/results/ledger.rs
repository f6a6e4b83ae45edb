//! The ledger: a folder where a cell's result file exists only if the cell is complete.
//!
//! ```text
//! cells/<stem>.parquet     complete cells
//! partial/<stem>.jsonl     journals of cells in progress or interrupted
//! failed/<stem>.txt        why a cell failed, until it succeeds
//! logs/<stem>/*.parquet    tables of single samples that are no rows, where a task was asked for them
//! ```
//!
//! Knows files and rows, not how anything is measured. The id at the end of a stem identifies; the readable rest may
//! differ when a sweep calls the same experiment by another name.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sha2::{Digest, Sha256};

use super::disk::{advised, make_writable, remove, write_whole};
use super::journal::{Journal, Unavailable, samples_in};
use super::row::Row;
use super::schema::read_checked;
use super::seal::Seal;
use crate::columns::Table;
use crate::sweep::CellName;

/// What is known about a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Done,
    /// Interrupted, or being measured now; so many samples are written down.
    Partial {
        samples: usize,
    },
    /// It failed when it was last tried; the samples measured before are kept.
    Failed {
        message: String,
        samples: usize,
    },
    Missing,
}

/// A results folder.
#[derive(Clone, Debug)]
pub struct Ledger {
    folder: PathBuf,
}

pub(super) const CELLS: (&str, &str) = ("cells", "parquet");
pub(super) const PARTIAL: (&str, &str) = ("partial", "jsonl");
pub(super) const FAILED: (&str, &str) = ("failed", "txt");

impl Ledger {
    /// Opens a results folder for measuring, making it if need be.
    ///
    /// # Errors
    /// A folder that can't be written to: a file is really written to each part of it.
    pub fn open(folder: &Path) -> Result<Ledger> {
        for (part, _) in [CELLS, PARTIAL, FAILED] {
            make_writable(&folder.join(part))?;
        }
        let ledger = Ledger { folder: folder.to_path_buf() };
        ledger.tidy()?;
        Ok(ledger)
    }

    /// Removes the journals and messages of complete cells: a kill may come after a cell's file is there and before
    /// they are gone.
    pub(super) fn tidy(&self) -> Result<()> {
        let complete: Vec<PathBuf> = self.files(CELLS)?.collect();
        let complete: HashSet<&str> = complete.iter().filter_map(|path| id_of(path)).collect();
        for part in [PARTIAL, FAILED] {
            for path in self.files(part)?.filter(|path| id_of(path).is_some_and(|id| complete.contains(id))) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Opens a results folder for reading only; it may be read-only.
    ///
    /// # Errors
    /// A folder that holds no ledger.
    pub fn existing(folder: &Path) -> Result<Ledger> {
        ensure!(
            folder.join(CELLS.0).is_dir(),
            "{} holds no results: it has no folder `cells`\nhint: results are made by `tova-bench run SWEEP`",
            folder.display()
        );
        Ok(Ledger { folder: folder.to_path_buf() })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is known about a cell.
    ///
    /// # Errors
    /// A folder or journal that can't be read.
    pub fn status(&self, name: &CellName) -> Result<Status> {
        if self.find(CELLS, name)?.is_some() {
            return Ok(Status::Done);
        }
        let samples = match self.find(PARTIAL, name)? {
            Some(journal) => Some(samples_in(&journal, name.id())?),
            None => None,
        };
        if let Some(path) = self.find(FAILED, name)? {
            let message = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            return Ok(Status::Failed { message: message.trim_end().to_string(), samples: samples.unwrap_or(0) });
        }
        Ok(match samples {
            Some(samples) => Status::Partial { samples },
            None => Status::Missing,
        })
    }

    /// Begins a cell, or continues it where it stopped.
    ///
    /// # Errors
    /// A cell that is complete or in another process's hands ([`Unavailable`]); a folder that can't be written.
    pub fn journal(&self, name: &CellName) -> Result<Journal> {
        if let Some(path) = self.find(CELLS, name)? {
            return Err(Unavailable::Complete(path).into());
        }
        let path = self.find(PARTIAL, name)?.unwrap_or_else(|| self.path(PARTIAL, name));
        let failure = self.find(FAILED, name)?.unwrap_or_else(|| self.path(FAILED, name));
        Journal::open(name, path, self.path(CELLS, name), failure)
    }

    /// Writes down why a cell failed; its journal stays for the next try.
    ///
    /// # Errors
    /// A folder that can't be written.
    pub fn fail(&self, name: &CellName, error: &anyhow::Error) -> Result<()> {
        let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
        let text = causes.join("\ncaused by: ") + "\n";
        if let Some(older) = self.find(FAILED, name)? {
            remove(&older)?;
        }
        write_whole(&self.path(FAILED, name), text.as_bytes())
    }

    /// Keeps a table of one sample beside its cell; `kind` says which, where there are several.
    ///
    /// # Errors
    /// A folder that can't be written.
    pub fn keep_beside(&self, name: &CellName, sample: &str, kind: &str, table: &Table) -> Result<()> {
        let folder = self.folder.join("logs").join(name.stem());
        fs::create_dir_all(&folder).map_err(advised).with_context(|| folder.display().to_string())?;
        let kind = if kind.is_empty() { String::new() } else { format!(".{kind}") };
        write_whole(&folder.join(format!("{}{kind}.parquet", file_name(sample))), &table.to_parquet()?)
    }

    /// The rows of a complete cell.
    ///
    /// # Errors
    /// A cell that is not complete, or a damaged file.
    pub fn rows_of(&self, name: &CellName) -> Result<Vec<Row>> {
        let path = self.find(CELLS, name)?.with_context(|| format!("{} is not complete", name.stem()))?;
        rows_of_cell(&path)
    }

    /// The rows of all complete cells, by file name; within a cell by sample.
    ///
    /// # Errors
    /// A damaged or foreign file among the cells, by name.
    pub fn rows(&self) -> Result<Vec<Row>> {
        let mut files: Vec<PathBuf> = self.files(CELLS)?.collect();
        files.sort();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        // A share of neighbours for each thread keeps the order, and of several damaged files the first is told.
        let shares = files.chunks(files.len().div_ceil(threads).max(1));
        let read: Vec<Result<Vec<Row>>> = thread::scope(|scope| {
            let readers: Vec<_> = shares.map(|share| scope.spawn(|| read_all(share))).collect();
            readers.into_iter().map(|reader| reader.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let mut rows = Vec::new();
        for share in read {
            rows.append(&mut share?);
        }
        Ok(rows)
    }

    /// The stems of cells that were begun or failed and are not complete, sorted.
    ///
    /// # Errors
    /// A folder that can't be read.
    pub fn incomplete(&self) -> Result<Vec<String>> {
        let complete: Vec<PathBuf> = self.files(CELLS)?.collect();
        let complete: HashSet<&str> = complete.iter().filter_map(|path| id_of(path)).collect();
        let mut stems = Vec::new();
        for part in [PARTIAL, FAILED] {
            for path in self.files(part)?.filter(|path| id_of(path).is_none_or(|id| !complete.contains(id))) {
                stems.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
            }
        }
        stems.sort();
        stems.dedup();
        Ok(stems)
    }

    fn path(&self, (part, ending): (&str, &str), name: &CellName) -> PathBuf {
        self.folder.join(part).join(format!("{}.{ending}", name.stem()))
    }

    /// The file of a cell under whatever readable name it was first given.
    fn find(&self, part: (&str, &'static str), name: &CellName) -> Result<Option<PathBuf>> {
        let path = self.path(part, name);
        if path.exists() {
            return Ok(Some(path));
        }
        let id = name.id().to_string();
        Ok(self.files(part)?.find(|path| id_of(path) == Some(id.as_str())))
    }

    /// The finished files of one part, in no order.
    pub(super) fn files(&self, (part, ending): (&str, &'static str)) -> Result<impl Iterator<Item = PathBuf>> {
        let folder = self.folder.join(part);
        let what = || format!("{} cannot be read", folder.display());
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries.and_then(Iterator::collect).with_context(what)?,
        };
        let finished = move |path: &PathBuf| {
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            !hidden && path.extension().is_some_and(|found| found == ending)
        };
        Ok(entries.into_iter().map(|entry: fs::DirEntry| entry.path()).filter(finished))
    }
}

/// A sample's name as a file's: what is odd becomes a dash, and a digest keeps apart what then looks alike.
fn file_name(sample: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '+' | '_') { c } else { '-' };
    let shown: String = sample.chars().take(64).map(plain).collect();
    let digest = Sha256::digest(sample);
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{shown}-{digest}")
}

/// The id at the end of a cell's file name.
pub(super) fn id_of(path: &Path) -> Option<&str> {
    path.file_stem()?.to_str()?.rsplit("__").next()
}

fn read_all(files: &[PathBuf]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for path in files {
        rows.append(&mut rows_of_cell(path)?);
    }
    Ok(rows)
}

pub(super) fn rows_of_cell(path: &Path) -> Result<Vec<Row>> {
    checked_rows(path).map_err(|error| match error.root_cause().is::<io::Error>() {
        // A disk or a permission is in the way, and the file may be fine.
        true => error,
        false => anyhow!("{error:#}\nhint: remove the file and run the sweep again, which measures its cell anew"),
    })
}

fn checked_rows(path: &Path) -> Result<Vec<Row>> {
    let (rows, seal) = read_checked(path)?;
    ensure!(
        seal == Seal::Right,
        "{} is damaged, or another program wrote it: its checksum is missing",
        path.display()
    );
    if let Some(row) = rows.iter().find(|row| Some(row.cell.as_str()) != id_of(path)) {
        bail!("{} holds rows of cell {}, which is not the cell of its name", path.display(), row.cell);
    }
    ensure!(!rows.is_empty(), "{} holds no rows", path.display());
    Ok(rows)
}
