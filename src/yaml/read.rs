//! The only user of the YAML crate: turns a file into values, and its errors into [`ConfigError`]s.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
pub use serde_saphyr::Location;
use serde_saphyr::{MergeKeyPolicy, MessageFormatter, UserMessageFormatter};

use crate::bounded_read;
use crate::format::did_you_mean;

/// Value and its place in the file. Its JSON Schema is that of the value, which the YAML crate's own type lacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spanned<T> {
    pub value: T,
    /// Where the file uses the value. Behind an alias, this is not where the value is written.
    pub referenced: Location,
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let serde_saphyr::Spanned { value, referenced, .. } = serde_saphyr::Spanned::deserialize(deserializer)?;
        Ok(Spanned { value, referenced })
    }
}

/// Largest configuration file in bytes. Such a file has a page or two; anything near this size is the wrong file.
const MOST_BYTES: u64 = 1 << 20;

/// Error in a configuration file: what is wrong, where, and what to do about it. Printed as `file:line:column: message` and a line
/// `hint: ...`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    pub file: String,
    /// Line and column, counted from 1; `None` if the error is about the whole file.
    pub place: Option<(u64, u64)>,
    pub message: String,
    pub hint: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}\nhint: {}", self.message, self.hint)
    }
}

impl ConfigError {
    /// Makes an error of a file that [`ConfigError::in_file`] names later.
    pub(super) fn at(location: Location, message: impl Into<String>, hint: impl Into<String>) -> ConfigError {
        let place = (location != Location::UNKNOWN).then(|| (location.line(), location.column()));
        ConfigError { file: String::new(), place, message: printable(&message.into()), hint: hint.into() }
    }

    /// Names the file of this error, unless it names one already.
    pub fn in_file(self, file: &str) -> ConfigError {
        if self.file.is_empty() { ConfigError { file: file.to_string(), ..self } } else { self }
    }
}

/// Escapes control characters, so that text quoted from the file cannot change the terminal.
fn printable(message: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    message.chars().map(escape).collect()
}

/// Reads the text of a configuration file.
///
/// # Errors
///
/// A file that cannot be read, is too large or is not UTF-8 text.
pub fn read_file(path: &Path) -> Result<String, ConfigError> {
    let whole = |message: String, hint| {
        ConfigError::at(Location::UNKNOWN, message, hint).in_file(&path.display().to_string())
    };
    let bytes = bounded_read::bytes(path, MOST_BYTES)
        .map_err(|error| whole(format!("cannot be read: {error}"), "check the path"))?;
    String::from_utf8(bytes).map_err(|_| whole("is not UTF-8 text".into(), "is it the file you meant?"))
}

/// Parses YAML text; errors call it `file`.
///
/// # Errors
///
/// Text that is not one YAML document, or does not have the form of `T`.
pub fn parse_yaml<T: DeserializeOwned>(text: &str, file: &str) -> Result<T, ConfigError> {
    let options = serde_saphyr::options! {
        // `yes` and `on` mean different things to different YAML readers.
        strict_booleans: true,
        // As PyYAML, with which lm-evaluation-harness reads task files.
        merge_keys: MergeKeyPolicy::Merge,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| explain(&error).in_file(file))
}

fn explain(error: &serde_saphyr::Error) -> ConfigError {
    use serde_saphyr::Error;
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let examples = || "see the example sweeps under configs/".to_string();
    let known = |name: &str, kind: &str, expected: &[&'static str]| {
        let near = did_you_mean(name, expected.iter().copied());
        format!("{near}the {kind} here are {}", expected.join(", "))
    };
    let (message, hint) = match cause(error) {
        Error::SerdeUnknownField { field, expected, .. } => {
            (format!("unknown key `{field}`"), known(field, "keys", expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("unknown name `{variant}`"), known(variant, "names", expected))
        }
        Error::SerdeMissingField { field, .. } => {
            (format!("the key `{field}` is missing"), format!("add `{field}:`; {}", examples()))
        }
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            let unexpected = match unexpected.as_str() {
                "unit value" => "nothing",
                "sequence" => "a list",
                "map" => "a mapping",
                other => other,
            };
            (format!("{unexpected} where {expected} was expected"), examples())
        }
        Error::InvalidScalar { ty: expected, .. } | Error::Unexpected { expected, .. } => {
            (format!("{} was expected", in_words(expected)), examples())
        }
        Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. } => {
            ("a list where one name was expected".to_owned(), "write one, without brackets".to_owned())
        }
        Error::UnexpectedValueForUnitEnumVariant { .. } => {
            ("a name that has no settings has some".to_owned(), "write the name alone".to_owned())
        }
        Error::ExpectedMappingEndAfterEnumVariantValue { .. } => (
            "a second key in an entry that has one".to_owned(),
            "write its settings below its name, indented further, or in braces: `name: {setting: value}`"
                .to_owned(),
        ),
        other => (UserMessageFormatter.format_message(other).to_string(), examples()),
    };
    ConfigError::at(location, message, hint)
}

/// Finds the error inside wrappers that only add a place.
fn cause(mut error: &serde_saphyr::Error) -> &serde_saphyr::Error {
    while let serde_saphyr::Error::AliasError { error: inner, .. }
    | serde_saphyr::Error::WithSnippet { error: inner, .. } = error
    {
        error = inner;
    }
    error
}

/// Says in words what the YAML crate expected.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "bool" => "true or false",
        "sequence start" => "a list, such as [one, another],",
        "mapping start" => "a mapping, such as {key: value},",
        "string scalar" => "a single value",
        other => other,
    }
}
