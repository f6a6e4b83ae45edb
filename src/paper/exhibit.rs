//! The paper's figures and tables by their numbers: a line each for what it shows, which sweep measures it and what draws it.

use std::fmt;
use std::ops::Range;

use super::numbers::{NUMBERS, TABLE_2_LENGTH};
use super::{Evidence, Pieces, figures, tables};

/// A figure or a table that rows can redraw: an index into [`SOURCES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exhibit(usize);

/// The source of an exhibit: what it shows, what measures it, and the function that draws it, whose errors say what the rows lack.
pub(super) struct Source {
    name: &'static str,
    shows: &'static str,
    pub(super) sweeps: Sweeps,
    draw: Draw,
}

/// A task and the sweeps of it that come with the program; claims name the first.
pub(super) type Sweeps = (&'static str, &'static [&'static str]);
type Draw = fn(Exhibit, &Evidence<'_>) -> Result<Pieces, String>;

pub(super) const PG19: Sweeps = (
    "perplexity",
    &["configs/paper/pg19-llama2.yaml", "configs/paper/pg19-mistral.yaml", "configs/paper/pg19-yi.yaml"],
);
pub(super) const LONG: Sweeps = ("perplexity", &["configs/paper/extrapolation.yaml"]);
pub(super) const RETENTION: Sweeps =
    ("retention", &["configs/paper/retention.yaml", "configs/paper/retention-pocket.yaml"]);
/// The pocket model has no layer 20.
const RETENTION_DEEP: Sweeps = ("retention", &["configs/paper/retention.yaml"]);
const JUDGED: Sweeps = ("judge", &["configs/paper/story.yaml` and then `tova-bench judge"]);
pub(super) const SQUALITY: Sweeps = ("squality", &["configs/paper/squality-instruct.yaml"]);
const SQUALITY_BASE: Sweeps = ("squality", &["configs/paper/squality-base.yaml"]);
pub(super) const QASPER: Sweeps = ("qasper", &["configs/paper/qasper-instruct.yaml"]);
const QASPER_BASE: Sweeps = ("qasper", &["configs/paper/qasper-base.yaml"]);
pub(super) const SPEED: Sweeps = ("timing", &["configs/paper/table1.yaml", "configs/paper/table1-cpu.yaml"]);
pub(super) const ROUGE: (&str, &str) = ("squality", "rouge");
pub(super) const F1: (&str, &str) = ("qasper", "f1");
const LAST_LAYER: Range<usize> = 0..0;

/// Everything, in the order of the numbers.
static SOURCES: [Source; 15] = [
    source("Figure 3", "perplexity by cache size", PG19, figures::perplexity),
    source("Figure 4", "SQuALITY's ROUGE of instruct models", SQUALITY, |exhibit, rows| {
        figures::questions(exhibit, rows, ROUGE, true)
    }),
    source("Figure 5", "QASPER's F1 of instruct models", QASPER, |exhibit, rows| {
        figures::questions(exhibit, rows, F1, true)
    }),
    source("Figure 6", "stories as a judge prefers them", JUDGED, figures::judged),
    source("Figure 7", "running perplexity of long texts", LONG, figures::running),
    source("Figure 8", "which tokens are in TOVA's cache, in the last layer", RETENTION, |_, rows| {
        figures::maps(rows, LAST_LAYER)
    }),
    source("Figure 9", "steps TOVA keeps the first 26 tokens", RETENTION, figures::places),
    source("Figure 10", "SQuALITY's ROUGE of base models", SQUALITY_BASE, |exhibit, rows| {
        figures::questions(exhibit, rows, ROUGE, false)
    }),
    source("Figure 11", "QASPER's F1 of base models", QASPER_BASE, |exhibit, rows| {
        figures::questions(exhibit, rows, F1, false)
    }),
    source("Figure 12", "which tokens are in TOVA's cache, in layers 0 to 19", RETENTION, |_, rows| {
        figures::maps(rows, 0..20)
    }),
    source("Figure 13", "which tokens are in TOVA's cache, in layers 20 to 31", RETENTION_DEEP, |_, rows| {
        figures::maps(rows, 20..usize::MAX)
    }),
    source("Table 1", "memory, batch and throughput by cache size", SPEED, tables::speed),
    source("Table 2", "the tags TOVA keeps longest", RETENTION, |exhibit, rows| {
        tables::tags(exhibit, rows, &NUMBERS.table_5[..TABLE_2_LENGTH])
    }),
    source("Table 3", "perplexity by policy", PG19, tables::ablation),
    source("Table 5", "steps TOVA keeps a token by its tag", RETENTION, |exhibit, rows| {
        tables::tags(exhibit, rows, &NUMBERS.table_5)
    }),
];

const fn source(name: &'static str, shows: &'static str, sweeps: Sweeps, draw: Draw) -> Source {
    Source { name, shows, sweeps, draw }
}

impl Exhibit {
    /// A hint that says what can be asked for.
    pub const HINT: &str =
        "figures 3 to 13 and tables 1, 2, 3 and 5 can be redrawn: 3, figure7, table1, several with commas, or all";

    /// Everything, in the order of the numbers.
    pub fn all() -> Vec<Self> {
        (0..SOURCES.len()).map(Self).collect()
    }

    /// Reads `3`, `figure3` or `Figure 3`, and `table1` or `Table 1`.
    ///
    /// # Errors
    /// A text that names no exhibit that can be redrawn.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = text.to_lowercase().replace(' ', "");
        let name = match plain.strip_prefix("table") {
            Some(number) => format!("Table {number}"),
            None => format!("Figure {}", plain.strip_prefix("figure").unwrap_or(&plain)),
        };
        let known = SOURCES.iter().position(|source| source.name == name);
        known.map(Self).ok_or_else(|| format!("--figure {text:?} names no figure or table that can be redrawn"))
    }

    /// The beginning of its files' names.
    pub(super) fn stem(self) -> String {
        self.to_string().to_lowercase().replace(' ', "-")
    }

    /// The title of its pictures.
    pub(super) fn title(self) -> String {
        format!("{self}, redrawn: {}", self.source().shows)
    }

    pub(super) fn source(self) -> &'static Source {
        &SOURCES[self.0]
    }

    /// The exhibit from rows; an error says what they lack, and what would measure it.
    pub(super) fn pieces(self, evidence: &Evidence<'_>) -> Result<Pieces, String> {
        let Source { shows, sweeps: (task, sweeps), draw, .. } = self.source();
        let mut pieces = draw(self, evidence).map_err(|why| {
            let sweeps: Vec<String> = sweeps.iter().map(|sweep| format!("`tova-bench run {sweep}`")).collect();
            format!(
                "{self} ({shows}) cannot be drawn: {why}\nhint: {self} is of the task {task}, measured by {}",
                sweeps.join(" or ")
            )
        })?;
        if !evidence.beside_paper {
            pieces.differences.clear();
        }
        Ok(pieces)
    }
}

impl fmt::Display for Exhibit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhibits_are_parsed_in_many_spellings() {
        for text in ["3", "figure3", "Figure 3", " 3 "] {
            assert_eq!(Exhibit::parse(text).unwrap().stem(), "figure-3", "{text}");
        }
        for text in ["table1", "Table 1", "TABLE 1"] {
            assert_eq!(Exhibit::parse(text).unwrap().to_string(), "Table 1", "{text}");
        }
        for known in Exhibit::all() {
            assert_eq!(Exhibit::parse(&known.to_string()).unwrap(), known);
        }
    }

    #[test]
    fn unknown_exhibits_are_explained() {
        for text in ["1", "figure2", "table4", "14", "table6", "curve3", "figure", "999", ""] {
            let error = Exhibit::parse(text).unwrap_err();
            assert!(error.contains(&format!("{text:?} names no figure or table")), "{error}");
        }
    }
}
