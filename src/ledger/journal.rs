//! The journal of a cell in progress: one JSON line per finished sample, so a kill loses at most the samples in
//! flight.
//!
//! A journal has one writer, the process that made it; what earlier processes wrote down of the cell, or others write at
//! the same time, is read from theirs. Each line carries a checksum over the cell's id and itself, and a line that is torn
//! or of another cell is passed over: its sample is measured again. Lines are not synced to the disk one by one: a power
//! cut may lose some, and the checksum notices.
//!
//! A lock on a file of the cell keeps two processes from measuring it twice. It is the system's (`flock`), so it goes with
//! the process that holds it. Nothing that is kept depends on it: where a file system has no locks, or has them within one
//! machine only (NFS with `local_lock`, Lustre with `localflock`, BeeGFS as it is installed), two processes may measure the
//! same cell. That costs time. Each has its own journal, the first to have all samples makes the cell's file, and the other
//! finds it there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::disk::{Identity, advised, create_unique, is_removed, remove};
use super::identity::{CellId, CellName};
use super::layout::{CELLS, Layout, PARTIAL, PARTS};
use super::row::Row;
use super::schema::write_rows;
use crate::bounded_read;

/// The samples of one cell, written down as they finish. Any worker may append; one process may hold it.
#[derive(Debug)]
pub struct Journal {
    name: CellName,
    layout: Layout,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Held as long as the journal is; `None` once the cell is complete.
    lock: Option<File>,
    /// What this process writes, made with its first sample.
    own: Option<Own>,
    done: Vec<usize>,
}

/// A file that this process alone writes.
#[derive(Debug)]
struct Own {
    file: File,
    path: PathBuf,
    identity: Identity,
    /// Bytes of whole lines.
    length: u64,
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

/// How long somebody who removes a results folder is given to end.
const STILL_GOING_ON: Duration = Duration::from_secs(1);

impl Journal {
    /// Opens the journal of a cell that nobody else measures.
    pub(super) fn open(layout: Layout, name: &CellName) -> Result<Journal> {
        let lock = lock(&layout, name)?;
        let samples = read(&layout.all(PARTIAL, name.id())?, name.id())?;
        let state = State { lock: Some(lock), own: None, done: samples.into_keys().collect() };
        Ok(Journal { name: name.clone(), layout, state: Mutex::new(state) })
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
        Ok(self.samples()?.into_values().flatten().collect())
    }

    fn samples(&self) -> Result<BTreeMap<usize, Vec<Row>>> {
        read(&self.layout.all(PARTIAL, self.name.id())?, self.name.id())
    }

    /// Writes down a finished sample.
    ///
    /// # Errors
    /// A sample that is there already, rows of another cell, a disk that can't take it, or a results folder that has gone;
    /// the journal then is as it was before.
    pub fn append(&self, index: usize, rows: Vec<Row>) -> Result<()> {
        let what = || format!("sample {index} of {}", self.name.stem());
        let id = self.name.id().to_string();
        if let Some(row) = rows.iter().find(|row| row.cell != id) {
            bail!("{} has a row of cell {}", what(), row.cell);
        }
        let line = line(self.name.id(), &Sample { index, rows }).with_context(what)?;
        let mut state = self.state();
        ensure!(!state.done.contains(&index), "{} is written down already", what());
        ensure!(state.lock.is_some(), "{} comes after the end of its journal", what());
        self.write(&mut state, line.as_bytes()).with_context(what)?;
        state.done.push(index);
        self.keep_in_place(&mut state).with_context(what)
    }

    fn write(&self, state: &mut State, line: &[u8]) -> Result<()> {
        let own = match &mut state.own {
            Some(own) => own,
            none => none.insert(Own::create(&self.layout, &self.name)?),
        };
        let Err(error) = own.file.write_all(line) else {
            own.length += line.len() as u64;
            return Ok(());
        };
        let failed = advised(error).context(format!("{} cannot be written", own.path.display()));
        // Half a line must not stand before the next sample's.
        if own.file.set_len(own.length).and_then(|()| own.file.seek(SeekFrom::Start(own.length))).is_err() {
            state.own = None;
        }
        Err(failed)
    }

    /// Notices a journal or a whole folder that was removed or moved while this process writes to it: without a name, what
    /// is written down would go with the process. A journal alone is written again.
    fn keep_in_place(&self, state: &mut State) -> Result<()> {
        let Some(own) = &mut state.own else { return Ok(()) };
        // Another process completed the cell and tidied up after it.
        if own.is_here()? || self.layout.find(CELLS, &self.name)?.is_some() {
            return Ok(());
        }
        let folder = self.layout.folder().display();
        if !own.is_removed(&self.layout)? {
            bail!(
                "the results folder {folder} was moved while it was written to, or its disk was unmounted; what was \
                 measured is where {folder} is now\n\
                 hint: bring it back, or name its new place with --results, then run the same command again: it continues \
                 where it stopped"
            );
        }
        if !self.layout.is_in_place()? || self.layout.lost()? > 0 {
            // A removal that is still going on would take with it what is written again now.
            std::thread::sleep(STILL_GOING_ON);
            bail!(
                "the results folder {folder} was removed while it was written to; the samples of unfinished cells that \
                 this process measured are written there again, cells that were complete are lost\n\
                 hint: run the same command again: it continues with what is left, or remove {folder} again"
            );
        }
        own.write_again(&self.layout, &self.name)
    }

