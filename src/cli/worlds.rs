//! `worlds`: made-up texts as JSON lines, to look at, to train the pocket model on, to ask other models.

use std::io::{BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::world::{self, Plan, Split};

/// Print made-up texts as JSON lines, with the facts they ask a reader to recall
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What to print
    #[arg(value_enum)]
    what: Worlds,
    /// Worlds to learn from, or worlds to be asked about: they share no fact
    #[arg(long, value_enum, default_value = "test")]
    split: WorldSplit,
    /// Another seed makes other worlds; 1 is the seed of the embedded texts
    #[arg(long, default_value_t = world::EMBEDDED_SEED)]
    seed: u64,
    /// How many texts
    #[arg(long, default_value_t = 1, value_name = "N")]
    count: usize,
    /// Questions about each article or story
    #[arg(long, default_value_t = 8, value_name = "N")]
    questions: usize,
    /// Longest lesson, in characters
    #[arg(long, default_value_t = 4000, value_name = "N")]
    characters: usize,
    /// Ways to say each kind of fact in lessons: 1 repeats every fact word for word, 0 only puts values beside names
    #[arg(long, default_value_t = 100, value_name = "N")]
    variety: usize,
    /// Farthest planned distance of recalls in lessons, in tokens
    #[arg(long, default_value_t = 4000, value_name = "N")]
    farthest: usize,
    /// Percent of lessons that are drills: facts and their recalls, nothing else
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    drills: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Worlds {
    /// Tales of 4096 tokens and more
    Books,
    /// Articles with questions and answers
    Articles,
    /// Stories with questions and reference summaries
    Stories,
    /// Requests to write a story
    Prompts,
    /// What the pocket model was trained on
    Lessons,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorldSplit {
    Train,
    Test,
}

impl From<WorldSplit> for Split {
    fn from(split: WorldSplit) -> Split {
        match split {
            WorldSplit::Train => Split::Train,
            WorldSplit::Test => Split::Test,
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { what, seed, count, questions, drills, .. } = *arguments;
    let split = arguments.split.into();
    let plan = Plan { characters: arguments.characters, variety: arguments.variety, farthest: arguments.farthest };
    match what {
        Worlds::Books => print(world::books(split, seed, count)),
        Worlds::Articles => print(world::articles(split, seed, count, questions)),
        Worlds::Stories => print(world::stories(split, seed, count, questions)),
        Worlds::Prompts => print(world::prompts(seed, count)),
        Worlds::Lessons => print(world::lessons(split, seed, count, plan, drills)),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one JSON object a line. A closed pipe is not an error.
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
