//! The JSON Schema of a sweep file, for editors to complete and check with.
//!
//! Made of the same types that read a sweep, so both always have the same keys. `names` adds the words and what they mean.
//! Some checks are left to [`Sweep::parse`](super::Sweep::parse), such as a cache too small for what
//! it protects; and of several spellings of a value, such as 64 and "64", the schema has only the plain one.

pub(super) mod names;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::keys::{ModelMap, ModelYaml, SweepYaml};
use crate::eviction::Amount;

/// Writes the schema as indented JSON text that ends with a newline.
///
/// # Errors
/// None that can happen: what is written is made here.
pub fn json_schema() -> serde_json::Result<String> {
    let mut settings = SchemaSettings::draft07();
    // In draft 07 nothing may be beside a reference, so a key would lose its description to that of its type.
    settings.inline_subschemas = true;
    crate::yaml::schema::text(settings.into_generator().into_root_schema_for::<SweepYaml>())
}

impl JsonSchema for ModelYaml {
    fn schema_name() -> Cow<'static, str> {
        "Model".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let alone = names::models(generator);
        let with_settings = ModelMap::json_schema(generator);
        json_schema!({
            "description": "A checkpoint folder or a GGUF file (starting with ./, ../ or /), owner/name or owner/name@revision on the \
                            hub, owner/name:file.gguf, pocket (a small trained model in the program), random-tiny, random weights of a stated shape \
                            such as random-h512-l8-a8-k2-f1408-v8000, or {source, name, tokenizer, dtype, arithmetic, rope_scaling}.",
            "anyOf": [alone, with_settings],
        })
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": names::amounts(), "default": 0, "examples": [16, "10%"]})
    }
}
