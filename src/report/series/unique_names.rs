//! One name for one thing: rows of several folders or definitions, named so that a table can hold them.
//!
//! A model or a data set under two paths gets the first of its names. A policy that was defined in two ways gets a name for
//! each, with what differs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::ledger::{Row, Settings, Text};
use crate::report::series::{SeriesKey, Size};

/// The rows with distinct names. Two cells that differ in nothing a row says keep one name, and no table takes both.
pub fn with_unique_names(mut rows: Vec<Row>) -> Vec<Row> {
    let (mut models, mut datasets) = (HashMap::new(), HashMap::new());
    for row in &mut rows {
        if !row.model_revision.is_empty() {
            row.model = models.entry(row.model_revision.clone()).or_insert_with(|| row.model.clone()).clone();
        }
        // Verdicts have the stories' data, and the name of the judge in `dataset`.
        if !row.data.is_empty() && row.task != "judge" {
            let data = (row.task.clone(), row.data.clone());
            row.dataset = datasets.entry(data).or_insert_with(|| row.dataset.clone()).clone();
        }
    }
    let names = names(&rows);
    for row in &mut rows {
        if let Some(name) = names.get(&(row.cell.clone(), row.policy.clone())) {
            row.policy = name.clone();
        }
    }
    rows
}

/// What a definition of a policy is made of, at one cache size.
pub(crate) fn definition(row: &Row) -> [(&'static str, String); 6] {
    let [keep_first, keep_recent] = protected(row);
    [
        ("score", row.score.as_deref().unwrap_or("none").to_owned()),
        ("scope", row.scope.as_deref().unwrap_or("none").to_owned()),
        ("keep_first", keep_first),
        ("keep_recent", keep_recent),
        ("budget", row.budget.as_deref().unwrap_or("uniform").to_owned()),
        ("seed", row.seed.to_string()),
    ]
}

/// Protected first tokens and newest entries: numbers at one cache size, but where that is a share, of which samples have other
/// numbers, as the policy defines them.
fn protected(row: &Row) -> [String; 2] {
    let definition = row.definition.as_deref().filter(|_| row.cache_share.is_some()).unwrap_or_default();
    let definition = Settings::from(definition);
    [("keep_first", row.keep_first), ("keep_recent", row.keep_recent)]
        .map(|(name, own)| definition.get(name).map_or_else(|| own.to_string(), str::to_owned))
}

/// New names of policies, by cell and the name they have.
fn names(rows: &[Row]) -> HashMap<(Text, Text), Text> {
    // By key and line of a table: a row of each cell.
    let mut lines: BTreeMap<(SeriesKey, String), BTreeMap<&Text, &Row>> = BTreeMap::new();
    for of_cell in rows.chunk_by(|a, b| a.cell == b.cell && a.policy == b.policy && SeriesKey::agree(a, b)) {
        let row = &of_cell[0];
        let key = SeriesKey { device: Text::new(), ..SeriesKey::of(row) };
        lines.entry((key, row.variant().into_owned())).or_default().insert(&row.cell, row);
    }
    let mut names = HashMap::new();
    for cells in lines.values() {
        let differing: Vec<usize> = (0..6).filter(|part| differ_at_a_size(cells, *part)).collect();
        if differing.is_empty() {
            continue;
        }
        for row in cells.values() {
            let own = definition(row);
            let own: Vec<String> =
                differing.iter().map(|part| format!("{} {}", own[*part].0, own[*part].1)).collect();
            let name = format!("{} ({})", row.policy, own.join(", "));
            names.insert((row.cell.clone(), row.policy.clone()), name.into());
        }
    }
    names
}

/// Whether cells of one cache size differ in a part of their definition. Between sizes, a share of the cache always does.
fn differ_at_a_size(cells: &BTreeMap<&Text, &Row>, part: usize) -> bool {
    let mut values: BTreeMap<Option<Size>, BTreeSet<String>> = BTreeMap::new();
    for row in cells.values() {
        values.entry(Size::of(row)).or_default().insert(definition(row)[part].1.clone());
    }
    values.values().any(|values| values.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{at_share, cell, changed, panels};

    fn at(policy: &str, size: u32, keep_recent: u32, value: f64) -> Vec<Row> {
        changed(cell("nll", policy, Some(size), &[("a", value, 1.0)]), |row| {
            row.keep_recent = keep_recent;
            row.cell = format!("{policy}-{size}-{keep_recent}").into();
        })
    }

    #[test]
    fn two_definitions_of_a_policy_are_two_lines() {
        let full = cell("nll", "full", None, &[("a", 1.0, 1.0)]);
        // `h2o` keeps half of the cache: 32 of 64 and 64 of 128 are one definition.
        let rows = [
            full,
            at("mine", 64, 32, 2.0),
            at("mine", 64, 16, 3.0),
            at("mine", 128, 16, 2.5),
            at("h2o", 64, 32, 2.0),
            at("h2o", 128, 64, 1.5),
        ];
        let panels = panels(&with_unique_names(rows.concat()));
        assert_eq!(panels[0].policies(), ["full", "mine (keep_recent 32)", "mine (keep_recent 16)", "h2o"]);
        let value = |policy: &str, size| panels[0].point(policy, Some(size)).unwrap().estimate.value;
        assert_eq!(value("mine (keep_recent 32)", 64), 2f64.exp());
        assert_eq!(value("mine (keep_recent 16)", 64), 3f64.exp());
        assert_eq!(value("mine (keep_recent 16)", 128), 2.5f64.exp());
    }

    #[test]
    fn of_a_share_the_definition_counts_and_not_what_a_sample_has() {
        // Half of 7 and of 80 entries, which two samples of one share may have.
        let of = |name: &'static str, entries: u32, definition: &'static str| {
            changed(at_share(0.25, cell("nll", "mine", None, &[("a", 1.0, 1.0)])), move |row| {
                (row.cell, row.cache_size, row.keep_recent) = (name.into(), Some(entries), entries / 2);
                row.definition = Some(definition.into());
            })
        };
        let [half, tenth] = ["keep_first=0 keep_recent=50% budget=uniform", "keep_first=0 keep_recent=10%"];
        let names = |rows: [Vec<Row>; 2]| -> BTreeSet<String> {
            with_unique_names(rows.concat()).into_iter().map(|row| row.policy.to_string()).collect()
        };
        assert_eq!(Vec::from_iter(names([of("1", 7, half), of("2", 80, half)])), ["mine"]);
        let two = names([of("1", 7, half), of("2", 7, tenth)]);
        assert_eq!(Vec::from_iter(two), ["mine (keep_recent 10%)", "mine (keep_recent 50%)"]);
    }

    #[test]
    fn two_budgets_of_a_policy_are_two_lines() {
        let with = |cell: &'static str, budget: Option<&'static str>| {
            changed(at("mine", 64, 0, 2.0), move |row| {
                (row.cell, row.budget) = (cell.into(), budget.map(Into::into))
            })
        };
        let rows = [with("1", None), with("2", Some("pyramid 20"))].concat();
        let names: BTreeSet<String> =
            with_unique_names(rows).into_iter().map(|row| row.policy.to_string()).collect();
        assert_eq!(Vec::from_iter(names), ["mine (budget pyramid 20)", "mine (budget uniform)"]);
    }

    #[test]
    fn a_model_and_a_data_set_under_two_paths_are_one_table() {
        let spelt = |rows, model: &'static str, dataset: &'static str, data: &'static str| {
            changed(rows, move |row| {
                (row.model, row.dataset, row.data) = (model.into(), dataset.into(), data.into());
            })
        };
        let full = cell("nll", "full", None, &[("a", 1.0, 1.0)]);
        let tova = cell("nll", "tova", Some(64), &[("a", 2.0, 1.0)]);
        let one =
            [spelt(full.clone(), "./m", "./d1/books", "1"), spelt(tova, "./m/", "../x/d1/books", "1")].concat();
        let found = panels(&with_unique_names(one.clone()));
        assert_eq!((found.len(), found[0].policies()), (1, vec!["full", "tova"]));
        // Other texts of the same name are another table, headed by as much of the path as it takes.
        let found = panels(&with_unique_names([one, spelt(full, "./m", "./d2/books", "2")].concat()));
        let keys: Vec<SeriesKey> = found.iter().map(|panel| panel.key.clone()).collect();
        let titles: Vec<String> = keys.iter().map(|key| key.title(&keys)).collect();
        assert_eq!(titles, ["m · d1/books", "m · d2/books"]);
    }
}
