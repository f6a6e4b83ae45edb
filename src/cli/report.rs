//! `report`: tables, a page and figures from results folders, or single figures and tables of the paper.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use indexmap::IndexSet;

use super::error::UsageError;
use super::output::{print, print_report, tell};
use super::results::CellArguments;
use super::terminal;
use crate::format::{counted, did_you_mean};
use crate::ledger::{Contrast, Current, Ledger, Only, Row, Text, Wanted, select, write_derived};
use crate::paper::{self, Exhibit};
use crate::report::{
    Distance, FORMATS, Format, Options, Plain, SeriesKey, SizeAxis, WIDTH, Written, with_unique_names,
};
use crate::show::{View, page};

/// Draw tables and curves from results; no model is needed
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    /// Results folders to draw together, or files of rows such as saved baselines
    #[arg(required = true, value_name = "RESULTS")]
    results: Vec<PathBuf>,
    /// Only cells with one of these values, such as policy=full,tova or size=64,512, which keeps the full cache; may be
    /// repeated: values of one key add up, different keys must all hold
    #[arg(long, value_name = "KEY=VALUES")]
    only: Vec<Only>,
    #[command(flatten)]
    cells: CellArguments,
    /// Where to write report.html, report.md, summary.md, report.csv, pairs.csv, report.tex and figures/ [default: the first
    /// results folder]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Report the smallest cache of each policy within this distance of the full cache, such as 0.05nats (for each token),
    /// 0.4ppl, 1f1, 1rouge, 2recall, 1found or 5% (of the full cache's value); may be repeated [default: the distances of the
    /// paper's claims, 0.4 perplexity at its 7.16 being 0.0544nats]
    #[arg(long, value_name = "DISTANCE")]
    within: Vec<Distance>,
    /// The policy that pairs of policies are shown against [default: the first of the sweep after full and truncate]
    #[arg(long, value_name = "POLICY")]
    reference: Option<String>,
    /// What figures over cache sizes have across: the size as the sweep gives it, the bytes held on average over the tokens after the prompt,
    /// or the most bytes held [default: held where caches of one size hold unequal memory]
    #[arg(long, value_parser = axis(), value_name = "AXIS")]
    axis: Option<SizeAxis>,
    /// The comparisons that count, corrected among themselves alone, such as "tova - window+4"; several with commas [default: those of the
    /// sweep]
    #[arg(long, value_delimiter = ',', value_name = "CONTRASTS")]
    contrasts: Vec<Contrast>,
    /// What to write [default: all but pdf; with --figure all but html]
    #[arg(long, value_parser = format(), value_delimiter = ',', value_name = "FORMATS")]
    format: Vec<&'static Format>,
    /// Redraw figures or tables of the paper (arXiv 2401.06104) into DIR/paper instead, by number: 3 or figure3, table1,
    /// several with commas, or all that the results allow
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    figure: Vec<String>,
    /// Lay the paper's own numbers over Figure 3, and its excess perplexity and steps by tag beside what was measured
    #[arg(long, requires = "figure")]
    paper: bool,
    /// Columns of a paper that such a figure spans: 1 (3.3 inches) or 2 (6.9 inches) [default: what its panels need]; the
    /// figures of a report are 3.3 inches wide
    #[arg(long, requires = "figure", value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    columns: Option<u8>,
    /// Draw figures for a paper that says it in its own words: without title (of a chart alone), footnote, bands and limit (the
    /// paper's 0.4 perplexity), or without those named, with commas
    #[arg(long, value_name = "PARTS", num_args = 0..=1, require_equals = true, default_missing_value = Plain::ALL)]
    plain: Option<Plain>,
    /// Add what others publish, each with its source, beside what was measured of the same model and task; several with commas, or all
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = published(), conflicts_with = "figure")]
    published: Vec<String>,
}

/// The names of published tables.
fn published() -> PossibleValuesParser {
    PossibleValuesParser::new(paper::publication_names().into_iter().chain(["all"]))
}

/// What figures have across, by its name.
fn axis() -> impl TypedValueParser<Value = SizeAxis> {
    let names = PossibleValuesParser::new(SizeAxis::ALL.map(|(name, _)| name));
    names.map(|name| {
        SizeAxis::ALL.into_iter().find(|(own, _)| *own == name).expect("the parser knows no other names").1
    })
}

