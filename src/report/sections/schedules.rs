//! A metric over schedules: what deciding in bursts, or once after the prompt, costs.

use std::rc::Rc;

use super::Measured;
use crate::format::capital;
use crate::report::document::{Block, Group};
use crate::report::figure::by_schedule;

pub(super) fn blocks(measured: &Measured<'_>) -> Vec<Block> {
    let report = measured.setting.report;
    let whole = report.figure_of(measured.panel);
    let figure = whole.and_then(|whole| {
        by_schedule::figure(measured.panel, &report.schedules, whole, (&report.keys, report.reference.as_deref()))
    });
    let group = |figure| {
        let title = format!("{} by schedule", capital(&measured.panel.metric.label));
        let group = Group::folded(title, vec![Block::Figure(Rc::new(figure))]).of_metric(&measured.panel.metric);
        Block::Group(Group { is_open: measured.is_first, ..group })
    };
    figure.map(group).into_iter().collect()
}
