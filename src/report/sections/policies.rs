//! What a policy evicts, in words, from the columns of its rows: score, scope, protected entries and positions.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::eviction::{Amount, Budget, BudgetPool, FirstTokens, Policy, PoolOver, Schedule, Score, presets};
use crate::ledger::Row;
use crate::report::series::Size;

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

/// What all cells of a policy have in common, but for protected entries.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rule<'a> {
    score: &'a str,
    scope: &'a str,
    positions: &'a str,
    local_layers: &'a str,
    budget: &'a str,
    schedule: &'a str,
}

/// How many first tokens and newest entries a rule protects; several where cells differ.
type Kept = [BTreeSet<FirstTokens>; 2];

/// The definition of each policy of some rows, by the name that tables give it.
pub(crate) fn definitions(rows: &[Row]) -> BTreeMap<Cow<'_, str>, String> {
    let mut found: BTreeMap<Cow<'_, str>, BTreeMap<Rule<'_>, Kept>> = BTreeMap::new();
    let is_same = |a: &Row, b: &Row| a.cell == b.cell && a.policy == b.policy && Size::of(a) == Size::of(b);
    for row in rows.chunk_by(is_same).map(|of_cell| &of_cell[0]) {
        let rule = Rule {
            score: row.score.as_deref().unwrap_or_default(),
            scope: row.scope.as_deref().unwrap_or_default(),
            positions: if row.never_evicts() { "" } else { &row.positions },
            local_layers: row.local_layers.as_deref().unwrap_or_default(),
            budget: row.budget.as_deref().unwrap_or_default(),
            schedule: row.schedule.as_deref().unwrap_or_default(),
        };
        let [first, newest] = found.entry(row.variant()).or_default().entry(rule).or_default();
        let (of_first, of_newest) = protected(row);
        first.insert(of_first);
        newest.insert(of_newest);
    }
    let mut definitions = BTreeMap::new();
    for (name, rules) in found {
        let each: Vec<String> = rules.iter().map(|(rule, kept)| rule.words(&name, kept)).collect();
        definitions.insert(name, each.join("; in other cells: "));
    }
    definitions
}

/// The protected entries as the policy defines them. Rows of earlier versions have the numbers at their size alone, which are
/// those of a preset where the policy has its name and it has the same.
fn protected(row: &Row) -> (FirstTokens, FirstTokens) {
    let own = (row.keep_first as usize, row.keep_recent as usize);
    let of = |amount: FirstTokens| amount.of(row.cache_size.unwrap_or_default() as usize);
    let is_own = |policy: &Policy| (of(policy.keep_first), of(FirstTokens::Count(policy.keep_recent))) == own;
    let defined = row.definition.as_deref().and_then(|definition| definition.parse::<Policy>().ok());
    let policy = defined.or_else(|| presets::by_name(&row.policy).map(Policy::canonical)).filter(is_own);
    policy.map_or((FirstTokens::tokens(own.0), FirstTokens::tokens(own.1)), |policy| {
        (policy.keep_first, FirstTokens::Count(policy.keep_recent))
    })
}

impl Rule<'_> {
    fn words(&self, name: &str, [first, newest]: &Kept) -> String {
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
        words + &budget_words(self.budget) + &schedule_words(self.schedule)
    }
}

/// When entries leave, from its column; empty for one after every token.
fn schedule_words(schedule: &str) -> String {
    let Ok(schedule) = schedule.parse::<Schedule>() else { return String::new() };
    let (cut, every) = (schedule.cuts(), schedule.every());
    let at_once = |every: usize| {
        if every == 1 { "one leaves after every token".to_owned() } else { format!("{every} leave at once") }
    };
    match (cut, every) {
        (true, None) => "; the cache is cut once, after the prompt, and then grows".to_owned(),
        (true, Some(every)) => format!("; the cache is cut after the prompt, and then {}", at_once(every)),
        (false, Some(1) | None) => String::new(),
        (false, Some(every)) => format!("; {}", at_once(every)),
    }
}

