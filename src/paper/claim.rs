//! A statement of the paper that rows can confirm or contradict: its limit, what was found, and the verdict.
//!
//! Intervals decide. Where one reaches beyond the limit but not wholly, the rows do not say which it is.

use std::collections::BTreeSet;

use super::Evidence;
use super::exhibit::Sweeps;
use crate::report::{Column, Entry, Estimate, Grid, Interval, Line, Table};

/// The verdict of rows on a claim; of several verdicts the last in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Held,
    NotDecided,
    NotHeld,
}

/// The limit of a number for the claim to hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    AtMost(f64),
    AtLeast(f64),
    Above(f64),
    /// A range from the first to the second, both included.
    Within(f64, f64),
}

/// A number, what it says of the claim, and a sentence such as "tova with 512 entries is 0.0343 nats above the full cache".
#[derive(Clone, Debug)]
pub(super) struct Observation {
    pub(super) estimate: Estimate,
    pub(super) verdict: Verdict,
    pub(super) said: String,
}

/// The title of a key, and what was observed there.
pub(super) type Finding = (String, Observation);

/// A statement of the paper.
pub(super) struct Claim {
    /// The task and the sweeps that measure it.
    sweeps: Sweeps,
    pub(super) statement: &'static str,
    pub(super) measure: fn(&Evidence<'_>) -> Vec<Finding>,
}

pub(super) const fn claim(
    sweeps: Sweeps,
    statement: &'static str,
    measure: fn(&Evidence<'_>) -> Vec<Finding>,
) -> Claim {
    Claim { sweeps, statement, measure }
}

/// A claim with what was found for it.
pub(super) struct Checked {
    pub(super) claim: &'static Claim,
    /// One for each key that measured it.
    pub(super) findings: Vec<Finding>,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::NotDecided => "not decided",
            Self::NotHeld => "not held",
        }
    }
}

impl Limit {
    /// The verdict of an estimate's interval; nothing is decided without one.
    pub(super) fn verdict(self, estimate: &Estimate) -> Verdict {
        let Some(Interval { low, high }) = estimate.interval else { return Verdict::NotDecided };
        let (inside, outside) = match self {
            Self::AtMost(most) => (high <= most, low > most),
            Self::AtLeast(least) => (low >= least, high < least),
            Self::Above(end) => (low > end, high <= end),
            Self::Within(least, most) => (low >= least && high <= most, low > most || high < least),
        };
        match (inside, outside) {
            (true, _) => Verdict::Held,
            (_, true) => Verdict::NotHeld,
            _ => Verdict::NotDecided,
        }
    }

    /// The distance of a number from the limit; negative outside.
    fn margin(self, value: f64) -> f64 {
        match self {
            Self::AtMost(most) => most - value,
            Self::AtLeast(end) | Self::Above(end) => value - end,
            Self::Within(least, most) => (value - least).min(most - value),
        }
    }

    pub(super) fn observe(self, estimate: Estimate, said: String) -> Observation {
        Observation { estimate, verdict: self.verdict(&estimate), said }
    }

    /// Picks the observation that decides where all must be inside the limit: the nearest to it of those with the last
    /// verdict.
    pub(super) fn decisive(self, all: impl Iterator<Item = Observation>) -> Option<Observation> {
        let margin = |observed: &Observation| self.margin(observed.estimate.value);
        all.min_by(|a, b| b.verdict.cmp(&a.verdict).then(margin(a).total_cmp(&margin(b))))
    }
}

impl Checked {
    /// The verdict over all settings that measured it; `None` where none did.
    fn verdict(&self) -> Option<Verdict> {
        self.findings.iter().map(|(_, observed)| observed.verdict).max()
    }

    fn line(&self, (title, observed): &Finding, several: bool) -> Line {
        let here = if several { format!("{title}: {}", observed.said) } else { observed.said.clone() };
        let cells = [observed.verdict.word(), &here].map(|text| Some(Entry::plain(text)));
        Line::new(self.claim.statement, cells.into())
    }
}

/// `3 held, 1 not held, 1 not decided, 10 not measured`.
fn counted(claims: &[Checked]) -> String {
    let of = |verdict| claims.iter().filter(|claim| claim.verdict() == verdict).count();
    let count = |verdict: Verdict| format!("{} {}", of(Some(verdict)), verdict.word());
    let counts = [Verdict::Held, Verdict::NotHeld, Verdict::NotDecided].map(count).join(", ");
    format!("{counts}, {} not measured", of(None))
}

