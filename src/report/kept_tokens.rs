//! The tokens kept longest and shortest, pooled over samples from the tables that rows carry as JSON.
//!
//! A row's table has, for each text of a token, how often it occurred and for how many steps it was kept. What cannot be
//! read is left out: another program may have written the row.

use std::collections::BTreeMap;

use super::escape;
use crate::results::Row;

/// Tokens that occur less often say little; where hardly any are commoner, all count.
const COMMON: u64 = 10;

/// A table of the `most` tokens kept longest, and beside them those kept shortest; empty where no row has any.
pub(super) fn markdown(rows: &[&Row], most: usize) -> String {
    let mut pooled: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.metric == "lifetime_by_token") {
        let table =
            row.output.as_deref().and_then(|json| serde_json::from_str::<BTreeMap<String, (u64, f64)>>(json).ok());
        for (text, (occurrences, steps)) in table.unwrap_or_default() {
            let sum = pooled.entry(text).or_default();
            sum.0 += occurrences;
            sum.1 += steps;
        }
    }
    let common = pooled.values().filter(|(occurrences, _)| *occurrences >= COMMON).count();
    let least = if common >= 2 * most { COMMON } else { 1 };
    let mut tokens: Vec<(&str, u64, f64)> = pooled
        .iter()
        .filter(|(_, (occurrences, _))| *occurrences >= least)
        .map(|(text, (occurrences, steps))| (text.as_str(), *occurrences, steps / *occurrences as f64))
        .collect();
    if tokens.is_empty() {
        return String::new();
    }
    tokens.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(b.0)));
    let mut text = format!(
        "Of {} different tokens that occur {}. A space is shown as ␣.\n\n\
         | longest | steps | times | shortest | steps | times |\n|---|---:|---:|---|---:|---:|\n",
        tokens.len(),
        if least == 1 { "at all".to_owned() } else { format!("at least {least} times") },
    );
    for (long, short) in tokens.iter().zip(tokens.iter().rev()).take(most) {
        let cells = [long, short].map(|(text, times, steps)| format!("{} | {steps:.0} | {times}", shown(text)));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text.push('\n');
    text
}

/// A token's text so that it can be seen and breaks no table.
fn shown(text: &str) -> String {
    let visible: String = text
        .chars()
        .map(|c| match c {
            ' ' => "␣".to_owned(),
            '\'' | '"' => c.to_string(),
            c if c.is_control() || c.is_whitespace() => c.escape_debug().to_string(),
            c => c.to_string(),
        })
        .collect();
    // Inside backticks all but a bar and a backtick stands for itself.
    match visible.contains(['`', '|']) || visible.is_empty() {
        true => escape::markdown(&visible),
        false => format!("`{}`", escape::plain(&visible)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_tokens_are_seen() {
        for (text, expected) in [
            ("\n", "`\\n`"),
            (" the", "`␣the`"),
            ("|", "\\|"),
            (" `", "␣\\`"),
            ("\u{202E}", "`\u{FFFD}`"),
            ("'s", "`'s`"),
            ("<0x0A>", "`<0x0A>`"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }
}
