//! Standings as text: for each setting a table of policies and sizes.

use std::collections::BTreeMap;

use super::Standing;
use super::interval::wilson;

const HEADER: [&str; 8] = ["policy", "size", "pairs", "win %", "tie %", "loss %", "identical", "unreadable"];

/// The tables, and the tokens used. Shares are of the pairs with a result; their intervals are Wilson's, 95 %.
pub fn table(standings: &[Standing], judge: &str) -> String {
    let mut settings: BTreeMap<String, Vec<&Standing>> = BTreeMap::new();
    for standing in standings {
        let head = &standing.head;
        let setting = format!(
            "{} on {}, positions {}, prefill {}, judged by {judge} beside the full cache",
            head.model, head.dataset, head.positions, head.prefill
        );
        // A name may hold anything; a terminal shall not obey it.
        settings.entry(setting.replace(char::is_control, " ")).or_default().push(standing);
    }
    let mut text = String::new();
    for (setting, standings) in settings {
        text += &format!("{setting}\n\n{}\n", lines(&standings));
    }
    let sum = |of: fn(&Standing) -> u64| standings.iter().map(of).sum::<u64>();
    text += &format!(
        "95 % intervals: Wilson's, over pairs\ntokens used: {} prompt, {} completion, in {} calls\n",
        sum(|standing| standing.tally.prompt_tokens),
        sum(|standing| standing.tally.new_tokens),
        sum(|standing| standing.tally.calls as u64),
    );
    text
}

fn lines(standings: &[&Standing]) -> String {
    let mut grid = vec![HEADER.map(str::to_string)];
    for Standing { head, tally, identical, .. } in standings {
        let share = |part| match wilson(part, tally.pairs()) {
            Some(share) => {
                let [value, low, high] = [share.value, share.low, share.high].map(|part| 100.0 * part);
                format!("{value:.1} [{low:.1}, {high:.1}]")
            }
            None => "-".to_string(),
        };
        grid.push([
            head.policy.as_str().replace(char::is_control, " "),
            head.cache_size.map_or("-".to_string(), |size| size.to_string()),
            tally.pairs().to_string(),
            share(tally.wins),
            share(tally.ties),
            share(tally.losses),
            identical.to_string(),
            tally.unreadable.to_string(),
        ]);
    }
    let width = |column: usize| grid.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &grid {
        text += &format!("{:<width$}", line[0], width = widths[0]);
        for (entry, width) in line.iter().zip(widths).skip(1) {
            text += &format!("  {entry:>width$}");
        }
        text.push('\n');
    }
    text
}
