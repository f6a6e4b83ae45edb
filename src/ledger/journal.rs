//! The journal of a partial cell: one JSON line per finished sample, so a kill loses only the samples in flight.
//!
//! Each journal has one writer, the process that created it; the samples of other processes are read from their journals.
//! Every line has a checksum over the cell's id and the sample. A line that is torn or belongs to another cell is skipped and
//! its sample measured again. Lines are not synced one by one: a power cut may lose the last of them.
//!
//! A lock (`flock`, released when its process ends) keeps two processes from measuring one cell. Where a file system has no
//! locks, or only within one machine (NFS with `local_lock`, Lustre with `localflock`, BeeGFS by default), two processes may
//! measure the same cell. That costs time and nothing else: the first to finish writes the cell's file, the other finds it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::disk::{advised, create_unique, read_unless_removed, remove};
use super::identity::{CellId, CellName, digest};
use super::layout::{CELLS, Ledger, PARTIAL};
use super::row::Row;
use super::schema::write_rows;
use crate::bounded_read;

/// The samples of one cell, recorded as they finish. Any thread may append.
#[derive(Debug)]
pub struct Journal {
    name: CellName,
    ledger: Ledger,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Held while the journal is open; `None` once the cell is complete.
    lock: Option<File>,
    /// The journal file that only this process writes, created with its first sample.
    own: Option<(File, PathBuf)>,
    done: BTreeSet<usize>,
}

/// The journal of a cell, or why there is none now.
#[derive(Debug)]
pub enum Opened {
    Journal(Journal),
    Complete,
    /// Another process is measuring the cell.
    Busy,
}

/// A line without its checksum.
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    index: usize,
    pub(super) rows: Vec<Row>,
}

impl Ledger {
    /// Begins a cell, or continues it where it stopped.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn journal(&self, name: &CellName) -> Result<Opened> {
        if self.path(CELLS, name).exists() {
            return Ok(Opened::Complete);
        }
        let path = self.lock(name.id());
        let mut options = OpenOptions::new();
        let lock = bounded_read::ordinary(options.read(true).write(true).create(true).truncate(false), &path);
        let lock = lock.map_err(advised).with_context(|| format!("{} cannot be opened", path.display()))?;
        // Any other error: the file system has no locks.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Ok(Opened::Busy);
        }
        // The process that held the lock may have completed the cell, or a sweep that calls it by another name.
        if self.find(CELLS, name)?.is_some() {
            remove(&path)?;
            return Ok(Opened::Complete);
        }
        let done = self.samples(name.id())?.into_keys().collect();
        let state = Mutex::new(State { lock: Some(lock), own: None, done });
        Ok(Opened::Journal(Journal { name: name.clone(), ledger: self.clone(), state }))
    }

    fn samples(&self, id: CellId) -> Result<BTreeMap<usize, Vec<Row>>> {
        samples_in(&self.all(PARTIAL, id)?, id)
    }
}

/// The valid samples of a cell's journals by index. A sample in two journals has the same numbers in both.
pub(super) fn samples_in(journals: &[PathBuf], id: CellId) -> Result<BTreeMap<usize, Vec<Row>>> {
    let mut samples = BTreeMap::new();
    for path in journals {
        for sample in read_journal(path, id)? {
            samples.entry(sample.index).or_insert(sample.rows);
        }
    }
    Ok(samples)
}

impl Journal {
    /// The recorded samples, ascending.
    pub fn done(&self) -> Vec<usize> {
        self.state().done.iter().copied().collect()
    }

