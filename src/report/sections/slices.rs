//! A metric by slices of the samples: a figure where the slices are along a text, and a table for each cache size.

use std::collections::BTreeSet;
use std::rc::Rc;

use indexmap::IndexSet;

use super::Measured;
use super::values::{self, Show};
use crate::format::capital;
use crate::metric::{Property, Slice};
use crate::report::document::{Block, Column, Entry, Grid, Group, Line, Table};
use crate::report::figure::slices;
use crate::report::series::{Breakdown, LENGTH_AND_DEPTH, Panel, RUNNING, Size, TASK_AND_LENGTH};

/// Most columns of a table.
const MOST_COLUMNS: usize = 8;

pub(super) fn blocks(measured: &Measured<'_>) -> Vec<Block> {
    let (report, panel) = (measured.setting.report, measured.panel);
    let of_panel = report.breakdowns.iter().filter(|parts| parts.is_of(panel));
    let group = |parts: &Breakdown<'_>| {
        let title = panel.title(&report.keys);
        let whole = report.figure_of(panel);
        let figure = whole.and_then(|whole| slices::figure(parts, whole, &title));
        let tables = tables(parts).into_iter().map(Block::Table);
        let blocks = figure.map(|figure| Block::Figure(Rc::new(figure))).into_iter().chain(tables).collect();
        let group = Group::folded(capital(&title_of(parts)), blocks).of_metric(&panel.metric);
        // A map of needles is what such a task is about.
        Block::Group(Group { is_open: parts.by == LENGTH_AND_DEPTH, ..group })
    };
    of_panel.map(group).collect()
}

/// A table for each cache size.
fn tables(parts: &Breakdown<'_>) -> Vec<Table> {
    let corner = match parts.by {
        LENGTH_AND_DEPTH => "policy, depth",
        TASK_AND_LENGTH => "policy, task",
        _ => "policy by part",
    };
    let table = |size: Size| {
        let title = format!("{}, cache size {size}", title_of(parts));
        Table { size: Some(size), ..Table::new(title, about(parts), corner, grid(parts, size)) }
    };
    parts.sizes().into_iter().map(table).filter(|table| !table.grid.lines.is_empty()).collect()
}

fn title_of(parts: &Breakdown<'_>) -> String {
    let name = &parts.metric().label;
    match parts.by {
        RUNNING => format!("{name} of all tokens read"),
        by => format!("{name} by {by}"),
    }
}

fn about(parts: &Breakdown<'_>) -> &'static str {
    match parts.by {
        "distance" => "Columns are tokens from the last statement of the fact to the answer.",
        "position" => "Columns are tokens from the start of the sample.",
        "depth" => "Columns are places of the fact in percent of the text: 0 is its beginning, 100 its end.",
        "length" => "Columns are lengths of the text in tokens.",
        LENGTH_AND_DEPTH => {
            "Columns are lengths of the text in tokens; lines are policies, and the place of the fact in percent of the text."
        }
        TASK_AND_LENGTH => "Columns are lengths in tokens; lines are policies and tasks.",
        "task" => "Columns are tasks, over all lengths.",
        "layer" => "Columns are layers of the model.",
        RUNNING => "Columns are tokens read; each number is over all of them.",
        _ => "",
    }
}

/// The slices shown in a table: all, but only a few points of a curve.
fn shown<'a>(parts: &Breakdown<'a>) -> Vec<(&'a Slice, &'a Panel)> {
    let all = &parts.panels;
    let shown = if parts.by == RUNNING { all.len().min(MOST_COLUMNS) } else { all.len() };
    // The last is the whole text.
    (1..=shown).map(|column| all[column * all.len() / shown - 1]).collect()
}

