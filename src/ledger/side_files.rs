//! Tables of single samples that lie beside the rows: logs of evictions, and what belongs to them.
//!
//! A sample with such tables has a row that lists them with their SHA-256, so that a lost or damaged table is noticed wherever the
//! cell is read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use sha2::{Digest, Sha256};

use super::disk::{advised, write_whole};
use super::identity::{CellName, file_name};
use super::layout::{Ledger, id_of, stem_of};
use super::row::Row;
use crate::bounded_read;
use crate::metric::SIDE_FILES;
use crate::parquet::Table;

const LOGS: &str = "logs";
/// Limit on the size of a table.
const MOST_BYTES: u64 = 4 << 30;

/// Tables by the names of their files, with their SHA-256.
pub type Listing = BTreeMap<String, String>;

impl Ledger {
    /// Writes tables of one sample to `logs/`, each with a word that tells it from the others. Returns what its row is to list.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn write_side_files<'a>(
        &self,
        name: &CellName,
        sample: &str,
        tables: impl IntoIterator<Item = (&'static str, &'a Table)>,
    ) -> Result<Listing> {
        let folder = self.folder().join(LOGS).join(name.stem());
        let mut written = Listing::new();
        for (kind, table) in tables {
            fs::create_dir_all(&folder).map_err(advised).with_context(|| folder.display().to_string())?;
            let kind = if kind.is_empty() { String::new() } else { format!(".{kind}") };
            let (file, bytes) = (format!("{}{kind}.parquet", file_name(sample)), table.to_parquet()?);
            write_whole(&folder.join(&file), &bytes)?;
            written.insert(file, sha256(&bytes));
        }
        Ok(written)
    }

    /// The samples of some rows that have tables of their own: the first row of each, and its files without their endings, as seen
    /// from the folder.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn side_files<'a>(&self, rows: &'a [Row]) -> Result<Vec<(&'a Row, PathBuf)>> {
        let logs = self.folder().join(LOGS);
        let entries = match fs::read_dir(&logs) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("{} cannot be read", logs.display()))?,
        };
        let mut folders = BTreeMap::new();
        for entry in entries {
            let path = entry?.path();
            if let (Some(id), Some(name)) = (id_of(&path), path.file_name()) {
                folders.insert(id.to_owned(), Path::new(LOGS).join(name));
            }
        }
        let mut samples = BTreeMap::new();
        for row in rows {
            if let Some(folder) = folders.get(row.cell.as_str()) {
                samples.entry((&row.cell, &row.sample)).or_insert((row, folder.join(file_name(&row.sample))));
            }
        }
        Ok(samples.into_values().collect())
    }

    /// Copies the tables that `rows` list from the cell with the stem `from` in `other` to the one with the stem `to` here.
    ///
    /// # Errors
    /// A table that is lost, damaged or not an ordinary file, by name, or a folder that cannot be written.
    pub(super) fn copy_side_files(&self, other: &Ledger, (from, to): (&str, &str), rows: &[Row]) -> Result<()> {
        let (logs, target) = (other.folder().join(LOGS), self.folder().join(LOGS).join(to));
        for (file, sum) in listing(rows)? {
            fs::create_dir_all(&target).map_err(advised).with_context(|| target.display().to_string())?;
            let path = find(&logs, Path::new(from), &file).unwrap_or(logs.join(from).join(&file));
            let bytes = read_ordinary(&path)?;
            ensure!(sum == sha256(&bytes), "{} has changed since it was written", path.display());
            write_whole(&target.join(file), &bytes)?;
        }
        Ok(())
    }
}

/// Checks the tables that rows of a cell's file list.
///
/// # Errors
/// The first table that is lost or has changed, by name.
pub(super) fn check(cell: &Path, rows: &[Row]) -> Result<()> {
    let listing = listing(rows)?;
    if listing.is_empty() {
        return Ok(());
    }
    let logs = cell.parent().and_then(Path::parent).unwrap_or(Path::new("")).join(LOGS);
    for (file, sum) in &listing {
        let what = match find(&logs, cell, file) {
            None => format!("{file} is missing in {}", logs.display()),
            Some(path) if sha256(&read(&path)?) != *sum => {
                format!("{} has changed since it was written", path.display())
            }
            Some(_) => continue,
        };
        let cell = cell.display();
        return Err(anyhow!(
            "{what}, a table of a sample of {cell}\nhint: remove {cell} and run the sweep again to measure the cell anew"
        ));
    }
    Ok(())
}

/// The place of a table of a cell, under whichever readable name it was written: a cell may have been begun in a sweep that calls it
/// otherwise.
fn find(logs: &Path, cell: &Path, file: &str) -> Option<PathBuf> {
    let own = stem_of(cell).map(|stem| logs.join(stem).join(file)).filter(|path| path.exists());
    own.or_else(|| {
        let folders = fs::read_dir(logs).into_iter().flatten().flatten().map(|entry| entry.path());
        let others = folders.filter(|path| id_of(path) == id_of(cell)).map(|folder| folder.join(file));
        others.into_iter().find(|path| path.exists())
    })
}

