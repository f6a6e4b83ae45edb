//! The JSON Schema of a sweep file, for editors to complete and check with.
//!
//! Made of the very types that read a sweep, so a key cannot be in one and not in the other. What those types cannot say
//! stands in `names` (words with a meaning) and `rules` (what `check` and `tasks` refuse). It is draft 07, which is all
//! that the language servers of editors understand. It says nothing that needs more than one look at a value: whether a
//! cache is too small for what it protects, or a prompt too long, only [`Sweep::parse`](super::Sweep::parse) knows; and of
//! several spellings of a value, such as 64 and "64", it has the plain one.

pub(super) mod names;
pub(super) mod rules;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::shape::{AmountShape, Entries, ModelMap, ModelShape, SweepShape};
use super::task_shape::BosShape;
use super::yaml::Spanned;

/// The schema as indented JSON text, ended by a newline.
///
/// # Errors
/// None that can happen: what is written is made here.
pub fn json_schema() -> serde_json::Result<String> {
    let mut settings = SchemaSettings::draft07();
    // In draft 07 nothing may stand beside a reference, so a key would lose its own description to its type's.
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<SweepShape>();
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// A type whose schema stands where it is used, under no name of its own.
macro_rules! anonymous {
    ($name:literal) => {
        fn schema_name() -> Cow<'static, str> {
            $name.into()
        }

        fn inline_schema() -> bool {
            true
        }
    };
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl JsonSchema for ModelShape {
    anonymous!("Model");

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let alone = names::models(generator);
        let with_settings = ModelMap::json_schema(generator);
        json_schema!({
            "description": "A checkpoint folder (starting with ./, ../ or /), owner/name or owner/name@revision on the hub, \
                            pocket (a small trained model in the program), random-tiny, random weights of a stated shape \
                            such as random-h512-l8-a8-k2-f1408-v8000, or {source, dtype, rope_scaling}.",
            "anyOf": [alone, with_settings],
        })
    }
}

impl JsonSchema for AmountShape {
    anonymous!("Amount");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": u32::MAX},
                {"type": "string", "pattern": "^(100|[1-9]?[0-9])%$"},
            ],
            "default": 0,
            "examples": [16, "10%"],
        })
    }
}

impl JsonSchema for BosShape {
    anonymous!("Bos");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"enum": ["auto", true, false], "default": "auto"})
    }
}

/// Entries are policies by name: the only mapping whose keys are the sweep's own.
impl<T: JsonSchema> JsonSchema for Entries<T> {
    anonymous!("Entries");

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["object", "null"],
            "propertyNames": {
                "pattern": format!("^{}$", names::OWN_POLICY),
                "maxLength": names::LONGEST_POLICY,
                "not": {"pattern": format!("^({})(\\+|$)", names::fixed_policies().join("|"))},
            },
            "additionalProperties": T::json_schema(generator),
            "default": {},
        })
    }
}
