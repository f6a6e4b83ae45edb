//! The templates of a task file, rendered as lm-evaluation-harness renders them: Jinja with strict names, and values in Python's
//! words.
//!
//! A file comes from anywhere: templates cannot read files, and their steps, their output and their depth are limited.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use fancy_regex::Regex;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value as JinjaValue, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior};
use minijinja_contrib::pycompat::unknown_method_callback;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::filter::python_strip;
use super::python;

/// Bytes of a template; the harness' longest has some thousand.
const MOST_SOURCE: usize = 1 << 16;
/// Bytes a template may write: a context of ten million tokens.
const MOST_OUTPUT: usize = 1 << 26;
/// Instructions a template may execute.
const FUEL: u64 = 1_000_000;
/// minijinja's compiler recurses for every operator of an expression.
const STACK: usize = 256 << 20;

/// A column or a template, which is compiled.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Template {
    source: Arc<str>,
    /// What the template asks a row for, in the order of the alphabet.
    names: Arc<[String]>,
    environment: Arc<Environment<'static>>,
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
        let compile = || -> Result<Template> {
            let mut environment = Environment::new();
            environment.set_syntax(SyntaxConfig::builder().keep_trailing_newline(true).build()?);
            environment.set_undefined_behavior(UndefinedBehavior::Strict);
            environment.set_fuel(Some(FUEL));
            environment.set_recursion_limit(100);
            environment.set_unknown_method_callback(method);
            environment.set_formatter(|out, state, value| match value.kind() {
                ValueKind::String | ValueKind::Undefined => minijinja::escape_formatter(out, state, value),
                _ => Ok(out.write_str(&python::str(&plain(value)?))?),
            });
            environment.add_filter("regex_replace", regex_replace);
            environment.add_filter("string", |value: &JinjaValue| plain(value).map(|value| python::str(&value)));
            environment.add_template_owned("text", source.to_owned())?;
            let mut names = environment.get_template("text")?.undeclared_variables(false);
            for (global, _) in environment.globals() {
                names.remove(global);
            }
            let names = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
            Ok(Template { source: source.into(), names, environment: Arc::new(environment) })
        };
        // Deep expressions need a deep stack, once.
        thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, compile);
            thread
                .context("its thread cannot be started")?
                .join()
                .map_err(|_| anyhow!("it is too deeply nested"))?
        })
    }

    /// The text that the template makes of a row.
    ///
    /// # Errors
    /// A name that the row has not, an operation that has no meaning, or a template that does not end.
    pub fn render(&self, row: &Value) -> Result<String> {
        let mut output = Cursor::new(Vec::new());
        let template = self.environment.get_template("text").map_err(plainly)?;
        let rendered = template.render_captured_to(Serde(row), Limited(&mut output));
        rendered.map_err(|error| match (error.kind(), self.missing(row)) {
            (ErrorKind::UndefinedError, Some(missing)) => plainly(error).context(missing),
            _ => plainly(error),
        })?;
        Ok(String::from_utf8(output.into_inner())?)
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

/// Writing more than a prompt can have is an error.
struct Limited<'a>(&'a mut Cursor<Vec<u8>>);

impl std::io::Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.get_ref().len() + bytes.len() > MOST_OUTPUT {
            return Err(std::io::Error::other(format!("the text has more than {MOST_OUTPUT} bytes")));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The error in one line.
fn plainly(error: Error) -> anyhow::Error {
    let words = format!("{:#}", anyhow::Error::new(error));
    let words = words.replace(" (in text:1)", "").replace(" (in text:", " (line ").replace('\n', " ");
    anyhow!("{words}")
}

/// A value of the template engine as JSON.
fn plain(value: &JinjaValue) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// Methods of Python's strings, lists and dictionaries.
fn method(
    state: &mut State<'_, '_>,
    value: &JinjaValue,
    method: &str,
    args: &[JinjaValue],
) -> Result<JinjaValue, Error> {
    let none = || Error::new(ErrorKind::InvalidOperation, format!("Python's {method} found nothing"));
    match (value.kind(), method, args) {
        (ValueKind::Seq, "index", [wanted]) => {
            let at = value.try_iter()?.position(|item| item == *wanted);
            at.map(JinjaValue::from).ok_or_else(none)
        }
        (ValueKind::String, "index", [wanted]) => {
            let (text, wanted) = (value.as_str().unwrap_or_default(), wanted.as_str().unwrap_or_default());
            let at = text.find(wanted).map(|bytes| text[..bytes].chars().count());
            at.map(JinjaValue::from).ok_or_else(none)
        }
        (ValueKind::String, "strip", []) => Ok(python_strip(value.as_str().unwrap_or_default()).into()),
        _ => unknown_method_callback(state, value, method, args),
    }
}

/// The harness' own filter: `re.sub`.
fn regex_replace(text: String, pattern: String, replacement: String) -> Result<String, Error> {
    let refused = |error: fancy_regex::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    // Python's `\1` is `${1}` here, where `$` has a meaning of its own.
    let group = Regex::new(r"\\(\d)").map_err(refused)?;
    let replacement = group.replace_all(&replacement.replace('$', "$$"), "$${$1}").into_owned();
    Ok(Regex::new(&pattern).map_err(refused)?.try_replacen(&text, 0, replacement).map_err(refused)?.into_owned())
}