/// What a budget is, from its column; empty without one.
fn budget_words(budget: &str) -> String {
    match budget.parse::<Budget>() {
        Ok(Budget::Pyramid(beta)) => format!(
            "; the cache size is the mean over layers, whose sizes fall linearly from the first to the last as in PyramidKV \
             with \u{3b2} = {beta}"
        ),
        Ok(layers @ Budget::Layers(_)) => format!(
            "; the cache size is the mean over layers, whose sizes are as {}",
            layers.shares().map(|share| share.to_string()).collect::<Vec<_>>().join(" : ")
        ),
        Ok(Budget::Pool(BudgetPool { over, floor, score })) => {
            let heads = if over == PoolOver::Heads { "the heads of a layer" } else { "the heads of all layers" };
            let floor =
                if floor == 0 { String::new() } else { format!(", and each keeps at least {floor} % of a size") };
            let by = score.map_or(String::new(), |score| {
                format!("; how many leave from each is decided by {}", score.text())
            });
            format!("; {heads} share their entries{floor}{by}")
        }
        Ok(Budget::Heads(_)) => "; every key-value head has a size of its own by a table".to_owned(),
        _ if budget.is_empty() => String::new(),
        _ => format!("; layers have the budget {budget}"),
    }
}

/// The entries that are protected: a number, or a share of the cache.
fn kept(amounts: &BTreeSet<FirstTokens>, which: &str, [one, several]: [&str; 2]) -> String {
    match Vec::from_iter(amounts)[..] {
        [] | [FirstTokens::Count(Amount::Tokens(0) | Amount::Percent(0))] => String::new(),
        [FirstTokens::Prompt] => "; the prompt is kept, and the cache size is that of what follows it".to_owned(),
        [FirstTokens::Count(Amount::Tokens(1))] => format!("; the {which} {one} is kept"),
        [FirstTokens::Count(Amount::Tokens(n))] => format!("; the {which} {n} {several} are kept"),
        [FirstTokens::Count(Amount::Percent(50))] => format!("; the {which} half is kept"),
        [FirstTokens::Count(Amount::Percent(percent))] => format!("; the {which} {percent} % are kept"),
        [least, .., most] => format!("; the {which} {least} to {most} {several} are kept, depending on the cell"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::SCORES as KNOWN;
    use crate::report::fixture::{cell, changed};

    /// The words for a policy at these sizes, whose rows are of today or of earlier versions.
    fn words(name: &str, definition: &str, sizes: &[u32], today: bool) -> String {
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
            (tova("layer", "16"), format!("{least}, per layer; the newest 16 entries are kept")),
            (tova("head", "0"), format!("{least}, per head")),
            (tova("layer", "50%"), format!("{least}, per layer; the newest half is kept")),
            (tova("layer", "10%"), format!("{least}, per layer; the newest 10 % are kept")),
        ] {
            assert_eq!(words("mine", &definition, &[63, 128], true), expected);
        }
        let sinks = "score=recency scope=layer keep_first=4 keep_recent=0 budget=uniform";
        assert_eq!(words("window+4", sinks, &[64], true), "evicts the oldest entry; the first 4 tokens are kept");
    }

    #[test]
    fn rows_of_earlier_versions_have_numbers_and_names() {
        let h2o = "score=accumulated_attention scope=head keep_first=0 keep_recent=50% budget=uniform";
        assert_eq!(words("h2o", h2o, &[63, 128], false), words("h2o", h2o, &[63, 128], true));
        assert!(
            words("mine", h2o, &[63, 128], false)
                .ends_with("the newest 32 to 64 entries are kept, depending on the cell")
        );
        // This h2o is another.
        let other = h2o.replace("50%", "10%");
        assert!(words("h2o", &other, &[63], false).ends_with("the newest 7 entries are kept"));
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
            ("pool heads 20%", "heads of a layer share their entries, and each keeps at least 20 % of a size"),
            ("heads full 1/1 2", "every key-value head has a size of its own by a table"),
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
        assert_eq!(found, "evicts the oldest entry; the first 0 to 4 tokens are kept, depending on the cell");
    }
}
