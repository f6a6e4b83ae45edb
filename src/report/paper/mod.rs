//! The paper's figures and tables (arXiv 2401.06104), redrawn from rows by their numbers.
//!
//! [`draw`] writes each into a folder `paper`, sized for one or two columns of a paper, and lays the paper's own numbers
//! over where it prints any. It knows what the paper shows; how rows became points it does not know.

mod bars;
mod beside;
mod claim;
mod claims;
mod exhibit;
mod figures;
mod measure;
pub(super) mod numbers;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::curve::Page;
use super::format::Format;
use super::points::{self, Panel, RUNNING};
use super::retention::Section;
use super::scene::Scene;
use super::setting::Setting;
use super::table::{self, Sheet};
use super::{csv, latex, markdown, retention};
use crate::ledger::{Row, write_derived};
pub use exhibit::{Exhibit, Unknown};

/// Where and how exhibits are drawn.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder; files go into its folder `paper`.
    pub out: PathBuf,
    pub formats: Vec<Format>,
    /// Columns of a paper that a figure spans, 1 or 2; `None`: what its panels need.
    pub columns: Option<u8>,
    /// Whether the paper's own numbers are laid over.
    pub beside_paper: bool,
}

/// What [`draw`] did.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    /// The files, in the order they were written.
    pub files: Vec<PathBuf>,
    /// Tables, and differences to the paper's numbers.
    pub terminal: String,
    /// What a reader must know of figures, one sentence each.
    pub notes: Vec<String>,
    /// What the rows do not have, and below it in a line `hint:` which sweep measures it: one message for each exhibit that
    /// was asked for.
    pub missing: Vec<String>,
}

/// Everything rows say, as exhibits take it.
struct Evidence<'a> {
    rows: &'a [Row],
    panels: &'a [Panel],
    sections: Vec<Section<'a>>,
    columns: Option<u8>,
    beside_paper: bool,
}

/// One exhibit: pictures with the ends of their names, tables, and differences to the paper's numbers.
#[derive(Default)]
struct Pieces {
    scenes: Vec<(String, Scene)>,
    tables: Vec<Sheet>,
    differences: Vec<Sheet>,
    notes: Vec<String>,
}

/// Draws exhibits into `out/paper`. Those that the rows do not have are told in [`Drawn::missing`], and the others are
/// drawn all the same.
pub fn draw(rows: &[Row], exhibits: &[Exhibit], options: &Options) -> Result<Drawn> {
    let panels = points::panels(rows);
    let evidence =
        Evidence { columns: options.columns, beside_paper: options.beside_paper, ..Evidence::of(rows, &panels) };
    let mut drawn = Drawn::default();
    for exhibit in exhibits {
        let pieces = if exhibit.is_table() {
            tables::pieces(*exhibit, &evidence)
        } else {
            figures::pieces(*exhibit, &evidence)
        };
        match pieces {
            Ok(pieces) => write(*exhibit, pieces, options, &mut drawn)?,
            Err(why) => drawn.missing.push(missing(*exhibit, &why)),
        }
    }
    Ok(drawn)
}

/// The claims of the paper against rows: all of them, with what would measure those that are not.
pub(super) fn claims(rows: &[Row], panels: &[Panel]) -> Option<Sheet> {
    claim::sheet(&claims::all(), &Evidence::of(rows, panels))
}

/// Those that were measured, a line each, and how many were not; empty where none was.
pub(super) fn terminal(rows: &[Row], panels: &[Panel]) -> String {
    claim::text(&claims::all(), &Evidence::of(rows, panels))
}

/// Why an exhibit cannot be drawn, and what would make its rows.
fn missing(exhibit: Exhibit, why: &str) -> String {
    let source = exhibit.source();
    let sweeps: Vec<String> = source.sweeps.iter().map(|sweep| format!("`tova-bench run {sweep}`")).collect();
    let (shows, task) = (source.shows, source.task);
    format!(
        "{exhibit} ({shows}) cannot be drawn: {why}\nhint: {exhibit} is of the task {task}, measured by {}",
        sweeps.join(" or ")
    )
}

