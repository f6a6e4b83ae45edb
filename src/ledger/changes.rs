//! Whether a results folder has changed, without reading its rows.

use std::fs::Metadata;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Result;

use super::folder::Ledger;
use super::layout::{CELLS, PARTIAL};

/// The files that rows come from, with their sizes and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(Vec<(PathBuf, u64, Option<SystemTime>)>);

impl Ledger {
    /// The state of the folder. Two states are equal if nothing was measured between them.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn state(&self) -> Result<State> {
        let files = self.files(CELLS)?.chain(self.files(PARTIAL)?).chain([self.folder().join("sweep.json")]);
        // A file may be removed meanwhile.
        let described = files.filter_map(|path| {
            let found: Metadata = path.metadata().ok()?;
            Some((path, found.len(), found.modified().ok()))
        });
        let mut state: Vec<_> = described.collect();
        state.sort();
        Ok(State(state))
    }
}
