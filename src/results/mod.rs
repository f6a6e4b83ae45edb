//! The ledger: what was measured, as rows in Parquet files, one file per cell, present only when complete.

mod row;

pub use row::{Row, SCHEMA_VERSION};
