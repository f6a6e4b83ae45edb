//! What `check` and `tasks` refuse, said as conditions: values that exclude or need each other.
//!
//! Each rule is a transform of the schema of one type of a sweep's shape, which names it. Patterns use only what every
//! dialect of regular expressions has: no look-around.

use schemars::Schema;
use serde_json::{Map, Value, json};

use super::names;
use crate::task::{EMBEDDED, EMBEDDED_QUESTIONS, MOST_EMBEDDED_BOOKS, MOST_EMBEDDED_PROMPTS};

/// Adds conditions that all must hold.
fn require(schema: &mut Schema, conditions: impl IntoIterator<Item = Value>) {
    let all = schema.ensure_object().entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.extend(conditions);
    }
}

/// Turns a choice between objects of one key each into one object that must have exactly one key: editors then say what
/// is wrong inside a task, and not that it is none of seven.
pub fn one_key(schema: &mut Schema) {
    let object = schema.ensure_object();
    let Some(Value::Array(choices)) = object.remove("oneOf") else { return };
    let mut properties = Map::new();
    for mut choice in choices {
        let about = choice.get("description").cloned();
        let Some(Value::Object(only)) = choice.get_mut("properties").map(Value::take) else { continue };
        for (name, mut task) in only {
            if let (Some(task), Some(about)) = (task.as_object_mut(), &about) {
                task.insert("description".into(), about.clone());
            }
            properties.insert(name, task);
        }
    }
    object.insert("type".into(), json!("object"));
    object.insert("properties".into(), Value::Object(properties));
    object.insert("additionalProperties".into(), json!(false));
    object.insert("minProperties".into(), json!(1));
    object.insert("maxProperties".into(), json!(1));
}

/// Without definitions a policy can only be one of the presets, so a misspelt one is told.
pub fn known_policies(schema: &mut Schema) {
    require(
        schema,
        [json!({
            "if": {"not": {"required": ["define"]}},
            "then": {"properties": {"policies": {"items": {"anyOf": names::preset_entries()}}}},
        })],
    );
}

/// All but the full cache need sizes.
pub fn sizes_where_needed(schema: &mut Schema) {
    require(
        schema,
        [json!({
            "if": {"required": ["policies"], "properties": {"policies": {"contains": {"not": {"const": "full"}}}}},
            "then": {"required": ["cache_sizes"], "properties": {"cache_sizes": {"type": "array", "minItems": 1}}},
        })],
    );
}

/// A piece of one token predicts nothing, and where nothing is cut nothing can be timed.
pub fn what_truncate_can(schema: &mut Schema) {
    require(
        schema,
        [json!({
            "if": {"required": ["policies"], "properties": {"policies": {"contains": {"const": "truncate"}}}},
            "then": {
                "properties": {
                    "cache_sizes": {"items": {"minimum": 2}},
                    "tasks": {"items": {"not": {"required": ["timing"]}}},
                },
            },
        })],
    );
}

/// A prompt that is read whole has its own positions: it stands in no sweep with keys that move.
pub fn one_shot_stands_still(schema: &mut Schema) {
    let one_shot = json!({
        "required": ["write"],
        "properties": {
            "write": {"type": "object", "required": ["prefill"], "properties": {"prefill": {"const": "one_shot"}}},
        },
    });
    let writing: Vec<String> = schema
        .pointer("/properties/tasks/items/properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, task)| task.pointer("/properties/write").is_some())
        .map(|(name, _)| name.clone())
        .collect();
    let tasks: Map<String, Value> = writing.into_iter().map(|name| (name, json!({"not": one_shot}))).collect();
    let own = json!({
        "required": ["policies"],
        "properties": {"policies": {"contains": {"type": "string", "pattern": "@(slot|squeezed)$"}}},
    });
    let common = json!({
        "required": ["policies", "positions"],
        "properties": {
            "positions": {"enum": ["slot", "squeezed"]},
            "policies": {"contains": {"type": "string", "not": {"pattern": "@"}}},
        },
    });
    require(
        schema,
        [json!({
            "if": {"anyOf": [own, common]},
            "then": {"properties": {"tasks": {"items": {"properties": tasks}}}},
        })],
    );
}

/// At temperature 0 nothing is drawn.
pub fn drawing(schema: &mut Schema) {
    require(
        schema,
        [json!({
            "if": {"type": "object", "required": ["temperature"], "properties": {"temperature": {"const": 0}}},
            "then": {"properties": {"top_k": {"type": "null"}, "top_p": {"type": "null"}}},
        })],
    );
}

/// Nor is it by tasks that are greedy unless told otherwise.
pub fn greedy_unless_said(schema: &mut Schema) {
    require(
        schema,
        [json!({
            "if": {"properties": {"write": {"properties": {"temperature": {"type": "null"}}}}},
            "then": {"properties": {"write": {"properties": {"top_k": {"type": "null"}, "top_p": {"type": "null"}}}}},
        })],
    );
}

/// Where a stream is read there is no place to cut.
pub fn query_awareness(schema: &mut Schema) {
    require(
        schema,
        [json!({
            "if": {"type": "object", "required": ["query_aware"], "properties": {"query_aware": {"const": false}}},
            "then": {"required": ["prefill"], "properties": {"prefill": {"const": "one_shot"}}},
        })],
    );
}

pub fn embedded_books(schema: &mut Schema) {
    embedded(schema, "books");
}

pub fn embedded_documents(schema: &mut Schema) {
    embedded(schema, "documents");
}

pub fn embedded_texts(schema: &mut Schema) {
    embedded(schema, "texts");
}

/// There are only so many story requests in the program.
pub fn embedded_requests(schema: &mut Schema) {
    require(
        schema,
        [json!({
            "if": {"type": "object", "required": ["request"], "properties": {"request": {"const": EMBEDDED}}},
            "then": {"properties": {"stories": {"maximum": MOST_EMBEDDED_PROMPTS}}},
        })],
    );
}

/// There are only so many texts in the program.
fn embedded(schema: &mut Schema, limit: &str) {
    require(
        schema,
        [json!({
            "if": {"required": ["dataset"], "properties": {"dataset": {"enum": [EMBEDDED, EMBEDDED_QUESTIONS]}}},
            "then": {"properties": {limit: {"maximum": MOST_EMBEDDED_BOOKS}}},
        })],
    );
}
