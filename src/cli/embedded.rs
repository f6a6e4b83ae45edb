//! `embedded`: the embedded texts as JSON lines.

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::error::UsageError;
use super::output::print;
use crate::task::{MOST_EMBEDDED_BOOKS, MOST_EMBEDDED_PROMPTS, embedded};

/// Where texts come from that are not embedded.
const GENERATOR: &str =
    "More texts, other seeds and the training texts: `cargo run -p pocket-worlds -- --help` in a checkout";

/// Print the embedded texts as JSON lines, with the facts they recall
#[derive(Debug, Args)]
#[command(after_help = GENERATOR, alias = "worlds")]
pub(super) struct Arguments {
    /// What to print
    #[arg(value_enum)]
    what: Kind,
    /// How many texts
    #[arg(long, default_value_t = 1, value_name = "N")]
    count: usize,
    /// Questions about each article or story
    #[arg(long, default_value_t = 8, value_name = "N")]
    questions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Stories of at least 4096 tokens, with the facts they recall (dataset: embedded)
    Books,
    /// Articles with questions and their answers below, as one text (dataset: embedded-questions)
    Quizzes,
    /// Articles with questions and answers (qasper)
    Articles,
    /// Stories with questions and reference summaries (squality)
    Stories,
    /// Requests to write a story (story)
    Prompts,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let Arguments { what, count, questions } = *arguments;
    let most = if what == Kind::Prompts { MOST_EMBEDDED_PROMPTS } else { MOST_EMBEDDED_BOOKS };
    if count > most {
        return Err(UsageError::new(format!("only {most} of these texts are embedded"), GENERATOR).into());
    }
    print(&match what {
        Kind::Books => lines(embedded::books(count)),
        Kind::Quizzes => lines(embedded::quizzes(count)),
        Kind::Articles => lines(embedded::articles(count, questions)),
        Kind::Stories => lines(embedded::stories(count, questions)),
        Kind::Prompts => lines(embedded::prompts(count)),
    }?)
}

/// One JSON value per line.
fn lines<T: serde::Serialize>(texts: impl IntoIterator<Item = T>) -> Result<String> {
    texts.into_iter().map(|text| Ok(serde_json::to_string(&text)? + "\n")).collect()
}
