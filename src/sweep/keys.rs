//! The keys of a sweep file, as serde reads them, each value with its place in the file.
//!
//! The comment above a key is what editors show for it, as the JSON Schema is made of these types. Only types are
//! checked here; `check` does the rest.

use std::fmt;
use std::num::ParseFloatError;
use std::str::FromStr;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::schema::names;
use crate::eviction::formula::Pool;
use crate::eviction::{
    Amount, Budget, CacheFormat, CacheSize, DecidingLayer, FirstTokens, LocalLayers, MemorySize, PoolOver,
    Positions, Schedule, Scope,
};
use crate::lm::{Arithmetic, RopeOverrideKind, WeightType};
use crate::task::TaskYaml;
use crate::yaml::{Spanned, from_text};

/// A sweep of tova-bench: every task by every model under every policy at every cache size.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tova-bench sweep")]
#[schemars(transform = names::known_policies)]
pub(super) struct SweepYaml {
    /// The name of the sweep and of its results folder; by default that of the file.
    #[schemars(regex(pattern = r"\S"))]
    pub name: Option<Spanned<String>>,
    /// The models to measure.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub models: Spanned<Vec<Spanned<ModelYaml>>>,
    /// The cache policies to compare, in the order of legends. `full` is the unbounded cache, which others are measured
    /// against. Write name+I to protect the first I tokens, name@cut, name@128 or name@cut+16 for a schedule of its own, name@slot
    /// or name@squeezed for positions of its own, and name@exempt to leave layers with a window alone.
    #[schemars(schema_with = "names::policies")]
    pub policies: Spanned<Vec<Spanned<String>>>,
    /// New policies, by name.
    #[serde(default)]
    #[schemars(schema_with = "definitions")]
    pub define: IndexMap<Spanned<String>, PolicyYaml>,
    /// Cache sizes in entries per layer and key-value head, the protected ones included, or as shares: of each sample's prompt (of its
    /// context with `query_aware: false`), or of the sample where it has no prompt. `full` has none.
    #[serde(default)]
    #[schemars(schema_with = "names::cache_sizes")]
    pub cache_sizes: Vec<Spanned<CacheSize>>,
    /// In place of cache sizes: the memory that a cache holds on average over the tokens that follow the prompt, in bytes of its
    /// format; f32 counts as 16 bits a number. A share is of what the full cache of the sample's prompt takes in f32, or of the sample where
    /// it has no prompt. Each sample has the largest number of entries that takes no more.
    #[serde(default)]
    #[schemars(schema_with = "names::memory")]
    pub memory: Vec<Spanned<MemorySize>>,
    /// When entries leave, for every policy that does not say so itself; by default as a preset says, and after every token.
    #[serde(default)]
    #[schemars(schema_with = "names::schedules")]
    pub schedule: Option<Schedule>,
    /// Where keys are rotated after evictions, for every policy that does not set its own.
    #[serde(default)]
    #[schemars(schema_with = "names::positions")]
    pub positions: Positions,
    /// Layers with a window of their own (Gemma, Mistral, OLMo 3): whether policies hold there too, for every policy that does
    /// not say so itself.
    #[serde(default)]
    #[schemars(schema_with = "names::local_layers")]
    pub local_layers: LocalLayers,
    /// How keys and values are stored, for every policy that evicts and does not say so itself: a format such as q8_0, or {keys: q8_0,
    /// values: q4_0} (see `tova-bench list formats`). `full` and `truncate` have another than f32 only if they say so (`full@q8_0`).
    #[serde(default)]
    #[schemars(schema_with = "names::formats")]
    pub format: CacheFormat,
    /// Comparisons planned before anything is measured, each one policy minus another. Their verdicts are corrected among themselves
    /// alone.
    #[serde(default)]
    #[schemars(schema_with = "names::contrasts")]
    pub contrasts: Vec<Spanned<String>>,
    /// What is measured.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub tasks: Spanned<Vec<Spanned<TaskYaml>>>,
    /// The seed of the policy `random` and of texts that are drawn at a temperature.
    #[serde(default)]
    pub seed: u64,
}

/// Schema of defined policies by name: the only mapping whose keys are the sweep's own.
fn definitions(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "additionalProperties": PolicyYaml::json_schema(generator),
        "default": {},
    })
}

/// The definitions of a sweep, whatever else it has.
#[derive(Debug, Deserialize)]
pub(super) struct DefineYaml {
    #[serde(default)]
    pub define: IndexMap<Spanned<String>, PolicyYaml>,
}

/// A source alone, or `{source: ..., name: ..., ...}`.
#[derive(Debug)]
pub(super) struct ModelYaml(pub ModelMap);