    /// Makes the cell's result file of samples 0 to `expected` and removes the journal. Where another process was first,
    /// its file stays.
    ///
    /// # Errors
    /// A sample that is missing or too many, no rows at all, or a disk that can't take the file; the journal then
    /// stays.
    pub fn complete(&self, expected: usize) -> Result<()> {
        let stem = self.name.stem();
        let mut state = self.state();
        ensure!(state.lock.is_some(), "{stem} is complete already, or its journal is closed");
        self.keep_in_place(&mut state)?;
        if self.layout.find(CELLS, &self.name)?.is_none() {
            let samples = self.samples()?;
            let missing: Vec<String> = (0..expected)
                .filter(|index| !samples.contains_key(index))
                .map(|index| index.to_string())
                .collect();
            ensure!(missing.is_empty(), "{stem} lacks the samples {}", missing.join(", "));
            ensure!(samples.len() == expected, "{stem} has {} samples instead of {expected}", samples.len());
            let rows: Vec<Row> = samples.into_values().flatten().collect();
            ensure!(!rows.is_empty(), "nothing was measured in {stem}");
            write_rows(&self.layout.path(CELLS, &self.name), &rows)?;
        }
        state.own = None;
        let id = self.name.id().to_string();
        self.layout.see([id.clone()]);
        self.layout.tidy(|other| other == id)?;
        // Last, so that nobody begins the cell while its journals go.
        state.lock = None;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A worker that panicked here left whole lines only.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Journal {
    /// A run that ends as its results folder was removed leaves there what it still holds.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = &mut state.own else { return };
        let is_lost = matches!(own.is_here(), Ok(false)) && matches!(own.is_removed(&self.layout), Ok(true));
        if is_lost && matches!(self.layout.find(CELLS, &self.name), Ok(None)) {
            for part in PARTS {
                let _ = fs::create_dir_all(self.layout.part(part));
            }
            // There is nobody left to tell; the error that ended the run says where to look.
            let _ = own.write_again(&self.layout, &self.name);
        }
    }
}

impl Own {
    fn create(layout: &Layout, name: &CellName) -> Result<Own> {
        let folder = layout.part(PARTIAL);
        let what = || format!("no journal can be made in {}", folder.display());
        let (file, path) = create_unique(&folder, &format!("{}.", name.stem()), &format!(".{}", PARTIAL.1))
            .map_err(advised)
            .with_context(what)?;
        let identity = Identity::of(&file.metadata().with_context(what)?);
        Ok(Own { file, path, identity, length: 0 })
    }

    /// Whether the file is where it was made. Nobody else makes one of its name; so the length alone would do, and does on
    /// file systems that make up an identity at every look.
    fn is_here(&self) -> Result<bool> {
        match fs::metadata(&self.path) {
            Ok(found) => Ok(Identity::of(&found) == self.identity || found.len() >= self.length),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("{} cannot be found", self.path.display())),
        }
    }

    /// Whether a file that is not where it was made was removed, alone or with its folder, and not moved with it. NFS keeps an
    /// open file under another name until it is closed, so the system's word for it is not enough.
    fn is_removed(&self, layout: &Layout) -> Result<bool> {
        Ok(is_removed(&self.file) || layout.is_in_place()?)
    }

    /// Copies a file that has lost its name into a new one.
    fn write_again(&mut self, layout: &Layout, name: &CellName) -> Result<()> {
        let what = || format!("{} was removed and cannot be written again", self.path.display());
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0)).with_context(what)?;
        (&self.file).take(self.length).read_to_end(&mut bytes).with_context(what)?;
        let mut own = Own::create(layout, name)?;
        own.file.write_all(&bytes).map_err(advised).with_context(what)?;
        own.length = self.length;
        *self = own;
        Ok(())
    }
}

/// Times a lock file is opened that is another one when it is locked: on a file system that makes up identities it always is.
const MOST_TRIES: usize = 10;

/// Takes the lock of a cell, if it is neither complete nor in another process's hands.
fn lock(layout: &Layout, name: &CellName) -> Result<File> {
    let path = layout.lock(name.id());
    let what = || format!("{} cannot be opened", path.display());
    let mut tries = 0;
    loop {
        if let Some(result) = layout.find(CELLS, name)? {
            return Err(Unavailable::Complete(result).into());
        }
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = options.map_err(advised).with_context(what)?;
        // Where a file system has no locks, nobody is kept out.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Unavailable::Busy(name.stem().to_string()).into());
        }
        // Between opening and locking, the process that held the lock may have completed the cell.
        if let Some(result) = layout.find(CELLS, name)? {
            remove(&path)?;
            return Err(Unavailable::Complete(result).into());
        }
        // Of a file that lost its name meanwhile, another process may hold the successor's.
        let own = Identity::of(&file.metadata().with_context(what)?);
        tries += 1;
        if tries == MOST_TRIES || Identity::at(&path).with_context(what)? == Some(own) {
            return Ok(file);
        }
    }
}

/// How many samples the journals of a cell hold together.
pub(super) fn samples_in(journals: &[PathBuf], id: CellId) -> Result<usize> {
    Ok(read(journals, id)?.len())
}

/// The believable samples of a cell's journals by index. Of a sample that is in two, each was measured to the same numbers,
/// and one is taken.
fn read(journals: &[PathBuf], id: CellId) -> Result<BTreeMap<usize, Vec<Row>>> {
    let mut samples = BTreeMap::new();
    for path in journals {
        for line in bytes(path)?.split_inclusive(|&byte| byte == b'\n') {
            if let Some(sample) = parse(id, line) {
                samples.entry(sample.index).or_insert(sample.rows);
            }
        }
    }
    Ok(samples)
}

/// Bytes of a journal, which is held in memory to be read.
const MOST_BYTES: u64 = 4 << 30;

/// What a journal holds: nothing where it was removed meanwhile, as its cell is complete.
fn bytes(path: &Path) -> Result<Vec<u8>> {
    match bounded_read::bytes(path, MOST_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        bytes => bytes.with_context(|| format!("the journal {} cannot be read", path.display())),
    }
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
