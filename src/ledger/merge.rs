//! Merging results folders, such as those of the shards of a sweep.
//!
//! A cell's id is a digest of its meaning, so folders agree on which cell is which. Complete cells are checked and copied
//! byte for byte; the journals of incomplete cells are copied too.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::disk::write_whole;
use super::folder::rows_of_cell;
use super::layout::{CELLS, FAILED, Ledger, PARTIAL, Part, id_of, stem_of};
use super::measured::rows_in;
use super::row::Row;
use super::side_files::read_ordinary;

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
            read_ordinary(&theirs)?;
            let rows = rows_of_cell(&theirs)?;
            self.copy(other, &theirs, CELLS, &rows)?;
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
                    let rows = if part == PARTIAL { rows_in(&theirs) } else { Vec::new() };
                    self.copy(other, &theirs, part, &rows)?;
                }
                unfinished.insert(id.to_owned());
            }
        }
        merged.unfinished = unfinished.len();
        self.tidy(|id| complete.contains_key(id))?;
        self.merge_manifest(other)?;
        Ok(merged)
    }

    /// Copies a file of another folder into a part of this one, after the tables that its `rows` list: a cell that is there must have all of
    /// them.
    fn copy(&self, other: &Ledger, theirs: &Path, part: Part, rows: &[Row]) -> Result<()> {
        let stem = stem_of(theirs).unwrap_or_default();
        self.copy_side_files(other, (stem, stem), rows)?;
        write_whole(&self.part(part).join(theirs.file_name().unwrap_or_default()), &read_ordinary(theirs)?)
    }
}
