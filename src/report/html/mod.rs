//! The report as one page, `report.html`: it opens from a file, asks the network for nothing, and reads without a script.
//!
//! [`file`] is the front door. Tables are [`Sheet`]s, curves are the charts of the other formats drawn as SVG with classes, so that
//! the style sheet does the colours; what a script needs for looking at single samples lies in the page as JSON. It
//! computes no statistic. Every text passes `maud`, which escapes, or the JSON writer in `json`.

mod figure;
mod json;
mod page;
mod points;
mod provenance;
#[cfg(test)]
mod reader;
mod samples;
mod sorted;
mod table;
#[cfg(test)]
mod tests;
mod theme;

use anyhow::Result;

use super::breakdown::Breakdown;
use super::points::Panel;
use super::retention;
use super::series_style::SeriesStyles;
use super::table::Sheet;
use crate::ledger::Row;

/// Everything the page is made of.
pub(super) struct Content<'a> {
    pub(super) rows: &'a [Row],
    /// Every panel, those of parts too.
    pub(super) all: &'a [Panel],
    /// Those of whole samples.
    pub(super) panels: &'a [Panel],
    pub(super) breakdowns: &'a [Breakdown<'a>],
    pub(super) sections: &'a [retention::Section<'a>],
    pub(super) styles: &'a SeriesStyles,
    /// Tables over all settings, shown before them.
    pub(super) further: &'a [&'a Sheet],
}

/// The whole page.
///
/// # Errors
/// Where a figure cannot be drawn or JSON not be written.
pub(super) fn file(content: &Content<'_>) -> Result<String> {
    page::page(content)
}
