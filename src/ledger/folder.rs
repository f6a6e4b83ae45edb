//! What a results folder has of its cells: the state of each, and the rows of complete ones.
//!
//! Any number of processes may write to one folder: a cell's file appears whole or not at all, and each journal has one
//! writer. Locks only keep two processes from measuring the same cell twice; nothing is lost without them.

use std::collections::BTreeSet;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::disk::{read_unless_removed, remove, write_whole};
use super::identity::CellName;
use super::journal::samples_in;
use super::layout::{CELLS, FAILED, Ledger, PARTIAL, id_of};
use super::row::Row;
use super::schema::read_checked;
use super::side_files;

/// The state of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Done,
    /// Interrupted, or being measured now; these samples are in its journals.
    Partial {
        samples: BTreeSet<usize>,
    },
    /// The last try failed; samples measured before are kept.
    Failed {
        message: String,
        samples: BTreeSet<usize>,
    },
    Missing,
}

/// Limit on the size of a failure message.
pub(super) const LONGEST_MESSAGE: u64 = 16 << 20;

/// Writes a failure message in one line, without the cell's name, of which `stem` is the beginning of its files.
pub fn reason(message: &str, stem: &str) -> String {
    let causes = message.lines().map(|line| line.strip_prefix(CAUSED_BY).unwrap_or(line));
    causes.filter(|line| !line.is_empty() && *line != stem).collect::<Vec<_>>().join(": ")
}

/// What the causes of an error begin with in a failure message, but for the first.
const CAUSED_BY: &str = "caused by: ";

impl Ledger {
    /// The states of cells, in their order. Each folder is listed once.
    ///
    /// # Errors
    /// A folder or journal that cannot be read.
    pub fn statuses<'a>(&self, names: impl IntoIterator<Item = &'a CellName>) -> Result<Vec<Status>> {
        let (journals, failures) = (self.by_id(PARTIAL)?, self.by_id(FAILED)?);
        let names: Vec<(String, &CellName)> =
            names.into_iter().map(|name| (name.id().to_string(), name)).collect();
        let open = names.iter().map(|(id, name)| {
            let own = journals.get(id).map_or(&[][..], Vec::as_slice);
            let samples = samples_in(own, name.id())?.into_keys().collect();
            let failure = match failures.get(id).and_then(|paths| paths.first()) {
                Some(path) => read_unless_removed(path, LONGEST_MESSAGE)?,
                None => None,
            };
            Ok(match failure {
                Some(text) => {
                    Status::Failed { message: String::from_utf8_lossy(&text).trim_end().to_string(), samples }
                }
                None if !own.is_empty() => Status::Partial { samples },
                None => Status::Missing,
            })
        });
        let mut statuses: Vec<Status> = open.collect::<Result<_>>()?;
        // Last, as another process may have completed a cell meanwhile, and removed its journals.
        let complete = self.complete()?;
        for ((id, _), status) in names.iter().zip(&mut statuses) {
            if complete.contains_key(id) {
                *status = Status::Done;
            }
        }
        Ok(statuses)
    }

    /// Records why a cell failed; its journal stays for the next try.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn fail(&self, name: &CellName, error: &anyhow::Error) -> Result<()> {
        let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
        let text = causes.join(&format!("\n{CAUSED_BY}")) + "\n";
        if let Some(older) = self.find(FAILED, name)? {
            remove(&older)?;
        }
        write_whole(&self.path(FAILED, name), text.as_bytes())
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
    /// A folder that does not exist any more; a damaged or foreign file among the cells, by name.
    pub fn rows(&self) -> Result<Vec<Row>> {
        let cells = self.part(CELLS);
        ensure!(
            cells.is_dir(),
            "{} does not exist any more\nhint: if the results were moved, name their new place",
            cells.display()
        );
        let mut files: Vec<PathBuf> = self.files(CELLS)?.collect();
        files.sort();
        Ok(read_cells(&files)?.into_iter().flatten().collect())
    }

    /// How many cells are partial or have failed.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn incomplete(&self) -> Result<usize> {
        let complete = self.complete()?;
        let mut open = self.by_id(PARTIAL)?;
        open.append(&mut self.by_id(FAILED)?);
        Ok(open.keys().filter(|id| !complete.contains_key(*id)).count())
    }
}

/// The rows of complete cells, each with one row at least, in the order of the files.
pub(super) fn read_cells(files: &[PathBuf]) -> Result<Vec<Vec<Row>>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let read = |chunk: &[PathBuf]| chunk.iter().map(|path| rows_of_cell(path)).collect::<Result<Vec<_>>>();
    // The order stays, and the first of several damaged files is reported.
    thread::scope(|scope| {
        let chunks = files.chunks(files.len().div_ceil(threads).max(1));
        let readers: Vec<_> = chunks.map(|chunk| scope.spawn(move || read(chunk))).collect();
        let cells = readers.into_iter().map(|r| r.join().unwrap_or_else(|panic| resume_unwind(panic)));
        Ok(cells.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    })
}

pub(super) fn rows_of_cell(path: &Path) -> Result<Vec<Row>> {
    let rows = checked_rows(path).map_err(|error| match error.root_cause().is::<io::Error>() {
        // The disk or a permission is the problem; the file may be fine.
        true => error,
        false => anyhow!("{error:#}\nhint: remove the file and run the sweep again to measure its cell anew"),
    })?;
    side_files::check(path, &rows)?;
    Ok(rows)
}

fn checked_rows(path: &Path) -> Result<Vec<Row>> {
    let (rows, has_checksum) = read_checked(path)?;
    ensure!(has_checksum, "{} is damaged or was written by another program: it has no checksum", path.display());
    if let Some(row) = rows.iter().find(|row| Some(row.cell.as_str()) != id_of(path)) {
        bail!("{} holds rows of cell {}, which does not match its name", path.display(), row.cell);
    }
    ensure!(!rows.is_empty(), "{} holds no rows", path.display());
    Ok(rows)
}
