//! The options of a cache beside its policy and its size: where keys are rotated, what holds in layers with a window, and how keys and
//! values are stored.
//!
//! All that the program says of an option is here: its key in sweeps and rows, its words, and its usual value. A new one is a field and a
//! line in each function of [`CacheOptions`].

use std::borrow::Cow;
use std::str::FromStr;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cache_format::{CacheFormat, FORMATS};
use super::settings::{Keyword, keyword, name_of, of_name};

/// The options of a cache. Their encoding, which enters ids, has only those that are not usual, so that a new option moves no id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheOptions {
    #[serde(skip_serializing_if = "is_usual")]
    pub positions: Positions,
    /// What the policy does in layers with a window of their own.
    #[serde(skip_serializing_if = "is_usual")]
    pub local_layers: LocalLayers,
    /// How keys and values are stored. Unlike the other options it has a meaning where nothing is evicted.
    #[serde(skip_serializing_if = "is_usual")]
    pub format: CacheFormat,
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl CacheOptions {
    /// Lists key and word of each option, in the order in which words are written after a policy.
    pub fn words(self) -> [(&'static str, Cow<'static, str>); 3] {
        [
            ("positions", self.positions.name().into()),
            ("local_layers", self.local_layers.name().into()),
            ("format", self.format.to_string().into()),
        ]
    }

    /// Lists the words of all values of all options; a format may have one for keys and one for values, with a `/` between.
    pub fn known_words() -> impl Iterator<Item = &'static str> {
        let positions = POSITIONS.iter().map(|known| known.name);
        let layers = LOCAL_LAYERS.iter().map(|known| known.name);
        positions.chain(layers).chain(FORMATS.iter().map(|known| known.name))
    }

    /// The options that have a meaning where nothing is evicted.
    #[must_use]
    pub fn without_evictions(self) -> CacheOptions {
        CacheOptions { format: self.format, ..CacheOptions::default() }
    }

    /// Whether even an unbounded cache gives other numbers under these options.
    pub fn changes_full_cache(self) -> bool {
        self.without_evictions() != CacheOptions::default()
    }

    /// Sets the option that has this word, and says whether there is one.
    #[must_use]
    pub fn set(&mut self, word: &str) -> bool {
        if let Ok(positions) = word.parse() {
            self.positions = positions;
        } else if let Ok(local_layers) = word.parse() {
            self.local_layers = local_layers;
        } else if let Ok(format) = word.parse() {
            self.format = format;
        } else {
            return false;
        }
        true
    }

    /// Lists the words of the options that are not usual.
    pub fn unusual(self) -> impl Iterator<Item = Cow<'static, str>> {
        let usual = CacheOptions::default().words();
        self.words().into_iter().zip(usual).filter(|(own, usual)| own != usual).map(|((_, word), _)| word)
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
