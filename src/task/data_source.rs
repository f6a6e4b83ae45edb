//! Where a task's texts come from, by name.

use std::fmt;
use std::str::FromStr;

use crate::lm::source::RepoId;

/// The data set that needs no file: seeded random words.
pub const RANDOM_WORDS: &str = "random-words";

/// What `timing` decodes from; no data set.
pub const RANDOM_TOKENS: &str = "random-tokens";

/// The data set that needs no file and asks for recall: books of made-up worlds.
pub const EMBEDDED: &str = "embedded";
/// The data set of articles of the same worlds, with questions and answers below them.
pub const EMBEDDED_QUESTIONS: &str = "embedded-questions";

/// Where texts come from. [`fmt::Display`] gives the text it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataSource {
    RandomWords,
    /// The embedded books.
    Embedded,
    /// The embedded quizzes: articles with questions and answers below them.
    EmbeddedQuestions,
    /// A folder of `.txt` files, or a `.parquet` file with a `text` column.
    Path(String),
    /// A data set of the hub, of which the Parquet files of its test split are read.
    Hub(RepoId),
}

impl FromStr for DataSource {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<DataSource> {
        let path = ["./", "../", "/", "~/"].iter().any(|start| text.starts_with(start));
        Ok(if text == RANDOM_WORDS {
            DataSource::RandomWords
        } else if text == EMBEDDED {
            DataSource::Embedded
        } else if text == EMBEDDED_QUESTIONS {
            DataSource::EmbeddedQuestions
        } else if path || text == "." || text == ".." || text.ends_with(".parquet") {
            DataSource::Path(text.to_string())
        } else {
            DataSource::Hub(text.parse()?)
        })
    }
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSource::RandomWords => f.write_str(RANDOM_WORDS),
            DataSource::Embedded => f.write_str(EMBEDDED),
            DataSource::EmbeddedQuestions => f.write_str(EMBEDDED_QUESTIONS),
            DataSource::Path(path) => f.write_str(path),
            DataSource::Hub(repo) => write!(f, "{repo}"),
        }
    }
}
