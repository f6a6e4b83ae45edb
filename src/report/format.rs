//! The formats of a report.

/// What is written into the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `report.md`, with tables, and `summary.md`, the short answer.
    Markdown,
    /// `report.csv`, one line per point, and `pairs.csv`, one per two policies at a size.
    Csv,
    /// `report.tex`, tables for a paper.
    Latex,
    /// `figures/*.svg`.
    Svg,
    /// `figures/*.png`, for print.
    Png,
    /// `figures/*.pdf`, for papers.
    Pdf,
    /// `report.html`, one page with all of it.
    Html,
}

impl Format {
    /// What a report has where nothing else is asked for.
    pub const USUAL: [Self; 6] = [Self::Markdown, Self::Html, Self::Csv, Self::Latex, Self::Svg, Self::Png];
}
