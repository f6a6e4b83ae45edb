//! Numbers that other projects and papers publish, each with its source, beside what was measured of the same model and task.
//!
//! They are in `other_publications.json`, as they were printed, to two decimals. What exists as a picture only has no number there.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::format::capital;
use crate::report::{Block, Column, Entry, Grid, Group, Line, Panel, Results, Section, Size, Table};

/// One published table.
#[derive(Deserialize)]
struct PublishedTable {
    /// The name for `--published`; several tables can have one name.
    name: String,
    source: String,
    /// The model's name on the hub.
    model: String,
    /// Task, data set and metric here. Rows of data sets whose names contain this one are of it.
    task: String,
    dataset: String,
    metric: String,
    /// The source's word for its numbers.
    quantity: String,
    setting: String,
    /// `128`, or `25%` of the prompt.
    sizes: Vec<String>,
    full: Option<f64>,
    /// Methods as the source calls them, the preset here that computes each, and a number for each size.
    lines: Vec<(String, Option<String>, Vec<Option<f64>>)>,
    notes: Vec<String>,
}

static TABLES: LazyLock<Vec<PublishedTable>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("other_publications.json")).expect("the file is part of the program")
});

/// The names of all published tables, sorted.
pub fn publication_names() -> Vec<&'static str> {
    let names: BTreeSet<&str> = TABLES.iter().map(|table| table.name.as_str()).collect();
    names.into_iter().collect()
}

/// The tables of some names, each beside the measured numbers of the same model and task.
pub(super) fn blocks(names: &[String], results: &Results<'_>) -> Vec<Block> {
    let chosen = TABLES.iter().filter(|table| names.contains(&table.name));
    let blocks = chosen.map(|table| table.block(results)).collect();
    Section::of("Published elsewhere", blocks).into_iter().collect()
}

impl PublishedTable {
    fn block(&self, results: &Results<'_>) -> Block {
        let own: Vec<&Panel> = results.panels.iter().filter(|panel| self.is_of(panel)).collect();
        let title = format!("{} of {}, from {}", capital(&self.quantity), self.model, self.name);
        let table = Block::Table(self.table(&own, &title));
        Block::Group(Group { is_open: !own.is_empty(), ..Group::folded(title, vec![table]) })
    }

    /// Whether a panel is of the same model, task and metric. Folders and files of a model have its name, not its owner's.
    fn is_of(&self, panel: &Panel) -> bool {
        let last = |name: &str| name.trim_end_matches('/').rsplit('/').next().unwrap_or(name).to_lowercase();
        let dataset = panel.key.dataset.to_lowercase();
        panel.slice.is_none()
            && panel.metric.id == self.metric
            && panel.key.task == self.task
            && dataset.contains(&self.dataset.to_lowercase())
            && last(&panel.key.model) == last(&self.model)
    }

    fn sizes(&self) -> Vec<Size> {
        let size = |text: &String| match text.strip_suffix('%') {
            Some(percent) => {
                percent.parse().map(|percent: f64| Size::Share((100.0 * percent).round() as u32)).ok()
            }
            None => text.parse().map(Size::Entries).ok(),
        };
        self.sizes.iter().filter_map(size).collect()
    }

