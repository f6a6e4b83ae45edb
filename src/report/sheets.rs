//! Everything the report has tables of, as sheets: the one list that formats without figures take their tables from.
//!
//! It puts words beside grids; what stands in a grid and how a sheet is drawn it leaves to others.

use super::bootstrap::RESAMPLES;
use super::breakdown::Breakdown;
use super::pairing;
use super::points::{self, Panel};
use super::quantity::Better;
use super::setting::Setting;
use super::table::{self, Sheet, Show};
use super::throughput::{self, Throughput};
use super::within::{self, Distance};
use crate::ledger::Row;

/// What stands above the names of policies.
pub(super) const POLICY: &str = "policy";

/// All tables, by what they are about: first the one over all settings, then setting after setting.
pub(super) fn all(
    rows: &[Row],
    panels: &[Panel],
    breakdowns: &[Breakdown<'_>],
    distances: &[Distance],
) -> Vec<(Option<String>, Vec<Sheet>)> {
    let settings: Vec<Setting> = panels.iter().map(|panel| panel.setting.clone()).collect();
    let timed = throughput::tables(rows);
    let mut all = Vec::new();
    if let Some(within) = within::sheet(panels, distances) {
        all.push((None, vec![within]));
    }
    for of_setting in panels.chunk_by(|a, b| a.setting == b.setting) {
        let setting = &of_setting[0].setting;
        let mut sheets = Vec::new();
        if let Some(table) = timed.iter().find(|table| table.setting == *setting) {
            sheets.push(of_timing(table));
        }
        for panel in of_setting {
            sheets.extend(of_panel(panel));
            for parts in breakdowns.iter().filter(|parts| parts.is_of(panel)) {
                sheets.extend(of_parts(parts).into_iter().map(|(_, sheet)| sheet));
            }
        }
        all.push((Some(setting.title(&settings)), sheets));
    }
    all
}

/// Values, differences to full, and one policy against the others.
fn of_panel(panel: &Panel) -> Vec<Sheet> {
    [value(panel), difference(panel), pairing::sheet(panel)].into_iter().flatten().collect()
}

pub(super) fn value(panel: &Panel) -> Option<Sheet> {
    Some(Sheet {
        title: panel.quantity.name.clone(),
        about: meaning(panel),
        corner: POLICY,
        grid: table::grid(panel, Show::Value)?,
        notes: notes(panel),
    })
}

pub(super) fn difference(panel: &Panel) -> Option<Sheet> {
    Some(Sheet {
        title: format!("{}: difference to full", panel.quantity.name),
        about: match panel.points.iter().any(|point| point.to_full.is_some_and(|d| d.interval.is_some())) {
            true => "Over the samples both have; ± is half of the paired 95 % bootstrap interval.".to_owned(),
            false => "Over the samples both have.".to_owned(),
        },
        corner: POLICY,
        grid: table::grid(panel, Show::Difference)?,
        notes: Vec::new(),
    })
}

/// What decoding costs.
pub(super) fn of_timing(timed: &Throughput) -> Sheet {
    Sheet {
        title: "what decoding costs".to_owned(),
        about: format!("{}.", capital(&timed.legend())),
        corner: throughput::CORNER,
        grid: timed.grid(),
        notes: Vec::new(),
    }
}

/// A table for each cache size.
pub(super) fn of_parts(parts: &Breakdown<'_>) -> Vec<(u32, Sheet)> {
    let sheet = |size: u32| Sheet {
        title: format!("{}, cache size {size}", title_of_parts(parts)),
        about: about_parts(parts).to_owned(),
        corner: "policy by part",
        grid: parts.grid(size),
        notes: Vec::new(),
    };
    let sheets = parts.sizes().into_iter().map(|size| (size, sheet(size)));
    sheets.filter(|(_, sheet)| !sheet.grid.lines.is_empty()).collect()
}

pub(super) fn title_of_parts(parts: &Breakdown<'_>) -> String {
    let name = &parts.quantity().name;
    match parts.by {
        points::RUNNING => format!("{name} of all tokens read"),
        by => format!("{name} by {by}"),
    }
}

pub(super) fn about_parts(parts: &Breakdown<'_>) -> &'static str {
    match parts.by {
        "distance" => "Columns are tokens from the end of the telling to the answer.",
        "position" => "Columns are tokens from the start of the sample.",
        "layer" => "Columns are layers of the model.",
        points::RUNNING => "Columns are tokens read; each number is over all of them.",
        _ => "",
    }
}

/// How to read the table of a panel.
pub(super) fn meaning(panel: &Panel) -> String {
    let better = match panel.quantity.better {
        Better::Lower => "Lower is better; the best policy of each size is bold. ",
        Better::Higher => "Higher is better; the best policy of each size is bold. ",
        Better::Unknown => "",
    };
    let samples = format!("{} samples from {} clusters", panel.samples, panel.clusters);
    let spread = if panel.points.iter().any(|point| point.estimate.interval.is_some()) {
        format!(
            "; ± is half of the 95 % bootstrap interval ({RESAMPLES} resamples of clusters, paired for differences)"
        )
    } else {
        String::new()
    };
    let chance = panel.chance.map_or_else(String::new, |chance| {
        format!(" For comparison, {} would reach {}.", panel.quantity.guess(), panel.quantity.show(chance))
    });
    format!("{better}{samples}{spread}.{chance}")
}

fn notes(panel: &Panel) -> Vec<String> {
    let partial = panel.points.iter().any(|point| !point.complete);
    let dagger = partial.then(|| "† not over all samples of this table".to_owned());
    dagger.into_iter().chain(panel.notes.iter().cloned()).collect()
}

pub(super) fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
