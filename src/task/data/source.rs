//! Where a task's texts come from, by name.

use std::fmt;
use std::str::FromStr;

use crate::format::did_you_mean;
use crate::lm::source::{RepoId, is_path};
use crate::yaml::{self, ConfigError, Spanned};

/// What `timing` decodes from: random tokens, no data set.
pub const RANDOM_TOKENS: &str = "random-tokens";

/// Texts in the program, in which the recall of facts is measured too.
pub const EMBEDDED: &str = "embedded";

/// The data sets that need no files.
const NAMED: [(&str, DataSource); 3] = [
    (EMBEDDED, DataSource::Embedded),
    ("embedded-questions", DataSource::EmbeddedQuestions),
    ("random-words", DataSource::RandomWords),
];

/// How the names of files end, also where there is none. Such a name needs no `./`, as no data set of the hub is called so.
const FILES: [&str; 4] = [".parquet", ".json", ".jsonl", ".zip"];

/// Where texts come from. [`fmt::Display`] gives the text it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSource {
    RandomWords,
    /// The texts in the program.
    Embedded,
    /// The articles in the program, with questions and answers below them.
    EmbeddedQuestions,
    /// A folder of `.txt` files, a `.parquet` file with a `text` column, or a file or folder of questions.
    Path(String),
    /// A data set of the hub, of which the Parquet files of the test split are read.
    Hub(RepoId),
}

impl FromStr for DataSource {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<DataSource> {
        if let Some((_, source)) = NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(source.clone());
        }
        let is_path = is_path(text) || FILES.iter().any(|ending| text.ends_with(ending));
        Ok(if is_path { DataSource::Path(text.to_string()) } else { DataSource::Hub(text.parse()?) })
    }
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSource::Path(path) => f.write_str(path),
            DataSource::Hub(repo) => write!(f, "{repo}"),
            named => f.write_str(NAMED.iter().find(|(_, source)| source == named).map_or("", |(name, _)| name)),
        }
    }
}

/// The key `dataset` of long texts.
pub fn check_texts(dataset: &Spanned<String>) -> Result<DataSource, ConfigError> {
    check_source(dataset, &NAMED.map(|(name, _)| name))
}

/// The key `dataset`: a path, a data set of the hub, or a word of `named`.
pub fn check_source(dataset: &Spanned<String>, named: &[&str]) -> Result<DataSource, ConfigError> {
    let is_other =
        NAMED.iter().any(|(name, _)| *name == dataset.value) && !named.contains(&dataset.value.as_str());
    if let Some(source) = dataset.value.parse().ok().filter(|_| !is_other) {
        return Ok(source);
    }
    let near = did_you_mean(&dataset.value, named.iter().copied());
    let words: String = named.iter().map(|word| format!("{word}, ")).collect();
    let message = format!("`{}` names no data set", dataset.value);
    let hint = format!(
        "{near}use {words}a file or folder (starting with ./, ../ or /), or a data set owner/name of the hub"
    );
    yaml::refuse(dataset.referenced, message, hint)
}
