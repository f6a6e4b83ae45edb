//! Merging results folders, such as those of the shards of a sweep.
//!
//! A cell's id is a digest of its meaning, so folders agree on which cell is which. Complete cells are checked and copied
//! byte for byte; the journals of incomplete cells are copied too.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::disk::{advised, write_whole};
use super::folder::rows_of_cell;
use super::layout::{CELLS, FAILED, Ledger, PARTIAL, id_of, stem_of};
use super::schema::MOST_BYTES;
use crate::bounded_read;

/// What was merged from one folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Complete cells that were copied.
    pub copied: usize,
    /// Complete cells that both folders have; the target keeps its own.
    pub kept: usize,
    /// Partial or failed cells that were copied, to be finished in the new folder.
    pub unfinished: usize,
}

impl Ledger {
    /// Copies what another folder has and this one lacks. The other is not changed.
    ///
    /// # Errors
    /// A damaged file in the other folder, by name, or a folder that cannot be written. What was copied before stays.
    pub fn merge(&self, other: &Ledger) -> Result<Merged> {
        let path = |folder: &Path| folder.canonicalize().with_context(|| folder.display().to_string());
        ensure!(
            path(self.folder())? != path(other.folder())?,
            "{} cannot be merged into itself\nhint: name the target first, then the folders to merge",
            other.folder().display()
        );
        let mut merged = Merged::default();
        let own = self.complete()?;
        for (id, theirs) in other.complete()? {
            if own.contains_key(&id) {
                merged.kept += 1;
                continue;
            }
            rows_of_cell(&theirs)?;
            // Side files first: a cell that is there must have all of them.
            self.copy_side_files(other, (&stem(&theirs), &stem(&theirs)), "")?;
            self.copy(&theirs, CELLS.0)?;
            merged.copied += 1;
        }
        let complete = self.complete()?;
        let mut unfinished = BTreeSet::new();
        for part in [PARTIAL, FAILED] {
            for theirs in other.files(part)? {
                let Some(id) = id_of(&theirs).filter(|id| !complete.contains_key(*id)) else { continue };
                // A journal has one writer and only grows: of two with one name the longer one has more samples.
                let target = self.part(part).join(theirs.file_name().unwrap_or_default());
                let length = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
                if !target.exists() || (part == PARTIAL && length(&theirs) > length(&target)) {
                    self.copy_side_files(other, (&stem(&theirs), &stem(&theirs)), "")?;
                    self.copy(&theirs, part.0)?;
                }
                unfinished.insert(id.to_owned());
            }
        }
        merged.unfinished = unfinished.len();
        self.tidy(|id| complete.contains_key(id))?;
        self.merge_manifest(other)?;
        Ok(merged)
    }

    fn copy(&self, theirs: &Path, part: &str) -> Result<()> {
        let bytes = bounded_read::bytes(theirs, MOST_BYTES)
            .with_context(|| format!("{} cannot be read", theirs.display()))?;
        write_whole(&self.folder().join(part).join(theirs.file_name().unwrap_or_default()), &bytes)
    }

    /// Copies the tables of samples of one cell to another, those whose file names begin so.
    pub(super) fn copy_side_files(&self, other: &Ledger, (from, to): (&str, &str), start: &str) -> Result<()> {
        let [folder, target] = [other.folder().join("logs").join(from), Path::new("logs").join(to)];
        if !folder.is_dir() {
            return Ok(());
        }
        let made = fs::create_dir_all(self.folder().join(&target)).map_err(advised);
        made.with_context(|| target.display().to_string())?;
        for entry in fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(start) && name.ends_with(".parquet") {
                self.copy(&path, &target.to_string_lossy())?;
            }
        }
        Ok(())
    }
}

fn stem(path: &Path) -> String {
    stem_of(path).unwrap_or_default().to_owned()
}
