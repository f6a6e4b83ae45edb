//! Benchmarks that a file describes, in the words of lm-evaluation-harness 0.4.13.
//!
//! `file` reads a task file, `definition` checks it, `rows` finds its data or `reader` makes them, `prompt` and `request` build
//! what the model reads, `filter`, `metric` and `score` score what it answers, `keys` are those of a sweep, and `task` is its entry. What the
//! harness has no word for is in `cache`.

mod builtin;
mod cache;
mod columns;
mod definition;
mod file;
mod filter;
mod keys;
mod metric;
mod output;
mod prompt;
mod python;
mod re;
mod reader;
mod request;
mod rolling;
mod rows;
mod score;
mod splits;
mod task;
mod template;
#[cfg(test)]
mod tests;

use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) use builtin::one as builtin_definition;
pub(super) use definition::Definition;
pub use file::files_of;
pub(super) use keys::{BenchmarkYaml, Fact, Keys, ShortYaml};
pub(super) use prompt::{RowPrompt, alone};
pub(super) use reader::{Asked, Chosen, Maker, Reader, Readers};
#[cfg(test)]
pub(super) use request::name_clusters;
pub use rolling::RollingText;
pub(super) use rows::Rows;
#[cfg(test)]
pub(super) use score::ByFile;
pub(super) use task::check;
pub(super) use task::requests_of;

/// The names of the built-in benchmarks, each with what its file says of it first.
pub fn builtin() -> impl Iterator<Item = (&'static str, &'static str)> {
    builtin::all().map(|(name, text)| {
        let first = text.lines().next().unwrap_or_default();
        (*name, first.trim_start_matches(['#', ' ']))
    })
}

/// The metrics that a file may name, each with its output types and what it is, as the JSON Schema has them.
pub fn metrics() -> Vec<(String, String, String)> {
    let schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<metric::Kind>();
    let kinds = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let described = kinds.filter_map(|kind| {
        let outputs = metric::Kind::deserialize(&kind["const"]).ok()?.outputs().iter();
        let outputs: Vec<String> = outputs.map(|output| python::str(&json!(output))).collect();
        Some((python::str(&kind["const"]), outputs.join(", "), python::str(&kind["description"])))
    });
    described.collect()
}

/// The JSON Schema of task files as indented text, ended by a newline.
///
/// # Errors
/// None that can happen: what is written is made here.
pub fn json_schema() -> serde_json::Result<String> {
    let mut settings = SchemaSettings::draft07();
    // As in the schema of sweeps: beside a reference a key's description would be lost.
    settings.inline_subschemas = true;
    crate::yaml::schema::text(settings.into_generator().into_root_schema_for::<file::TaskFile>())
}
