//! `report`: from results folders to tables, a page and figures; or to single figures of the paper.

use std::path::Path;

use anyhow::{Result, anyhow, bail};

use super::args::ReportArguments;
use super::failure::Usage;
use super::{complete_rows, print};
use crate::ledger::{Row, choose};
use crate::paper::{self, Exhibit, Unknown};
use crate::report::{FORMATS, Format, Options};

pub(super) fn report(arguments: &ReportArguments) -> Result<()> {
    let exhibits = exhibits(&arguments.figure)?;
    let mut rows = Vec::new();
    for folder in &arguments.results {
        rows.append(&mut complete_rows(folder)?);
    }
    if rows.is_empty() {
        let folders: Vec<_> = arguments.results.iter().map(|folder| folder.display().to_string()).collect();
        bail!(
            "no cell is complete in {}\nhint: run the sweep again, it finishes what it began",
            folders.join(", ")
        );
    }
    let rows = choose(rows, &arguments.only).map_err(Usage::from_error)?;
    let out = arguments.out.as_ref().unwrap_or(&arguments.results[0]);
    if !exhibits.is_empty() {
        return redraw(arguments, &exhibits, &rows, out);
    }
    let formats = if arguments.format.is_empty() { Format::usual() } else { arguments.format.clone() };
    let options = Options { out: out.clone(), formats, within: arguments.within.clone() };
    let written = paper::write_report(&rows, &options)?;
    print(&written.terminal)?;
    for file in &written.files {
        eprintln!("{}", file.display());
    }
    Ok(())
}

/// What `--figure` names, in the paper's order.
fn exhibits(asked: &[String]) -> Result<Vec<Exhibit>> {
    let mut exhibits = Vec::new();
    for text in asked {
        match text.trim() {
            "all" => exhibits.extend(Exhibit::all()),
            _ => exhibits
                .push(Exhibit::parse(text).map_err(|error| Usage::new(error.to_string(), Unknown::hint()))?),
        }
    }
    exhibits.sort();
    exhibits.dedup();
    Ok(exhibits)
}

/// Figures and tables of the paper.
fn redraw(arguments: &ReportArguments, exhibits: &[Exhibit], rows: &[Row], out: &Path) -> Result<()> {
    let formats = if arguments.format.is_empty() { FORMATS.iter().collect() } else { arguments.format.clone() };
    let options =
        paper::Options { out: out.to_owned(), formats, columns: arguments.columns, beside_paper: arguments.paper };
    let drawn = paper::draw(rows, exhibits, &options)?;
    print(&drawn.terminal)?;
    for file in &drawn.files {
        eprintln!("{}", file.display());
    }
    for note in &drawn.notes {
        eprintln!("note: {note}");
    }
    // Of everything, what rows do not have is no mistake; unless they have nothing.
    let all = exhibits.len() == Exhibit::all().len();
    if all && drawn.missing.len() < exhibits.len() {
        for missing in &drawn.missing {
            eprintln!("not drawn: {}", missing.replace("\nhint: ", "; "));
        }
        return Ok(());
    }
    if drawn.missing.is_empty() { Ok(()) } else { Err(anyhow!(drawn.missing.join("\n"))) }
}
