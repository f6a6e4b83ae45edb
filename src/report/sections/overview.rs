//! Settings side by side, as in the paper's Figure 3: the figures of several panels.

use std::rc::Rc;

use super::Report;
use crate::report::document::{Block, Group, Section};
use crate::report::figure::Figure;

pub(super) fn blocks(report: &Report<'_>) -> Vec<Block> {
    let group = |(at, figure): (usize, &Rc<Figure>)| {
        let figure = Rc::clone(figure);
        let group = Group::folded(figure.title.clone(), vec![Block::Figure(figure)]);
        Block::Group(Group { is_open: at == 0, ..group })
    };
    Section::of("Side by side", report.figures.combined.iter().enumerate().map(group).collect())
        .into_iter()
        .collect()
}
