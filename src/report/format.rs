//! The formats of a report: one line each.

use anyhow::Result;

use super::scene::Scene;
use super::table::Sheet;
use super::write_report::Report;
use super::{csv, html, latex, markdown};

/// Files by name, with their contents.
pub(super) type Files = Vec<(&'static str, String)>;

/// Makes one file of a figure.
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
pub static FORMATS: [Format; 7] = [
    Format {
        sheets: Some(markdown::sheets),
        ..of_reports(
            "md",
            "report.md: tables, warnings and links to the figures; summary.md, the short answer for a pull request",
            markdown::files,
        )
    },
    of_reports("html", "report.html: one page with all of it, for a browser", html::files),
    Format {
        sheets: Some(csv::sheets),
        ..of_reports(
            "csv",
            "report.csv, one line for each point, and pairs.csv, one for each two policies",
            csv::files,
        )
    },
    Format {
        sheets: Some(latex::sheets),
        ..of_reports("tex", "report.tex: every table, to be read into a paper with \\input", latex::files)
    },
    of_figures("svg", "Figures, sharp at any size", |scene| Ok(scene.svg().into_bytes())),
    of_figures("png", "Figures as pixels, 300 per inch", Scene::png),
    Format { is_usual: false, ..of_figures("pdf", "Figures for LaTeX", Scene::pdf) },
];

const fn of_reports(name: &'static str, about: &'static str, files: fn(&Report<'_>) -> Result<Files>) -> Format {
    Format { name, about, is_usual: true, report: Some(files), sheets: None, figure: None }
}

const fn of_figures(name: &'static str, about: &'static str, file: Draw) -> Format {
    Format { name, about, is_usual: true, report: None, sheets: None, figure: Some(file) }
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