/// A format of a report, by its name.
fn format() -> impl TypedValueParser<Value = &'static Format> {
    let values = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(values).map(|name| Format::named(&name).expect("the parser knows no other names"))
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let exhibits = exhibits(&arguments.figure)?;
    if arguments.out().is_file() {
        let hint = "add --out DIR, which says where the report goes";
        return Err(UsageError::new(format!("{} is a file, not a folder", arguments.out().display()), hint).into());
    }
    if !exhibits.is_empty() {
        // Figures of the paper have no place for a number of samples.
        let current = current(arguments, Wanted::Complete)?;
        redraw(arguments, &exhibits, &current.rows, arguments.out())?;
        return Ok(0);
    }
    let written = draw(arguments, current(arguments, Wanted::Measured)?)?;
    print_report(&written.terminal)?;
    say_where(&written, arguments.out());
    Ok(0)
}

impl Arguments {
    fn out(&self) -> &Path {
        self.out.as_ref().unwrap_or(&self.results[0])
    }
}

/// What all folders that were asked for hold together: at least one row.
fn current(arguments: &Arguments, wanted: Wanted) -> Result<Current> {
    let mut all = Current::default();
    for folder in &arguments.results {
        let mut current = arguments.cells.read(folder, wanted)?;
        all.rows.append(&mut current.rows);
        all.unfinished.append(&mut current.unfinished);
        all.failed.append(&mut current.failed);
        current.contrasts.retain(|contrast| !all.contrasts.contains(contrast));
        all.contrasts.append(&mut current.contrasts);
    }
    if all.rows.is_empty() {
        let folders: Vec<_> = arguments.results.iter().map(|folder| folder.display().to_string()).collect();
        bail!("nothing is measured in {}\nhint: `tova-bench run SWEEP` measures it", folders.join(", "));
    }
    Ok(Current { rows: with_unique_names(select(all.rows, &arguments.only)?), ..all })
}

fn draw(arguments: &Arguments, current: Current) -> Result<Written> {
    let Current { rows, unfinished, failed, contrasts, .. } = current;
    let rows = &rows[..];
    let formats = if arguments.format.is_empty() { Format::usual() } else { arguments.format.clone() };
    let reference = arguments.reference.clone();
    let policies = policies(rows);
    if let Some(asked) = reference.as_deref().filter(|asked| !policies.contains(*asked)) {
        return Err(unknown(&format!("--reference {asked}"), asked, &policies));
    }
    for asked in arguments.contrasts.iter().flat_map(|contrast| [&contrast.policy, &contrast.against]) {
        if !policies.contains(asked.as_str()) {
            return Err(unknown(&format!("`{asked}` of --contrasts"), asked, &policies));
        }
    }
    let contrasts = if arguments.contrasts.is_empty() { contrasts } else { arguments.contrasts.clone() };
    let (distances, all, out) = (arguments.within.clone(), arguments.cells.all, arguments.out().to_owned());
    let (width, is_dimmed) = (terminal::columns(WIDTH), terminal::is_dimmed());
    let plain = arguments.plain.unwrap_or_default();
    let is_page = formats.iter().any(|format| format.name == "html");
    let pages = if is_page && arguments.results.contains(&out) { pages(&out, rows)? } else { BTreeMap::new() };
    let publications: Vec<String> = match arguments.published.iter().any(|name| name == "all") {
        true => paper::publication_names().into_iter().map(str::to_owned).collect(),
        false => arguments.published.clone(),
    };
    let axis = arguments.axis;
    if axis.is_some_and(|axis| axis != SizeAxis::Entries) && rows.iter().all(|row| row.held_bytes.is_none()) {
        bail!(
            "these rows do not say what memory their caches held, as rows of engine 8 and later do; measure them again, or leave out --axis"
        );
    }
    let options = Options {
        out,
        formats,
        distances,
        reference,
        contrasts,
        axis,
        all,
        width,
        is_dimmed,
        pages,
        unfinished,
        failed,
        plain,
    };
    paper::write_report(rows, &options, &publications)
}

