//! The paper's figures and tables by their numbers: what each shows, and which sweep measures it.
//!
//! It knows names, and nothing of rows or of how anything is drawn.

use std::fmt;

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

/// What was asked for and is not to be had.
#[derive(Debug)]
pub struct Unknown {
    asked: String,
    why: &'static str,
}

/// What an exhibit shows, the task that measures it, and the sweeps that come with the program.
pub(super) struct Source {
    pub(super) shows: &'static str,
    pub(super) task: &'static str,
    pub(super) sweeps: &'static [&'static str],
}

const PG19: &[&str] = &["configs/pg19-llama2.yaml", "configs/pg19-mistral.yaml", "configs/pg19-yi.yaml"];
const RETENTION: &[&str] = &["configs/retention.yaml", "configs/retention-pocket.yaml"];

impl Exhibit {
    /// Everything, in the order of the numbers.
    pub const ALL: [Self; 15] = [
        Self::figure(3),
        Self::figure(4),
        Self::figure(5),
        Self::figure(6),
        Self::figure(7),
        Self::figure(8),
        Self::figure(9),
        Self::figure(10),
        Self::figure(11),
        Self::figure(12),
        Self::figure(13),
        Self::table(1),
        Self::table(2),
        Self::table(3),
        Self::table(5),
    ];

    const fn figure(number: u8) -> Self {
        Self { kind: Kind::Figure, number }
    }

    const fn table(number: u8) -> Self {
        Self { kind: Kind::Table, number }
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
        Self::ALL.into_iter().find(|known| *known == Self { kind, number }).ok_or_else(|| {
            unknown(match (kind, number) {
                (Kind::Figure, 1 | 2) => {
                    "it is a scheme: it shows how caches work, and nothing was measured for it"
                }
                (Kind::Table, 4) => "it holds the prompts, which `tova-bench list tasks` and the sweeps name",
                _ => "the paper has none of this number",
            })
        })
    }

    pub(super) fn is_table(self) -> bool {
        self.kind == Kind::Table
    }

    pub(super) fn number(self) -> u8 {
        self.number
    }

    /// The beginning of its files' names.
    pub(super) fn stem(self) -> String {
        self.to_string().to_lowercase().replace(' ', "-")
    }

    pub(super) fn source(self) -> Source {
        let (shows, task, sweeps): (_, _, &'static [&'static str]) = match (self.kind, self.number) {
            (Kind::Figure, 3) => ("perplexity by cache size", "perplexity", PG19),
            (Kind::Figure, 4) => {
                ("SQuALITY's ROUGE of instruct models", "squality", &["configs/squality-instruct.yaml"])
            }
            (Kind::Figure, 5) => ("QASPER's F1 of instruct models", "qasper", &["configs/qasper-instruct.yaml"]),
            (Kind::Figure, 6) => {
                ("stories as a judge prefers them", "judge", &["configs/story.yaml` and then `tova-bench judge"])
            }
            (Kind::Figure, 7) => {
                ("running perplexity of long texts", "perplexity", &["configs/extrapolation.yaml"])
            }
            (Kind::Figure, 8) => ("who is in TOVA's cache when, in the last layer", "retention", RETENTION),
            (Kind::Figure, 9) => ("steps TOVA keeps the first 26 tokens", "retention", RETENTION),
            (Kind::Figure, 10) => ("SQuALITY's ROUGE of base models", "squality", &["configs/squality-base.yaml"]),
            (Kind::Figure, 11) => ("QASPER's F1 of base models", "qasper", &["configs/qasper-base.yaml"]),
            (Kind::Figure, 12) => ("who is in TOVA's cache when, in layers 0 to 19", "retention", RETENTION),
            (Kind::Figure, _) => {
                ("who is in TOVA's cache when, in layers 20 to 31", "retention", &["configs/retention.yaml"])
            }
            (Kind::Table, 1) => (
                "memory, batch and throughput by cache size",
                "timing",
                &["configs/table1.yaml", "configs/table1-cpu.yaml"],
            ),
            (Kind::Table, 2) => ("the tags TOVA keeps longest", "retention", RETENTION),
            (Kind::Table, 3) => ("perplexity by policy", "perplexity", PG19),
            (Kind::Table, _) => ("steps TOVA keeps a token by its tag", "retention", RETENTION),
        };
        Source { shows, task, sweeps }
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

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--figure {:?} cannot be redrawn: {}", self.asked, self.why)
    }
}

impl std::error::Error for Unknown {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_many_spellings() {
        for text in ["3", "fig3", "figure3", "Figure 3", "fig.3", "figure-3", " 3 "] {
            assert_eq!(Exhibit::parse(text).unwrap().stem(), "figure-3", "{text}");
        }
        for text in ["table1", "Tab 1", "TABLE_1"] {
            assert_eq!(Exhibit::parse(text).unwrap().to_string(), "Table 1", "{text}");
        }
        for known in Exhibit::ALL {
            assert_eq!(Exhibit::parse(&known.to_string()).unwrap(), known);
        }
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
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
