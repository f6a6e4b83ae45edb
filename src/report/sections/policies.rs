//! What a policy evicts, in words, from the columns of its rows: score, scope, protected entries and positions.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::eviction::{Budget, Score};
use crate::ledger::Row;
use crate::report::series::{is_shared, label};

/// The scores of rows, and what each evicts.
const SCORES: [(&str, &str); 6] = [
    ("recency", "evicts the oldest entry"),
    ("last_attention", "evicts the entry to which the newest token attends least"),
    ("accumulated_attention", "evicts the entry with the least attention received so far"),
    ("-key_norm", "evicts the entry whose key has the largest norm"),
    ("random", "evicts at random, so that a uniform sample of the text stays"),
    (
        "future_attention",
        "evicts the entry to which the full cache's later tokens attend least: it knows the text",
    ),
];

/// What all cells of a policy have in common, but for protected entries, whose number may depend on the cache size.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rule<'a> {
    score: &'a str,
    scope: &'a str,
    positions: &'a str,
    local_layers: &'a str,
    budget: &'a str,
}

/// How many entries are protected at each cache size.
type Amounts = BTreeSet<(u32, u32)>;

/// The rules of a policy, each with the first tokens and the newest entries that it protects.
type Rules<'a> = BTreeMap<Rule<'a>, [Amounts; 2]>;

/// The definition of each policy of some rows, by the name that tables give it.
pub(crate) fn definitions(rows: &[Row]) -> BTreeMap<Cow<'_, str>, String> {
    let mut found: BTreeMap<Cow<'_, str>, Rules<'_>> = BTreeMap::new();
    let is_same = |a: &Row, b: &Row| a.cell == b.cell && a.policy == b.policy && a.cache_size == b.cache_size;
    for row in rows.chunk_by(is_same).map(|of_cell| &of_cell[0]) {
        let rule = Rule {
            score: row.score.as_deref().unwrap_or_default(),
            scope: row.scope.as_deref().unwrap_or_default(),
            positions: if is_shared(row) { "" } else { &row.positions },
            local_layers: row.local_layers.as_deref().unwrap_or_default(),
            budget: row.budget.as_deref().unwrap_or_default(),
        };
        let [first, newest] = found.entry(label(row)).or_default().entry(rule).or_default();
        first.extend(row.cache_size.map(|size| (size, row.keep_first)));
        newest.extend(row.cache_size.map(|size| (size, row.keep_recent)));
    }
    let mut definitions = BTreeMap::new();
    for (name, rules) in found {
        let each: Vec<String> = rules.iter().map(|(rule, kept)| rule.words(&name, kept)).collect();
        definitions.insert(name, each.join("; in other cells: "));
    }
    definitions
}

impl Rule<'_> {
    fn words(&self, name: &str, [first, newest]: &[Amounts; 2]) -> String {
        let own = Score::of_row(self.score).map_or(self.score, |score| score.name());
        let mut words = match (name, SCORES.iter().find(|(score, _)| *score == own)) {
            ("full", _) => return "the model with an unbounded cache".to_owned(),
            ("truncate", _) => return "no policy: the text is cut to the cache size, and what is written after it is held as well".to_owned(),
            (_, Some((_, words))) => (*words).to_owned(),
            (_, None) if self.score.is_empty() => "not defined in its rows".to_owned(),
            (_, None) => format!("evicts the entry with the lowest {}", self.score),
        };
        // The oldest entry is the same for all heads.
        words += match self.scope {
            "layer" if self.score != "recency" => ", per layer",
            "head" if self.score != "recency" => ", per head",
            _ => "",
        };
        words += &kept(first, "first", ["token", "tokens"]);
        words += &kept(newest, "newest", ["entry", "entries"]);
        words += match self.positions {
            "slot" => "; keys are at their rank in the cache",
            "squeezed" => "; large gaps between positions are squeezed",
            _ => "",
        };
        words += match self.local_layers {
            "bounded" => "; layers with a window of their own hold that many at most as well",
            "exempt" => "; layers with a window of their own hold their whole window",
            _ => "",
        };
        words + &budget_words(self.budget)
    }
}

/// What a budget is, from its column; empty without one.
fn budget_words(budget: &str) -> String {
    match Budget::of_row(budget) {
        Some(Budget::Pyramid(beta)) => format!(
            "; the cache size is the mean over layers, whose sizes fall linearly from the first to the last as in PyramidKV \
             with \u{3b2} = {beta}"
        ),
        Some(layers) => format!(
            "; the cache size is the mean over layers, whose sizes are as {}",
            layers.shares().map(|share| share.to_string()).collect::<Vec<_>>().join(" : ")
        ),
        _ if budget.is_empty() => String::new(),
        _ => format!("; layers have the budget {budget}"),
    }
}

