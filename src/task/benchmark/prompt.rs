//! The prompt of a row: description, examples, and the row itself, character for character as lm-evaluation-harness builds it
//! (`ConfigurableTask.fewshot_context` and `build_qa_turn` of 0.4.13, without a chat template).

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::definition::Definition;
use super::file::{Field, Sampler};
use super::python::{self, Random};
use super::rows::Rows;
use super::template::Template;

/// The seed with which the harness draws examples.
const SEED: u32 = 1234;

/// A prompt, and the row's own part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPrompt {
    /// Description and examples.
    pub before: String,
    /// Description and examples as messages of a conversation: the system's, then the user's and the answers to them.
    pub messages: Vec<(&'static str, String)>,
    /// The row's text.
    pub text: String,
    /// The bytes of the text that are the context, which may be empty; `None`: the file names none.
    pub context: Option<Range<usize>>,
    /// The delimiter and the prefix of the answer.
    pub prefix: String,
    /// Bytes of that delimiter.
    pub delimiter: usize,
}

/// What a row is asked and what is right.
#[derive(Clone, Debug)]
pub struct Question {
    pub prompt: RowPrompt,
    /// The target as the file has it.
    pub target: Value,
    pub choices: Vec<String>,
}

/// Builds the prompts of rows in their order: each draws examples where the one before left off.
pub struct Prompts<'a> {
    definition: &'a Definition,
    columns: &'a BTreeSet<String>,
    examples: Vec<Value>,
    random: Random,
    /// Whether an example that is equal to the row itself is left out, and one more drawn for it.
    leaves_out_asked: bool,
}

/// Builds the prompt of a row by itself, without examples.
///
/// # Errors
/// A column that is missing, a template that fails, or a value of another kind than the output type needs.
pub fn alone(definition: &Definition, row: Value) -> Result<RowPrompt> {
    let mut rows = Rows::default();
    rows.add(row, String::new())?;
    Ok(Prompts::new(definition, &rows, Rows::default()).question(&rows.rows[0])?.prompt)
}

