//! Data on stdout and words on stderr: the only functions that print. Names, texts and answers come from files and servers of others,
//! so whatever is printed is made [`printable`].

use std::fmt::Display;
use std::io::{ErrorKind, Write as _, stderr, stdout};

use anyhow::{Context, Result};

use crate::format::printable;
use crate::report::FAINT;

/// Prints to stdout, which is all that many commands do: returns their exit code. A closed pipe, as from `| head`, is not an
/// error.
pub(super) fn print(text: &str) -> Result<u8> {
    write(&printable(text))
}

/// Prints a report, of which [`FAINT`] text stays faint.
pub(super) fn print_report(text: &str) -> Result<u8> {
    let [begin, end] = FAINT;
    let part = |part: &str| part.split(end).map(printable).collect::<Vec<_>>().join(end);
    write(&text.split(begin).map(part).collect::<Vec<_>>().join(begin))
}

fn write(text: &str) -> Result<u8> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(0),
    }
}

/// Prints a line on stderr. A reader that has left does not end the program.
pub(super) fn tell(line: impl Display) {
    let line = format!("{line}\n");
    let _ = stderr().lock().write_all(printable(&line).as_bytes());
}
