//! The journal of a cell in progress: one JSON line per finished sample, so a kill loses at most the samples in
//! flight.
//!
//! Each line carries a checksum over the cell's id and itself. A torn line, or one of another cell, ends what is
//! believed: it and all after it are cut off, and those samples are measured again. Lines are not synced to the disk
//! one by one: a power cut may lose some, and the checksum notices.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::disk::{advised, remove};
use super::row::Row;
use super::schema::write_rows;
use crate::sweep::{CellId, CellName};

/// The samples of one cell, written down as they finish. Any worker may append; one process may hold it.
#[derive(Debug)]
pub struct Journal {
    name: CellName,
    path: PathBuf,
    /// Where the whole cell goes.
    result: PathBuf,
    /// What is out of date once the cell is complete.
    failure: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once the journal is closed.
    file: Option<File>,
    /// Bytes of whole lines.
    length: u64,
    done: Vec<usize>,
}

/// Why a cell has no journal to write to. Neither is a failure of the cell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error(
        "another process is measuring {0}\nhint: wait for it, or give each process its part of the cells with --shard"
    )]
    Busy(String),
    #[error("{} is complete already\nhint: remove the file to measure it again", .0.display())]
    Complete(PathBuf),
}

/// What a line says, checksum apart.
#[derive(Serialize, Deserialize)]
struct Sample {
    index: usize,
    rows: Vec<Row>,
}

impl Journal {
    /// Opens or begins a journal and cuts off what cannot be believed.
    pub(super) fn open(name: &CellName, path: PathBuf, result: PathBuf, failure: PathBuf) -> Result<Journal> {
        let what = || format!("the journal {} cannot be opened", path.display());
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(advised)
            .with_context(what)?;
        // Where a file system has no locks, nobody is kept out, and nobody was before.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Unavailable::Busy(name.stem().to_string()).into());
        }
        // Between opening and locking, the process that held the lock may have completed the cell.
        if result.exists() {
            remove(&path)?;
            return Err(Unavailable::Complete(result).into());
        }
        if !path.exists() {
            return Err(Unavailable::Busy(name.stem().to_string()).into());
        }
        let (samples, length) = read(&path, name.id())?;
        file.set_len(length).and_then(|()| file.seek(SeekFrom::Start(length))).with_context(what)?;
        let state = State { file: Some(file), length, done: samples.into_keys().collect() };
        Ok(Journal { name: name.clone(), path, result, failure, state: Mutex::new(state) })
    }

    /// The samples that are written down, ascending.
    pub fn done(&self) -> Vec<usize> {
        let mut done = self.state().done.clone();
        done.sort_unstable();
        done
    }

    /// The rows that are written down, by sample.
    ///
    /// # Errors
    /// A journal that can't be read.
    pub fn rows(&self) -> Result<Vec<Row>> {
        // Whoever holds the state may be in the middle of a line.
        let _state = self.state();
        let (samples, _) = read(&self.path, self.name.id())?;
        Ok(samples.into_values().flatten().collect())
    }

    /// Writes down a finished sample.
    ///
    /// # Errors
    /// A sample that is there already, rows of another cell, or a disk that can't take it; the journal then is as it
    /// was before.
    pub fn append(&self, index: usize, rows: Vec<Row>) -> Result<()> {
        let what = || format!("sample {index} of {}", self.name.stem());
        let id = self.name.id().to_string();
        if let Some(row) = rows.iter().find(|row| row.cell != id) {
            bail!("{} has a row of cell {}", what(), row.cell);
        }
        let line = line(self.name.id(), &Sample { index, rows }).with_context(what)?;
        let mut state = self.state();
        ensure!(!state.done.contains(&index), "{} is written down already", what());
        let length = state.length;
        let Some(file) = state.file.as_mut() else { bail!("{} comes after the end of its journal", what()) };
        if let Err(error) = file.write_all(line.as_bytes()) {
            // Half a line must not stand before the next sample's.
            if file.set_len(length).and_then(|()| file.seek(SeekFrom::Start(length))).is_err() {
                state.file = None;
            }
            return Err(advised(error))
                .with_context(what)
                .with_context(|| format!("{} cannot be written", self.path.display()));
        }
        state.length += line.len() as u64;
        state.done.push(index);
        Ok(())
    }

    /// Makes the cell's result file of samples 0 to `expected` and removes the journal.
    ///
    /// # Errors
    /// A sample that is missing or too many, no rows at all, or a disk that can't take the file; the journal then
    /// stays.
    pub fn complete(&self, expected: usize) -> Result<()> {
        let stem = self.name.stem();
        let mut state = self.state();
        ensure!(state.file.is_some(), "{stem} is complete already, or its journal is closed");
        let (samples, _) = read(&self.path, self.name.id())?;
        let missing: Vec<String> =
            (0..expected).filter(|index| !samples.contains_key(index)).map(|index| index.to_string()).collect();
        ensure!(missing.is_empty(), "{stem} lacks the samples {}", missing.join(", "));
        ensure!(samples.len() == expected, "{stem} has {} samples instead of {expected}", samples.len());
        let rows: Vec<Row> = samples.into_values().flatten().collect();
        ensure!(!rows.is_empty(), "nothing was measured in {stem}");
        write_rows(&self.result, &rows)?;
        state.file = None;
        remove(&self.path)?;
        remove(&self.failure)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A worker that panicked here left whole lines only.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many samples a journal holds, without opening it for writing.
pub(super) fn samples_in(path: &Path, id: CellId) -> Result<usize> {
    Ok(read(path, id)?.0.len())
}

/// The believable samples by index, and the bytes they take.
fn read(path: &Path, id: CellId) -> Result<(BTreeMap<usize, Vec<Row>>, u64)> {
    let bytes = fs::read(path).with_context(|| format!("the journal {} cannot be read", path.display()))?;
    let (mut samples, mut length) = (BTreeMap::new(), 0);
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let Some(sample) = parse(id, line) else { break };
        samples.entry(sample.index).or_insert(sample.rows);
        length += line.len() as u64;
    }
    Ok((samples, length))
}

fn checksum(id: CellId, text: &str) -> String {
    let digest = Sha256::digest(format!("{id}\n{text}"));
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The line of a sample. Its end is spelled out, as the checksum is over the very bytes of `sample`.
fn line(id: CellId, sample: &Sample) -> Result<String> {
    let sample = serde_json::to_string(sample).context("cannot be written as JSON")?;
    Ok(format!("{{\"sha256\":\"{}\",\"sample\":{sample}}}\n", checksum(id, &sample)))
}

fn parse(id: CellId, line: &[u8]) -> Option<Sample> {
    let line = str::from_utf8(line).ok()?.strip_suffix("}\n")?;
    let (sum, sample) = line.strip_prefix("{\"sha256\":\"")?.split_once("\",\"sample\":")?;
    if sum == checksum(id, sample) { serde_json::from_str(sample).ok() } else { None }
}
