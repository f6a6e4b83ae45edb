//! The paper's figures and tables by their numbers: a line each for what it shows, which sweep measures it and what draws it.

use std::fmt;
use std::ops::Range;

use super::{Evidence, Pieces, figures, tables};

/// A figure or a table that rows can redraw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exhibit {
    kind: Kind,
    number: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Figure,
    Table,
}

/// Something was asked for that cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[error("--figure {asked:?} cannot be redrawn: {why}")]
pub struct Unknown {
    asked: String,
    why: &'static str,
}

/// What an exhibit shows, the task that measures it, the sweeps that come with the program, and the function that draws it,
/// whose errors say what the rows lack.
pub(super) struct Source {
    exhibit: Exhibit,
    pub(super) shows: &'static str,
    pub(super) task: &'static str,
    pub(super) sweeps: &'static [&'static str],
    draw: Draw,
}

type Draw = fn(Exhibit, &Evidence<'_>) -> Result<Pieces, String>;

const PG19: &[&str] = &["configs/pg19-llama2.yaml", "configs/pg19-mistral.yaml", "configs/pg19-yi.yaml"];
const RETENTION: &[&str] = &["configs/retention.yaml", "configs/retention-pocket.yaml"];
const JUDGED: &[&str] = &["configs/story.yaml` and then `tova-bench judge"];
const SPEED: &[&str] = &["configs/table1.yaml", "configs/table1-cpu.yaml"];
const SQUALITY: (&str, &str) = ("squality", "rouge");
const QASPER: (&str, &str) = ("qasper", "f1");
const LAST_LAYER: Range<usize> = 0..0;

/// Everything, in the order of the numbers.
static SOURCES: [Source; 15] = [
    figure(3, "perplexity by cache size", "perplexity", PG19, figures::perplexity),
    figure(
        4,
        "SQuALITY's ROUGE of instruct models",
        "squality",
        &["configs/squality-instruct.yaml"],
        |exhibit, rows| figures::questions(exhibit, rows, SQUALITY, true),
    ),
    figure(5, "QASPER's F1 of instruct models", "qasper", &["configs/qasper-instruct.yaml"], |exhibit, rows| {
        figures::questions(exhibit, rows, QASPER, true)
    }),
    figure(6, "stories as a judge prefers them", "judge", JUDGED, figures::judged),
    figure(7, "running perplexity of long texts", "perplexity", &["configs/extrapolation.yaml"], figures::running),
    figure(8, "which tokens are in TOVA's cache, in the last layer", "retention", RETENTION, |exhibit, rows| {
        figures::maps(exhibit, rows, LAST_LAYER)
    }),
    figure(9, "steps TOVA keeps the first 26 tokens", "retention", RETENTION, figures::places),
    figure(10, "SQuALITY's ROUGE of base models", "squality", &["configs/squality-base.yaml"], |exhibit, rows| {
        figures::questions(exhibit, rows, SQUALITY, false)
    }),
    figure(11, "QASPER's F1 of base models", "qasper", &["configs/qasper-base.yaml"], |exhibit, rows| {
        figures::questions(exhibit, rows, QASPER, false)
    }),
    figure(12, "which tokens are in TOVA's cache, in layers 0 to 19", "retention", RETENTION, |exhibit, rows| {
        figures::maps(exhibit, rows, 0..20)
    }),
    figure(
        13,
        "which tokens are in TOVA's cache, in layers 20 to 31",
        "retention",
        &RETENTION_DEEP,
        |exhibit, rows| figures::maps(exhibit, rows, 20..usize::MAX),
    ),
    table(1, "memory, batch and throughput by cache size", "timing", SPEED, tables::speed),
    table(2, "the tags TOVA keeps longest", "retention", RETENTION, tables::tags),
    table(3, "perplexity by policy", "perplexity", PG19, tables::ablation),
    table(5, "steps TOVA keeps a token by its tag", "retention", RETENTION, tables::tags),
];

/// The pocket model has no layer 20.
const RETENTION_DEEP: [&str; 1] = ["configs/retention.yaml"];

type Names = &'static [&'static str];