impl<'a> Prompts<'a> {
    /// `examples` are the rows of the split that examples come from. Where one file serves both splits, a row is not an example of
    /// its own prompt either; the harness knows only the names of splits.
    pub fn new(definition: &'a Definition, rows: &'a Rows, examples: Rows) -> Prompts<'a> {
        let asked: HashSet<&String> = rows.places.iter().filter(|place| !place.is_empty()).collect();
        let shares_rows = examples.places.iter().any(|place| asked.contains(place));
        let leaves_out_asked = definition.fewshot.leaves_out_asked || shares_rows;
        let (columns, random) = (&rows.columns, Random::new(SEED));
        Prompts { definition, columns, examples: examples.rows, random, leaves_out_asked }
    }

    /// Builds the question of a row.
    ///
    /// # Errors
    /// A column that is missing, a template that fails, or a value of another kind than the output type needs.
    pub fn question(&mut self, row: &Value) -> Result<Question> {
        let mut before = match &self.definition.description {
            Some(description) => self.column_or_text(description, row)?,
            None => String::new(),
        };
        let (text, context) = self.text(row).context("doc_to_text")?;
        let mut messages = Vec::new();
        if !before.is_empty() {
            messages.push(("system", before.clone()));
        }
        for example in self.draw(row)? {
            let (question, delimiter, answer) = self.example(&example).context("an example of the prompt")?;
            before.extend([question.as_str(), delimiter]);
            messages.push(("user", question));
            if let Some((answer, end)) = answer {
                before.extend([answer.as_str(), end]);
                messages.push(("assistant", answer));
            }
        }
        let target = self.target(row).context("doc_to_target")?;
        let choices = self.choices(row).context("doc_to_choice")?;
        let prefix = self.prefix(row)?;
        let delimiter =
            if needs_delimiter(&text, &prefix) { self.definition.target_delimiter.as_str() } else { "" };
        let (prefix, delimiter) = ([delimiter, &prefix].concat(), delimiter.len());
        Ok(Question { prompt: RowPrompt { before, messages, text, context, prefix, delimiter }, target, choices })
    }

    /// The examples before a row.
    fn draw(&mut self, row: &Value) -> Result<Vec<Value>> {
        let count = self.definition.fewshot.count;
        if count == 0 {
            return Ok(Vec::new());
        }
        let other = |example: &&Value| !self.leaves_out_asked || *example != row;
        let too_few = |has: usize| format!("{count} examples are asked for, and there are {has} to draw from");
        if self.definition.fewshot.sampler == Sampler::FirstN {
            let first: Vec<Value> = self.examples.iter().filter(other).take(count).cloned().collect();
            ensure!(first.len() == count, "{}", too_few(first.len()));
            return Ok(first);
        }
        let drawn = count.saturating_add(usize::from(self.leaves_out_asked));
        ensure!(drawn <= self.examples.len(), "{}", too_few(self.examples.len()));
        let drawn = self.random.sample(self.examples.len(), drawn);
        let chosen: Vec<Value> =
            drawn.into_iter().map(|at| &self.examples[at]).filter(other).take(count).cloned().collect();
        if chosen.len() == count {
            return Ok(chosen);
        }
        // Rows that are equal to this one were drawn more than once.
        let pool: Vec<Value> = self.examples.iter().filter(other).cloned().collect();
        ensure!(count <= pool.len(), "{}", too_few(pool.len()));
        Ok(self.random.sample(pool.len(), count).into_iter().map(|at| pool[at].clone()).collect())
    }

    /// An example: its text, what stands behind it, and its answer, with what stands behind that.
    fn example(&self, row: &Value) -> Result<Example<'_>> {
        let (choices, (question, _)) = (self.choices(row)?, self.text(row)?);
        let prefix = self.prefix(row)?;
        let answer = match self.target(row)? {
            Value::Number(number) if !choices.is_empty() => {
                let at = number.as_i64().context("the target is not an index")?;
                let at = if at < 0 { choices.len() as i64 + at } else { at };
                choices.get(at as usize).cloned().with_context(|| format!("there is no choice {at}"))?
            }
            Value::Array(answers) => answers.first().map(python::str).context("the target is an empty list")?,
            Value::String(answer) => answer,
            other => bail!("the target {other} is not a text"),
        };
        let has_answer = !answer.is_empty();
        let delimiter = if prefix.is_empty() { has_answer } else { needs_delimiter(&question, &prefix) };
        let delimiter = if delimiter { self.definition.target_delimiter.as_str() } else { "" };
        let answer = match (has_answer, needs_delimiter(&prefix, &answer)) {
            (false, _) => Some((prefix, "")).filter(|(prefix, _)| !prefix.is_empty()),
            (true, true) => Some((format!("{prefix} {answer}"), self.definition.fewshot_delimiter.as_str())),
            (true, false) => Some((format!("{prefix}{answer}"), self.definition.fewshot_delimiter.as_str())),
        };
        Ok((question, delimiter, answer))
    }

    /// The beginning of the answer, which may be empty.
    fn prefix(&self, row: &Value) -> Result<String> {
        self.definition.prefix.as_ref().map_or(Ok(String::new()), |prefix| self.column_or_text(prefix, row))
    }

    fn column_or_text(&self, template: &Template, row: &Value) -> Result<String> {
        Ok(python::str(&self.value(template, row)?))
    }

    /// A column of that name, or what the template makes of the row.
    pub fn value(&self, template: &Template, row: &Value) -> Result<Value> {
        let column = template.source();
        if self.columns.contains(column) {
            let value = row.get(column).cloned();
            return value
                .with_context(|| format!("the row has no `{column}`; write it, as null if there is nothing"));
        }
        template.render(row).map(Value::String)
    }

    /// The text of a row, and the bytes of its context.
    fn text(&self, row: &Value) -> Result<(String, Option<Range<usize>>)> {
        if let (Some([before, after]), Some(context)) = (&self.definition.around, &self.definition.cache.context) {
            let (mut text, context) = (before.render(row)?, self.column_or_text(context, row)?);
            let place = text.len()..text.len() + context.len();
            text.extend([context, after.render(row)?]);
            return Ok((text, Some(place)));
        }
        let (value, is_column) = match &self.definition.text {
            Field::Fixed(value) => (value.clone(), false),
            Field::Text(template) => (self.value(template, row)?, self.is_column(template)),
        };
        match value {
            Value::String(text) if is_column || self.definition.choices.is_none() || !is_digits(&text) => {
                Ok((text, None))
            }
            // In the harness it is the index of the choice that is right before the target.
            Value::String(_) | Value::Number(_) => bail!("{value} is a number, and prompts are not chosen here"),
            other => bail!("{} is not a text", python::repr(&other)),
        }
    }

    fn is_column(&self, template: &Template) -> bool {
        self.columns.contains(template.source())
    }

    fn target(&self, row: &Value) -> Result<Value> {
        let template = match &self.definition.target {
            Field::Fixed(value) => return Ok(value.clone()),
            Field::Text(template) => template,
        };
        let value = self.value(template, row)?;
        let Value::String(text) = &value else { return Ok(value) };
        if self.is_column(template) {
            return Ok(value);
        }
        let is_index = is_digits(text) && self.definition.choices.is_some();
        let is_list = text.len() >= 2 && text.starts_with('[') && text.ends_with(']');
        let read = if is_index || is_list { python::literal(text) } else { None };
        Ok(read.unwrap_or(value))
    }

    fn choices(&self, row: &Value) -> Result<Vec<String>> {
        let value = match &self.definition.choices {
            None => return Ok(Vec::new()),
            Some(Field::Fixed(value)) => value.clone(),
            Some(Field::Text(template)) => match self.value(template, row)? {
                Value::String(text) if !self.is_column(template) => {
                    python::literal(&text).with_context(|| format!("{text} is not a list"))?
                }
                value => value,
            },
        };
        let Value::Array(choices) = value else { bail!("{} is not a list of choices", python::repr(&value)) };
        let text = |choice: &Value| {
            choice.as_str().map(str::to_owned).with_context(|| format!("the choice {choice} is not a text"))
        };
        choices.iter().map(text).collect()
    }
}

type Example<'a> = (String, &'a str, Option<(String, &'a str)>);

/// Whether neither text has white space where they meet. The first may be empty.
fn needs_delimiter(before: &str, after: &str) -> bool {
    let is_space = |c: Option<char>| c.is_some_and(char::is_whitespace);
    !before.is_empty()
        && !after.is_empty()
        && !is_space(before.chars().next_back())
        && !is_space(after.chars().next())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}
