//! Where a task's texts come from, by name.

use std::fmt;
use std::str::FromStr;

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::format::did_you_mean;
use crate::lm::source::RepoId;
use crate::task::embedded::MOST_EMBEDDED_BOOKS;
use crate::yaml::schema::{HUB_PART, Named, one_of};
use crate::yaml::{self, ConfigError, Spanned};

/// What `timing` decodes from: random tokens, no data set.
pub const RANDOM_TOKENS: &str = "random-tokens";

/// Texts in the program, in which the recall of facts is measured too.
pub const EMBEDDED: &str = "embedded";

/// The data sets that need no files, with what they are.
const NAMED: [(&str, DataSource, &str); 3] = [
    (
        EMBEDDED,
        DataSource::Embedded,
        "books of made-up worlds in the program, where recall of facts is measured too",
    ),
    (
        "embedded-questions",
        DataSource::EmbeddedQuestions,
        "articles of the same worlds with questions and answers below them",
    ),
    ("random-words", DataSource::RandomWords, "random words made from a seed"),
];

/// How the names of files end. Such a name needs no `./`, as no data set of the hub is called so.
const FILES: [&str; 4] = [".parquet", ".json", ".jsonl", ".zip"];

/// What long texts can be read from.
const TEXT_FORMS: &str = "a folder of .txt files or a .parquet file (starting with ./, ../ or /), a hub data set \
                              owner/name, embedded, embedded-questions or random-words";

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
        if let Some((_, source, _)) = NAMED.iter().find(|(name, ..)| *name == text) {
            return Ok(source.clone());
        }
        let is_path = ["./", "../", "/", "~/"].iter().any(|start| text.starts_with(start))
            || FILES.iter().any(|ending| text.ends_with(ending))
            || [".", ".."].contains(&text);
        Ok(if is_path { DataSource::Path(text.to_string()) } else { DataSource::Hub(text.parse()?) })
    }
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSource::Path(path) => f.write_str(path),
            DataSource::Hub(repo) => write!(f, "{repo}"),
            named => {
                f.write_str(NAMED.iter().find(|(_, source, _)| source == named).map_or("", |(name, ..)| name))
            }
        }
    }
}

/// The key `dataset` of long texts.
pub fn check_texts(dataset: &Spanned<String>) -> Result<DataSource, ConfigError> {
    check_source(dataset, TEXT_FORMS, &NAMED.map(|(name, ..)| name))
}

/// The key `dataset`: a path, a data set of the hub, or a word of `named`; `forms` says so.
pub fn check_source(dataset: &Spanned<String>, forms: &str, named: &[&str]) -> Result<DataSource, ConfigError> {
    let is_other =
        NAMED.iter().any(|(name, ..)| *name == dataset.value) && !named.contains(&dataset.value.as_str());
    let source = dataset.value.parse().ok().filter(|_| !is_other);
    source.map_or_else(
        || {
            let near = did_you_mean(&dataset.value, named.iter().copied());
            yaml::refuse(
                dataset.referenced,
                format!("`{}` names no data set", dataset.value),
                format!("{near}use {forms}"),
            )
        },
        Ok,
    )
}

/// A limit of texts, of which embedded data sets have only so many.
pub fn limit_embedded(
    dataset: &DataSource,
    what: &str,
    number: &Option<Spanned<u64>>,
) -> Result<Option<usize>, ConfigError> {
    let limit = yaml::limit(what, number)?;
    if let (DataSource::Embedded | DataSource::EmbeddedQuestions, Some(number)) = (dataset, number)
        && number.value > MOST_EMBEDDED_BOOKS as u64
    {
        return yaml::refuse(
            number.referenced,
            format!("`{dataset}` has no {} texts", number.value),
            format!("ask for at most {MOST_EMBEDDED_BOOKS}"),
        );
    }
    Ok(limit)
}

/// The schema of a data set of long texts.
pub fn text_sources(_: &mut SchemaGenerator) -> Schema {
    data_sources(&NAMED.map(|(name, _, meaning)| (name, meaning)))
}

/// The schema of a data set of questions.
pub fn question_sources(_: &mut SchemaGenerator) -> Schema {
    data_sources(&[(
        EMBEDDED,
        "articles or stories of made-up worlds in the program, with questions and references",
    )])
}

/// The schema of a data set of problems with an answer each.
pub fn problem_sources(_: &mut SchemaGenerator) -> Schema {
    data_sources(&[(EMBEDDED, "arithmetic word problems made in the program")])
}

/// The schema of a data set of which the program has none of its own.
pub fn published_sources(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": folder_or_hub()})
}

fn data_sources(named: &[Named]) -> Schema {
    let all: Vec<Schema> = std::iter::once(one_of(named)).chain(folder_or_hub()).collect();
    json_schema!({"anyOf": all})
}

/// Files, folders and data sets of the hub.
fn folder_or_hub() -> [Schema; 2] {
    [
        json_schema!({
            "type": "string",
            "description": "a file or folder",
            "pattern": r"^(\./|\.\./|/|~/)|^\.\.?$|\.(parquet|jsonl?|zip)$",
        }),
        json_schema!({
            "type": "string",
            "description": "a data set of the hub",
            "pattern": format!("^{HUB_PART}/{HUB_PART}$"),
        }),
    ]
}
