//! What a policy evicts, in words, from the columns of its rows: its score and scope, and settings as a sweep writes them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::eviction::Score;
use crate::ledger::{Row, Text, setting};
use crate::report::series::{Size, label};

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

/// The definition of each policy of some rows, by the name that tables give it; of several, each.
pub(crate) fn definitions(rows: &[Row]) -> BTreeMap<Cow<'_, str>, String> {
    let mut found: BTreeMap<Cow<'_, str>, BTreeSet<String>> = BTreeMap::new();
    let is_same = |a: &Row, b: &Row| a.cell == b.cell && a.policy == b.policy && Size::of(a) == Size::of(b);
    for row in rows.chunk_by(is_same).map(|of_cell| &of_cell[0]) {
        found.entry(label(row)).or_default().insert(words(row));
    }
    let joined = |(name, each)| (name, Vec::from_iter(each).join("; in other cells: "));
    found.into_iter().map(joined).collect()
}

fn words(row: &Row) -> String {
    let score = row.score.as_deref().unwrap_or_default();
    let name = Score::of_row(score).map_or(score, |score| score.name());
    let evicts = match (&*row.policy, SCORES.iter().find(|(score, _)| *score == name)) {
        ("full", _) => return "the model with an unbounded cache".to_owned(),
        ("truncate", _) => {
            return "no policy: the text is cut to the cache size, and what is written after it is held as well"
                .to_owned();
        }
        (_, Some((_, words))) => (*words).to_owned(),
        (_, None) if score.is_empty() => return "not defined in its rows".to_owned(),
        (_, None) => format!("evicts the entry with the lowest {score}"),
    };
    // The oldest entry is the same for all heads.
    let scope = match row.scope.as_deref() {
        Some(scope) if score != "recency" => format!(", per {scope}"),
        _ => String::new(),
    };
    let text = |column: &Option<Text>, default: &str| column.as_deref().unwrap_or(default).to_owned();
    let defined = |name: &str, own: u32| {
        let defined = row.definition.as_deref().and_then(|definition| setting(definition, name));
        defined.unwrap_or_else(|| own.to_string())
    };
    // That of a task's prompts is a setting of the table.
    let schedule = row.schedule.clone().filter(|_| !row.prefill.starts_with("one_shot"));
    let settings = [
        ("keep_first", defined("keep_first", row.keep_first), "0"),
        ("keep_recent", defined("keep_recent", row.keep_recent), "0"),
        ("budget", text(&row.budget, "uniform"), "uniform"),
        ("positions", row.positions.to_string(), "absolute"),
        ("local_layers", text(&row.local_layers, "bounded"), "bounded"),
        ("schedule", text(&schedule, "1"), "1"),
    ];
    let others = settings.iter().filter(|(_, value, default)| ![*default, "0%", ""].contains(&value.as_str()));
    let others: String = others.map(|(name, value, _)| format!("; {name} {value}")).collect();
    evicts + &scope + &others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::{Policy, SCORES as KNOWN};
    use crate::report::fixture::{cell, changed};

    /// The words for a policy at these sizes, whose rows are of today or of earlier versions.
    fn words_of(name: &str, definition: &str, sizes: &[u32], today: bool) -> String {
        let policy: Policy = definition.parse().unwrap();
        let at = |size: &u32| {
            changed(cell("nll", name, Some(*size), &[("a", 1.0, 1.0)]), |row| {
                (row.score, row.scope) = (Some(policy.score.name().into()), Some(policy.scope.name().into()));
                row.keep_first = policy.keep_first.of(*size as usize) as u32;
                row.keep_recent = policy.keep_recent.of(*size as usize) as u32;
                row.definition = today.then(|| policy.definition().into());
            })
        };
        let rows: Vec<Row> = sizes.iter().flat_map(at).collect();
        definitions(&rows).remove(name).unwrap()
    }

    #[test]
    fn the_columns_of_a_policy_become_its_definition() {
        let least = "evicts the entry to which the newest token attends least";
        let tova = |scope: &str, keep_recent: &str| {
            format!("score=last_attention scope={scope} keep_first=0 keep_recent={keep_recent} budget=uniform")
        };
        for (definition, expected) in [
            (tova("layer", "16"), format!("{least}, per layer; keep_recent 16")),
            (tova("head", "0"), format!("{least}, per head")),
            (tova("layer", "50%"), format!("{least}, per layer; keep_recent 50%")),
        ] {
            assert_eq!(words_of("mine", &definition, &[63, 128], true), expected);
        }
        let sinks = "score=recency scope=layer keep_first=4 keep_recent=0 budget=uniform";
        assert_eq!(words_of("window+4", sinks, &[64], true), "evicts the oldest entry; keep_first 4");
    }

    #[test]
    fn rows_of_earlier_versions_have_numbers() {
        let h2o = "score=accumulated_attention scope=head keep_first=0 keep_recent=50% budget=uniform";
        let found = words_of("h2o", h2o, &[64, 128], false);
        assert!(
            found.contains("keep_recent 32; in other cells: ") && found.ends_with("keep_recent 64"),
            "{found}"
        );
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
        assert!(found["tova@slot"].ends_with("; positions slot"), "{found:?}");
    }

    #[test]
    fn budgets_are_named() {
        let rows = changed(cell("nll", "mine", Some(8), &[("a", 1.0, 1.0)]), |row| {
            (row.score, row.budget) = (Some("last_attention".into()), Some("pool heads 20%".into()));
        });
        assert!(definitions(&rows)["mine"].ends_with("; budget pool heads 20%"), "{:?}", definitions(&rows));
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
        assert_eq!(found, "evicts the oldest entry; in other cells: evicts the oldest entry; keep_first 4");
    }
}
