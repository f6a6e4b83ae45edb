//! When entries leave a cache: after every token, in bursts, or all at once when the prompt has been read.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Deserializer};

use super::settings::{Keyword, keyword};
use crate::yaml::from_text;

/// When a cache is cut back to its size. What evicts oftener comes first, and what cuts the prompt last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Schedule {
    /// Nothing leaves while the prompt is read. After its last token the cache is cut to its size, by the scores of that step.
    pub cut: bool,
    /// Otherwise a cache grows to its size and so many entries more, which then leave at once; `None`: it grows without end.
    pub every: Option<usize>,
}

/// The most entries that leave at once, apart from those of a prompt.
pub const MOST_AT_ONCE: usize = 65_536;

impl Schedule {
    /// One entry leaves after every token.
    pub const EVERY_TOKEN: Schedule = Schedule { cut: false, every: Some(1) };
    /// The prompt is cut, and nothing leaves afterwards (SnapKV, NVIDIA/kvpress).
    pub const CUT: Schedule = Schedule { cut: true, every: None };
    /// The prompt is cut, and from then on one entry leaves after every token, as in the paper's code.
    pub const CUT_ONE: Schedule = Schedule { cut: true, every: Some(1) };

    /// Entries beyond its size that a cache holds while it grows, without the newest token.
    pub fn buffer(self) -> usize {
        self.every.map_or(usize::MAX, |every| every - 1)
    }
}

/// The forms of a schedule.
pub const SCHEDULES: [Keyword<&str>; 4] = [
    keyword("1", "1", "one entry leaves after every token"),
    keyword(
        "128",
        "128",
        "the cache grows to its size and 128 entries more, which then leave at once; any number",
    ),
    keyword("cut", "cut", "the cache is cut to its size once, after the prompt, and then grows"),
    keyword("cut+16", "cut+16", "cut after the prompt, and then 16 entries leave at once; any number"),
];

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule::EVERY_TOKEN
    }
}

impl fmt::Display for Schedule {
    /// As sweeps, rows and cell ids have it: `1`, `128`, `cut` or `cut+16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cut, self.every) {
            (true, None) => write!(f, "cut"),
            (true, Some(every)) => write!(f, "cut+{every}"),
            (false, every) => write!(f, "{}", every.unwrap_or(1)),
        }
    }
}

impl FromStr for Schedule {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Schedule> {
        let (cut, every) = match text.strip_prefix("cut") {
            Some("") => return Ok(Schedule::CUT),
            Some(rest) => (true, rest.strip_prefix('+')),
            None => (false, Some(text)),
        };
        let every = every.filter(|every| every.bytes().all(|byte| byte.is_ascii_digit()));
        let every: usize = every.and_then(|every| every.parse().ok()).with_context(|| {
            format!("`{text}` is no schedule; they are 1, a number such as 128, cut, and cut+16")
        })?;
        ensure!(
            (1..=MOST_AT_ONCE).contains(&every),
            "a schedule evicts 1 to {MOST_AT_ONCE} entries at once, not {every}"
        );
        Ok(Schedule { cut, every: Some(every) })
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a schedule: 1, a number up to 65536, cut, or cut+16")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_back() {
        for text in ["1", "128", "cut", "cut+1", "cut+16", "65536"] {
            assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
        }
        for text in
            ["", "0", "-1", "+1", "cut+", "cut+0", "cut16", "cut + 1", "1.5", "65537", "99999999999999999999"]
        {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
