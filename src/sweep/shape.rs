//! The shape of a sweep file: keys and kinds of values, as serde reads them, each with its place in the file.
//!
//! Nothing here is checked beyond its kind; `check` turns it into a `Sweep`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::yaml::Spanned;
use crate::eviction::{Amount, Positions, Scope, Score};
use crate::lm::{StretchKind, WeightType};
use crate::task::{Bos, Fact, Prefill, PromptStyle, Split, Tail};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepShape {
    #[serde(default)]
    pub name: Option<Spanned<String>>,
    pub models: Spanned<Vec<Spanned<ModelShape>>>,
    pub policies: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub define: Entries<PolicyShape>,
    #[serde(default)]
    pub cache_sizes: Vec<Spanned<u64>>,
    #[serde(default)]
    pub positions: Positions,
    pub tasks: Spanned<Vec<Spanned<TaskShape>>>,
    #[serde(default)]
    pub seed: u64,
}

/// A source alone, or `{source: ..., dtype: ..., rope_scaling: ...}`.
#[derive(Debug)]
pub(super) struct ModelShape {
    pub source: String,
    pub dtype: WeightType,
    pub rope_scaling: Option<StretchShape>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelMap {
    source: String,
    #[serde(default)]
    dtype: WeightType,
    #[serde(default)]
    rope_scaling: Option<StretchShape>,
}

/// `{type: linear, factor: 8}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StretchShape {
    #[serde(rename = "type")]
    pub kind: StretchKind,
    pub factor: f64,
}

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

/// One policy under `define:`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyShape {
    pub score: Score,
    pub scope: Scope,
    #[serde(default)]
    pub keep_first: u32,
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

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TaskShape {
    Perplexity(PerplexityShape),
    Retention(RetentionShape),
    Squality(AnsweringShape),
    Qasper(AnsweringShape),
    Story(StoryShape),
    Needle(NeedleShape),
    Timing(TimingShape),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnsweringShape {
    pub dataset: Spanned<String>,
    #[serde(default)]
    pub split: Option<Split>,
    #[serde(default)]
    pub prompt: Option<PromptStyle>,
    #[serde(default)]
    pub length: Option<Spanned<u64>>,
    #[serde(default)]
    pub documents: Option<Spanned<u64>>,
    #[serde(default)]
    pub questions: Option<Spanned<u64>>,
    #[serde(default)]
    pub write: WriteShape,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoryShape {
    #[serde(default)]
    pub request: Option<Spanned<String>>,
    #[serde(default)]
    pub stories: Option<Spanned<u64>>,
    #[serde(default)]
    pub length: Option<Spanned<u64>>,
    #[serde(default)]
    pub write: WriteShape,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NeedleShape {
    pub dataset: Spanned<String>,
    #[serde(default)]
    pub lengths: Vec<Spanned<u64>>,
    #[serde(default)]
    pub depths: Vec<Spanned<u64>>,
    #[serde(default)]
    pub texts: Option<Spanned<u64>>,
    #[serde(default)]
    pub fact: Option<Fact>,
    #[serde(default)]
    pub write: WriteShape,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimingShape {
    pub memory: Spanned<String>,
    #[serde(default)]
    pub length: Option<Spanned<u64>>,
    #[serde(default)]
    pub prompt: Option<Spanned<u64>>,
    #[serde(default)]
    pub repeats: Option<Spanned<u64>>,
    #[serde(default)]
    pub warm_up: Option<Spanned<u64>>,
}

/// How texts are written: `write:` of a task.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteShape {
    #[serde(default)]
    pub prefill: Prefill,
    #[serde(default)]
    pub query_aware: Option<Spanned<bool>>,
    #[serde(default)]
    pub max_new_tokens: Option<Spanned<u64>>,
    #[serde(default)]
    pub temperature: Option<Spanned<f64>>,
    #[serde(default)]
    pub top_k: Option<Spanned<u64>>,
    #[serde(default)]
    pub top_p: Option<Spanned<f64>>,
    #[serde(default)]
    pub repetition_penalty: Option<Spanned<f64>>,
    #[serde(default)]
    pub chat_template: Option<bool>,
    #[serde(default)]
    pub stop: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PerplexityShape {
    pub dataset: Spanned<String>,
    #[serde(default)]
    pub length: Option<Spanned<u64>>,
    #[serde(default)]
    pub stride: Option<Spanned<u64>>,
    #[serde(default)]
    pub bos: BosShape,
    #[serde(default)]
    pub tail: Tail,
    #[serde(default)]
    pub books: Option<Spanned<u64>>,
    #[serde(default)]
    pub chunks_per_book: Option<Spanned<u64>>,
    #[serde(default)]
    pub compare_to_full: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RetentionShape {
    pub dataset: Spanned<String>,
    #[serde(default)]
    pub length: Option<Spanned<u64>>,
    #[serde(default)]
    pub stride: Option<Spanned<u64>>,
    #[serde(default)]
    pub bos: BosShape,
    #[serde(default)]
    pub tail: Tail,
    #[serde(default)]
    pub books: Option<Spanned<u64>>,
    #[serde(default)]
    pub chunks_per_book: Option<Spanned<u64>>,
    #[serde(default)]
    pub maps: Option<Spanned<u64>>,
    #[serde(default)]
    pub map_layers: Option<Spanned<Vec<Spanned<u64>>>>,
    #[serde(default)]
    pub eviction_log: bool,
}

/// `auto`, `true` or `false`.
#[derive(Debug, Default)]
pub(super) struct BosShape(pub Bos);

impl<'de> Deserialize<'de> for BosShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl Visitor<'_> for Word {
            type Value = BosShape;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("auto, true or false")
            }
            fn visit_bool<E: Error>(self, bos: bool) -> Result<BosShape, E> {
                Ok(BosShape(if bos { Bos::Always } else { Bos::Never }))
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<BosShape, E> {
                match word {
                    "auto" => Ok(BosShape(Bos::Auto)),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(Word)
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
