//! The templates of a task file, rendered as lm-evaluation-harness renders them: Jinja with strict names, and values in Python's
//! words.
//!
//! A file comes from anywhere; `jinja` limits what its templates can do.

use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::re::Pattern;
use crate::jinja::{self, Dialect, Environment, Error, ErrorKind, Kwargs};

/// Bytes of a template; the harness' longest has some thousand.
const MOST_SOURCE: usize = 1 << 16;

/// A column or a template, which is compiled.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Template {
    source: Arc<str>,
    /// What the template asks a row for, in the order of the alphabet.
    names: Arc<[String]>,
    compiled: Arc<jinja::Template>,
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(source: String) -> Result<Template, String> {
        Template::new(&source).map_err(|error| format!("the template cannot be used: {error:#}"))
    }
}

impl Template {
    /// # Errors
    /// A template that is too long or is no Jinja.
    pub fn new(source: &str) -> Result<Template> {
        ensure!(source.len() <= MOST_SOURCE, "the template has more than {MOST_SOURCE} bytes");
        let add = |environment: &mut Environment<'static>| environment.add_filter("regex_replace", regex_replace);
        let compiled = jinja::Template::new(source, Dialect::Harness, add).map_err(plainly)?;
        let names = compiled.names()?.into_iter().collect();
        Ok(Template { source: source.into(), names, compiled: Arc::new(compiled) })
    }

    /// The text that the template makes of a row.
    ///
    /// # Errors
    /// A name that the row has not, an operation that has no meaning, or a template that does not end.
    pub fn render(&self, row: &Value) -> Result<String> {
        self.compiled.render(|| jinja::value(row)).map_err(|error| {
            let is_missing =
                error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::UndefinedError);
            match self.missing(row).filter(|_| is_missing) {
                Some(missing) => plainly(error).context(missing),
                None => plainly(error),
            }
        })
    }

    /// The names that the row has not, if there are any.
    fn missing(&self, row: &Value) -> Option<String> {
        let missing: Vec<_> = self
            .names
            .iter()
            .filter(|name| row.get(name.as_str()).is_none())
            .map(|name| format!("`{name}`"))
            .collect();
        let columns: Vec<&str> = row.as_object()?.keys().map(String::as_str).collect();
        (!missing.is_empty())
            .then(|| format!("the row has no {}; its columns are {}", missing.join(", "), columns.join(", ")))
    }

    /// What the template asks a row for.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The template as it is written.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// The error in one line.
fn plainly(error: anyhow::Error) -> anyhow::Error {
    let words = format!("{error:#}").replace(" (in template:1)", "").replace(" (in template:", " (line ");
    anyhow!("{}", words.replace('\n', " "))
}

/// The harness' own filter: `re.sub`.
fn regex_replace(
    text: &str,
    pattern: &str,
    replacement: &str,
    count: Option<usize>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let count = count.or(kwargs.get("count")?).unwrap_or(0);
    kwargs.assert_all_used()?;
    let replaced = Pattern::new(pattern).and_then(|pattern| pattern.sub(replacement, text, count));
    replaced.map_err(|error| jinja::refused(format!("{error:#}")))
}
