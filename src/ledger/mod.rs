//! The ledger: what was measured, as rows in Parquet files, one file per cell, present only when complete.
//!
//! Knows rows, files and journals. How a row comes about is the business of `run`, what is drawn from it of
//! `report`.

mod choice;
mod disk;
mod identity;
mod journal;
mod layout;
mod ledger;
mod merge;
mod only;
mod row;
mod schema;
mod seal;
#[cfg(test)]
mod tests;

pub use choice::{admits, choose};
pub use disk::{is_disk_full, write_derived};
pub use identity::{CellId, CellName, ENGINE_VERSION, SCHEMA_VERSION};
pub use journal::{Journal, Unavailable};
pub use ledger::{Ledger, Status};
pub use merge::Merged;
pub use only::{Field, Only, OnlyError};
pub use row::{Row, Text, date};
pub use schema::{COLUMNS, read_rows, write_rows};
