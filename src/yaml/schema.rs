//! Building blocks of the JSON Schema: words with their meanings, and names of repositories.
//!
//! The schema is draft 07, which is all that the language servers of editors understand. Patterns use only what every
//! dialect of regular expressions has: no look-around.

use schemars::{Schema, json_schema};
use serde_json::{Value, json};

/// Word and its meaning.
pub type Named = (&'static str, &'static str);

/// Schema of a text that is one of some words. `enumDescriptions` is understood by VS Code and ignored by others.
pub fn one_of(names: &[Named]) -> Schema {
    let (words, meanings): (Vec<_>, Vec<_>) = names.iter().copied().unzip();
    json_schema!({"type": "string", "enum": words, "enumDescriptions": meanings})
}

/// Schema of a text that is one of some words, with a default; if `optional`, `null` means the default too.
pub fn setting(names: &[Named], default: &str, optional: bool) -> Schema {
    let mut words: Vec<Value> = names.iter().map(|(word, _)| json!(word)).collect();
    let mut meanings: Vec<&str> = names.iter().map(|(_, meaning)| *meaning).collect();
    let mut kinds = json!("string");
    if optional {
        words.push(Value::Null);
        meanings.push("the default");
        kinds = json!(["string", "null"]);
    }
    json_schema!({"type": kinds, "enum": words, "enumDescriptions": meanings, "default": default})
}

/// Asserts that the listed words are exactly those from which a type is read.
#[cfg(test)]
pub fn assert_words<T: serde::de::DeserializeOwned>(names: &[Named]) {
    use std::collections::BTreeSet;
    // The error for an unknown word lists the known ones in backticks, after the unknown one.
    let error = serde_json::from_value::<T>("?".into()).err().expect("`?` is not a word").to_string();
    let read: BTreeSet<&str> = error.split('`').skip(3).step_by(2).collect();
    assert_eq!(names.iter().map(|(word, _)| *word).collect::<BTreeSet<_>>(), read);
}

/// Writes a schema as indented text that ends with a newline. Keys without an order of their own are sorted.
///
/// # Errors
///
/// None that can happen: a schema can be written.
pub fn text(schema: Schema) -> serde_json::Result<String> {
    let mut value = schema.to_value();
    value.sort_all_objects();
    Ok(serde_json::to_string_pretty(&Schema::try_from(value)?)? + "\n")
}
