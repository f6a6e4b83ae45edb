//! The paper "Transformers are Multi-State RNNs" (arXiv 2401.06104), redrawn from rows and checked against them.
//!
//! A client of [`report`]: [`write_report`] adds the paper's claims to a report, and [`draw`] writes its
//! figures and tables by their numbers, sized for one or two columns of a paper.

mod claim;
mod claims;
mod differences;
mod exhibit;
mod figures;
mod long_texts;
mod measure;
mod numbers;
mod other_publications;
mod pairwise;
mod tables;
#[cfg(test)]
mod tests;
mod wording;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::Result;
use indexmap::IndexSet;

use crate::ledger::Row;
use crate::report::figure::{Page, Scene};
use crate::report::sections::kept::{self, Kept};
use crate::report::{
    self, Block, Document, Folder, Format, Panel, Plain, RUNNING, Results, Section, SeriesKey, Table, WIDTH,
    Written, order,
};
pub use exhibit::Exhibit;
pub use other_publications::publication_names;
#[cfg(test)]
pub(crate) use tests::fixture::printed_rows;
use wording::listed;

/// Settings of where and how exhibits are drawn.
#[derive(Clone)]
pub struct Options {
    /// The folder; files go into its folder `paper`.
    pub out: PathBuf,
    pub formats: Vec<&'static Format>,
    /// Columns of a paper that a figure spans, 1 or 2; `None`: what its panels need.
    pub columns: Option<u8>,
    /// Whether the paper's own numbers are laid over.
    pub beside_paper: bool,
    /// Parts that figures are drawn without.
    pub plain: Plain,
}

/// The result of [`draw`].
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    /// The files, in the order they were written.
    pub files: Vec<PathBuf>,
    /// Tables, and differences to the paper's numbers.
    pub terminal: String,
    /// Notes on figures, one sentence each.
    pub notes: Vec<String>,
    /// Exhibits that the rows do not have, and in a second line `hint:` which sweep measures it: one message for each exhibit.
    pub missing: Vec<String>,
}

/// Rows, reduced, as exhibits and claims take them.
struct Evidence<'a> {
    results: &'a Results<'a>,
    kept: Vec<Kept<'a>>,
    columns: Option<u8>,
    beside_paper: bool,
    plain: Plain,
}

/// One exhibit: pictures with the ends of their names (empty, or from a `-` on), tables, and differences to the paper's numbers.
#[derive(Default)]
struct Pieces {
    scenes: Vec<(String, Scene)>,
    tables: Vec<Table>,
    differences: Vec<Table>,
    /// A note on the policies that it does not show.
    left_out: Option<String>,
}

/// Writes the report of the rows, and in it the paper's claims and the tables of other publications by these names.
pub fn write_report(rows: &[Row], options: &report::Options, publications: &[String]) -> Result<Written> {
    let renamed = as_in_paper(rows);
    let own = matches!(renamed, Cow::Owned(_))
        .then(|| Results::of_sweep(&renamed, &options.unfinished, &options.contrasts));
    let own = own.transpose()?;
    let added = |results: &Results<'_>| -> Vec<Block> {
        let claims = claims::measured(&Evidence::of(own.as_ref().unwrap_or(results))).map(Block::folded);
        let claims = Section::of("Compared with the paper", claims.into_iter().collect());
        claims.into_iter().chain(other_publications::blocks(publications, results)).collect()
    };
    report::write(rows, options, &added)
}

/// Draws exhibits into `out/paper`. Those that the rows do not have are listed in [`Drawn::missing`]; the others are drawn
/// all the same.
pub fn draw(rows: &[Row], exhibits: &[Exhibit], options: &Options) -> Result<Drawn> {
    let rows = as_in_paper(rows);
    let results = Results::of(&rows)?;
    let Options { columns, beside_paper, plain, .. } = *options;
    let evidence = Evidence { columns, beside_paper, plain, ..Evidence::of(&results) };
    let out = options.out.join("paper");
    let mut folder = Folder { out: &out, formats: &options.formats, files: Vec::new() };
    let mut drawn = Drawn::default();
    for exhibit in exhibits {
        match exhibit.pieces(&evidence) {
            Ok(pieces) => {
                write(*exhibit, &pieces, &mut folder, &mut drawn)?;
                if beside_paper && pieces.differences.is_empty() {
                    let why = "no numbers of the paper can be laid beside it";
                    drawn.notes.push(format!("{exhibit}: {why}"));
                }
            }
            Err(missing) => drawn.missing.push(missing),
        }
    }
    Ok(Drawn { files: folder.files, ..drawn })
}

/// Rows with the names of the paper, whose models have no layers with a window. Where every policy of a model leaves such layers alone,
/// that is said of the model: `tova@exempt` becomes `tova` of `MODEL@exempt`. Not so in what is retained, which is a mean over the layers
/// that are left alone too.
fn as_in_paper(rows: &[Row]) -> Cow<'_, [Row]> {
    let mut models = BTreeMap::new();
    for row in rows {
        if let Some(local_layers) = &row.local_layers {
            *models.entry(&row.model).or_insert(true) &= local_layers == EXEMPT;
        }
    }
    models.retain(|_, exempt| *exempt);
    if models.is_empty() {
        return Cow::Borrowed(rows);
    }
    let renamed = |row: &Row| match models.contains_key(&row.model) && row.task != exhibit::RETENTION.0 {
        true => Row { model: format!("{}@exempt", row.model).into(), local_layers: None, ..row.clone() },
        false => row.clone(),
    };
    Cow::Owned(rows.iter().map(renamed).collect())
}