const fn figure(number: u8, shows: &'static str, task: &'static str, sweeps: Names, draw: Draw) -> Source {
    Source { exhibit: Exhibit { kind: Kind::Figure, number }, shows, task, sweeps, draw }
}

const fn table(number: u8, shows: &'static str, task: &'static str, sweeps: Names, draw: Draw) -> Source {
    Source { exhibit: Exhibit { kind: Kind::Table, number }, ..figure(number, shows, task, sweeps, draw) }
}

impl Exhibit {
    /// Everything, in the order of the numbers.
    pub fn all() -> Vec<Self> {
        SOURCES.iter().map(|source| source.exhibit).collect()
    }

    /// `3`, `fig3`, `Figure 3` or `figure-3`; `table1`, `tab 1`.
    pub fn parse(text: &str) -> Result<Self, Unknown> {
        let letters = text.trim().to_lowercase();
        let word = letters.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = letters[word.len()..].parse::<u8>().ok();
        let unknown = |why| Unknown { asked: text.to_owned(), why };
        let kind = match word.trim_end_matches([' ', '.', '-', '_']) {
            "" | "f" | "fig" | "figure" => Kind::Figure,
            "t" | "tab" | "table" => Kind::Table,
            _ => return Err(unknown("it is no number of a figure or table")),
        };
        let Some(number) = number else { return Err(unknown("it has no number")) };
        Self::all().into_iter().find(|known| *known == Self { kind, number }).ok_or_else(|| {
            unknown(match (kind, number) {
                (Kind::Figure, 1 | 2) => {
                    "it is a scheme: it shows how caches work, and nothing was measured for it"
                }
                (Kind::Table, 4) => "it holds the prompts, which `tova-bench schema` and the sweeps name",
                _ => "the paper has none of this number",
            })
        })
    }

    pub(super) fn number(self) -> u8 {
        self.number
    }

    /// The beginning of its files' names.
    pub(super) fn stem(self) -> String {
        self.to_string().to_lowercase().replace(' ', "-")
    }

    pub(super) fn source(self) -> &'static Source {
        SOURCES.iter().find(|source| source.exhibit == self).expect("only listed exhibits can be made")
    }

    /// The exhibit from rows; an error says what they lack.
    pub(super) fn pieces(self, evidence: &Evidence<'_>) -> Result<Pieces, String> {
        (self.source().draw)(self, evidence)
    }

    /// Why it cannot be drawn, and what would make its rows.
    pub(super) fn missing(self, why: &str) -> String {
        let Source { shows, task, sweeps, .. } = self.source();
        let sweeps: Vec<String> = sweeps.iter().map(|sweep| format!("`tova-bench run {sweep}`")).collect();
        format!(
            "{self} ({shows}) cannot be drawn: {why}\nhint: {self} is of the task {task}, measured by {}",
            sweeps.join(" or ")
        )
    }
}

impl fmt::Display for Exhibit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Figure => "Figure",
            Kind::Table => "Table",
        };
        write!(f, "{kind} {}", self.number)
    }
}

impl Unknown {
    /// What can be asked for.
    pub fn hint() -> &'static str {
        "figures 3 to 13 and tables 1, 2, 3 and 5 can be redrawn: 3, figure7, table1, several with commas, or all"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhibits_are_parsed_in_many_spellings() {
        for text in ["3", "fig3", "figure3", "Figure 3", "fig.3", "figure-3", " 3 "] {
            assert_eq!(Exhibit::parse(text).unwrap().stem(), "figure-3", "{text}");
        }
        for text in ["table1", "Tab 1", "TABLE_1"] {
            assert_eq!(Exhibit::parse(text).unwrap().to_string(), "Table 1", "{text}");
        }
        for known in Exhibit::all() {
            assert_eq!(Exhibit::parse(&known.to_string()).unwrap(), known);
        }
    }

    #[test]
    fn unknown_exhibits_are_explained() {
        let check = |text: &str, why: &str| {
            let error = Exhibit::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        };
        check("1", "scheme");
        check("figure2", "scheme");
        check("table4", "prompts");
        check("14", "none of this number");
        check("table6", "none of this number");
        check("curve3", "no number of a figure");
        check("figure", "has no number");
        check("", "has no number");
        check("999", "has no number");
    }
}