/// Draws the samples of a results folder that have an eviction log, each as a page beside the log.
pub(super) fn pages(folder: &Path, rows: &[Row]) -> Result<BTreeMap<(Text, Text), String>> {
    let ledger = Ledger::existing(folder)?;
    let mut pages = BTreeMap::new();
    let has = |base: &Path, ending: &str| folder.join(base).with_added_extension(ending).is_file();
    let samples = ledger.side_files(rows)?;
    let of_text = |row: &Row| (SeriesKey::of(row).without_cache(), row.sample.clone());
    let full = samples.iter().filter(|(row, base)| row.variant() == "full" && has(base, "tokens.parquet"));
    let full: BTreeMap<_, _> = full.map(|(row, base)| (of_text(row), folder.join(base))).collect();
    for (row, base) in samples.iter().filter(|(_, base)| has(base, "groups.parquet")) {
        let name = base.with_added_extension("html");
        let full = full.get(&of_text(row)).map(PathBuf::as_path);
        match View::of_log(row, &folder.join(base), full) {
            Ok(view) => {
                write_derived(&folder.join(&name), page(&view, view.tokens()).as_bytes())?;
                pages.insert((row.cell.clone(), row.sample.clone()), name.to_string_lossy().into_owned());
            }
            Err(error) => tell(format!("warning: a sample is not shown token by token: {error:#}")),
        }
    }
    Ok(pages)
}

/// The policies that are compared in pairs, as reports call them, in the order of the rows.
fn policies(rows: &[Row]) -> IndexSet<Cow<'_, str>> {
    let of_cells = rows.chunk_by(|a, b| a.cell == b.cell).map(|of_cell| of_cell[0].variant());
    of_cells.filter(|policy| policy != "full").collect()
}

/// The error for a policy that was `asked` for and that no row has, with those that there are.
fn unknown(what: &str, asked: &str, policies: &IndexSet<Cow<'_, str>>) -> anyhow::Error {
    let near = did_you_mean(asked, policies.iter().map(AsRef::as_ref));
    let names: Vec<&str> = policies.iter().map(AsRef::as_ref).collect();
    let hint = format!("{near}the policies are {}; differences to full are always shown", names.join(", "));
    UsageError::new(format!("{what} is not a policy of these results"), hint).into()
}

/// Says on stderr where the page is, or how many files were written where there is none.
pub(super) fn say_where(written: &Written, out: &Path) {
    match written.page() {
        Some(page) => tell(format!("\nwritten to {}; open {}", out.display(), page.display())),
        None => tell(format!("\n{} written to {}", counted(written.files.len(), "file"), out.display())),
    }
}

/// The exhibits that `--figure` names, in the paper's order.
fn exhibits(names: &[String]) -> Result<Vec<Exhibit>> {
    let mut exhibits = Vec::new();
    for text in names {
        match text.trim() {
            "all" => exhibits.extend(Exhibit::all()),
            _ => exhibits.push(Exhibit::parse(text).map_err(|error| UsageError::new(error, Exhibit::HINT))?),
        }
    }
    exhibits.sort();
    exhibits.dedup();
    Ok(exhibits)
}

/// Draws figures and tables of the paper.
fn redraw(arguments: &Arguments, exhibits: &[Exhibit], rows: &[Row], out: &Path) -> Result<()> {
    let formats = if arguments.format.is_empty() { FORMATS.iter().collect() } else { arguments.format.clone() };
    let options = paper::Options {
        out: out.to_owned(),
        formats,
        columns: arguments.columns,
        beside_paper: arguments.paper,
        plain: arguments.plain.unwrap_or_default(),
    };
    let drawn = paper::draw(rows, exhibits, &options)?;
    print(&drawn.terminal)?;
    for file in &drawn.files {
        tell(file.display());
    }
    for note in &drawn.notes {
        tell(format!("note: {note}"));
    }
    // `--figure all` means all that can be drawn; it fails only if nothing can.
    let all = exhibits.len() == Exhibit::all().len();
    if all && drawn.missing.len() < exhibits.len() {
        for missing in &drawn.missing {
            tell(format!("not drawn: {}", missing.replace("\nhint: ", "; ")));
        }
        return Ok(());
    }
    if drawn.missing.is_empty() { Ok(()) } else { Err(anyhow!(drawn.missing.join("\n"))) }
}
