//! Cache sizes as reports place cells by them: entries, a share of a text, or memory.
//!
//! Prompts of other lengths have other numbers of entries at one share, so the share is what the samples of a cell have in common.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::eviction::MemorySize;
use crate::format::Bytes;
use crate::ledger::Row;
use crate::report::series::Point;

/// A cache size as its sweep gives it. Shares come after entries, memory after shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Size {
    /// Per layer and key-value head.
    Entries(u32),
    /// Share of the prompt or the text, in hundredths of a percent. Samples of one cell may have different numbers of entries.
    Share(u32),
    /// Mean memory, as a share of the full cache's in hundredths of a percent.
    MemoryShare(u32),
    /// Mean memory in bytes.
    Memory(u64),
}

/// What a cache size is. Numbers of two units are not in one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SizeUnit {
    #[default]
    Entries,
    /// Share of the prompt or the text.
    Share,
    /// Mean memory as a share of the full cache's.
    MemoryShare,
    /// Mean memory in bytes.
    Memory,
}

impl SizeUnit {
    /// The unit of a row's size; the unbounded cache counts as entries.
    pub fn of(row: &Row) -> SizeUnit {
        match (row.cache_share, row.cache_memory.as_deref()) {
            (Some(_), _) => SizeUnit::Share,
            (None, Some(memory)) if memory.ends_with('%') => SizeUnit::MemoryShare,
            (None, Some(_)) => SizeUnit::Memory,
            (None, None) => SizeUnit::Entries,
        }
    }

    /// What sizes are that are not entries; of those empty.
    pub fn words(self) -> &'static str {
        match self {
            SizeUnit::Entries => "",
            SizeUnit::Share => "shares of the prompt or text",
            SizeUnit::MemoryShare => "mean memory, as shares of the full cache's",
            SizeUnit::Memory => "mean memory",
        }
    }
}

impl Size {
    /// `None` for the unbounded cache.
    pub fn of(row: &Row) -> Option<Self> {
        let share = row.cache_share.map(|share| Self::Share((1e4 * share).round() as u32));
        let memory = || match row.cache_memory.as_deref()?.parse().ok()? {
            MemorySize::Share(share) => Some(Self::MemoryShare((1e4 * share.number()).round() as u32)),
            MemorySize::Bytes(bytes) => Some(Self::Memory(bytes)),
        };
        share.or_else(memory).or(row.cache_size.map(Self::Entries))
    }

    /// Whether the size is a part of the sample's own.
    pub fn is_share(self) -> bool {
        matches!(self, Self::Share(_) | Self::MemoryShare(_))
    }

    /// Whether the size is an amount of memory.
    pub fn is_memory(self) -> bool {
        matches!(self, Self::MemoryShare(_) | Self::Memory(_))
    }

    /// `None` for what is not a number of entries.
    pub fn entries(self) -> Option<u32> {
        if let Self::Entries(entries) = self { Some(entries) } else { None }
    }

    /// Entries, percent, or bytes.
    pub fn number(self) -> f64 {
        match self {
            Self::Entries(entries) => entries.into(),
            Self::Share(hundredths) | Self::MemoryShare(hundredths) => f64::from(hundredths) / 100.0,
            Self::Memory(bytes) => bytes as f64,
        }
    }

    /// Whether a text of so many tokens does not fit. Of memory it is not known.
    pub fn is_below(self, length: u32) -> bool {
        match self {
            Self::Entries(entries) => entries < length,
            Self::Share(hundredths) | Self::MemoryShare(hundredths) => hundredths < 10_000,
            Self::Memory(_) => true,
        }
    }

    /// `64 entries`, `25% of the prompt or text`, or `25% of the full cache's memory`.
    pub fn words(self) -> String {
        match self {
            Self::Entries(_) => format!("{self} entries"),
            Self::Share(_) => format!("{self} of the prompt or text"),
            Self::MemoryShare(_) => format!("{}% of the full cache's memory", self.number()),
            Self::Memory(_) => self.to_string(),
        }
    }
}

