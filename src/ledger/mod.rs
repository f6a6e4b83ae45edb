//! The ledger: a results folder with one Parquet file of rows per cell, present only when the cell is complete.
//!
//! It knows the identity of cells, the schema of rows, and the files. How rows are measured is for `run` to know, what is
//! drawn from them for `report`.

mod checksum;
mod current;
mod disk;
mod folder;
mod identity;
mod journal;
mod layout;
mod manifest;
mod measured;
mod merge;
mod only;
mod row;
mod schema;
mod settings;
mod side_files;
#[cfg(test)]
mod tests;
mod windows;

pub use current::{Current, IDENTICAL, JUDGED_BY, Wanted};
pub use disk::{write_derived, write_output};
pub use folder::{Status, reason};
pub use identity::{CellId, CellName, ENGINE_VERSION, SCHEMA_VERSION};
pub use journal::{Journal, Opened};
pub use layout::Ledger;
pub use manifest::{Contrast, Manifest, ManifestCell};
pub use measured::rows_in;
pub use only::{Field, Only, OnlyError, admits, passes, policy_names, select};
pub use row::{Row, Text, date};
pub use schema::{read_rows, write_rows};
pub use settings::Settings;
pub use side_files::Listing;
pub use windows::{Window, Windows};
