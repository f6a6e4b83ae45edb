//! Links to the pages of single samples, each as its cache holds it.

use std::collections::BTreeMap;

use super::Setting;
use crate::ledger::Row;
use crate::report::document::{Block, Group};
use crate::report::series::Size;

pub(super) fn blocks(setting: &Setting<'_>) -> Vec<Block> {
    let pages = setting.report.pages;
    if pages.is_empty() {
        return Vec::new();
    }
    let order = setting.panels.first().map_or_else(Vec::new, |panel| panel.policies());
    let mut links = BTreeMap::new();
    let page = |row: &Row| pages.get(&(row.cell.clone(), row.sample.clone()));
    for row in setting.rows(|row| page(row).is_some()) {
        if let (Some(page), Some(size)) = (page(row), Size::of(row)) {
            let policy = row.variant();
            let place = order.iter().position(|other| *other == policy);
            let words = format!("{policy} with {}: {}", size.words(), row.sample);
            links.insert((place, size, &row.sample), (words, page.clone()));
        }
    }
    if links.is_empty() {
        return Vec::new();
    }
    let links = Block::Links(links.into_values().collect());
    vec![Block::Group(Group::folded("Samples, token by token", vec![links]))]
}
