//! Conditions of a sweep's schema: values that exclude or need each other, as `check` has them.

use schemars::Schema;
use serde_json::json;

use super::names;
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
