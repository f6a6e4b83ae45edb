//! Data on stdout and words on stderr: the only functions that print. Names, texts and answers come from files and servers of others,
//! so whatever is printed is made [`printable`].

use std::fmt::Display;
use std::io::{ErrorKind, Write as _, stderr, stdout};

use anyhow::{Context, Result};

use crate::format::printable;

/// Prints to stdout, which is all that many commands do: returns their exit code. A closed pipe, as from `| head`, is not an
/// error.
pub(super) fn print(text: &str) -> Result<u8> {
    print_on(text)?;
    Ok(0)
}

/// The same; whether anybody reads on.
pub(super) fn print_on(text: &str) -> Result<bool> {
    let mut out = stdout().lock();
    match out.write_all(printable(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.context("cannot write to stdout").map(|()| true),
    }
}

/// Prints a line on stderr. A reader that has left does not end the program.
pub(super) fn tell(line: impl Display) {
    let line = format!("{line}\n");
    let _ = stderr().lock().write_all(printable(&line).as_bytes());
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
