//! `run --progress json`: one JSON object a line on stderr for each event. `docs/progress.md` documents the keys.
//!
//! Keys may be added; none is renamed or removed within a major version.

use serde_json::{Value, json};

use super::output::tell;
use crate::run::NamedCell;

/// Writes an event.
pub(super) fn write(event: &str, mut keys: Value) {
    keys["event"] = event.into();
    tell(keys);
}

/// A cell, in the words of its rows.
pub(super) fn cell(named: &NamedCell) -> Value {
    let cell = &named.cell;
    let size =
        cell.cache.share.map_or_else(|| cell.cache.rule.size().into(), |share| Value::from(share.to_string()));
    json!({
        "id": named.name.id().to_string(),
        "model": cell.model.to_string(),
        "policy": cell.policy,
        "cache_size": size,
        "task": cell.task.name,
        "dataset": cell.task.dataset,
    })
}
