//! A number of entries that a policy protects.

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
    /// Only for first tokens: the whole prompt, beside the cache's size.
    Prompt,
}

impl Amount {
    /// Entries out of a cache of `size`. H2O's 50 % of an odd size is the larger half: recent = k - floor(k / 2).
    pub fn of(self, size: usize) -> usize {
        match self {
            Amount::Tokens(n) => n,
            Amount::Percent(p) => (size * usize::from(p)).div_ceil(100),
            Amount::Prompt => 0,
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
            Amount::Prompt => write!(f, "prompt"),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    /// Tokens, or a percentage in text: `16` or `10%`; or `prompt`, which only first tokens can be.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a number of tokens such as 16, or a whole percentage such as 10%")
    }
}

impl FromStr for Amount {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Amount> {
        let amount = match text.strip_suffix('%') {
            None if text == "prompt" => Amount::Prompt,
            Some(digits) => Amount::Percent(digits.parse()?),
            None => Amount::Tokens(text.parse::<u32>()? as usize),
        };
        ensure!(!matches!(amount, Amount::Percent(101..)), "a percentage is 100 at most");
        Ok(amount)
    }
}
