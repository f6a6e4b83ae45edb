//! A setting, which is one model, task and data set: its metrics, the first in full view, and everything its numbers have in common.

use std::rc::Rc;

use super::{METRIC, Measured, Report, SETTING, Setting, memory, pairs, slices, speed, values};
use crate::format::capital;
use crate::report::document::{Block, Fact, Group, Section, Table};

pub(super) fn blocks(report: &Report<'_>) -> Vec<Block> {
    let section = |(at, setting): (usize, Setting<'_>)| {
        let blocks = SETTING.iter().flat_map(|blocks| blocks(&setting)).collect();
        Block::Section(Section { title: setting.title(), setting: Some(at), blocks })
    };
    Setting::all(report).enumerate().map(section).collect()
}

/// The metrics: the first in full view, each with its slices after it.
pub(super) fn metrics(setting: &Setting<'_>) -> Vec<Block> {
    let mut all = Vec::new();
    for (place, panel) in setting.panels.iter().copied().enumerate() {
        let measured = Measured { setting, panel, is_first: place == 0, tables: values::headline(panel) };
        let blocks: Vec<Block> = METRIC.iter().flat_map(|blocks| blocks(&measured)).collect();
        let group = Group::folded(capital(&panel.metric.label), blocks).of_metric(&panel.metric);
        let is_in_view = measured.is_first && !setting.is_timed();
        all.push(Block::Group(if is_in_view { Group { title: None, is_open: true, ..group } } else { group }));
        all.extend(slices::blocks(&measured));
    }
    all
}

/// The curve of a metric; of timed ones the first is beside the table of all.
pub(super) fn figure(measured: &Measured<'_>) -> Vec<Block> {
    let figure = measured.setting.report.figure_of(measured.panel);
    let figure = figure.filter(|_| !(measured.is_first && measured.setting.is_timed()));
    figure.map(|figure| Block::Figure(Rc::clone(figure))).into_iter().collect()
}

/// Everything that the numbers have in common.
pub(super) fn facts(setting: &Setting<'_>) -> Vec<Block> {
    let facts = setting.key.headed_details().map(|(name, value)| Fact::new(name, [value]));
    let revision = Fact::new("whole revision", [setting.key.model_revision.to_string()]);
    let facts = facts.chain([revision]).filter(|fact| !fact.items.is_empty()).collect();
    vec![Block::Group(Group::folded("All settings of these numbers", vec![Block::Facts(facts)]))]
}

/// Tables of the first metric of each setting, with its planned contrasts, or of a timing its one table.
pub(super) fn summary(report: &Report<'_>) -> Vec<Block> {
    let of_setting = |setting: Setting<'_>| {
        let of_values = values::headline(setting.panels[0]).into_iter().next();
        let of_memory = memory::leading(setting.panels[0]).map(|table| {
            let notes = of_values.iter().flat_map(|values| values.notes.clone()).collect();
            Table { notes, ..table }
        });
        let first = speed::table(&setting).or(of_memory).or(of_values);
        let title = |table: Table| Table { title: format!("{} \u{B7} {}", table.title, setting.title()), ..table };
        let contrasts = pairs::planned(setting.panels[0]);
        let tables: Vec<Block> =
            first.into_iter().chain(contrasts).map(|table| Block::Table(title(table))).collect();
        tables
    };
    Setting::all(report).filter(|setting| !setting.panels.is_empty()).flat_map(of_setting).collect()
}
