//! Jinja templates of strangers, rendered as Python's jinja2 renders them.
//!
//! A template sees the values it is given and nothing else: there is no loader, so it cannot read files. Its steps, the bytes it
//! makes, the size and depth of its values and its own depth are limited, so that it ends, in bounded memory.

mod builtins;
mod source;
mod strftime;
#[cfg(test)]
mod tests;
pub mod text;

use std::collections::BTreeSet;
use std::io::{Error as IoError, Write};
use std::thread;

use anyhow::{Context, Result, anyhow};
use minijinja::UndefinedBehavior;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use serde::Serialize;

pub use builtins::{is_space, refused};
pub use minijinja::value::{Kwargs, Value};
pub use minijinja::{Environment, Error, ErrorKind};

/// Largest number of bytes that a template may write: a context of ten million tokens.
const MOST_OUTPUT: usize = 1 << 26;
/// Largest number of steps that a template may take. The engine charges bytes and values too, one step for 64 bytes.
const FUEL: u64 = 2 << 20;
/// Deepest nesting of scopes and of calls of macros.
const MOST_DEPTH: usize = 100;
/// Stack in bytes for compiling and rendering: the engine's compiler recurses for every operator of an expression.
const STACK: usize = 512 << 20;
/// Length in bytes up to which a template is rendered without a deep stack, because its values cannot be nested that deep. A thread
/// for each of many rows would take time.
const SHORT: usize = 1 << 12;
const NAME: &str = "template";

/// Dialect in which templates are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Dialect of chat templates in transformers.
    Chat,
    /// Dialect of task files in lm-evaluation-harness: every name must be defined.
    Harness,
}

/// A compiled template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    is_short: bool,
}

impl Template {
    /// Compiles a template; `add` adds filters and functions to the engine.
    ///
    /// # Errors
    ///
    /// Text that is not Jinja.
    pub fn new(
        source: &str,
        dialect: Dialect,
        add: impl FnOnce(&mut Environment<'static>) + Send,
    ) -> Result<Template> {
        on_deep_stack(|| {
            let mut environment = Environment::new();
            let is_chat = dialect == Dialect::Chat;
            let mut syntax = SyntaxConfig::builder();
            match dialect {
                Dialect::Chat => syntax.trim_blocks(true).lstrip_blocks(true),
                Dialect::Harness => syntax.keep_trailing_newline(true),
            };
            let syntax = syntax.build()?;
            environment.set_syntax(syntax.clone());
            if !is_chat {
                environment.set_undefined_behavior(UndefinedBehavior::Strict);
            }
            environment.set_fuel(Some(FUEL));
            environment.set_recursion_limit(MOST_DEPTH);
            builtins::add(&mut environment, dialect);
            add(&mut environment);
            environment.add_template_owned(NAME, source::prepared(source, syntax, is_chat)?)?;
            let is_short = !is_chat && source.len() <= SHORT;
            Ok(Template { environment, is_short })
        })
    }

    /// Names that the template asks its values for.
    ///
    /// # Errors
    ///
    /// None that can happen: the template is there.
    pub fn names(&self) -> Result<BTreeSet<String>> {
        let mut names = self.environment.get_template(NAME)?.undeclared_variables(false);
        for (global, _) in self.environment.globals() {
            names.remove(global);
        }
        Ok(names.into_iter().collect())
    }

    /// Renders the template with `values`.
    ///
    /// # Errors
    ///
    /// An operation without a meaning, or a template that exceeds its limits.
    pub fn render(&self, values: impl FnOnce() -> Value + Send) -> Result<String> {
        let render = || {
            let mut output = Limited(Vec::new());
            let rendered = self.environment.get_template(NAME)?.render_captured_to(values(), &mut output);
            rendered.map(drop)?;
            Ok(String::from_utf8(output.0)?)
        };
        if self.is_short { render() } else { on_deep_stack(render) }
    }
}

/// Converts JSON to a value for a template; objects keep the order of their keys.
pub fn value(json: &impl Serialize) -> Value {
    Value::from(Serde(json))
}

/// Does work on a thread with a large stack, which nested values also need when they are dropped.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let done = thread.context("its thread cannot be started")?.join();
        done.unwrap_or_else(|_| Err(anyhow!("the template engine panicked")))
    })
}

/// Writer that fails once more is written than fits.
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_OUTPUT {
            return Err(IoError::other(format!("the text has more than {MOST_OUTPUT} bytes")));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
