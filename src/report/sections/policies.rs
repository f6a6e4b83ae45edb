//! The definition of each policy, as its rows have it: score, scope, protected entries, budget, and what is not usual.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::eviction::CacheOptions;
use crate::ledger::{Row, Settings};
use crate::report::series::{Size, definition};

/// The definition of each policy of some rows, by the name that tables give it. Protected entries are numbers where a row has no
/// definition of its own, as those of earlier versions.
pub(crate) fn definitions(rows: &[Row]) -> BTreeMap<Cow<'_, str>, String> {
    let mut found: BTreeMap<Cow<'_, str>, BTreeSet<String>> = BTreeMap::new();
    let is_same = |a: &Row, b: &Row| a.cell == b.cell && a.policy == b.policy && Size::of(a) == Size::of(b);
    for row in rows.chunk_by(is_same).map(|of_cell| &of_cell[0]) {
        found.entry(row.variant()).or_default().insert(defined(row));
    }
    found.into_iter().map(|(name, texts)| (name, Vec::from_iter(texts).join("; in other cells: "))).collect()
}

fn defined(row: &Row) -> String {
    let format = row.format.as_deref().filter(|format| *format != "f32");
    let stored = format.map_or_else(String::new, |format| format!(", format {format}"));
    match (row.policy.as_str(), &row.score) {
        ("full", _) => return format!("the model with an unbounded cache{stored}"),
        ("truncate", _) => {
            let about =
                "no policy: the text is cut to the cache size, and what is written after it is held as well";
            return format!("{about}{stored}");
        }
        (_, None) => return "not defined in its rows".to_owned(),
        _ => {}
    }
    let usual = [("keep_first", "0"), ("keep_recent", "0"), ("budget", "uniform"), ("schedule", "1")];
    // Where a model has windows, it is told in any case whether the policy holds there.
    let usual_options = CacheOptions::default().words();
    let usual_options = usual_options.iter().filter(|(key, _)| *key != "local_layers");
    let usual: Vec<_> = usual.into_iter().chain(usual_options.map(|(key, word)| (*key, &**word))).collect();
    let options = row.options().into_iter().filter_map(|(key, word)| Some((key, word?)));
    let more = [("schedule", row.schedule.as_deref().unwrap_or("1"))].into_iter().chain(options);
    let settings = Settings::from(row.definition.as_deref().unwrap_or_default());
    let own = |name: &str| settings.get(name).filter(|_| name.starts_with("keep_")).map(str::to_owned);
    let parts = definition(row).into_iter().filter(|(name, _)| *name != "seed");
    let parts = parts.map(|(name, value)| (name, own(name).unwrap_or(value)));
    let parts = parts.chain(more.map(|(name, value)| (name, value.to_owned())));
    let parts = parts.filter(|(name, value)| {
        !["", "none"].contains(&value.as_str()) && !usual.contains(&(*name, value.as_str()))
    });
    parts.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, changed};

    fn of(cell_id: &'static str, change: impl Fn(&mut Row)) -> Vec<Row> {
        changed(cell("nll", "mine", Some(64), &[("a", 1.0, 1.0)]), |row| {
            (row.cell, row.score, row.scope) =
                (cell_id.into(), Some("last_attention".into()), Some("layer".into()));
            change(row);
        })
    }

    #[test]
    fn a_definition_is_that_of_the_rows() {
        let text = |change: fn(&mut Row)| definitions(&of("a", change)).into_values().next().unwrap();
        assert_eq!(text(|_| {}), "score last_attention, scope layer");
        let all = text(|row| {
            (row.keep_first, row.keep_recent) = (4, 32);
            row.definition =
                Some("score=last_attention scope=layer keep_first=4 keep_recent=50% budget=uniform".into());
            (row.budget, row.positions) = (Some("pyramid 20".into()), "slot".into());
            (row.local_layers, row.schedule) = (Some("exempt".into()), Some("cut+1".into()));
        });
        let expected = "score last_attention, scope layer, keep_first 4, keep_recent 50%, budget pyramid 20, schedule cut+1, \
                        positions slot, local_layers exempt";
        assert_eq!(all, expected);
        assert_eq!(text(|row| row.score = None), "not defined in its rows");
        assert_eq!(
            text(|row| (row.policy, row.cache_size) = ("full".into(), None)),
            "the model with an unbounded cache"
        );
    }

    #[test]
    fn two_definitions_under_one_name_are_both_told() {
        let rows = [of("a", |_| {}), of("b", |row| row.keep_first = 4)].concat();
        let expected =
            "score last_attention, scope layer; in other cells: score last_attention, scope layer, keep_first 4";
        assert_eq!(definitions(&rows)["mine"], expected);
    }
}
