//! Files of rows: Parquet with a checksum.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::checksum;
use super::disk::write_whole;
use super::row::{Row, from_table, to_table, with_present_names};
use crate::bounded_read;
use crate::parquet::Table;

/// Limit on the size of a file of rows; a million rows take some tens of megabytes.
pub(super) const MOST_BYTES: u64 = 4 << 30;

/// The rows of one Parquet file: a cell, a committed baseline, or a file another program wrote.
///
/// # Errors
/// A file that cannot be read, is damaged, or has another schema.
pub fn read_rows(path: &Path) -> Result<Vec<Row>> {
    Ok(read_checked(path)?.0)
}

/// The rows of one file, and whether it has a checksum.
pub(super) fn read_checked(path: &Path) -> Result<(Vec<Row>, bool)> {
    let bytes =
        bounded_read::bytes(path, MOST_BYTES).with_context(|| format!("{} cannot be read", path.display()))?;
    let damaged = || format!("{} is damaged or not a Parquet file", path.display());
    let has_checksum = checksum::check(&bytes).with_context(damaged)?;
    let table = Table::from_parquet(bytes).with_context(damaged)?;
    let rows = with_present_names(table).and_then(|table| from_table(&table)).with_context(|| {
        format!(
            "{} does not hold result rows of this version (see results/README.md for the schema)",
            path.display()
        )
    })?;
    Ok((rows, has_checksum))
}

/// Writes rows to one Parquet file with a checksum; the file appears whole or not at all.
///
/// # Errors
/// No rows, or a folder that cannot be written.
pub fn write_rows(path: &Path, rows: &[Row]) -> Result<()> {
    ensure!(!rows.is_empty(), "there are no rows for {}", path.display());
    write_whole(path, &checksum::add(&to_table(rows).to_parquet()?))
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn the_readme_lists_every_column_in_order() {
        let readme = include_str!("../../results/README.md");
        let table = readme.split_once("| `cell` |").map(|(_, rest)| format!("| `cell` |{rest}")).unwrap();
        let listed = table.lines().map_while(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(listed.collect::<Vec<_>>(), to_table(&[row(0)]).names());
    }

    #[test]
    fn rows_survive_a_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        let mut rows: Vec<Row> = (0..100).map(row).collect();
        rows[1].score = None;
        (rows[1].policy, rows[1].cache_size, rows[1].schedule) = ("full".into(), None, None);
        rows[1].slice = None;
        (rows[2].held_bytes, rows[2].peak_bytes, rows[2].cache_memory) = (Some(0.5), Some(7), Some("25%".into()));
        rows[2].output = Some("größe\n\"quoted\"\0".repeat(10_000));
        rows[3].value = f64::INFINITY;
        rows[4].value = f64::MIN_POSITIVE / 2.0;
        rows[5].allocated_bytes = u64::MAX;
        write_rows(&path, &rows).unwrap();
        assert_eq!(read_rows(&path).unwrap(), rows);
        rows[6].value = f64::NAN;
        write_rows(&path, &rows).unwrap();
        assert!(read_rows(&path).unwrap()[6].value.is_nan());
        assert_eq!(Table::from_parquet(std::fs::read(&path).unwrap()).unwrap().names(), to_table(&rows).names());
        assert!(write_rows(&path, &[]).is_err());
    }
}
