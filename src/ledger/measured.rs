//! The samples that a folder has measured, in whichever cell: a sweep that grows takes them over instead of measuring them again.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::disk::advised;
use super::folder::{Ledger, file_name, rows_of_cell};
use super::identity::{CellId, CellName};
use super::journal::read_journal;
use super::layout::{CELLS, PARTIAL, id_of, is_verdicts, stem_of};
use super::row::{Row, Text};
use crate::parquet::read_text_column;

/// Where a folder has samples, by their ids.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    files: HashMap<Text, PathBuf>,
}

impl Ledger {
    /// Finds samples in complete cells and in the journals of others. Files that cannot be read are passed over, so that
    /// their samples are measured again.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn measured(&self, wanted: &HashSet<Text>) -> Result<Measured> {
        let mut files = HashMap::new();
        if wanted.is_empty() {
            return Ok(Measured { files });
        }
        for path in self.files(CELLS)?.filter(|path| !is_verdicts(path)) {
            for id in read_text_column(&path, "sample_id").unwrap_or_default() {
                if let Some(id) = wanted.get(id.as_str()) {
                    files.entry(id.clone()).or_insert_with(|| path.clone());
                }
            }
        }
        for path in self.files(PARTIAL)?.filter(|path| !is_verdicts(path)) {
            for row in rows_in(&path) {
                if let Some(id) = wanted.get(&row.sample_id) {
                    files.entry(id.clone()).or_insert_with(|| path.clone());
                }
            }
        }
        Ok(Measured { files })
    }

    /// Copies the side files of a sample that was measured in the cell of `file`.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn reuse_side_files(&self, file: &Path, name: &CellName, sample: &str) -> Result<()> {
        let logs = self.folder().join("logs");
        let Some(from) = stem_of(file).map(|stem| logs.join(stem)).filter(|from| from.is_dir()) else {
            return Ok(());
        };
        let to = logs.join(name.stem());
        fs::create_dir_all(&to).map_err(advised).with_context(|| to.display().to_string())?;
        let start = format!("{}.", file_name(sample));
        for entry in fs::read_dir(&from).with_context(|| format!("{} cannot be read", from.display()))? {
            let path = entry?.path();
            if let Some(name) =
                path.file_name().filter(|name| name.as_encoded_bytes().starts_with(start.as_bytes()))
            {
                let copied = fs::copy(&path, to.join(name)).map_err(advised);
                copied.with_context(|| format!("{} cannot be copied", path.display()))?;
            }
        }
        Ok(())
    }
}

impl Measured {
    /// The file that has a sample.
    pub fn file(&self, sample_id: &str) -> Option<&Path> {
        self.files.get(sample_id).map(PathBuf::as_path)
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