/// The measured claims as a table of sentences, with the sweeps that would measure the others.
pub(super) fn table(claims: &[Checked]) -> Table {
    let findings = claims.iter().flat_map(|claim| &claim.findings);
    let titles: BTreeSet<&str> = findings.map(|(title, _)| title.as_str()).collect();
    let several = titles.len() > 1;
    let lines = claims.iter().flat_map(|claim| {
        let line = move |finding| claim.line(finding, several);
        claim.findings.iter().map(line)
    });
    let missing: Vec<&Claim> = claims.iter().filter(|of| of.findings.is_empty()).map(|of| of.claim).collect();
    let note = |of_sweep: &[&Claim]| {
        let statements: Vec<&str> = of_sweep.iter().map(|claim| claim.statement).collect();
        format!("Not measured here, but by {}: {}", of_sweep[0].sweeps.1[0], statements.join(" "))
    };
    let about = "What \"Transformers are Multi-State RNNs\" (arXiv 2401.06104) says of its models, and what these rows say of \
                theirs. Held: the whole 95 % interval, in brackets, is inside the limit. Not held: all of it is outside. Not \
                decided: the limit is in the interval, or there are too few clusters (4 for an interval, 6 to tell policies \
                apart). A claim that one policy is better than others is held where it is told apart from each of them \
                (a sign-flip test among all pairs of a size, and the pair's own interval), not held where one of them \
                is told apart as better, and not decided where one was not measured. A claim counts as held if it is in every \
                setting that measured it. The limits leave room around the paper's numbers.";
    let columns = ["verdict", "measured here"].map(Column::from).to_vec();
    let grid = Grid { columns, lines: lines.collect() };
    Table {
        has_sentences: true,
        notes: missing.chunk_by(|a, b| a.sweeps == b.sweeps).map(note).collect(),
        ..Table::new(format!("Claims of the paper: {}", counted(claims)), about, "claim", grid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Held, NotDecided, NotHeld};

    fn estimate(low: f64, high: f64) -> Estimate {
        Estimate { value: f64::midpoint(low, high), interval: Some(Interval { low, high }) }
    }

    #[test]
    fn the_interval_decides() {
        let cases = [
            (Limit::AtMost(0.4), [(0.2, 0.4, Held), (0.3, 0.45, NotDecided), (0.41, 0.6, NotHeld)]),
            (Limit::AtLeast(4.0), [(4.0, 9.0, Held), (3.9, 9.0, NotDecided), (1.0, 3.9, NotHeld)]),
            (Limit::Above(0.0), [(0.1, 1.0, Held), (0.0, 1.0, NotDecided), (0.0, 0.0, NotHeld)]),
            (Limit::Within(70.0, 80.0), [(70.0, 80.0, Held), (60.0, 90.0, NotDecided), (80.1, 90.0, NotHeld)]),
        ];
        for (limit, cases) in cases {
            for (low, high, verdict) in cases {
                assert_eq!(limit.verdict(&estimate(low, high)), verdict, "{limit:?} {low} {high}");
            }
        }
        let without = Estimate { value: 0.1, interval: None };
        assert_eq!(Limit::AtMost(0.4).verdict(&without), NotDecided);
    }

    #[test]
    fn of_several_observations_the_worst_decides() {
        let limit = Limit::AtMost(1.0);
        let decisive = |intervals: &[(f64, f64)]| {
            let all = intervals.iter().map(|&(low, high)| limit.observe(estimate(low, high), String::new()));
            limit.decisive(all).map(|observed| (observed.estimate.value, observed.verdict))
        };
        assert_eq!(decisive(&[]), None);
        assert_eq!(decisive(&[(0.0, 0.2), (0.4, 0.6), (0.2, 0.4)]), Some((0.5, Held)));
        // One wide interval leaves it open, and one outside decides.
        assert_eq!(decisive(&[(0.7, 0.9), (-1.0, 2.0)]), Some((0.5, NotDecided)));
        assert_eq!(decisive(&[(0.0, 3.0), (1.25, 1.75), (0.7, 0.9)]), Some((1.5, NotHeld)));
    }
}
