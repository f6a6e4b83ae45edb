//! How many entries a policy protects.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, ensure};
use serde::{Deserialize, Deserializer};

use crate::yaml::from_text;

/// A number of protected entries: in tokens, or as a whole percentage of the cache size, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Amount {
    Tokens(usize),
    Percent(u8),
}

/// The first tokens of a text that a policy protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FirstTokens {
    /// Entries that count in the cache size.
    Count(Amount),
    /// The whole prompt, beside the cache size.
    Prompt,
}

impl Amount {
    /// Entries out of a cache of `size`. H2O's 50 % of an odd size is the larger half: recent = k - floor(k / 2).
    pub fn of(self, size: usize) -> usize {
        match self {
            Amount::Tokens(n) => n,
            Amount::Percent(p) => (size * usize::from(p)).div_ceil(100),
        }
    }
}

impl Default for Amount {
    fn default() -> Amount {
        Amount::Tokens(0)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Tokens(n) => write!(f, "{n}"),
            Amount::Percent(p) => write!(f, "{p}%"),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    /// Tokens, or a percentage in text: `16` or `10%`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a number of tokens such as 16, or a whole percentage such as 10%")
    }
}

impl FromStr for Amount {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Amount> {
        let amount = match text.strip_suffix('%') {
            Some(digits) => Amount::Percent(digits.parse()?),
            None => Amount::Tokens(text.parse::<u32>()? as usize),
        };
        ensure!(!matches!(amount, Amount::Percent(101..)), "a percentage is 100 at most");
        Ok(amount)
    }
}

impl FirstTokens {
    /// Entries out of a cache of `size`: none of those of a protected prompt, which are beside it.
    pub fn of(self, size: usize) -> usize {
        match self {
            FirstTokens::Count(amount) => amount.of(size),
            FirstTokens::Prompt => 0,
        }
    }

    /// A number of tokens.
    pub const fn tokens(tokens: usize) -> FirstTokens {
        FirstTokens::Count(Amount::Tokens(tokens))
    }
}

impl Default for FirstTokens {
    fn default() -> FirstTokens {
        FirstTokens::tokens(0)
    }
}

impl fmt::Display for FirstTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FirstTokens::Count(amount) => amount.fmt(f),
            FirstTokens::Prompt => write!(f, "prompt"),
        }
    }
}

impl FromStr for FirstTokens {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<FirstTokens> {
        if text == "prompt" { Ok(FirstTokens::Prompt) } else { text.parse().map(FirstTokens::Count) }
    }
}

impl<'de> Deserialize<'de> for FirstTokens {
    /// Reads an [`Amount`], or `prompt`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(
            deserializer,
            "a number of tokens such as 4, a whole percentage of the cache such as 10%, or prompt",
        )
    }
}
