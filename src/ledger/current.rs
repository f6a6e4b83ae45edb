//! The rows of the sweep that was run last, under the names that it uses, and the file of them for other programs.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;

use anyhow::Result;

use super::checksum;
use super::disk::{read_unless_removed, write_whole};
use super::folder::{LONGEST_MESSAGE, read_cells, reason};
use super::identity::CellId;
use super::journal::samples_in;
use super::layout::{FAILED, Ledger, PARTIAL, is_verdicts};
use super::manifest::{Contrast, Manifest};
use super::row::{Row, Text, to_table};

/// Between a data set and the name of the judge, in the rows of verdicts.
pub const JUDGED_BY: &str = " judged by ";

/// What the row of a tie has as its output where both stories are the same text, about which no judge was asked.
pub const IDENTICAL: &str = "identical";

/// What a folder holds of its sweep.
#[derive(Debug, Default)]
pub struct Current {
    /// By model, task, policy and size, in the order of the sweep.
    pub rows: Vec<Row>,
    /// By id, the number of samples that a cell will have, for cells that are not complete and have samples among the rows.
    pub unfinished: BTreeMap<Text, usize>,
    /// Cells of the sweep that are not complete.
    pub incomplete: usize,
    /// Complete cells of the folder that the sweep does not have.
    pub others: usize,
    /// The cells of the sweep whose last try failed, each with the reason: `perplexity__random-tiny__mine__8__0123456789abcdef: ...`.
    pub failed: Vec<String>,
    /// The comparisons that the sweep plans.
    pub contrasts: Vec<Contrast>,
}

/// Which cells are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Complete,
    /// Complete cells, and what is measured of the others.
    Measured,
    /// All that is measured, and the complete cells that the sweep does not have.
    All,
}

impl Ledger {
    /// The rows of the folder's sweep. In a folder that does not know its sweep, as those of earlier versions, all rows.
    ///
    /// # Errors
    /// A folder that cannot be read, or a damaged cell.
    pub fn current(&self, wanted: Wanted) -> Result<Current> {
        match self.manifest()? {
            Some(manifest) => self.rows_of_sweep(&manifest, wanted),
            None => {
                let incomplete = self.incomplete()?;
                Ok(Current { rows: self.rows()?, incomplete, ..Current::default() })
            }
        }
    }

    /// The rows of the cells of a sweep that are there.
    ///
    /// # Errors
    /// What [`Ledger::current`] refuses.
    pub fn rows_of_sweep(&self, manifest: &Manifest, wanted: Wanted) -> Result<Current> {
        let complete = self.complete()?;
        let listed = || manifest.cells.iter().filter_map(|cell| Some((cell, cell.cell.as_ref()?)));
        let own: HashSet<&str> = listed().map(|(_, id)| id.as_str()).collect();
        let (files, others): (Vec<_>, Vec<_>) = complete.iter().partition(|(id, _)| own.contains(id.as_str()));
        let [files, mut others] =
            [files, others].map(|files| files.into_iter().map(|(_, path)| path.clone()).collect::<Vec<_>>());
        let cells = read_cells(&files)?.into_iter();
        let mut read: HashMap<Text, Vec<Row>> = cells.map(|rows| (rows[0].cell.clone(), rows)).collect();
        let is_complete = |id: &Option<Text>| id.as_ref().is_some_and(|id| complete.contains_key(id.as_str()));
        let open = manifest.cells.iter().filter(|cell| !is_complete(&cell.cell));
        let open: HashSet<_> = open.map(|cell| cell.cell.as_ref().unwrap_or(&cell.spec)).collect();
        let contrasts = manifest.contrasts.clone();
        let mut current = Current { incomplete: open.len(), contrasts, ..Current::default() };
        if wanted != Wanted::Complete {
            let (journals, failures) = (self.by_id(PARTIAL)?, self.by_id(FAILED)?);
            for (cell, id) in listed().filter(|(_, id)| !complete.contains_key(id.as_str())) {
                let own = journals.get(id.as_str()).zip(CellId::parse(id));
                let samples = own.map(|(own, id)| samples_in(own, id)).transpose()?.unwrap_or_default();
                current.unfinished.insert(id.clone(), cell.samples);
                if let Some(path) = failures.get(id.as_str()).and_then(|paths| paths.first())
                    && let Some(text) = read_unless_removed(path, LONGEST_MESSAGE)?
                {
                    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                    current.failed.push(format!("{stem}: {}", reason(&String::from_utf8_lossy(&text), &stem)));
                }
                read.insert(id.clone(), samples.into_values().flatten().collect());
            }
        }
        for (cell, id) in listed() {
            for row in read.get(id.as_str()).into_iter().flatten() {
                current.rows.push(Row {
                    sweep: manifest.sweep.clone(),
                    model: cell.model.clone(),
                    dataset: cell.dataset.clone(),
                    policy: cell.policy.clone(),
                    seed: manifest.seed,
                    ..row.clone()
                });
            }
        }
        let judged = judged(&current.rows, &mut others)?;
        current.rows.extend(judged);
        if wanted == Wanted::All {
            current.rows.extend(read_cells(&std::mem::take(&mut others))?.into_iter().flatten());
        }
        current.others = others.len();
        Ok(current)
    }

    /// Writes the rows of the sweep's complete cells to `rows.parquet`, which other programs read. Returns what is measured.
    ///
    /// # Errors
    /// A damaged cell, or a folder that cannot be written.
    pub fn write_current(&self) -> Result<Current> {
        // Of two processes that end together, the second must see the cells of the first. Without locks, as on some network
        // file systems, the next run or `merge` mends the file.
        let folder = File::open(self.folder());
        let _ = folder.as_ref().map(File::lock);
        let current = self.current(Wanted::Measured)?;
        let is_complete = |row: &&Row| !current.unfinished.contains_key(&row.cell);
        let rows: Cow<'_, [Row]> = match current.unfinished.is_empty() {
            true => Cow::from(&current.rows),
            false => current.rows.iter().filter(is_complete).cloned().collect(),
        };
        write_whole(&self.folder().join("rows.parquet"), &checksum::add(&to_table(&rows).to_parquet()?))?;
        Ok(current)
    }
}

/// Takes the verdicts on a sweep's stories out of the other cells. A row of a verdict has the columns of its story.
fn judged(rows: &[Row], others: &mut Vec<PathBuf>) -> Result<Vec<Row>> {
    let (files, rest): (Vec<PathBuf>, Vec<PathBuf>) =
        std::mem::take(others).into_iter().partition(|path| is_verdicts(path));
    *others = rest;
    let stories = rows.iter().map(|row| ((&row.sample_id, &row.selection), row));
    let stories: HashMap<(&Text, &Text), &Row> = if files.is_empty() { HashMap::new() } else { stories.collect() };
    let mut own = Vec::new();
    for (file, verdicts) in files.iter().zip(read_cells(&files)?) {
        let named = verdicts.into_iter().map(|row| {
            let story = *stories.get(&(&row.sample_id, &row.selection))?;
            let (_, judge) = row.dataset.split_once(JUDGED_BY)?;
            Some(Row {
                sweep: story.sweep.clone(),
                model: story.model.clone(),
                dataset: format!("{}{JUDGED_BY}{judge}", story.dataset).into(),
                policy: story.policy.clone(),
                seed: story.seed,
                ..row
            })
        });
        match named.collect::<Option<Vec<Row>>>() {
            Some(named) => own.extend(named),
            None => others.push(file.clone()),
        }
    }
    Ok(own)
}