/// The entries that are protected: a number, or a share of the cache where only that fits all sizes.
fn kept(amounts: &Amounts, which: &str, [one, several]: [&str; 2]) -> String {
    let entries: BTreeSet<u32> = amounts.iter().map(|(_, entries)| *entries).collect();
    let (Some(least), Some(most)) = (entries.first(), entries.last()) else { return String::new() };
    let sizes: BTreeSet<u32> = amounts.iter().map(|(size, _)| *size).collect();
    if sizes.len() < amounts.len() {
        let each = entries.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ");
        return format!("; the {which} {each} {several} are kept, depending on the cell");
    }
    let is_percent = |percent: &u64| {
        amounts.iter().all(|(size, entries)| (u64::from(*size) * percent).div_ceil(100) == u64::from(*entries))
    };
    match (least, most) {
        (0, 0) => String::new(),
        (1, 1) => format!("; the {which} {one} is kept"),
        (n, m) if n == m => format!("; the {which} {n} {several} are kept"),
        _ if is_percent(&50) => format!("; the {which} half is kept"),
        (least, most) => match (1..100).filter(is_percent).collect::<Vec<_>>()[..] {
            [percent] => format!("; the {which} {percent} % are kept"),
            _ => format!("; the {which} {least} to {most} {several} are kept, depending on the cache size"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::SCORES as KNOWN;
    use crate::report::fixture::{cell, changed};

    /// The words for a policy whose cells have these sizes and newest entries.
    fn words(name: &str, (score, scope): (&str, &str), keep_first: u32, newest: &[(u32, u32)]) -> String {
        let at = |(size, recent): &(u32, u32)| {
            changed(cell("nll", name, Some(*size), &[("a", 1.0, 1.0)]), |row| {
                (row.score, row.scope) = (Some(score.into()), Some(scope.into()));
                (row.keep_first, row.keep_recent) = (keep_first, *recent);
            })
        };
        let rows: Vec<Row> = newest.iter().flat_map(at).collect();
        definitions(&rows).remove(name).unwrap()
    }

    #[test]
    fn the_columns_of_a_policy_become_its_definition() {
        let least = "evicts the entry to which the newest token attends least";
        for (score, newest, expected) in [
            (
                ("last_attention", "layer"),
                &[(64, 16), (128, 16)][..],
                format!("{least}, per layer; the newest 16 entries are kept"),
            ),
            (("last_attention", "head"), &[(64, 0)], format!("{least}, per head")),
            (
                ("last_attention", "layer"),
                &[(63, 32), (128, 64)],
                format!("{least}, per layer; the newest half is kept"),
            ),
            // 10 % of 64 and of 512, rounded up; no other share gives both.
            (
                ("last_attention", "layer"),
                &[(64, 7), (512, 52)],
                format!("{least}, per layer; the newest 10 % are kept"),
            ),
            (
                ("last_attention", "layer"),
                &[(64, 7), (512, 60)],
                format!("{least}, per layer; the newest 7 to 60 entries are kept, depending on the cache size"),
            ),
            (("recency", "layer"), &[(64, 0)], "evicts the oldest entry".to_owned()),
        ] {
            assert_eq!(words("mine", score, 0, newest), expected);
        }
        let sinks = words("window+4", ("recency", "layer"), 4, &[(64, 0)]);
        assert_eq!(sinks, "evicts the oldest entry; the first 4 tokens are kept");
    }

    #[test]
    fn every_score_has_words_and_positions_are_named() {
        for known in KNOWN {
            assert!(SCORES.iter().any(|(score, _)| *score == known.name), "{}", known.name);
        }
        let slot = changed(cell("nll", "tova", Some(8), &[("a", 1.0, 1.0)]), |row| {
            (row.score, row.positions) = (Some("last_attention".into()), "slot".into());
        });
        let found = definitions(&slot);
        assert!(found["tova@slot"].ends_with("keys are at their rank in the cache"), "{found:?}");
    }

    #[test]
    fn budgets_are_named() {
        for (budget, words) in [
            ("pyramid 20", "sizes fall linearly from the first to the last as in PyramidKV with \u{3b2} = 20"),
            ("layers 3 2.5 1", "whose sizes are as 3 : 2.5 : 1"),
            ("another", "layers have the budget another"),
        ] {
            let rows = changed(cell("nll", "mine", Some(8), &[("a", 1.0, 1.0)]), |row| {
                (row.score, row.budget) = (Some("last_attention".into()), Some(budget.into()));
            });
            assert!(definitions(&rows)["mine"].ends_with(words), "{:?}", definitions(&rows));
        }
    }

    #[test]
    fn two_definitions_under_one_name_are_both_told() {
        let at = |cell_id: &str, first| {
            changed(cell("nll", "mine", Some(8), &[("a", 1.0, 1.0)]), |row| {
                (row.cell, row.score, row.keep_first) = (cell_id.into(), Some("recency".into()), first);
            })
        };
        let rows = [at("a", 0), at("b", 4)].concat();
        let found = &definitions(&rows)["mine"];
        assert_eq!(found, "evicts the oldest entry; the first 0 or 4 tokens are kept, depending on the cell");
    }
}