impl From<u32> for Size {
    fn from(entries: u32) -> Self {
        Self::Entries(entries)
    }
}

/// Writes a size as a sweep does: `64`, `12.5%`, `2.00 MB`; of memory in percent `memory 12.5%`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(entries) => write!(f, "{entries}"),
            Self::Share(_) => write!(f, "{}%", self.number()),
            Self::MemoryShare(_) => write!(f, "memory {}%", self.number()),
            Self::Memory(bytes) => write!(f, "{}", Bytes(*bytes)),
        }
    }
}

/// A number of entries, or the text of another size.
impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Entries(entries) => entries.serialize(serializer),
            _ => serializer.collect_str(self),
        }
    }
}

/// What figures over cache sizes have across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeAxis {
    /// The size as the sweep gives it.
    Entries,
    /// Bytes held on average while the tokens after the prompt are predicted.
    Held,
    /// The most bytes that were held.
    Peak,
    /// Bytes read on average to predict one of these tokens.
    Read,
}

impl SizeAxis {
    pub const ALL: [(&'static str, SizeAxis); 4] = [
        ("entries", SizeAxis::Entries),
        ("held", SizeAxis::Held),
        ("peak", SizeAxis::Peak),
        ("read", SizeAxis::Read),
    ];

    /// The place of a point, in entries, percent or MB; `None` where it has none.
    pub(crate) fn of(self, point: &Point) -> Option<f64> {
        match self {
            SizeAxis::Entries => point.cache_size.map(Size::number),
            SizeAxis::Held => point.held_bytes.map(|bytes| bytes / 1e6),
            SizeAxis::Peak => point.peak_bytes.map(|bytes| bytes as f64 / 1e6),
            SizeAxis::Read => point.read_bytes.map(|bytes| bytes / 1e6),
        }
    }

    /// Name of the axis; of sizes, their unit names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SizeAxis::Entries => "cache size",
            SizeAxis::Held => "memory held on average (MB)",
            SizeAxis::Peak => "most memory held (MB)",
            SizeAxis::Read => "cache read for a token (MB)",
        }
    }

    /// What titles call it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            SizeAxis::Entries => "cache size",
            SizeAxis::Held => "memory held",
            SizeAxis::Peak => "peak memory",
            SizeAxis::Read => "cache read",
        }
    }
}

/// `tova at 64`, or `full`.
pub fn place(policy: &str, cache_size: Option<Size>) -> String {
    cache_size.map_or_else(|| policy.to_owned(), |size| format!("{policy} at {size}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{at_share, cell};

    #[test]
    fn sizes_are_those_of_the_sweep_in_its_order() {
        let of = |share: f64| Size::of(&at_share(share, cell("nll", "tova", Some(7), &[("a", 1.0, 1.0)]))[0]);
        let entries = Size::of(&cell("nll", "tova", Some(7), &[("a", 1.0, 1.0)])[0]);
        // 0.07 times 10,000 is a little more than 700.
        let mut sizes = [of(0.25), of(0.125), of(0.07), of(0.0001), of(1.0), entries, Some(Size::Entries(4096))];
        sizes.sort_unstable();
        let sizes = sizes.map(Option::unwrap);
        let shown = sizes.map(|size| size.to_string());
        assert_eq!(shown, ["7", "4096", "0.01%", "7%", "12.5%", "25%", "100%"]);
        assert_eq!(sizes.map(|size| size.is_below(4096)), [true, false, true, true, true, true, false]);
        let json = serde_json::to_string(&[sizes[0], sizes[4]]).unwrap();
        assert_eq!(json, r#"[7,"12.5%"]"#);
        assert_eq!([sizes[0].words(), sizes[4].words()], ["7 entries", "12.5% of the prompt or text"]);
        assert_eq!(Size::of(&cell("nll", "full", None, &[("a", 1.0, 1.0)])[0]), None);
    }
}