/// Policies down, slices across, at one cache size; below them what a guess would reach, and how much was measured.
fn grid(parts: &Breakdown<'_>, size: Size) -> Grid {
    match parts.by {
        LENGTH_AND_DEPTH => {
            let mut all = parts.panels.clone();
            all.sort_by_key(|(slice, _)| slice.second);
            let place =
                |(slice, panel): (&Slice, _)| Some((slice.single()?, format!("{} %", slice.second?), panel));
            return by_length(parts, size, &all.into_iter().filter_map(place).collect::<Vec<_>>());
        }
        TASK_AND_LENGTH => {
            let place =
                |&(slice, panel): &(&Slice, _)| Some((slice.second?, slice.name.as_ref()?.to_string(), panel));
            return by_length(parts, size, &parts.panels.iter().filter_map(place).collect::<Vec<_>>());
        }
        _ => {}
    }
    let slices = shown(parts);
    let columns: Vec<(&Panel, Option<Size>)> = slices.iter().map(|(_, panel)| (*panel, Some(size))).collect();
    let mut lines = values::lines(&parts.policies(), &columns, Show::Value);
    let mut fixed = |name: &str, number: fn(&Panel) -> Option<String>| {
        let cells = slices.iter().map(|(_, panel)| number(panel).map(Entry::plain)).collect();
        lines.extend(Some(Line::new(name, cells)).filter(Line::has_any));
    };
    fixed("(chance)", |panel| panel.guess.map(|guess| panel.metric.show(guess)));
    fixed("(measured)", |panel| {
        let weights =
            panel.points.iter().map(|point| point.weight).filter(|_| !panel.metric.has(Property::Uncountable));
        weights.max_by(f64::total_cmp).map(|weight| weight.to_string())
    });
    Grid { columns: slices.iter().map(|(slice, _)| slice.value().into()).collect(), lines }
}

/// Policies with depths or tasks down, lengths across. Each place has a length and the name of its line.
fn by_length(parts: &Breakdown<'_>, size: Size, places: &[(u64, String, &Panel)]) -> Grid {
    let lengths: BTreeSet<u64> = places.iter().map(|(length, ..)| *length).collect();
    let names: IndexSet<&str> = places.iter().map(|(_, name, _)| name.as_str()).collect();
    let mut lines = Vec::new();
    for policy in parts.policies() {
        for &name in &names {
            let cell = |length: &u64| {
                let panel = places.iter().find(|place| (place.0, place.1.as_str()) == (*length, name))?.2;
                let point = panel.shown_at(policy, Some(size))?;
                let number = Entry::plain(panel.metric.show(point.estimate.value));
                Some(Entry { partial: !point.complete, ..number })
            };
            let line = Line::of_policy(policy, lengths.iter().map(cell).collect());
            lines.push(Line { name: format!("{policy}, {name}"), ..line });
        }
    }
    lines.retain(Line::has_any);
    Grid { columns: lengths.iter().map(|length| Column::from(length.to_string())).collect(), lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, changed, panels, recalls};
    use crate::report::series::breakdown::breakdowns;

    fn words(grid: &Grid) -> Vec<Vec<&str>> {
        fn words_of(line: &Line) -> Vec<&str> {
            let cells = line.cells.iter().map(|entry| entry.as_ref().map_or("-", |entry| &entry.number));
            std::iter::once(line.name.as_str()).chain(cells).collect()
        }
        let head = grid.columns.iter().map(|column| column.name.as_str()).collect();
        std::iter::once(head).chain(grid.lines.iter().map(words_of)).collect()
    }

    #[test]
    fn slices_become_tables() {
        let panels = panels(&recalls());
        let parts = breakdowns(&panels);
        let grid = grid(&parts[0], 32.into());
        let expected = [
            &["16-31", "64-127"][..],
            &["full", "100.0", "100.0"],
            &["tova", "50.00", "50.00"],
            &["window", "100.0", "-"],
            &["(chance)", "25.00", "25.00"],
            &["(measured)", "2", "2"],
        ];
        assert_eq!(words(&grid), expected);
    }

    #[test]
    fn tasks_are_lines_and_lengths_columns() {
        let at = |policy: &str, size, slice: &str, value| {
            changed(cell("ruler", policy, size, &[("a", value, 1.0)]), |row| row.slice = Some(slice.into()))
        };
        let rows = [
            at("full", None, "task:vt length:8192", 0.8),
            at("full", None, "task:vt length:512", 1.0),
            at("full", None, "task:cwe length:512", 0.4),
            at("tova", Some(32), "task:vt length:512", 0.5),
            at("full", None, "task:vt", 0.9),
            at("full", None, "length:512", 0.7),
        ];
        let panels = panels(&rows.concat());
        let parts = breakdowns(&panels);
        let kinds: Vec<&str> = parts.iter().map(|parts| parts.by).collect();
        assert_eq!(kinds, ["task and length", "length", "task"]);
        let grid = grid(&parts[0], 32.into());
        let expected = [
            &["512", "8192"][..],
            &["full, cwe", "40.00", "-"],
            &["full, vt", "100.0", "80.00"],
            &["tova, vt", "50.00", "-"],
        ];
        assert_eq!(words(&grid), expected);
    }
}
