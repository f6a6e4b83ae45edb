//! The samples that a folder has measured, in whichever cell: a sweep that grows takes them over instead of measuring them again.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::folder::rows_of_cell;
use super::identity::{CellId, CellName};
use super::journal::read_journal;
use super::layout::{CELLS, Ledger, PARTIAL, id_of, is_verdicts, stem_of};
use super::row::{Row, Text};
use crate::parquet::read_text_column;

impl Ledger {
    /// The files that have samples, by the samples' ids: of complete cells, and journals of others. Files that cannot be read are
    /// passed over, so that their samples are measured again.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn measured(&self, wanted: &HashSet<Text>) -> Result<HashMap<Text, PathBuf>> {
        let mut files = HashMap::new();
        if wanted.is_empty() {
            return Ok(files);
        }
        let cells =
            self.files(CELLS)?.map(|path| (read_text_column(&path, "sample_id").unwrap_or_default(), path));
        let of_rows = |path: &Path| rows_in(path).into_iter().map(|row| row.sample_id.to_string()).collect();
        let journals = self.files(PARTIAL)?.map(|path| (of_rows(&path), path));
        for (ids, path) in cells.chain(journals).filter(|(_, path)| !is_verdicts(path)) {
            for id in ids.iter().filter_map(|id| wanted.get(id.as_str())) {
                files.entry(id.clone()).or_insert_with(|| path.clone());
            }
        }
        Ok(files)
    }

    /// Copies the side files of the rows of a sample that was measured in the cell of `file`.
    ///
    /// # Errors
    /// A table that is lost or damaged, or a folder that cannot be written.
    pub fn reuse_side_files(&self, file: &Path, name: &CellName, rows: &[Row]) -> Result<()> {
        let Some(from) = stem_of(file) else { return Ok(()) };
        self.copy_side_files(self, (from, name.stem()), rows)
    }
}

/// The rows of a complete cell or of a journal; none if it cannot be read.
pub fn rows_in(file: &Path) -> Vec<Row> {
    if file.extension().is_some_and(|extension| extension == CELLS.1) {
        return rows_of_cell(file).unwrap_or_default();
    }
    let id = id_of(file).and_then(CellId::parse);
    id.and_then(|id| read_journal(file, id).ok())
        .unwrap_or_default()
        .into_iter()
        .flat_map(|entry| entry.rows)
        .collect()
}