fn write(exhibit: Exhibit, pieces: Pieces, options: &Options, drawn: &mut Drawn) -> Result<()> {
    let folder = options.out.join("paper");
    fs::create_dir_all(&folder).with_context(|| format!("making the folder {}", folder.display()))?;
    let stem = exhibit.stem();
    let mut taken = BTreeSet::new();
    for (end, scene) in &pieces.scenes {
        let mut name = if end.is_empty() { stem.clone() } else { format!("{stem}-{end}") };
        // Names of other alphabets can come to the same letters.
        while !taken.insert(name.clone()) {
            name.push_str("-2");
        }
        let place = folder.join(name);
        for format in &options.formats {
            match format {
                Format::Svg => put(&place, "svg", scene.svg(), drawn)?,
                Format::Pdf => put(&place, "pdf", scene.pdf()?, drawn)?,
                Format::Png => put(&place, "png", scene.png()?, drawn)?,
                _ => {}
            }
        }
    }
    for (stem, sheets) in [(stem.clone(), &pieces.tables), (format!("{stem}-minus-paper"), &pieces.differences)] {
        if sheets.is_empty() {
            continue;
        }
        let place = folder.join(stem);
        for format in &options.formats {
            match format {
                Format::Markdown => {
                    let mut text = String::new();
                    sheets.iter().for_each(|sheet| markdown::push_sheet(&mut text, "##", sheet));
                    put(&place, "md", text, drawn)?;
                }
                Format::Csv => put(&place, "csv", csv::sheets(sheets), drawn)?,
                Format::Latex => put(&place, "tex", latex::file(&[(None, sheets.clone())]), drawn)?,
                _ => {}
            }
        }
        for sheet in sheets {
            if !drawn.terminal.is_empty() {
                drawn.terminal.push('\n');
            }
            drawn.terminal.push_str(&table::sheet_text(sheet));
        }
    }
    drawn.notes.extend(pieces.notes.into_iter().map(|note| format!("{exhibit}: {note}")));
    Ok(())
}

/// A stem may hold dots, so an end is added and none replaced.
fn with_end(place: &Path, end: &str) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    PathBuf::from(name)
}

fn put(place: &Path, end: &str, content: impl AsRef<[u8]>, drawn: &mut Drawn) -> Result<()> {
    let path = with_end(place, end);
    write_derived(&path, content.as_ref())?;
    drawn.files.push(path);
    Ok(())
}

impl<'a> Evidence<'a> {
    fn of(rows: &'a [Row], panels: &'a [Panel]) -> Self {
        let sections = retention::sections(rows, panels);
        Self { rows, panels, sections, columns: None, beside_paper: false }
    }

    /// Panels of whole samples with only some policies, of which one at least is bounded.
    fn panels_of(&self, task: &str, metric: &str, policies: &dyn Fn(&str) -> bool) -> Vec<Panel> {
        let whole = self.panels.iter().filter(|panel| panel.group.is_none() && panel.setting.task == task);
        let mut panels: Vec<Panel> = whole.filter(|panel| panel.quantity.metric == metric).cloned().collect();
        for panel in &mut panels {
            panel.points.retain(|point| point.is_full() || policies(&point.policy));
        }
        panels.retain(|panel| panel.points.iter().any(|point| !point.is_full()));
        // The paper's figures do not have it.
        panels.iter_mut().for_each(|panel| panel.chance = None);
        panels
    }

    /// Whether a setting is of texts far beyond a usual sample, as in Figure 7.
    fn is_long(&self, setting: &Setting) -> bool {
        let running = |panel: &&Panel| panel.group.as_deref().is_some_and(|group| group.starts_with(RUNNING));
        self.panels.iter().filter(running).any(|panel| panel.setting == *setting)
    }

    /// Sections on what TOVA keeps.
    fn kept(&self) -> Vec<&Section<'a>> {
        self.sections.iter().filter(|section| !section.sizes_of(TOVA).is_empty()).collect()
    }

    /// What so many charts stand on.
    fn page(&self, charts: usize) -> Page {
        match self.columns.unwrap_or(if charts > 1 { 2 } else { 1 }) {
            1 => Page { width: COLUMN, abreast: 1, plot: 122.0 },
            _ if charts == 1 => Page { width: TWO_COLUMNS, abreast: 1, plot: 150.0 },
            _ => Page { width: TWO_COLUMNS, abreast: charts.min(3), plot: 108.0 },
        }
    }
}

/// The widths of one and two columns of a paper, in points.
const COLUMN: f64 = 3.3 * 72.0;
const TWO_COLUMNS: f64 = 6.9 * 72.0;

/// The paper's policy.
const TOVA: &str = "tova";

fn titles(panels: &[Panel]) -> Vec<String> {
    let settings: Vec<Setting> = panels.iter().map(|panel| panel.setting.clone()).collect();
    settings.iter().map(|setting| setting.title(&settings)).collect()
}
