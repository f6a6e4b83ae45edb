//! Settings that are chosen from a list: scopes and positions (scores are in `score.rs`); and the heads that a scope divides.
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
fn of_name<T: Copy>(table: &'static [Keyword<T>], what: &str, name: &str) -> Result<T> {
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
}

/// Every scope.
pub const SCOPES: [Keyword<Scope>; 2] = [
    keyword(Scope::Layer, "layer", "one decision per layer, over all heads"),
    keyword(Scope::Head, "head", "one decision per key-value head, over its group of query heads"),
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
            Scope::Layer => 1,
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

/// The position a key is rotated at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// The token's position in the text (the paper's released code).
    #[default]
    Absolute,
    /// The entry's rank in the cache (StreamingLLM).
    Slot,
    /// The token's place in the text, but a gap g > 10 between neighbours in the cache becomes ln(ln g) (paper, section 7.2).
    Squeezed,
}

/// Every kind of positions.
pub const POSITIONS: [Keyword<Positions>; 3] = [
    keyword(Positions::Absolute, "absolute", "the token's place in the text"),
    keyword(Positions::Slot, "slot", "the entry's rank in the cache, as StreamingLLM does"),
    keyword(
        Positions::Squeezed,
        "squeezed",
        "as absolute, but a gap g > 10 in the cache becomes ln ln g: the paper's rule for 70,000 tokens",
    ),
];

impl Positions {
    pub fn name(self) -> &'static str {
        name_of(&POSITIONS, self)
    }
}

impl FromStr for Positions {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Positions> {
        of_name(&POSITIONS, "kind of positions", name)
    }
}

/// What a policy does in layers whose queries see only a window of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalLayers {
    /// The policy holds in layers with a window as well: they have min(size, window) entries.
    #[default]
    Bounded,
    /// Only their window bounds them.
    Exempt,
}

/// Both settings for layers with a window.
pub const LOCAL_LAYERS: [Keyword<LocalLayers>; 2] = [
    keyword(LocalLayers::Bounded, "bounded", "the policy holds there too, with min(size, window) entries"),
    keyword(LocalLayers::Exempt, "exempt", "only their window bounds them"),
];

impl LocalLayers {
    pub fn name(self) -> &'static str {
        name_of(&LOCAL_LAYERS, self)
    }
}

impl FromStr for LocalLayers {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<LocalLayers> {
        of_name(&LOCAL_LAYERS, "setting for layers with a window", name)
    }
}
