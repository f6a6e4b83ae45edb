//! All tables of a report, as sheets: formats without figures take their tables from this list.
//!
//! Titles and explanations are written here; `table` decides what a cell holds.

use crate::format::{capital, counted};
use crate::metric::{Better, Metric};
use crate::report::document::table::{self, Sheet, Show};
use crate::report::sections::floor_to_ceiling;
use crate::report::sections::pairing;
use crate::report::sections::throughput::{self, Throughput};
use crate::report::series::breakdown::{Breakdown, LENGTH_AND_DEPTH, TASK_AND_LENGTH};
use crate::report::series::panel::{self, Panel, Point};
use crate::report::write_report::Report;

/// The header above the names of policies.
pub(crate) const POLICY: &str = "policy";

/// All tables with what they have in common: key after key, the one over all keys, sections, and the caller's.
pub(crate) fn all(report: &Report<'_>) -> Vec<(Option<String>, Vec<Sheet>)> {
    let mut all: Vec<(Option<String>, Vec<Sheet>)> = Vec::new();
    let reference = report.reference.as_deref();
    let of_keys = report.enough_of.iter().zip(&report.evicted);
    for (of_key, (enough, evicted)) in report.panels.chunk_by(|a, b| a.key == b.key).zip(of_keys) {
        let key = &of_key[0].key;
        let mut sheets: Vec<Sheet> = report.timing(key).map(of_timing).into_iter().collect();
        for (place, panel) in of_key.iter().enumerate() {
            let mut headline = headline(panel).into_iter();
            sheets.extend(headline.next());
            sheets.extend(enough.clone().filter(|_| place == 0));
            sheets.extend(headline);
            let compared = [floor_to_ceiling::sheet(panel), pairing::sheet(panel, reference)];
            sheets.extend(compared.into_iter().flatten());
            sheets.extend(
                report.breakdowns_of(panel).flat_map(|(parts, _)| of_parts(parts)).map(|(_, sheet)| sheet),
            );
        }
        sheets.extend(evicted.clone());
        all.push((Some(key.title(&report.keys)), sheets));
    }
    all.extend(report.enough.iter().map(|sheet| (None, vec![sheet.clone()])));
    all.extend(report.sections.iter().map(|section| (Some(section.heading()), section.sheets())));
    all.extend(report.extra.iter().map(|sheet| (None, vec![sheet.clone()])));
    all
}

/// What a panel leads with, and what follows: how far the policies are from the full cache, which pairs samples, and then the
/// values. The values alone where there is no full cache; values first where repeats are timed.
pub(crate) fn headline(panel: &Panel) -> Vec<Sheet> {
    let Some(difference) = difference(panel) else { return value(panel).into_iter().collect() };
    let mut sheets: Vec<Sheet> = value(panel).into_iter().collect();
    if panel.metric.is_timed() {
        sheets.push(difference);
    } else {
        // What a reader must know of the samples is said where they are first seen.
        let notes = sheets.iter_mut().flat_map(|value| std::mem::take(&mut value.notes)).collect();
        sheets.insert(0, Sheet { notes, ..difference });
    }
    sheets
}

fn value(panel: &Panel) -> Option<Sheet> {
    let grid = table::grid(panel, Show::Value)?;
    Some(Sheet {
        notes: notes(panel),
        bold: BOLD,
        ..Sheet::new(&*panel.metric.label, meaning(panel), POLICY, grid)
    })
}

/// What is bold in tables of policies.
const BOLD: &str = "not worse than any";

/// `perplexity: excess over full (nats/token)`, or of other metrics `recall (%): difference to full`.
pub(crate) fn name_of_difference(metric: &Metric) -> String {
    let excess = metric.excess();
    format!("{}: {}", metric.label, excess.as_ref().map_or("difference to full", |excess| &excess.label))
}

/// What an excess in nats is.
pub(crate) const NATS: &str = "nats: ln(perplexity / the full cache's), so that 0.01 is 1 %";

fn difference(panel: &Panel) -> Option<Sheet> {
    let has_interval =
        |point: &Point| point.to_full.as_ref().is_some_and(|to_full| to_full.shown.interval.is_some());
    let paired = match panel.points.iter().any(has_interval) {
        true => format!("; in brackets are paired 95 % intervals{}", panel::coverage(panel.clusters)),
        false => String::new(),
    };
    let nats = panel.metric.excess().map_or_else(String::new, |_| format!(" {}.", capital(NATS)));
    let full = full(panel).map_or_else(String::new, |full| format!(" {}.", capital(&full)));
    let about = format!("{}{}, over those that both have{paired}.{full}{nats}", better(panel), counts(panel));
    let grid = table::grid(panel, Show::Difference)?;
    Some(Sheet { bold: BOLD, ..Sheet::new(name_of_difference(&panel.metric), about, POLICY, grid) })
}

