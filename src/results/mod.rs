//! The ledger: what was measured, as rows in Parquet files, one file per cell, present only when complete.
//!
//! Knows rows, files and journals. How a row comes about is the business of `run`, what is drawn from it of
//! `report`.

mod choice;
mod disk;
mod journal;
mod layout;
mod ledger;
mod merge;
mod row;
mod schema;
mod seal;
#[cfg(test)]
mod tests;

pub use choice::{admits, choose};
pub use disk::{is_disk_full, write_derived};
pub use journal::{Journal, Unavailable};
pub use ledger::{Ledger, Status};
pub use merge::Merged;
pub use row::{Row, SCHEMA_VERSION, Text, date};
pub use schema::{COLUMNS, read_rows, write_rows};