/// A model with the type of its weights, or with stretched positions.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelMap {
    /// Which model: a checkpoint folder, a GGUF file, a repository of the hub, or one in the program.
    #[schemars(schema_with = "names::models")]
    pub source: String,
    /// The name in legends and tables; by default that of the folder, file or repository.
    #[schemars(extend("default" = null), regex(pattern = r"\S"))]
    pub name: Option<String>,
    /// A folder or a repository whose tokenizer.json is used instead of the model's own.
    #[schemars(extend("default" = null))]
    pub tokenizer: Option<String>,
    /// The type that weights are rounded to.
    #[serde(default)]
    #[schemars(schema_with = "names::weight_types")]
    pub dtype: WeightType,
    /// How products with weights are computed.
    #[serde(default)]
    #[schemars(schema_with = "names::arithmetics")]
    pub arithmetic: Arithmetic,
    /// Stretched positions, for texts longer than those of the training. Only for checkpoints that have none.
    #[schemars(extend("default" = null))]
    pub rope_scaling: Option<RopeOverrideYaml>,
}

/// How positions are stretched.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RopeOverrideYaml {
    /// The method of stretching.
    #[serde(rename = "type")]
    #[schemars(schema_with = "names::rope_overrides")]
    pub kind: RopeOverrideKind,
    /// The length of texts over that of the training; 1 changes nothing.
    #[schemars(range(min = 1.0, max = MAX_ROPE_FACTOR))]
    pub factor: Spanned<f64>,
}

/// The largest factor of stretched positions.
pub(super) const MAX_ROPE_FACTOR: f64 = 1e6;

impl<'de> Deserialize<'de> for ModelYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Model;
        impl<'de> Visitor<'de> for Model {
            type Value = ModelYaml;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str(
                    "a model: a folder or a GGUF file (./ ../ /), owner/name[@revision][:file.gguf], pocket, random-tiny, \
                     random-h512-l8-... of a stated shape, or {source, name, tokenizer, dtype, arithmetic, rope_scaling}",
                )
            }
            fn visit_str<E: Error>(self, source: &str) -> Result<ModelYaml, E> {
                Ok(ModelYaml(ModelMap { source: source.to_string(), ..ModelMap::default() }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelYaml, A::Error> {
                Ok(ModelYaml(ModelMap::deserialize(MapAccessDeserializer::new(map))?))
            }
        }
        deserializer.deserialize_any(Model)
    }
}

/// A policy: when the cache exceeds its size, the entry with the lowest score is evicted; or nothing leaves, and each query selects what it
/// attends to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["score"]}, {"required": ["select"]}]))]
pub(super) struct PolicyYaml {
    /// What ranks the entries of a full cache: a name, or a formula such as "ema(attention, 0.95)". The entry with the lowest
    /// score is evicted. There is no default: every policy has one of `score` and `select`.
    #[serde(default)]
    #[schemars(schema_with = "names::scores")]
    pub score: Option<Spanned<String>>,
    /// In place of a score: no entry leaves, and each query attends to as many as the cache size, to the protected ones and to those with
    /// the highest scores. By default entries leave.
    #[serde(default)]
    pub select: Option<SelectYaml>,
    /// How the values of the query heads of a decision become one.
    #[serde(default)]
    #[schemars(schema_with = "names::pools")]
    pub pool: Pool,
    /// Which heads decide together.
    #[schemars(schema_with = "names::scopes")]
    pub scope: Scope,
    /// With the scope `model`: the layers whose scores decide for all, `first`, `last` or numbers from 0; by default the mean of all layers.
    #[serde(default)]
    #[schemars(schema_with = "names::deciding_layers")]
    pub layers: Option<Spanned<Vec<DecidingLayer>>>,
    /// The first tokens of a text that are never evicted: tokens such as 4, a whole percentage of the cache size such as "10%", or
    /// `prompt`: none of its tokens leaves, and the cache size is that of what follows it.
    #[serde(default)]
    #[schemars(schema_with = "names::keep_first")]
    pub keep_first: FirstTokens,
    /// The newest entries that are never evicted: tokens such as 16, or a whole percentage of the cache size such as "10%".
    #[serde(default)]
    pub keep_recent: Amount,
    /// When entries leave; by default as the sweep says.
    #[serde(default)]
    #[schemars(schema_with = "names::schedules")]
    pub schedule: Option<Schedule>,
    /// How keys and values are stored; by default as the sweep says.
    #[serde(default)]
    #[schemars(schema_with = "names::formats")]
    pub format: Option<CacheFormat>,
    /// Sizes of their own for layers or key-value heads, whose mean is the cache size, or a pool of them; by default every head of every
    /// layer has the same size.
    #[schemars(extend("default" = null))]
    pub budget: Option<Spanned<BudgetYaml>>,
}

