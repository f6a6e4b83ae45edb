//! The tokens kept longest and shortest, pooled over samples from the tables that rows carry as JSON.
//!
//! A row's table has, for each token text, how often it occurred and for how many steps it was kept. Tables that cannot be
//! read are left out: another program may have written the row.

use std::collections::BTreeMap;

use super::table::{Entry, Grid, Line, Sheet};
use crate::ledger::Row;

/// Tokens that occur less often are left out, unless there are few others.
const COMMON: u64 = 10;

/// The tokens of one policy at one size, the longest kept first.
pub(super) struct KeptTokens {
    /// Text, occurrences, mean steps.
    tokens: Vec<(String, u64, f64)>,
    /// The fewest occurrences of a token that is listed.
    least: u64,
    /// Tokens shown from each end.
    most: usize,
}

impl KeptTokens {
    /// From the rows of one cell; `None` where no row has a table of tokens.
    pub(super) fn of(rows: &[&Row], most: usize) -> Option<Self> {
        let mut pooled: BTreeMap<String, (u64, f64)> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.metric == "lifetime_by_token") {
            let table = row
                .output
                .as_deref()
                .and_then(|json| serde_json::from_str::<BTreeMap<String, (u64, f64)>>(json).ok());
            for (text, (occurrences, steps)) in table.unwrap_or_default() {
                let sum = pooled.entry(text).or_default();
                sum.0 += occurrences;
                sum.1 += steps;
            }
        }
        let common = pooled.values().filter(|(occurrences, _)| *occurrences >= COMMON).count();
        let least = if common >= 2 * most { COMMON } else { 1 };
        let mut tokens: Vec<(String, u64, f64)> = pooled
            .into_iter()
            .filter(|(_, (occurrences, _))| *occurrences >= least)
            .map(|(text, (occurrences, steps))| (text, occurrences, steps / occurrences as f64))
            .collect();
        tokens.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)));
        (!tokens.is_empty()).then_some(Self { tokens, least, most })
    }

    fn about(&self) -> String {
        let how = if self.least == 1 { "at all".to_owned() } else { format!("at least {} times", self.least) };
        format!("Of {} different tokens that occur {how}. A space is shown as ␣.", self.tokens.len())
    }

    /// Those kept longest, and those kept shortest.
    pub(super) fn sheets(&self, title: &str) -> [Sheet; 2] {
        let line = |(text, times, steps): &(String, u64, f64)| Line {
            name: visible(text),
            cells: [format!("{steps:.0}"), times.to_string()].map(|number| Some(Entry::plain(number))).to_vec(),
        };
        let sheet = |end: &str, lines: Vec<Line>| Sheet {
            title: format!("{title} ({end} first)"),
            about: self.about(),
            corner: "token",
            grid: Grid { columns: ["steps", "times"].map(str::to_owned).to_vec(), lines },
            notes: Vec::new(),
        };
        [
            sheet("longest", self.tokens.iter().take(self.most).map(line).collect()),
            sheet("shortest", self.tokens.iter().rev().take(self.most).map(line).collect()),
        ]
    }
}

/// White space and control characters made visible.
fn visible(text: &str) -> String {
    let one = |c: char| match c {
        ' ' => "␣".to_owned(),
        '\'' | '"' => c.to_string(),
        c if c.is_control() || c.is_whitespace() => c.escape_debug().to_string(),
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_visible() {
        for (text, expected) in [("\n", "\\n"), (" the", "␣the"), ("'s", "'s"), ("<0x0A>", "<0x0A>")] {
            assert_eq!(visible(text), expected);
        }
    }
}
