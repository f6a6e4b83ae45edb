//! The formats of a report: one line each, and one file each that renders blocks.

mod csv;
pub(crate) mod html;
mod latex;
pub(crate) mod markdown;
pub(crate) mod terminal;

use anyhow::Result;

use super::document::Document;
use super::figure::scene::Scene;
use super::sections::Report;

/// Files by name, with their contents.
pub(super) type Files = Vec<(&'static str, String)>;

type Draw = fn(&Scene) -> Result<Vec<u8>>;

/// What formats make files of.
pub(super) struct Sources<'a> {
    pub(super) document: &'a Document,
    pub(super) summary: &'a Document,
    /// The numbers themselves, for formats that hold data.
    pub(super) report: &'a Report<'a>,
    /// The ending of the figures that Markdown links, where any are on disk.
    pub(super) linked: Option<&'static str>,
}

/// A format, by what it makes of reports, documents and figures.
#[derive(Debug)]
pub struct Format {
    /// Name that users type, and the ending of the files.
    pub name: &'static str,
    /// What it writes, for a list of formats.
    pub about: &'static str,
    /// Whether the format is only for print: written where it is named, and linked from no page.
    pub(super) is_for_print: bool,
    /// The files of a whole report.
    pub(super) report: Option<fn(&Sources<'_>) -> Result<Files>>,
    /// One file of a document's tables.
    pub(crate) document: Option<fn(&Document) -> String>,
    /// One file of a figure.
    pub(crate) figure: Option<Draw>,
}

/// All formats. Markdown links a figure in the first format of this list that browsers can show.
pub static FORMATS: &[Format] = &[
    Format {
        report: Some(markdown::files),
        document: Some(markdown::render),
        ..named(
            "md",
            "report.md: tables, warnings and links to the figures; summary.md, the short answer for a pull request",
        )
    },
    Format { report: Some(html::files), ..named("html", "report.html: one page with all of it, for a browser") },
    Format {
        report: Some(csv::files),
        document: Some(csv::render),
        ..named("csv", "report.csv, one line for each point, and pairs.csv, one for each two policies")
    },
    Format {
        report: Some(latex::files),
        document: Some(latex::render),
        ..named("tex", "report.tex: every table, to be read into a paper with \\input")
    },
    Format { figure: Some(|scene| Ok(scene.svg().into_bytes())), ..named("svg", "Figures, sharp at any size") },
    Format { figure: Some(Scene::png), ..named("png", "Figures as pixels, 300 per inch") },
    Format { figure: Some(Scene::pdf), is_for_print: true, ..named("pdf", "Figures for LaTeX") },
];

const fn named(name: &'static str, about: &'static str) -> Format {
    Format { name, about, is_for_print: false, report: None, document: None, figure: None }
}

impl Format {
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// The formats of a report where none is named.
    pub fn usual() -> Vec<&'static Self> {
        FORMATS.iter().filter(|format| !format.is_for_print).collect()
    }
}