/// What rows list.
fn listing(rows: &[Row]) -> Result<Listing> {
    let mut all = Listing::new();
    for row in rows.iter().filter(|row| row.metric == SIDE_FILES) {
        let listed: Listing = serde_json::from_str(row.output.as_deref().unwrap_or_default())
            .with_context(|| format!("the row of sample {} does not list its tables", row.sample))?;
        // Nothing outside the cell's folder.
        let is_name = |file: &String| Path::new(file).file_name().is_some_and(|name| name == file.as_str());
        ensure!(listed.keys().all(is_name), "the row of sample {} lists what is not a file name", row.sample);
        all.extend(listed);
    }
    Ok(all)
}

/// The bytes of a file that is not a link: a folder that is merged must have what it hands on.
pub(super) fn read_ordinary(path: &Path) -> Result<Vec<u8>> {
    let metadata = fs::symlink_metadata(path).with_context(|| format!("{} cannot be read", path.display()))?;
    ensure!(
        metadata.is_file(),
        "{} is not an ordinary file, and only those are copied\nhint: put the file itself in the place of a link",
        path.display()
    );
    read(path)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    bounded_read::bytes(path, MOST_BYTES).with_context(|| format!("{} cannot be read", path.display()))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::super::{CellId, Journal, Opened};
    use super::*;

    /// A folder with one complete cell of two samples, each with two tables beside it.
    fn measured(folder: &Path) -> (Ledger, CellName) {
        let ledger = Ledger::open(folder).unwrap();
        let name = CellName::new(CellId::of("tova"), "perplexity", "random-tiny", "tova", Some(16));
        let Opened::Journal(journal) = ledger.journal(&name).unwrap() else { panic!("no journal") };
        (0..2).for_each(|sample| append(&ledger, &name, &journal, sample));
        journal.complete(2).unwrap();
        (ledger, name)
    }

    fn append(ledger: &Ledger, name: &CellName, journal: &Journal, sample: u32) {
        let mut table = Table::default();
        table.push("victim", vec![sample; 3]);
        let row = Row { cell: name.id().to_string().into(), ..row(sample) };
        let listing = ledger.write_side_files(name, &row.sample, [("", &table), ("tokens", &table)]).unwrap();
        let output = Some(serde_json::to_string(&listing).unwrap());
        let listed = Row { metric: SIDE_FILES.into(), slice: None, output, ..row.clone() };
        journal.append(sample as usize, vec![row, listed]).unwrap();
    }

    fn tables(folder: &Path) -> Vec<PathBuf> {
        let cells = fs::read_dir(folder.join(LOGS)).unwrap().map(|entry| entry.unwrap().path());
        let files = cells.flat_map(|cell| fs::read_dir(cell).unwrap().map(|entry| entry.unwrap().path()));
        let mut files: Vec<PathBuf> = files.collect();
        files.sort();
        files
    }

    #[test]
    fn lost_and_changed_tables_are_named_wherever_their_cell_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (ledger, name) = measured(folder.path());
        let files = tables(folder.path());
        assert_eq!(files.len(), 4);
        let error = || format!("{:#}", ledger.rows_of(&name).unwrap_err());
        for file in &files {
            let whole = fs::read(file).unwrap();
            let mut flipped = whole.clone();
            flipped[whole.len() / 2] ^= 1;
            for damage in [&flipped[..], &whole[..whole.len() - 1], &[]] {
                fs::write(file, damage).unwrap();
                assert!(error().contains(&format!("{} has changed", file.display())), "{}", error());
                assert!(error().contains("hint: remove") && error().contains(name.stem()), "{}", error());
            }
            fs::remove_file(file).unwrap();
            let lost = file.file_name().unwrap().to_string_lossy().into_owned();
            assert!(error().contains(&format!("{lost} is missing")), "{}", error());
            fs::write(file, whole).unwrap();
            assert_eq!(ledger.rows_of(&name).unwrap().len(), 4);
        }
        // Under another readable name, as a sweep gives that calls the model otherwise.
        let logs = folder.path().join(LOGS);
        fs::rename(logs.join(name.stem()), logs.join(format!("other__{}", name.id()))).unwrap();
        assert_eq!(ledger.rows_of(&name).unwrap().len(), 4);
    }

    #[test]
    fn only_listed_and_whole_tables_are_merged() {
        let [from, to] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let (other, name) = measured(from.path());
        fs::write(tables(from.path())[0].with_file_name("more.parquet"), b"anything").unwrap();
        let ledger = Ledger::open(to.path()).unwrap();
        assert_eq!(ledger.merge(&other).unwrap().copied, 1);
        assert_eq!((tables(to.path()).len(), ledger.rows_of(&name).unwrap().len()), (4, 4));

        let target = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(target.path()).unwrap();
        let file = tables(from.path())[0].clone();
        let whole = fs::read(&file).unwrap();
        fs::write(&file, b"PAR1").unwrap();
        assert!(format!("{:#}", ledger.merge(&other).unwrap_err()).contains("has changed since it was written"));
        fs::write(&file, whole).unwrap();
        #[cfg(unix)]
        {
            let cell = from.path().join("cells").join(format!("{}.parquet", name.stem()));
            for linked in [file, cell] {
                let aside = from.path().join("aside");
                fs::rename(&linked, &aside).unwrap();
                std::os::unix::fs::symlink(&aside, &linked).unwrap();
                let refused = format!("{:#}", ledger.merge(&other).unwrap_err());
                assert!(refused.contains("is not an ordinary file") && refused.contains("hint:"), "{refused}");
                fs::remove_file(&linked).unwrap();
                fs::rename(&aside, &linked).unwrap();
            }
        }
        assert_eq!(ledger.merge(&other).unwrap().copied, 1);
    }
}