    /// Published lines, each above the measured one of its preset.
    fn table(&self, own: &[&Panel], title: &str) -> Table {
        let sizes = &self.sizes();
        let number = |value: &Option<f64>| value.map(|value| Entry::plain(value.to_string()));
        let measured = |policy: &str| -> Vec<Line> {
            let line = |panel: &&Panel| {
                let shown = |size: &Size| {
                    let point = panel.shown_at(policy, Some(*size))?;
                    Some(Entry::plain(panel.metric.show(point.estimate.value)))
                };
                Line::new(format!("{policy}, measured"), sizes.iter().map(shown).collect())
            };
            own.iter().map(line).filter(Line::has_any).collect()
        };
        let mut lines = Vec::new();
        if self.full.is_some() {
            lines.push(Line::new("full", vec![number(&self.full); self.sizes.len()]));
        }
        lines.extend(measured("full"));
        for (method, preset, values) in &self.lines {
            lines.push(Line::new(method.as_str(), values.iter().map(number).collect()));
            lines.extend(preset.iter().flat_map(|preset| measured(preset)));
        }
        let columns = self.sizes.iter().map(|size| Column::from(size.clone())).collect();
        let about = format!("Sizes are what is kept. {}. {}", capital(&self.setting), self.source);
        let notes = own.iter().map(|panel| {
            let details = panel.key.details().into_iter().filter(|(_, value)| !value.is_empty());
            let details: Vec<String> = details.map(|(name, value)| format!("{name} {value}")).collect();
            format!("measured here with: {}", details.join(", "))
        });
        let notes = self.notes.iter().cloned().chain(notes).collect();
        Table { notes, ..Table::new(title, &about, "method", Grid { columns, lines }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::presets;
    use crate::metric::Metric;
    use crate::report::fixture::{at_share, cell, changed};

    #[test]
    fn every_table_is_whole_and_in_this_programs_words() {
        for table in TABLES.iter() {
            let what = format!("{} {}", table.name, table.model);
            assert!(Metric::known(&table.metric).is_some(), "{what}");
            assert_eq!(table.sizes().len(), table.sizes.len(), "{what}");
            assert!(table.lines.iter().all(|(.., values)| values.len() == table.sizes.len()), "{what}");
            let values = table.lines.iter().flat_map(|(.., values)| values).flatten().chain(&table.full);
            assert!(
                values.clone().count() > 0 && values.clone().all(|value| (0.0..=100.0).contains(value)),
                "{what}"
            );
            assert!(table.source.starts_with("https://") && table.model.contains('/'), "{what}");
            let presets = table.lines.iter().filter_map(|(_, preset, _)| preset.as_deref());
            presets.for_each(|preset| assert!(presets::by_name(preset).is_some(), "{preset}"));
        }
    }

    #[test]
    fn measured_lines_follow_the_published_ones_of_the_same_model_and_task() {
        let of = |policy: &str, share: Option<f64>, model: &str| {
            let samples = [("a", 0.9, 1.0), ("b", 1.0, 1.0)];
            let rows = cell("ruler", policy, share.map(|_| 7), &samples);
            let rows = share.map_or_else(|| rows.clone(), |share| at_share(share, rows.clone()));
            changed(rows, |row| {
                row.cell = format!("{} {model}", row.cell).into();
                (row.task, row.dataset, row.model) = ("ruler_rows".into(), "generated".into(), model.into());
            })
        };
        let here = "./models/llama-3.1-8b-instruct";
        let rows = [
            of("full", None, here),
            of("kvzip-pool", Some(0.5), here),
            of("kvzip-pool", Some(0.5), "other/Llama"),
            of("snapkv", Some(0.25), here),
        ];
        let rows = rows.concat();
        let results = Results::of(&rows).unwrap();
        let blocks = blocks(&["kvzip".to_owned()], &results);
        let [Block::Section(section)] = &blocks[..] else { panic!("a section expected") };
        let [Block::Group(group)] = &section.blocks[..] else { panic!("one table has this name") };
        let [Block::Table(table)] = &group.blocks[..] else { panic!("one table expected") };
        let lines = table.grid.lines.iter().map(|line| {
            let number = |cell: &Option<Entry>| cell.as_ref().map_or(String::new(), |entry| entry.number.clone());
            (line.name.as_str(), line.cells.iter().map(number).collect::<Vec<_>>())
        });
        let columns: Vec<&str> = table.grid.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["10%", "20%", "30%", "40%", "50%", "75%", "90%"]);
        let expected = [
            ("full", ["95.7"; 7].map(String::from).to_vec()),
            ("full, measured", ["95.00"; 7].map(String::from).to_vec()),
            ("KVzip", ["90.5", "94.9", "95.3", "95.5", "95.5", "95.5", "95.5"].map(String::from).to_vec()),
            ("kvzip-pool, measured", ["", "", "", "", "95.00", "", ""].map(String::from).to_vec()),
        ];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }
}
