//! When entries leave a cache: after every token, in bursts, or all at once when the prompt has been read.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Deserializer};

use super::settings::{Keyword, keyword};
use crate::yaml::from_text;

/// When a cache is cut back to its size. What evicts oftener comes first, and what cuts the prompt last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Schedule {
    /// The cache grows to its size and this many entries more, which then leave at once. With 1, an entry leaves after every token.
    Every(usize),
    /// Nothing leaves while the prompt is read. After its last token the cache is cut to its size, by the scores of that step, and then
    /// grows without end (SnapKV, NVIDIA/kvpress).
    Cut,
    /// The prompt is cut as under `Cut`, and after it entries leave as under `Every`.
    CutThenEvery(usize),
}

/// The most entries that leave at once, apart from those of a prompt.
pub const MOST_AT_ONCE: usize = 65_536;

impl Schedule {
    /// One entry leaves after every token.
    pub const EVERY_TOKEN: Schedule = Schedule::Every(1);

    /// Whether the prompt is cut after its last token.
    pub fn cuts(self) -> bool {
        !matches!(self, Schedule::Every(_))
    }

    /// Entries that leave at once, apart from those of a prompt; `None` where none leave after it.
    pub fn every(self) -> Option<usize> {
        match self {
            Schedule::Every(every) | Schedule::CutThenEvery(every) => Some(every),
            Schedule::Cut => None,
        }
    }

    /// Entries beyond its size that a cache holds while it grows, without the newest token.
    pub fn buffer(self) -> usize {
        self.every().map_or(usize::MAX, |every| every - 1)
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
    /// Writes the schedule as in sweeps, rows and cell ids: `1`, `128`, `cut` or `cut+16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Every(every) => write!(f, "{every}"),
            Schedule::Cut => write!(f, "cut"),
            Schedule::CutThenEvery(every) => write!(f, "cut+{every}"),
        }
    }
}

impl FromStr for Schedule {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Schedule> {
        let (digits, schedule): (_, fn(usize) -> Schedule) = match text.strip_prefix("cut") {
            Some("") => return Ok(Schedule::Cut),
            Some(rest) => (rest.strip_prefix('+'), Schedule::CutThenEvery),
            None => (Some(text), Schedule::Every),
        };
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let every: usize = digits.and_then(|digits| digits.parse().ok()).with_context(|| {
            format!("`{text}` is not a schedule; write 1, a number such as 128, cut, or cut+16")
        })?;
        ensure!(
            (1..=MOST_AT_ONCE).contains(&every),
            "a schedule evicts 1 to {MOST_AT_ONCE} entries at once, not {every}"
        );
        Ok(schedule(every))
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
