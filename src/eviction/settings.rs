//! Settings that are chosen from a list: scopes (scores are in `score.rs`, options of caches in `options.rs`); and the heads that a scope divides.
//!
//! Each has one table of values, words and meanings, from which `list`, the JSON schema and error messages are
//! made.

use std::ops::Range;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A value, the word for it in sweeps, on the command line and in result rows, and its meaning in one line.
#[derive(Clone, Copy, Debug)]
pub struct Keyword<T> {
    pub value: T,
    pub name: &'static str,
    pub meaning: &'static str,
}

pub(super) const fn keyword<T: Copy>(value: T, name: &'static str, meaning: &'static str) -> Keyword<T> {
    Keyword { value, name, meaning }
}

pub(super) fn name_of<T: PartialEq>(table: &'static [Keyword<T>], value: T) -> &'static str {
    table.iter().find(|keyword| keyword.value == value).expect("every value has a row in its table").name
}

/// The value of a name.
pub(super) fn of_name<T: Copy>(table: &'static [Keyword<T>], what: &str, name: &str) -> Result<T> {
    let known = table.iter().find(|keyword| keyword.name == name);
    let names = || table.iter().map(|keyword| keyword.name).collect::<Vec<_>>().join(", ");
    Ok(known.with_context(|| format!("`{name}` is not a {what}; there are {}", names()))?.value)
}

/// Which heads share one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Scores are averaged over all query heads of a layer.
    Layer,
    /// Scores are averaged over the query heads that share a key-value head.
    Head,
    /// Scores are averaged over all query heads of all layers, or of those that decide.
    Model,
}

/// Every scope.
pub const SCOPES: [Keyword<Scope>; 3] = [
    keyword(Scope::Layer, "layer", "one decision per layer, over all heads"),
    keyword(Scope::Head, "head", "one decision per key-value head, over its group of query heads"),
    keyword(
        Scope::Model,
        "model",
        "one decision for all layers, over all heads; `layers` says which layers' scores count",
    ),
];

impl Scope {
    pub fn name(self) -> &'static str {
        name_of(&SCOPES, self)
    }
}

impl FromStr for Scope {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Scope> {
        of_name(&SCOPES, "scope", name)
    }
}

/// Query and key-value heads of a layer: `heads` is a multiple of `kv_heads`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heads {
    pub heads: usize,
    pub kv_heads: usize,
}

impl Heads {
    /// Number of decision groups under a scope.
    pub fn groups(self, scope: Scope) -> usize {
        match scope {
            Scope::Layer | Scope::Model => 1,
            Scope::Head => self.kv_heads,
        }
    }

    /// Query heads whose scores a group averages.
    pub fn of_group(self, scope: Scope, group: usize) -> Range<usize> {
        let per_group = self.heads / self.groups(scope);
        group * per_group..(group + 1) * per_group
    }

    /// Query heads that share a key-value head.
    pub fn per_kv_head(self) -> usize {
        self.heads / self.kv_heads
    }
}
