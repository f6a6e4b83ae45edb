//! The shape of a sweep file: keys and kinds of values, as serde reads them, each with its place in the file.
//!
//! What stands above a key here is what an editor shows of it: the JSON Schema is made of these types. Nothing is
//! checked beyond its kind; `check` turns it into a `Sweep`, and `schema` says as much of that as a schema can.

use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::schema::{names, rules};
use super::task_shape::TaskShape;
use super::yaml::Spanned;
use crate::eviction::{Amount, Positions, Scope, Score};
use crate::lm::{RopeOverrideKind, WeightType};

/// A sweep of tova-bench: every task by every model under every policy at every cache size.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tova-bench sweep")]
#[schemars(transform = rules::known_policies, transform = rules::sizes_where_needed)]
#[schemars(transform = rules::what_truncate_can, transform = rules::one_shot_stands_still)]
pub(super) struct SweepShape {
    /// What the sweep and its results folder are called; the file's name by default.
    #[serde(default)]
    #[schemars(regex(pattern = r"\S"))]
    pub name: Option<Spanned<String>>,
    /// The models to measure.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub models: Spanned<Vec<Spanned<ModelShape>>>,
    /// The cache policies to compare, in the order of legends. `full` is the unbounded cache, which others are measured
    /// against. Write name+I to protect the first I tokens, and name@slot or name@squeezed for positions of its own.
    #[schemars(schema_with = "names::policies")]
    pub policies: Spanned<Vec<Spanned<String>>>,
    /// New policies, by name.
    #[serde(default)]
    pub define: Entries<PolicyShape>,
    /// Cache sizes in entries per layer and key-value head, the protected ones included. `full` has none.
    #[serde(default)]
    #[schemars(inner(range(min = 1, max = u32::MAX)))]
    #[schemars(extend("type" = ["array", "null"], "uniqueItems" = true, "default" = []))]
    #[schemars(extend("examples" = [[64, 128, 256, 512, 1024, 2048, 4096]]))]
    pub cache_sizes: Vec<Spanned<u64>>,
    /// Where keys are rotated after evictions, for every policy that does not say it itself.
    #[serde(default)]
    #[schemars(schema_with = "names::positions")]
    pub positions: Positions,
    /// What is measured.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub tasks: Spanned<Vec<Spanned<TaskShape>>>,
    /// Seed of the policy `random`, and of writing that draws.
    #[serde(default)]
    pub seed: u64,
}

/// A source alone, or `{source: ..., dtype: ..., rope_scaling: ...}`.
#[derive(Debug)]
pub(super) struct ModelShape {
    pub source: String,
    pub dtype: WeightType,
    pub rope_scaling: Option<RopeOverrideShape>,
}

/// A model with the type of its weights, or with stretched positions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelMap {
    /// Which model: a checkpoint folder, a repository of the hub, or one in the program.
    #[schemars(schema_with = "names::models")]
    source: String,
    /// Type the weights are rounded to.
    #[serde(default)]
    #[schemars(schema_with = "names::weight_types")]
    dtype: WeightType,
    /// Stretched positions, for texts longer than a model was trained on, put on a checkpoint that has none.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    rope_scaling: Option<RopeOverrideShape>,
}

/// How positions are stretched.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RopeOverrideShape {
    /// The way of stretching.
    #[serde(rename = "type")]
    #[schemars(schema_with = "names::rope_overrides")]
    pub kind: RopeOverrideKind,
    /// The text's length over the trained one; 1 is as trained.
    #[schemars(range(min = 1.0, max = MAX_ROPE_FACTOR))]
    pub factor: f64,
}

/// The largest factor of stretched positions.
pub(super) const MAX_ROPE_FACTOR: f64 = 1e6;

impl<'de> Deserialize<'de> for ModelShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Model;
        impl<'de> Visitor<'de> for Model {
            type Value = ModelShape;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str(
                    "a model: a folder (./ ../ /), owner/name[@revision], pocket, random-tiny, \
                     random-h512-l8-... of a stated shape, or {source, dtype, rope_scaling}",
                )
            }
            fn visit_str<E: Error>(self, source: &str) -> Result<ModelShape, E> {
                Ok(ModelShape { source: source.to_string(), dtype: WeightType::Auto, rope_scaling: None })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelShape, A::Error> {
                let ModelMap { source, dtype, rope_scaling } =
                    ModelMap::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ModelShape { source, dtype, rope_scaling })
            }
        }
        deserializer.deserialize_any(Model)
    }
}

/// A policy: when the cache holds more than its size, the entry with the lowest score leaves.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyShape {
    /// What ranks the entries.
    #[schemars(schema_with = "names::scores")]
    pub score: Score,
    /// Who shares one decision.
    #[schemars(schema_with = "names::scopes")]
    pub scope: Scope,
    /// First tokens of a text that never leave.
    #[serde(default)]
    #[schemars(range(min = 0, max = u32::MAX))]
    pub keep_first: u32,
    /// Newest entries that never leave: tokens such as 16, or a whole percentage of the cache size such as "10%".
    #[serde(default)]
    pub keep_recent: AmountShape,
}

/// Tokens, or a percentage in text: `16` or `10%`.
#[derive(Clone, Copy, Debug)]
pub(super) struct AmountShape(pub Amount);

impl Default for AmountShape {
    fn default() -> Self {
        AmountShape(Amount::Tokens(0))
    }
}

impl<'de> Deserialize<'de> for AmountShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl Visitor<'_> for Tokens {
            type Value = AmountShape;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a number of tokens such as 16, or a whole percentage of the cache such as 10%")
            }
            fn visit_u64<E: Error>(self, tokens: u64) -> Result<AmountShape, E> {
                let tokens =
                    u32::try_from(tokens).map_err(|_| E::invalid_value(Unexpected::Unsigned(tokens), &self))?;
                Ok(AmountShape(Amount::Tokens(tokens as usize)))
            }
            fn visit_i64<E: Error>(self, tokens: i64) -> Result<AmountShape, E> {
                let tokens =
                    u64::try_from(tokens).map_err(|_| E::invalid_value(Unexpected::Signed(tokens), &self))?;
                self.visit_u64(tokens)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<AmountShape, E> {
                let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
                match percent {
                    Some(percent @ 0..=100u8) => Ok(AmountShape(Amount::Percent(percent))),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Tokens)
    }
}

/// A mapping in file order that remembers where each key stands.
#[derive(Debug)]
pub(super) struct Entries<T>(pub Vec<(Spanned<String>, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Entries(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Named<T> {
            type Value = Entries<T>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a mapping of names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Named(PhantomData))
    }
}
