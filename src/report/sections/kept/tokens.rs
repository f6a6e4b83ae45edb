//! The tokens kept longest and shortest, pooled over samples from the tables that rows carry as JSON.
//!
//! Tokens near the end of a sample are rarely evicted before it ends, so their steps say nothing. A row's table therefore has, for
//! each token text, how often it occurred with at least half of the sample after it, and within so many steps for how many it
//! was kept. Tables that cannot be read are left out: another program or an earlier version may have written the row.

use std::collections::BTreeMap;

use crate::ledger::Row;
use crate::report::document::{Column, Entry, Grid, Line, Table};
use crate::report::special_tokens;

/// Tokens that occur less often are left out: the first of these for which enough are left.
const COMMON: [u64; 3] = [10, 5, 2];
/// Tokens shown from each end.
const MOST: usize = 15;

/// The tokens kept longest and those kept shortest, from the rows of one cell, which `of` names; none where no row has a table of
/// tokens.
pub(super) fn tables(rows: &[&Row], of: &str) -> Vec<Table> {
    // By text, occurrences and steps.
    let mut pooled: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    let tables =
        rows.iter().filter(|row| row.metric == "lifetime_by_token").filter_map(|row| row.output.as_deref());
    for json in tables {
        let table: BTreeMap<String, (u64, f64, u64, f64)> = serde_json::from_str(json).unwrap_or_default();
        for (text, (_, _, occurrences, steps)) in table.into_iter().filter(|(_, (.., counted, _))| *counted > 0) {
            let sum = pooled.entry(text).or_default();
            sum.0 += occurrences;
            sum.1 += steps;
        }
    }
    let are_enough = |least: &u64| pooled.values().filter(|(times, _)| times >= least).count() >= 2 * MOST;
    let least = COMMON.into_iter().find(are_enough).unwrap_or(1);
    pooled.retain(|_, (occurrences, _)| *occurrences >= least);
    let mean = |(text, (occurrences, steps))| (text, occurrences, steps / occurrences as f64);
    let mut tokens: Vec<(String, u64, f64)> = pooled.into_iter().map(mean).collect();
    tokens.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)));
    let how = if least == 1 { "at all".to_owned() } else { format!("at least {least} times") };
    let line = |(text, times, steps): &(String, u64, f64)| {
        let cells = [format!("{steps:.0}"), times.to_string()].map(|number| Some(Entry::plain(number)));
        Line::new(visible(text), cells.to_vec())
    };
    let about = format!(
        "Of {} different tokens that occur {how} in the first half of a sample, for at most half a sample's steps: how long tokens \
         near the end would be kept is not known. A space is shown as ␣, a special token by its name in ⟨⟩.",
        tokens.len()
    );
    let table = |end: &str, lines: Vec<Line>| {
        let grid = Grid { columns: ["steps", "times"].map(Column::from).to_vec(), lines };
        Table::new(format!("Tokens kept {end}: {of}"), &about, "token", grid)
    };
    let tables = [
        table("longest", tokens.iter().take(MOST).map(line).collect()),
        table("shortest", tokens.iter().rev().take(MOST).map(line).collect()),
    ];
    tables.into_iter().filter(|table| !table.grid.lines.is_empty()).collect()
}

/// White space and control characters made visible, and special tokens as marks.
fn visible(text: &str) -> String {
    let text = special_tokens::marked(text);
    let one = |c: char| match c {
        ' ' => "␣".to_owned(),
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
        for (text, expected) in
            [("\n", "\\n"), (" the", "␣the"), ("'s", "'s"), ("<0x0A>", "<0x0A>"), ("<s>", "⟨BOS⟩")]
        {
            assert_eq!(visible(text), expected);
        }
    }
}
