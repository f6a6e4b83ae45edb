//! `tova-bench worlds`: prints the embedded texts as JSON lines.

use std::io::{BufWriter, ErrorKind, Write};

use anyhow::{Context, Result};

use super::args::{Worlds, WorldsArguments};
use super::failure::Usage;
use crate::task::{MOST_EMBEDDED_BOOKS, MOST_EMBEDDED_PROMPTS, embedded};

/// Where texts come from that are not embedded.
pub(super) const GENERATOR: &str =
    "More texts, other seeds and the training texts: `cargo run -p pocket-worlds -- --help` in a checkout";

/// Prints the first texts of a kind.
///
/// # Errors
/// More texts than are embedded, the training texts, and output that cannot be written.
pub(super) fn write(arguments: &WorldsArguments) -> Result<()> {
    let WorldsArguments { what, count, questions } = *arguments;
    let most = if what == Worlds::Prompts { MOST_EMBEDDED_PROMPTS } else { MOST_EMBEDDED_BOOKS };
    if count > most {
        return Err(Usage::new(format!("only {most} of these texts are embedded"), GENERATOR).into());
    }
    match what {
        Worlds::Books => print(embedded::books(count)),
        Worlds::Quizzes => print(embedded::quizzes(count)),
        Worlds::Articles => print(embedded::articles(count, questions)),
        Worlds::Stories => print(embedded::stories(count, questions)),
        Worlds::Prompts => print(embedded::prompts(count)),
        Worlds::Lessons => Err(Usage::new("the training texts are not embedded", GENERATOR).into()),
    }
}

/// Prints one JSON value per line. A closed pipe is not an error.
fn print<T: serde::Serialize>(texts: impl Iterator<Item = T>) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut lines = texts.map(|text| writeln!(out, "{}", serde_json::to_string(&text)?));
    match lines.try_for_each(|line| line).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}
