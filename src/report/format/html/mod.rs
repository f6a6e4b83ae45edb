//! The report as one page, `report.html`: it opens from a file, loads nothing from a network, and works without a script.
//!
//! [`Block`](crate::report::document::Block)s become elements, figures are the charts of the other formats drawn as SVG with classes, so
//! that the style sheet chooses the colours; the data for looking at single samples is in the page as JSON. Every text is
//! escaped, by `maud` or by the JSON writer in `json`.

mod blocks;
mod figure;
mod json;
mod page;
mod samples;
mod table;
#[cfg(test)]
mod tests;

use anyhow::Result;

pub use page::page_head;

use super::{Files, Sources};

pub(super) fn files(sources: &Sources<'_>) -> Result<Files> {
    Ok(vec![("report.html", page::page(sources)?)])
}
