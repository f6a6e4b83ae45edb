//! What a sweep asks of a model: the settings of each task, checked but not carried out.
//!
//! Knows settings and their canonical text; reading a data set and making samples is the business of `task`.

use std::fmt;
use std::str::FromStr;

use crate::lm::source::RepoId;

/// Whether a sample starts with the tokenizer's BOS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bos {
    /// As the model's tokenizer does by itself.
    #[default]
    Auto,
    Always,
    Never,
}

impl Bos {
    /// The name YAML and cell ids use.
    pub fn name(self) -> &'static str {
        match self {
            Bos::Auto => "auto",
            Bos::Always => "true",
            Bos::Never => "false",
        }
    }
}

/// What becomes of a book's last sample when it is shorter than the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tail {
    #[default]
    Drop,
    Keep,
}

impl Tail {
    /// The name YAML, cell ids and result rows use.
    pub fn name(self) -> &'static str {
        match self {
            Tail::Drop => "drop",
            Tail::Keep => "keep",
        }
    }
}

/// Perplexity of long texts, cut to samples of `length` tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Perplexity {
    pub dataset: DataSource,
    /// Tokens of a sample, BOS included.
    pub length: usize,
    /// Text tokens from one sample's start to the next; `None`: the text tokens of a sample, so none overlap.
    pub stride: Option<usize>,
    pub bos: Bos,
    pub tail: Tail,
    /// Only the first books; `None`: all.
    pub books: Option<usize>,
    /// Only the first samples of each book; `None`: all.
    pub chunks_per_book: Option<usize>,
    /// Whether each token is also compared with the unbounded cache's prediction.
    pub compare_to_full: bool,
}

/// The data set that needs no file: seeded random words.
pub const RANDOM_WORDS: &str = "random-words";

/// The data set that needs no file and asks for recall: books of made-up worlds.
pub const EMBEDDED: &str = "embedded";
/// The data set of articles of the same worlds, with questions and answers below them.
pub const EMBEDDED_QUESTIONS: &str = "embedded-questions";

/// Where texts come from. [`fmt::Display`] gives the text it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataSource {
    RandomWords,
    /// The test books of [`world`](crate::world).
    Embedded,
    /// Articles of the same worlds with questions and answers below them.
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

impl Perplexity {
    /// Tokens of a sample unless the sweep says otherwise: the training length of the paper's models.
    pub const DEFAULT_LENGTH: usize = 4096;

    /// Text tokens of a whole sample, once it is known whether BOS takes one place.
    pub fn text_tokens(&self, bos: bool) -> usize {
        self.length - usize::from(bos)
    }

    /// The stride in text tokens, once it is known whether BOS takes one place.
    pub fn stride(&self, bos: bool) -> usize {
        self.stride.unwrap_or_else(|| self.text_tokens(bos))
    }

    /// The stride as ids spell it: `sample` for "no overlap", however the file said that. With `bos: auto` a
    /// number stays a number, as only the tokenizer knows whether it is a whole sample.
    fn canonical_stride(&self) -> String {
        let whole = match self.bos {
            Bos::Auto => None,
            Bos::Always => Some(self.text_tokens(true)),
            Bos::Never => Some(self.text_tokens(false)),
        };
        match self.stride {
            Some(stride) if Some(stride) != whole => stride.to_string(),
            _ => "sample".to_string(),
        }
    }
}

/// One entry of `tasks:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TaskSpec {
    Perplexity(Perplexity),
}

impl TaskSpec {
    /// Every task, as YAML names it.
    pub const NAMES: [&'static str; 1] = ["perplexity"];

    /// The name YAML, file names and result rows use.
    pub fn name(&self) -> &'static str {
        match self {
            TaskSpec::Perplexity(_) => "perplexity",
        }
    }

    /// Where the texts come from, as the sweep names it.
    pub fn dataset(&self) -> &DataSource {
        match self {
            TaskSpec::Perplexity(perplexity) => &perplexity.dataset,
        }
    }
}

impl fmt::Display for TaskSpec {
    /// The canonical text as it enters cell ids. The data set's name is no part of it: its digest is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskSpec::Perplexity(task) = self;
        let limit = |limit: Option<usize>| limit.map_or("all".to_string(), |n| n.to_string());
        writeln!(f, "task=perplexity")?;
        writeln!(f, "length={}", task.length)?;
        writeln!(f, "stride={}", task.canonical_stride())?;
        writeln!(f, "bos={}", task.bos.name())?;
        writeln!(f, "tail={}", task.tail.name())?;
        writeln!(f, "books={}", limit(task.books))?;
        writeln!(f, "chunks_per_book={}", limit(task.chunks_per_book))?;
        writeln!(f, "compare_to_full={}", task.compare_to_full)
    }
}
