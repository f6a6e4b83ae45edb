//! The verb that prints made-up texts, as JSON lines: to look at, to train the pocket model on, to ask other models.

use std::io::{BufWriter, ErrorKind, Write};

use anyhow::{Context, Result};

use super::args::{Worlds, WorldsArguments};
use crate::world::{self, Plan};

/// Prints the texts asked for, one JSON object a line. A reader that has gone away is no failure.
pub(super) fn write(arguments: &WorldsArguments) -> Result<()> {
    let WorldsArguments { what, seed, count, questions, drills, .. } = *arguments;
    let split = arguments.split.into();
    let plan = Plan { characters: arguments.characters, variety: arguments.variety, farthest: arguments.farthest };
    match what {
        Worlds::Books => print(world::books(split, seed, count)),
        Worlds::Articles => print(world::articles(split, seed, count, questions)),
        Worlds::Stories => print(world::stories(split, seed, count, questions)),
        Worlds::Prompts => print(world::prompts(seed, count)),
        Worlds::Lessons => print(world::lessons(split, seed, count, plan, drills)),
    }
}

fn print<T: serde::Serialize>(texts: impl Iterator<Item = T>) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for text in texts {
        let line = serde_json::to_string(&text)?;
        match writeln!(out, "{line}") {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            other => other.context("cannot write to stdout")?,
        }
    }
    match out.flush() {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}
