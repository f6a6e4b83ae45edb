//! Cache sizes as sweeps say them: entries, a share of a sample's prompt, or memory.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Deserializer};

use crate::format::Bytes;
use crate::yaml::from_text;

/// How large a cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheSize {
    /// Entries per layer and key-value head.
    Entries(usize),
    /// Entries per layer and key-value head, as a share of the tokens of a sample's prompt, or of the sample where it has no prompt.
    Share(SizeShare),
    /// Bytes of keys and values of all layers and heads that the cache holds on average while the tokens after the prompt are predicted.
    Memory(MemorySize),
}

/// Memory of keys and values in 16 bits a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemorySize {
    /// Of what the full cache of a sample's prompt takes, or of the sample where it has no prompt.
    Share(SizeShare),
    Bytes(u64),
}

/// A share above 0 and up to 1, in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeShare(u16);

impl SizeShare {
    const ALL: u16 = 10_000;

    /// Entries out of so many tokens: rounded down, and at least one, as NVIDIA/kvpress keeps.
    pub fn of(self, tokens: usize) -> usize {
        (tokens * usize::from(self.0) / usize::from(SizeShare::ALL)).max(1)
    }

    /// Returns the share as a number from 0 to 1.
    pub fn number(self) -> f64 {
        f64::from(self.0) / f64::from(SizeShare::ALL)
    }
}

impl FromStr for SizeShare {
    type Err = anyhow::Error;

    /// Reads what [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<SizeShare> {
        let form = || format!("`{text}` is not a share; they are such as 25% or 12.5%");
        let percent = text.strip_suffix('%').with_context(form)?;
        let (whole, part) = percent.split_once('.').unwrap_or((percent, ""));
        let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        ensure!(!whole.is_empty() && is_number(whole) && is_number(part) && !percent.ends_with('.'), form());
        ensure!(part.len() <= 2, "{text} has more than two decimals");
        let hundredths: u16 = format!("{whole}{part:0<2}").parse().ok().with_context(form)?;
        ensure!((1..=SizeShare::ALL).contains(&hundredths), "a share is above 0% and 100% at most, not {text}");
        Ok(SizeShare(hundredths))
    }
}

impl FromStr for MemorySize {
    type Err = anyhow::Error;

    /// Reads what [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<MemorySize> {
        if text.ends_with('%') {
            return text.parse().map(MemorySize::Share);
        }
        let form = || format!("`{text}` is not an amount of memory; they are such as 25% or 2MB");
        let Bytes(bytes) = text.parse().ok().with_context(form)?;
        ensure!(bytes > 0, "a cache of {text} holds nothing");
        Ok(MemorySize::Bytes(bytes))
    }
}

impl FromStr for CacheSize {
    type Err = anyhow::Error;

    /// Reads what [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<CacheSize> {
        if text.ends_with('%') {
            return text.parse().map(CacheSize::Share);
        }
        let entries = text.parse().ok();
        Ok(CacheSize::Entries(
            entries.with_context(|| format!("`{text}` is not a cache size; they are such as 64 or 25%"))?,
        ))
    }
}

impl fmt::Display for SizeShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 100.0)
    }
}

impl fmt::Display for CacheSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheSize::Entries(entries) => write!(f, "{entries}"),
            CacheSize::Share(share) => write!(f, "{share}"),
            CacheSize::Memory(memory) => write!(f, "memory {memory}"),
        }
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemorySize::Share(share) => write!(f, "{share}"),
            MemorySize::Bytes(bytes) => write!(f, "{bytes}B"),
        }
    }
}

impl<'de> Deserialize<'de> for MemorySize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "memory: a share of the full cache's such as 25%, or bytes such as 2MB")
    }
}

impl<'de> Deserialize<'de> for CacheSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(
            deserializer,
            "a cache size: a whole number of entries such as 64, or a share such as 25% or 12.5%",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_hand() {
        for (text, tokens, entries) in
            [("25%", 1024, 256), ("12.5%", 1023, 127), ("0.01%", 1000, 1), ("100%", 7, 7), ("33.33%", 10, 3)]
        {
            let share: SizeShare = text.parse().unwrap();
            assert_eq!((share.to_string().as_str(), share.of(tokens)), (text, entries));
        }
        for text in ["", "%", "25", "0%", "0.00%", "100.01%", "101%", "-1%", "1.234%", "1.%", ".5%", "1e1%", " 5%"]
        {
            assert!(text.parse::<SizeShare>().is_err(), "{text}");
        }
    }
}