    /// The recorded rows, by sample.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn rows(&self) -> Result<Vec<Row>> {
        // Wait for a line that is being written.
        let _state = self.state();
        Ok(self.ledger.samples(self.name.id())?.into_values().flatten().collect())
    }

    /// Records a finished sample.
    ///
    /// # Errors
    /// A sample that is already recorded, rows of another cell, a full disk, or a results folder that is gone; the journal then
    /// stays as it was.
    pub fn append(&self, index: usize, rows: Vec<Row>) -> Result<()> {
        let what = || format!("sample {index} of {}", self.name.stem());
        let id = self.name.id().to_string();
        if let Some(row) = rows.iter().find(|row| row.cell != id) {
            bail!("{} has a row of cell {}", what(), row.cell);
        }
        let line = line(self.name.id(), &Entry { index, rows }).with_context(what)?;
        let mut state = self.state();
        ensure!(!state.done.contains(&index), "{} is already recorded", what());
        ensure!(state.lock.is_some(), "{} comes after the end of its journal", what());
        self.write(&mut state, line.as_bytes()).with_context(what)?;
        state.done.insert(index);
        self.check_in_place(&state).with_context(what)
    }

    fn write(&self, state: &mut State, line: &[u8]) -> Result<()> {
        let (file, path) = match &mut state.own {
            Some(own) => own,
            none => none.insert(create(&self.ledger, &self.name)?),
        };
        let Err(error) = file.write_all(line) else { return Ok(()) };
        let error = Err(advised(error)).with_context(|| format!("{} cannot be written", path.display()));
        // It may end in half a line; the next sample begins a new file.
        state.own = None;
        error
    }

    /// Detects a journal that was removed or moved during the run, alone or with the results folder: what is written to an
    /// unlinked file vanishes when the process ends.
    fn check_in_place(&self, state: &State) -> Result<()> {
        let Some((_, path)) = &state.own else { return Ok(()) };
        let exists = path.try_exists().with_context(|| format!("{} cannot be accessed", path.display()))?;
        // Or another process completed the cell and removed its journals.
        ensure!(
            exists || self.ledger.find(CELLS, &self.name)?.is_some(),
            "{} was removed, moved or unmounted during the run\n\
             hint: if the results were moved, move them back or name their new place with --results; then run the same \
             command again: it continues with what is left",
            path.display()
        );
        Ok(())
    }

    /// Writes the cell's result file from samples 0 to `expected` and removes its journals. If another process was first, its
    /// file stays.
    ///
    /// # Errors
    /// A missing or surplus sample, no rows, or a full disk; the journal then stays.
    pub fn complete(&self, expected: usize) -> Result<()> {
        let stem = self.name.stem();
        let mut state = self.state();
        ensure!(state.lock.is_some(), "{stem} is already complete, or its journal is closed");
        self.check_in_place(&state)?;
        if self.ledger.find(CELLS, &self.name)?.is_none() {
            let samples = self.ledger.samples(self.name.id())?;
            if samples.keys().copied().eq(0..expected) {
                let rows: Vec<Row> = samples.into_values().flatten().collect();
                write_rows(&self.ledger.path(CELLS, &self.name), &rows)?;
            } else {
                // Unless another process completed the cell meanwhile and removed the journals.
                let is_complete = self.ledger.find(CELLS, &self.name)?.is_some();
                ensure!(is_complete, "{stem} has {} samples, and not the {expected} it must have", samples.len());
            }
        }
        state.own = None;
        let id = self.name.id().to_string();
        self.ledger.tidy(|other| other == id)?;
        // Last, so that no process starts the cell while its journals are removed.
        state.lock = None;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked here has left whole lines only.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The valid lines of one journal.
pub(super) fn read_journal(path: &Path, id: CellId) -> Result<Vec<Entry>> {
    // Removed: another process has completed the cell.
    let bytes = read_unless_removed(path, MOST_BYTES)?.unwrap_or_default();
    Ok(bytes.split_inclusive(|&byte| byte == b'\n').filter_map(|line| parse(id, line)).collect())
}

/// Creates a journal file with a unique name.
fn create(ledger: &Ledger, name: &CellName) -> Result<(File, PathBuf)> {
    let folder = ledger.part(PARTIAL);
    create_unique(&folder, &format!("{}.", name.stem()), &format!(".{}", PARTIAL.1))
        .map_err(advised)
        .with_context(|| format!("no journal can be created in {}", folder.display()))
}

/// Limit on the size of a journal, which is read into memory.
const MOST_BYTES: u64 = 4 << 30;

fn checksum(id: CellId, text: &str) -> String {
    format!("{:016x}", digest(&format!("{id}\n{text}")))
}

/// The line of a sample. It is formatted by hand because the checksum covers the exact bytes of `sample`.
fn line(id: CellId, sample: &Entry) -> Result<String> {
    let sample = serde_json::to_string(sample).context("cannot be written as JSON")?;
    Ok(format!("{{\"sha256\":\"{}\",\"sample\":{sample}}}\n", checksum(id, &sample)))
}

fn parse(id: CellId, line: &[u8]) -> Option<Entry> {
    let line = str::from_utf8(line).ok()?.strip_suffix("}\n")?;
    let (sum, sample) = line.strip_prefix("{\"sha256\":\"")?.split_once("\",\"sample\":")?;
    if sum == checksum(id, sample) { serde_json::from_str(sample).ok() } else { None }
}
