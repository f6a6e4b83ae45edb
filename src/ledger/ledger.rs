//! The ledger: a folder where a cell's result file exists only if the cell is complete.
//!
//! Knows files and rows, not how anything is measured; where the files are, `layout` says. Any number of processes may
//! write to one folder: a cell's file is complete and appears whole, whoever writes it, and a journal has one writer. Locks,
//! where the file system has them, only spare two processes the same work; `journal` says what holds without.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sha2::{Digest, Sha256};

use super::disk::{advised, make_writable, remove, write_whole};
use super::identity::CellName;
use super::journal::{Journal, samples_in};
use super::layout::{CELLS, FAILED, Layout, PARTIAL, PARTS, id_of, readable, stem_of};
use super::row::Row;
use super::schema::read_checked;
use super::seal::Seal;
use crate::bounded_read;
use crate::columns::{Table, read_text_column};

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
    layout: Layout,
}

/// Bytes of the message of a failed cell.
const LONGEST_MESSAGE: u64 = 16 << 20;

impl Ledger {
    /// Opens a results folder for measuring, making it if need be.
    ///
    /// # Errors
    /// A folder that can't be written to: a file is really written to each part of it.
    pub fn open(folder: &Path) -> Result<Ledger> {
        // Each cell of a group has two files open while it is measured; the usual 1024 are few for large groups, and where no
        // more are granted, the system says so in time.
        let _ = rlimit::increase_nofile_limit(u64::MAX);
        for (part, _) in PARTS {
            make_writable(&folder.join(part))?;
        }
        let ledger = Ledger { layout: Layout::of(folder) };
        ledger.tidy()?;
        Ok(ledger)
    }

    /// Removes what complete cells do not need: a kill may come after a cell's file is there and before the rest of it is
    /// gone.
    pub(super) fn tidy(&self) -> Result<()> {
        let complete = self.layout.complete()?;
        self.layout.tidy(|id| complete.contains(id))?;
        self.layout.see(complete);
        Ok(())
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
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
        Ok(Ledger { layout: Layout::of(folder) })
    }

    pub fn folder(&self) -> &Path {
        self.layout.folder()
    }

    /// What is known about a cell.
    ///
    /// # Errors
    /// A folder or journal that can't be read.
    pub fn status(&self, name: &CellName) -> Result<Status> {
        if self.layout.find(CELLS, name)?.is_some() {
            return Ok(Status::Done);
        }
        let journals = self.layout.all(PARTIAL, name.id())?;
        let samples = samples_in(&journals, name.id())?;
        let failure = match self.layout.find(FAILED, name)? {
            Some(path) => message(&path)?,
            None => None,
        };
        // Whoever measures it may have completed it meanwhile, and removed what was just looked for.
        if self.layout.find(CELLS, name)?.is_some() {
            return Ok(Status::Done);
        }
        Ok(match failure {
            Some(message) => Status::Failed { message, samples },
            None if journals.is_empty() => Status::Missing,
            None => Status::Partial { samples },
        })
    }

    /// Begins a cell, or continues it where it stopped.
    ///
    /// # Errors
    /// A cell that is complete or in another process's hands ([`Unavailable`]); a folder that can't be written.
    pub fn journal(&self, name: &CellName) -> Result<Journal> {
        Journal::open(self.layout.clone(), name)
    }

    /// Writes down why a cell failed; its journal stays for the next try.
    ///
    /// # Errors
    /// A folder that can't be written.
    pub fn fail(&self, name: &CellName, error: &anyhow::Error) -> Result<()> {
        let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
        let text = causes.join("\ncaused by: ") + "\n";
        if let Some(older) = self.layout.find(FAILED, name)? {
            remove(&older)?;
        }
        write_whole(&self.layout.path(FAILED, name), text.as_bytes())
    }

    /// Keeps a table of one sample beside its cell; `kind` says which, where there are several.
    ///
    /// # Errors
    /// A folder that can't be written.
    pub fn keep_beside(&self, name: &CellName, sample: &str, kind: &str, table: &Table) -> Result<()> {
        let folder = self.folder().join("logs").join(name.stem());
        fs::create_dir_all(&folder).map_err(advised).with_context(|| folder.display().to_string())?;
        let kind = if kind.is_empty() { String::new() } else { format!(".{kind}") };
        write_whole(&folder.join(format!("{}{kind}.parquet", file_name(sample))), &table.to_parquet()?)
    }

    /// The rows of a complete cell.
    ///
    /// # Errors
    /// A cell that is not complete, or a damaged file.
    pub fn rows_of(&self, name: &CellName) -> Result<Vec<Row>> {
        let path = self.layout.find(CELLS, name)?.with_context(|| format!("{} is not complete", name.stem()))?;
        rows_of_cell(&path)
    }

    /// The rows of all complete cells, by file name; within a cell by sample.
    ///
    /// # Errors
    /// A damaged or foreign file among the cells, by name; cells that were complete since the folder was opened for measuring
    /// and were removed.
    pub fn rows(&self) -> Result<Vec<Row>> {
        let cells = self.layout.part(CELLS);
        ensure!(
            cells.is_dir(),
            "{} is not there any more\nhint: if the results were moved, name their new place",
            cells.display()
        );
        let lost = self.layout.lost()?;
        ensure!(
            lost == 0,
            "of the complete cells in {}, {lost} are not there any more: they were removed meanwhile\n\
             hint: run the same command again, which measures them anew",
            cells.display()
        );
        let mut files: Vec<PathBuf> = self.layout.files(CELLS)?.collect();
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
        let complete = self.layout.complete()?;
        let mut stems = BTreeSet::new();
        for part in [PARTIAL, FAILED] {
            for path in self.layout.files(part)?.filter(|path| id_of(path).is_none_or(|id| !complete.contains(id)))
            {
                stems.extend(stem_of(&path).map(str::to_string));
            }
        }
        Ok(stems.into_iter().collect())
    }

    /// Complete cells that bear the readable names of others with a model's name and another revision of it, counted by
    /// that revision: what a model's files were when those were measured.
    ///
    /// # Errors
    /// A folder or a file that can't be read.
    pub fn other_revisions(
        &self,
        names: &[&CellName],
        model: &str,
        revision: &str,
    ) -> Result<BTreeMap<String, usize>> {
        let ids: BTreeSet<String> = names.iter().map(|name| name.id().to_string()).collect();
        let wanted: BTreeSet<&str> = names.iter().map(|name| readable(name.stem())).collect();
        let mut found = BTreeMap::new();
        for path in self.layout.files(CELLS)? {
            let is_wanted = stem_of(&path).is_some_and(|stem| wanted.contains(readable(stem)));
            if !is_wanted || id_of(&path).is_none_or(|id| ids.contains(id)) {
                continue;
            }
            // All rows of a cell are of one model.
            let first = |column| Ok::<_, anyhow::Error>(read_text_column(&path, column)?.into_iter().next());
            if first("model")?.is_some_and(|found| found == model)
                && let Some(other) = first("model_revision")?.filter(|other| other != revision)
            {
                *found.entry(other).or_default() += 1;
            }
        }
        Ok(found)
    }
}

/// Why a cell failed, unless it succeeded meanwhile.
fn message(path: &Path) -> Result<Option<String>> {
    match bounded_read::text(path, LONGEST_MESSAGE) {
        Ok(text) => Ok(Some(text.trim_end().to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
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
