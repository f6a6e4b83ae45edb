//! Conditions of a sweep's schema: values that exclude or need each other, as `check` has them.

use schemars::Schema;
use serde_json::{Map, Value, json};

use super::names;
use crate::task::TaskYaml;
use crate::yaml::schema::require;

/// Without definitions a policy can only be one of the presets.
pub fn known_policies(schema: &mut Schema) {
    let condition = json!({
        "if": {"not": {"required": ["define"]}},
        "then": {"properties": {"policies": {"items": {"anyOf": names::preset_entries()}}}},
    });
    require(schema, condition);
}

/// All policies except the full cache need sizes.
pub fn sizes_where_needed(schema: &mut Schema) {
    let condition = json!({
        "if": {"required": ["policies"], "properties": {"policies": {"contains": {"not": {"const": "full"}}}}},
        "then": {"required": ["cache_sizes"], "properties": {"cache_sizes": {"type": "array", "minItems": 1}}},
    });
    require(schema, condition);
}

/// A piece of one token predicts nothing, and some tasks have no texts to cut.
pub fn what_truncate_can(schema: &mut Schema) {
    let none = TaskYaml::without_truncate().into_iter().map(|name| (name.to_string(), Value::Bool(false)));
    let none: Map<String, Value> = none.collect();
    let condition = json!({
        "if": {"required": ["policies"], "properties": {"policies": {"contains": {"const": "truncate"}}}},
        "then": {
            "properties": {
                "cache_sizes": {"items": {"minimum": 2}},
                "tasks": {"items": {"properties": none}},
            },
        },
    });
    require(schema, condition);
}

/// A prompt that is read whole keeps its positions, so no policy of the sweep may change them.
pub fn one_shot_needs_absolute_positions(schema: &mut Schema) {
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
    let condition = json!({
        "if": {"anyOf": [own, common]},
        "then": {"properties": {"tasks": {"items": {"properties": tasks}}}},
    });
    require(schema, condition);
}
