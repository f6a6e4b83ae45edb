//! The formats of a report: one line each.

pub(crate) mod csv;
pub(crate) mod html;
pub(crate) mod latex;
pub(crate) mod markdown;
pub(crate) mod pr_summary;
pub(crate) mod summary;

use anyhow::Result;

use crate::report::document::table::Sheet;
use crate::report::figure::scene::Scene;
use crate::report::write_report::Report;

/// Files by name, with their contents.
pub(super) type Files = Vec<(&'static str, String)>;

type Draw = fn(&Scene) -> Result<Vec<u8>>;

/// A format, by what it makes of reports, sheets and figures.
#[derive(Debug)]
pub struct Format {
    /// As it is typed, and the ending of its files.
    pub name: &'static str,
    /// What it writes, for a list of formats.
    pub about: &'static str,
    /// Whether a report has it where no format is named.
    pub is_usual: bool,
    /// The files of a whole report.
    pub(super) report: Option<fn(&Report<'_>) -> Result<Files>>,
    /// One file of some sheets.
    pub(crate) sheets: Option<fn(&[Sheet]) -> String>,
    /// One file of a figure.
    pub(crate) figure: Option<Draw>,
}

/// All formats. Markdown links a figure in the first format of this list that browsers can show.
pub static FORMATS: &[Format] = &[
    Format {
        report: Some(markdown::files),
        sheets: Some(markdown::sheets),
        ..named(
            "md",
            "report.md: tables, warnings and links to the figures; summary.md, the short answer for a pull request",
        )
    },
    Format { report: Some(html::files), ..named("html", "report.html: one page with all of it, for a browser") },
    Format {
        report: Some(csv::files),
        sheets: Some(csv::sheets),
        ..named("csv", "report.csv, one line for each point, and pairs.csv, one for each two policies")
    },
    Format {
        report: Some(latex::files),
        sheets: Some(latex::sheets),
        ..named("tex", "report.tex: every table, to be read into a paper with \\input")
    },
    Format { figure: Some(|scene| Ok(scene.svg().into_bytes())), ..named("svg", "Figures, sharp at any size") },
    Format { figure: Some(Scene::png), ..named("png", "Figures as pixels, 300 per inch") },
    Format { figure: Some(Scene::pdf), is_usual: false, ..named("pdf", "Figures for LaTeX") },
];

const fn named(name: &'static str, about: &'static str) -> Format {
    Format { name, about, is_usual: true, report: None, sheets: None, figure: None }
}

impl Format {
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// The formats of a report where none is named.
    pub fn usual() -> Vec<&'static Self> {
        FORMATS.iter().filter(|format| format.is_usual).collect()
    }
}
