//! The sections of a report: each file yields blocks from the results, and each is one line in a list below.
//!
//! [`document`] is the whole report, [`summary`] the short answer for a terminal and for a pull request.

pub(crate) mod ceiling;
mod evicted;
mod heads;
pub(crate) mod kept;
pub(crate) mod memory;
mod pages;
pub(crate) mod pairs;
mod policies;
mod provenance;
mod question;
mod schedules;
mod setting;
mod slices;
mod smallest_cache;
pub(crate) mod speed;
pub(crate) mod unmeasured;
pub(crate) mod values;

use std::collections::BTreeMap;
use std::rc::Rc;

use super::document::{Block, Document, Table};
use super::figure::by_size;
use super::figure::{Figure, SeriesStyles};
use super::series::breakdown::{Breakdown, breakdowns};
use super::series::{self, Distance, Panel, Results, Schedules, SeriesKey, SizeAxis};
use crate::ledger::{Row, Text};
use kept::Kept;
use speed::Speeds;

/// The parts of a report, in order.
const REPORT: &[fn(&Report<'_>) -> Vec<Block>] = &[
    question::blocks,
    unmeasured::failed,
    setting::blocks,
    smallest_cache::of_unmeasured,
    |report| (report.added)(report.results),
    |_| vec![Block::Samples],
    provenance::blocks,
];

/// The parts of a setting, which is one model, task and data set.
const SETTING: &[fn(&Setting<'_>) -> Vec<Block>] = &[
    unmeasured::blocks,
    speed::blocks,
    setting::metrics,
    pages::blocks,
    kept::blocks,
    heads::blocks,
    evicted::blocks,
    setting::facts,
];

/// The parts of a metric in a setting.
const METRIC: &[fn(&Measured<'_>) -> Vec<Block>] = &[
    setting::figure,
    memory::first,
    values::lead,
    pairs::contrasts,
    memory::blocks,
    smallest_cache::of_setting,
    schedules::blocks,
    values::rest,
    ceiling::blocks,
    pairs::blocks,
];

/// The parts of the short answer.
const SUMMARY: &[fn(&Report<'_>) -> Vec<Block>] = &[question::blocks, setting::summary, smallest_cache::summary];

/// Blocks of a caller's own about the results, which come after the settings.
pub type Added<'a> = dyn Fn(&Results<'_>) -> Vec<Block> + 'a;

/// Results with what a reader asked for, as all sections take them: what several sections need is computed once, and each has a field.
pub(crate) struct Report<'a> {
    pub(crate) results: &'a Results<'a>,
    /// The panels of whole samples.
    pub(crate) panels: Vec<Panel>,
    /// Their keys: the settings.
    pub(crate) keys: Vec<SeriesKey>,
    /// The policies with their definitions.
    pub(crate) policies: Vec<(String, String)>,
    pub(crate) schedules: Schedules,
    pub(crate) styles: SeriesStyles,
    /// Figures of the panels, in their order.
    figures: Vec<Option<Rc<Figure>>>,
    breakdowns: Vec<Breakdown<'a>>,
    speeds: Vec<Speeds>,
    kept: Vec<Kept<'a>>,
    /// How far from the full cache a sufficient cache may be: as asked for, or as in the paper's claims.
    distances: Vec<Distance>,
    /// Whether they were asked for.
    are_asked: bool,
    /// The policy that pairs are shown against, where one was asked for.
    reference: Option<String>,
    added: &'a Added<'a>,
    /// Pages of single samples, by cell and sample.
    pages: &'a BTreeMap<(Text, Text), String>,
}

impl<'a> Report<'a> {
    /// Prepares the report of `results`, with distances and a reference that may have been asked for.
    pub(crate) fn of(
        results: &'a Results<'a>,
        distances: &[Distance],
        reference: Option<&str>,
        axis: Option<SizeAxis>,
        added: &'a Added<'a>,
        pages: &'a BTreeMap<(Text, Text), String>,
    ) -> Self {
        let panels = results.whole();
        let schedules = series::schedules(results.rows);
        let mut keys: Vec<SeriesKey> = panels.iter().map(|panel| panel.key.clone()).collect();
        keys.dedup();
        Self {
            results,
            policies: question::policies(results.rows, &panels),
            styles: SeriesStyles::with_schedules(&panels, &schedules),
            schedules,
            figures: by_size::figures(&panels, reference, axis),
            breakdowns: breakdowns(&results.panels),
            speeds: speed::all(&results.series),
            kept: kept::all(results),
            distances: if distances.is_empty() { Distance::usual() } else { distances.to_vec() },
            are_asked: !distances.is_empty(),
            reference: reference.map(str::to_owned),
            added,
            pages,
            panels,
            keys,
        }
    }

    /// The figure of a panel alone.
    fn figure_of(&self, panel: &Panel) -> Option<&Rc<Figure>> {
        let at = self.panels.iter().position(|own| (&own.key, &own.metric) == (&panel.key, &panel.metric))?;
        self.figures[at].as_ref()
    }
}

/// One setting of a report.
pub(crate) struct Setting<'r> {
    pub(crate) report: &'r Report<'r>,
    pub(crate) key: &'r SeriesKey,
    /// The panels of its metrics.
    pub(crate) panels: Vec<&'r Panel>,
}

/// A metric in a setting.
pub(crate) struct Measured<'r> {
    pub(crate) setting: &'r Setting<'r>,
    pub(crate) panel: &'r Panel,
    /// Whether the metric is the setting's first, which has the smallest sufficient caches of all.
    pub(crate) is_first: bool,
    /// The tables of its numbers.
    pub(crate) tables: Vec<Table>,
}

impl<'r> Setting<'r> {
    fn all(report: &'r Report<'r>) -> impl Iterator<Item = Setting<'r>> {
        let panels = |key: &SeriesKey| report.panels.iter().filter(|panel| panel.key == *key).collect();
        report.keys.iter().map(move |key| Setting { report, key, panels: panels(key) })
    }

    pub(crate) fn title(&self) -> String {
        self.key.title(&self.report.keys)
    }

    /// The `wanted` rows that were measured in the setting, without those of `full` and `truncate` that settings share.
    fn rows(&self, wanted: impl Fn(&Row) -> bool) -> impl Iterator<Item = &'r Row> {
        let key = self.key.of_rows();
        self.report.results.rows.iter().filter(move |row| wanted(row) && SeriesKey::of(row) == key)
    }

    /// Whether the setting's metrics are times and memory, of which one table shows everything.
    pub(crate) fn is_timed(&self) -> bool {
        self.report.speeds.iter().any(|speeds| speeds.key == *self.key)
    }
}

/// The whole report.
pub(crate) fn document(report: &Report<'_>) -> Document {
    Document { title: question::title(report), blocks: REPORT.iter().flat_map(|blocks| blocks(report)).collect() }
}

/// The short answer.
pub(crate) fn summary(report: &Report<'_>) -> Document {
    Document { title: question::title(report), blocks: SUMMARY.iter().flat_map(|blocks| blocks(report)).collect() }
}
