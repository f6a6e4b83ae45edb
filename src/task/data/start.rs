//! Where in a book its samples begin.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};

use crate::yaml::from_text;

/// Where in a book its samples begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this text token, counted from 0.
    Token(usize),
    /// So that as many tokens are before the samples as after them.
    Middle,
    /// At a place that follows from this seed and the book's name.
    Random(u64),
}

impl Start {
    /// The token at which the samples of a book of so many text tokens begin. `span` counts the tokens from the beginning of the first
    /// sample to the end of the last; where it is longer than the book, the samples begin at 0.
    ///
    /// A random place is a share of the book, the same for every span, and is moved back only where the samples would not fit.
    pub fn of(self, book: &str, tokens: usize, span: usize) -> usize {
        let last = tokens.saturating_sub(span);
        match self {
            Start::Token(token) => token,
            Start::Middle => last / 2,
            Start::Random(seed) => {
                let digest = Sha256::digest(format!("{seed} {book}"));
                let share = digest.iter().take(8).fold(0, |number, byte| number << 8 | u128::from(*byte));
                (((share * tokens as u128) >> 64) as usize).min(last)
            }
        }
    }
}

impl Default for Start {
    fn default() -> Start {
        Start::Token(0)
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Start::Token(token) => write!(f, "{token}"),
            Start::Middle => f.write_str("middle"),
            Start::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

impl FromStr for Start {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Start, Self::Err> {
        match (text, text.strip_prefix("random:")) {
            ("middle", _) => Ok(Start::Middle),
            ("random", _) => Ok(Start::Random(0)),
            (_, Some(seed)) => seed.parse().map(Start::Random),
            _ => text.parse::<u32>().map(|token| Start::Token(token as usize)),
        }
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(
            deserializer,
            "a text token such as 0 or 20000, middle, random, or random with a seed such as random:7",
        )
    }
}

impl JsonSchema for Start {
    fn schema_name() -> Cow<'static, str> {
        "Start".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": u32::MAX},
                {"enum": ["middle", "random"]},
                {"type": "string", "pattern": "^random:[0-9]{1,19}$"}
            ],
            "default": 0,
            "examples": [20000, "middle", "random:7"]
        })
    }
}