/// What a query attends to among all entries.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SelectYaml {
    /// What ranks the entries for a query: a name, or a formula such as "logit". In it, `attention` is that to all entries.
    #[schemars(schema_with = "names::scores")]
    pub score: Spanned<String>,
    /// The first layer whose queries select; in those before it they attend to all entries.
    #[serde(default)]
    pub from_layer: usize,
}

/// How layers or heads share their entries: `pyramid`, `layers`, `pool` or `heads`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub(super) struct BudgetYaml {
    /// PyramidKV with this β: sizes fall linearly from layer to layer, and the last one has 1/β of the entries that are not
    /// protected.
    #[schemars(range(min = 1, max = u32::MAX), extend("examples" = [20]))]
    pub pyramid: Option<Spanned<u64>>,
    /// Sizes in proportion to these numbers, one for each layer of the model, from the first.
    #[serde(default)]
    #[schemars(schema_with = "shares")]
    pub layers: Option<Spanned<Vec<f64>>>,
    /// Key-value heads that share their entries, those of each layer (`heads`) or of all layers (`model`): the lowest scores of all of them
    /// leave (AdaKV).
    #[schemars(with = "Option<String>", extend("enum" = ["heads", "model", null]))]
    pub pool: Option<PoolOver>,
    /// With `pool`: the percentage of the cache size that each head keeps of its own best entries. By default 0 %.
    #[schemars(regex(pattern = PERCENT), extend("examples" = ["20%"]))]
    pub floor: Option<Spanned<String>>,
    /// With `pool`: a formula that says how many entries leave from each head, where the policy's own score says only which.
    #[schemars(extend("examples" = ["smooth(window(attention, 64), 5)"]))]
    pub score: Option<Spanned<String>>,
    /// Sizes in proportion to these numbers, a row for each layer of the model and in it one for each key-value head; `full` for a head
    /// from which nothing leaves, beside the cache size. Or a text file with these rows.
    #[serde(default)]
    #[schemars(schema_with = "head_shares")]
    pub heads: Option<Spanned<HeadsYaml>>,
    /// With `heads`: the percentage of the heads, those with the largest numbers, from which nothing leaves. All others have the cache size
    /// (DuoAttention).
    #[schemars(regex(pattern = PERCENT), extend("examples" = ["20%"]))]
    pub full: Option<Spanned<String>>,
}

/// A table of heads, or its file.
#[derive(Debug)]
pub(super) enum HeadsYaml {
    File(String),
    Table(Vec<Vec<ShareYaml>>),
}

/// A share; `None` of a head that is `full`.
#[derive(Debug)]
pub(super) struct ShareYaml(pub Option<f64>);

impl<'de> Deserialize<'de> for HeadsYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Heads;
        impl<'de> Visitor<'de> for Heads {
            type Value = HeadsYaml;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list with a row of numbers for each layer, or a file with these rows")
            }
            fn visit_str<E: Error>(self, file: &str) -> Result<HeadsYaml, E> {
                Ok(HeadsYaml::File(file.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, rows: A) -> Result<HeadsYaml, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(rows)).map(HeadsYaml::Table)
            }
        }
        deserializer.deserialize_any(Heads)
    }
}

impl FromStr for ShareYaml {
    type Err = ParseFloatError;

    fn from_str(text: &str) -> Result<ShareYaml, ParseFloatError> {
        Ok(ShareYaml(if text == "full" { None } else { Some(text.parse()?) }))
    }
}

impl<'de> Deserialize<'de> for ShareYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a number above 0, or full")
    }
}

/// Pattern of a whole percentage.
const PERCENT: &str = "^(100|[0-9]{1,2})%$";

fn head_shares(_: &mut SchemaGenerator) -> Schema {
    let share =
        json!({"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": Budget::MOST}, {"const": "full"}]});
    let row = json!({"type": "array", "items": share, "minItems": 1});
    json_schema!({
        "anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": row, "minItems": 1}],
        "examples": ["./full_attention_heads.tsv", [["full", 1], [1, 2.5]]]
    })
}

fn shares(_: &mut SchemaGenerator) -> Schema {
    let share = json!({"type": "number", "exclusiveMinimum": 0, "maximum": Budget::MOST});
    json_schema!({"type": "array", "items": share, "minItems": 1, "examples": [[3, 2, 2, 1]]})
}
