//! Which books of a data set are read: all, the first, or those of a list of names.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use anyhow::{Result, anyhow};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::format::{did_you_mean, first_of};
use crate::yaml::{self, ConfigError, Spanned, from_text};

/// Books of a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Books {
    #[default]
    All,
    First(usize),
    /// By name, in this order, without the ending `.txt`.
    Named(Vec<String>),
}

/// How names of books in a folder end, which may be left out.
const ENDING: &str = ".txt";

/// Most names that an error lists.
const SHOWN: usize = 8;

impl Books {
    /// The places of the books among the names of a data set, in the order in which they are asked for.
    ///
    /// # Errors
    /// A name that is not among them; the message has those that are near.
    pub fn among<N: AsRef<str>>(&self, names: &[N]) -> Result<Vec<usize>> {
        let asked = match self {
            Books::All => return Ok((0..names.len()).collect()),
            Books::First(count) => return Ok((0..names.len().min(*count)).collect()),
            Books::Named(asked) => asked,
        };
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).map(without_ending).collect();
        let place = |name: &String| {
            names.iter().position(|own| own == name).ok_or_else(|| {
                let near = did_you_mean(name, names.iter().copied());
                anyhow!(
                    "`books` has `{name}`, and no text is named so\nhint: {near}there are {}",
                    first_of(&names, SHOWN)
                )
            })
        };
        asked.iter().map(place).collect()
    }

    /// How many are asked for, where that is a number.
    pub fn count(&self) -> Option<usize> {
        match self {
            Books::First(count) => Some(*count),
            Books::All | Books::Named(_) => None,
        }
    }
}

impl fmt::Display for Books {
    /// Writes what enters ids: `all`, `3`, or `[10146, 10321]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Books::All => f.write_str("all"),
            Books::First(count) => write!(f, "{count}"),
            Books::Named(names) => write!(f, "[{}]", names.join(", ")),
        }
    }
}

fn without_ending(name: &str) -> &str {
    name.strip_suffix(ENDING).unwrap_or(name)
}

/// The key `books`: a count, or a list of names.
#[derive(Debug)]
pub enum BooksYaml {
    Count(u64),
    Names(Vec<Spanned<BookName>>),
}

/// A name of a book, which may be a number.
#[derive(Debug)]
pub struct BookName(String);

impl FromStr for BookName {
    type Err = std::convert::Infallible;

    fn from_str(name: &str) -> Result<BookName, Self::Err> {
        Ok(BookName(without_ending(name).to_owned()))
    }
}

impl<'de> Deserialize<'de> for BookName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "the name of a text, such as 10146 or 10146.txt")
    }
}

impl<'de> Deserialize<'de> for BooksYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = BooksYaml;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a number of texts, or a list of their names such as [10146, 10321]")
            }
            fn visit_u64<E: Error>(self, count: u64) -> Result<BooksYaml, E> {
                Ok(BooksYaml::Count(count))
            }
            fn visit_i64<E: Error>(self, count: i64) -> Result<BooksYaml, E> {
                let refused = |_| E::invalid_value(Unexpected::Signed(count), &self);
                u64::try_from(count).map(BooksYaml::Count).map_err(refused)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<BooksYaml, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(names)).map(BooksYaml::Names)
            }
        }
        deserializer.deserialize_any(Written)
    }
}

impl JsonSchema for BooksYaml {
    fn schema_name() -> Cow<'static, str> {
        "Books".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let name = serde_json::json!({"anyOf": [{"type": "string"}, {"type": "number"}]});
        json_schema!({
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": u32::MAX},
                {"type": "array", "items": name, "minItems": 1, "uniqueItems": true}
            ],
            "examples": [12, [10146, 10321, 10356]]
        })
    }
}

/// Checks the key `books`.
///
/// # Errors
/// A count of 0, an empty list, or a book that is listed twice.
pub fn check_books(books: Option<Spanned<BooksYaml>>) -> Result<Books, ConfigError> {
    let Some(Spanned { value, referenced }) = books else { return Ok(Books::All) };
    match value {
        BooksYaml::Count(value) => yaml::count("`books`", &Spanned { value, referenced }, 1).map(Books::First),
        BooksYaml::Names(names) => {
            let names = names.into_iter().map(|name| (name.value.0, name.referenced)).collect();
            yaml::distinct("books", referenced, names, |name| format!("`{name}`")).map(Books::Named)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_are_found_by_name_in_the_order_asked_for() {
        let names = ["10146.txt", "10321.txt", "notes", "a b.txt"];
        let named = |names: &[&str]| Books::Named(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(named(&["a b", "10146", "notes"]).among(&names).unwrap(), [3, 0, 2]);
        assert_eq!(Books::First(2).among(&names).unwrap(), [0, 1]);
        assert_eq!(Books::First(9).among(&names).unwrap(), [0, 1, 2, 3]);
        let error = named(&["10146", "10312"]).among(&names).unwrap_err().to_string();
        assert!(error.contains("`10312`") && error.contains("did you mean `10321`?"), "{error}");
    }
}
