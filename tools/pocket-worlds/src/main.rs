//! Prints generated texts as JSON lines.

use std::io::{BufWriter, ErrorKind, Write};

use anyhow::{Context, Result};
use clap::Parser;
use pocket_worlds::{EMBEDDED_SEED, Plan, Split};

/// Print generated texts as JSON lines: what the pocket model was trained on, and what tova-bench embeds
#[derive(Debug, Parser)]
#[command(name = "pocket-worlds", version)]
struct Arguments {
    /// What to print
    #[arg(value_enum)]
    what: What,
    /// The training texts and the test texts share no fact; the embedded texts are test texts
    #[arg(long, value_enum, default_value = "test")]
    split: SplitArgument,
    /// Every seed gives other texts; 1 is the seed of the embedded texts
    #[arg(long, default_value_t = EMBEDDED_SEED)]
    seed: u64,
    /// How many texts
    #[arg(long, default_value_t = 1, value_name = "N")]
    count: usize,
    /// Questions about each article or story
    #[arg(long, default_value_t = 8, value_name = "N")]
    questions: usize,
    /// Length of the longest lesson, in characters
    #[arg(long, default_value_t = 4000, value_name = "N")]
    characters: usize,
    /// How many ways lessons have to state each kind of fact: 1 repeats every fact word for word, 0 only puts values
    /// next to names
    #[arg(long, default_value_t = 100, value_name = "N")]
    variety: usize,
    /// Longest planned distance between a fact and its recall in lessons, in tokens
    #[arg(long, default_value_t = 4000, value_name = "N")]
    farthest: usize,
    /// Percentage of lessons that are drills: facts and their recalls, nothing else
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    drills: u32,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// Stories of at least 4096 tokens, with the facts they recall
    Books,
    /// Articles with questions and their answers below, as one text
    Quizzes,
    /// Articles with questions and answers
    Articles,
    /// Stories with questions and reference summaries
    Stories,
    /// Requests to write a story
    Prompts,
    /// Training texts
    Lessons,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SplitArgument {
    Train,
    Test,
}

fn main() -> Result<()> {
    let Arguments { what, seed, count, questions, characters, variety, farthest, drills, split } =
        Arguments::parse();
    let split = match split {
        SplitArgument::Train => Split::Train,
        SplitArgument::Test => Split::Test,
    };
    match what {
        What::Books => print(pocket_worlds::books(split, seed, count)),
        What::Quizzes => print(pocket_worlds::quizzes(split, seed, count)),
        What::Articles => print(pocket_worlds::articles(split, seed, count, questions)),
        What::Stories => print(pocket_worlds::stories(split, seed, count, questions)),
        What::Prompts => print(pocket_worlds::prompts(seed, count)),
        What::Lessons => {
            let plan = Plan { characters, variety, farthest };
            print(pocket_worlds::lessons(split, seed, count, plan, drills))
        }
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