fn write(exhibit: Exhibit, pieces: &Pieces, folder: &mut Folder<'_>, drawn: &mut Drawn) -> Result<()> {
    let stem = exhibit.stem();
    let mut taken = BTreeSet::new();
    for (end, scene) in &pieces.scenes {
        let mut name = format!("{stem}{end}");
        // Names in other alphabets can have the same slug.
        while !taken.insert(name.clone()) {
            name.push_str("-2");
        }
        folder.write_scene(&name, scene)?;
    }
    let minus = format!("{exhibit} minus the paper's");
    for (stem, title, tables) in [
        (stem.clone(), exhibit.title(), &pieces.tables),
        (format!("{stem}-minus-paper"), minus, &pieces.differences),
    ] {
        if tables.is_empty() {
            continue;
        }
        let document = Document { title, blocks: tables.iter().cloned().map(Block::Table).collect() };
        folder.write_document(&stem, &document)?;
        if !drawn.terminal.is_empty() {
            drawn.terminal.push('\n');
        }
        drawn.terminal.push_str(&report::terminal(&document, WIDTH));
    }
    drawn.notes.extend(pieces.left_out.iter().map(|note| format!("{exhibit}: {note}")));
    Ok(())
}

impl Pieces {
    /// An error where nothing was drawn.
    fn or_missing(self, why: &str) -> Result<Self, String> {
        if self.scenes.is_empty() && self.tables.is_empty() { Err(why.to_owned()) } else { Ok(self) }
    }
}

impl<'a> Evidence<'a> {
    fn of(results: &'a Results<'_>) -> Self {
        Self { results, kept: kept::all(results), columns: None, beside_paper: false, plain: Plain::default() }
    }

    /// Panels of whole samples with only some policies, of which one at least is bounded.
    fn panels_of(&self, task: &str, metric: &str, policies: &dyn Fn(&str) -> bool) -> Vec<Panel> {
        let whole = self.results.panels.iter().filter(|panel| panel.slice.is_none() && panel.key.task == task);
        let mut panels: Vec<Panel> = whole.filter(|panel| panel.metric.id == metric).cloned().collect();
        for panel in &mut panels {
            panel.points.retain(|point| point.is_full() || policies(&point.policy));
            // As the paper has them, and not the sweep.
            panel
                .points
                .sort_by(|a, b| (order::of(&a.policy), a.cache_size).cmp(&(order::of(&b.policy), b.cache_size)));
        }
        panels.retain(|panel| panel.points.iter().any(|point| !point.is_full()));
        panels
    }

    /// Names the policies that were measured in the settings of an exhibit's panels and that these do not have.
    fn left_out(&self, shown: &[Panel]) -> Option<String> {
        let mut names = IndexSet::new();
        for all in &self.results.panels {
            let is_it = |own: &&Panel| (&own.key, &own.metric, &own.slice) == (&all.key, &all.metric, &all.slice);
            let Some(own) = shown.iter().find(is_it) else { continue };
            names.extend(all.policies().into_iter().filter(|policy| !own.policies().contains(policy)));
        }
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        (!names.is_empty()).then(|| {
            let names = listed(&names);
            format!("not shown, because the paper's own has none: {names}; a report without --figure has all")
        })
    }

    /// Whether a key is of texts far longer than a usual sample, as in Figure 7.
    fn is_long(&self, key: &SeriesKey) -> bool {
        let running = |panel: &&Panel| panel.slice.as_ref().is_some_and(|slice| slice.is(RUNNING));
        self.results.panels.iter().filter(running).any(|panel| panel.key == *key)
    }

    /// Says why nothing is drawn of what TOVA keeps.
    fn why_nothing_kept(&self, why: &str) -> String {
        let is_exempt =
            |row: &Row| row.task == exhibit::RETENTION.0 && row.local_layers.as_deref() == Some(EXEMPT);
        match self.results.rows.iter().any(is_exempt) {
            true => {
                "layers with a window are left alone (`@exempt`), but means are over them too; a report without --figure has a map of each layer"
                    .into()
            }
            false => why.into(),
        }
    }

    /// Sections on what TOVA keeps.
    fn kept(&self) -> Vec<&Kept<'a>> {
        self.kept.iter().filter(|kept| !kept.sizes_of(TOVA).is_empty()).collect()
    }

    /// The page for a number of charts.
    fn page(&self, charts: usize) -> Page {
        let (width, abreast, plot) = match self.columns.unwrap_or(if charts > 1 { 2 } else { 1 }) {
            1 => (COLUMN, 1, 122.0),
            _ if charts == 1 => (TWO_COLUMNS, 1, 150.0),
            _ => (TWO_COLUMNS, charts.min(3), 108.0),
        };
        Page { width, abreast, plot, plain: self.plain }
    }
}

/// The widths of one and two columns of a paper, in points.
const COLUMN: f64 = 3.3 * 72.0;
const TWO_COLUMNS: f64 = 6.9 * 72.0;

/// The paper's policy.
const TOVA: &str = "tova";

/// The word of rows for policies that leave layers with a window alone.
const EXEMPT: &str = "exempt";

fn titles(panels: &[Panel]) -> Vec<String> {
    let keys: Vec<SeriesKey> = panels.iter().map(|panel| panel.key.clone()).collect();
    keys.iter().map(|key| key.title(&keys)).collect()
}