/// `full cache: perplexity 7.16`.
pub(crate) fn full(panel: &Panel) -> Option<String> {
    Some(format!("full cache: {} {}", panel.metric.label, panel.metric.show(panel.full()?.estimate.value)))
}

/// The table of decoding speed and memory.
pub(crate) fn of_timing(timed: &Throughput) -> Sheet {
    let about = format!("{}.", capital(&timed.legend()));
    Sheet::new("what decoding costs", about, throughput::CORNER, timed.grid())
}

/// A table for each cache size.
pub(crate) fn of_parts(parts: &Breakdown<'_>) -> Vec<(u32, Sheet)> {
    let sheet = |size: u32| {
        let title = format!("{}, cache size {size}", title_of_parts(parts));
        let corner = match parts.by {
            LENGTH_AND_DEPTH => "policy, depth",
            TASK_AND_LENGTH => "policy, task",
            _ => "policy by part",
        };
        Sheet::new(title, about_parts(parts), corner, parts.grid(size))
    };
    let sheets = parts.sizes().into_iter().map(|size| (size, sheet(size)));
    sheets.filter(|(_, sheet)| !sheet.grid.lines.is_empty()).collect()
}

pub(crate) fn title_of_parts(parts: &Breakdown<'_>) -> String {
    let name = &parts.metric().label;
    match parts.by {
        panel::RUNNING => format!("{name} of all tokens read"),
        by => format!("{name} by {by}"),
    }
}

pub(crate) fn about_parts(parts: &Breakdown<'_>) -> &'static str {
    match parts.by {
        "distance" => "Columns are tokens from the last statement of the fact to the answer.",
        "position" => "Columns are tokens from the start of the sample.",
        "depth" => "Columns are places of the fact in percent of the text: 0 is its beginning, 100 its end.",
        "length" => "Columns are lengths of the text in tokens.",
        LENGTH_AND_DEPTH => {
            "Columns are lengths of the text in tokens; lines are policies, and the place of the fact in percent of the text."
        }
        TASK_AND_LENGTH => "Columns are lengths in tokens; lines are policies and tasks.",
        "task" => "Columns are tasks, over all lengths.",
        "layer" => "Columns are layers of the model.",
        panel::RUNNING => "Columns are tokens read; each number is over all of them.",
        _ => "",
    }
}

/// How to read the table of a panel.
pub(crate) fn meaning(panel: &Panel) -> String {
    let spread = match panel.points.iter().any(|point| point.estimate.interval.is_some()) {
        true => format!("; in brackets are 95 % intervals over clusters{}", panel::coverage(panel.clusters)),
        false => String::new(),
    };
    let chance = guess(panel).map_or_else(String::new, |guess| format!(" For comparison, {guess}."));
    format!("{}{}{spread}.{chance}", better(panel), counts(panel))
}

/// Which way is better, and what is bold; as a sentence.
fn better(panel: &Panel) -> String {
    let better = match panel.metric.better {
        Better::Lower => "Lower is better",
        Better::Higher => "Higher is better",
        Better::Unknown => return String::new(),
    };
    let bold = match panel.pairs.iter().any(|pair| pair.is_clear()) {
        true => "; bold: no other policy of that size is better, as far as they can be told apart (95 %)",
        false => "",
    };
    format!("{better}{bold}. ")
}

fn counts(panel: &Panel) -> String {
    format!("{} from {}", counted(panel.samples, "sample"), counted(panel.clusters, "cluster"))
}

/// `the commonest answer would reach 12.5`, where a guess is known.
pub(crate) fn guess(panel: &Panel) -> Option<String> {
    let guess = panel.metric.guess?;
    Some(format!("{} would reach {}", guess.by, panel.metric.show(panel.chance?)))
}

fn notes(panel: &Panel) -> Vec<String> {
    let partial = panel.points.iter().any(|point| !point.complete);
    let dagger = partial.then(|| "† not over all samples of this table".to_owned());
    dagger.into_iter().chain(panel.notes.iter().cloned()).collect()
}
