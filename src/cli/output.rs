//! Data on stdout.

use std::io::{ErrorKind, Write as _, stdout};

use anyhow::{Context, Result};

/// Prints to stdout, which is all that many commands do: returns their exit code. A closed pipe, as from `| head`, is not an
/// error.
pub(super) fn print(text: &str) -> Result<u8> {
    match stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(0),
    }
}

/// Rows of text in columns two spaces apart; columns named in `right` are aligned to the right.
pub(super) fn columns<const N: usize>(rows: &[[String; N]], right: std::ops::Range<usize>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
