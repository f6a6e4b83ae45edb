//! A statement of the paper that rows can confirm or contradict: its limit, what was found, and whether it holds.
//!
//! The value decides; where its interval reaches to the other side of the limit, that is said.

use std::collections::BTreeSet;

use super::claims::CLAIMS;
use super::exhibit::Sweeps;
use super::{Evidence, numbers};
use crate::report::{CLAIM, Entry, Estimate, Grid, Line, Sheet};

/// What a number must be for the claim to hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Threshold {
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
    Above(f64),
    /// From the first to the second, both included.
    Within(f64, f64),
}

/// A number and a clause that says what it is, such as "tova with 512 entries is 0.25 perplexity worse than the full cache".
#[derive(Clone, Debug)]
pub(super) struct Observation {
    pub(super) estimate: Estimate,
    pub(super) said: String,
}

/// The title of a key, and what was observed there.
pub(super) type Finding = (String, Observation);

/// A statement of the paper.
pub(super) struct Claim {
    /// What measures it.
    sweeps: Sweeps,
    pub(super) statement: &'static str,
    threshold: Threshold,
    measure: fn(&Evidence<'_>) -> Vec<Finding>,
}

/// A claim with what was found for it.
pub(super) struct Checked {
    pub(super) claim: &'static Claim,
    /// The same from the paper's own tables, where they have it.
    pub(super) printed: Option<Observation>,
    /// One for each key that measured it.
    pub(super) findings: Vec<Finding>,
}

pub(super) const fn claim(
    sweeps: Sweeps,
    statement: &'static str,
    threshold: Threshold,
    measure: fn(&Evidence<'_>) -> Vec<Finding>,
) -> Claim {
    Claim { sweeps, statement, threshold, measure }
}

/// All claims, with what was measured of each.
pub(super) fn check(rows: &Evidence<'_>) -> Vec<Checked> {
    let paper = Evidence::of(&numbers::RESULTS);
    let check = |claim: &'static Claim| Checked {
        claim,
        printed: (claim.measure)(&paper).into_iter().next().map(|(_, observed)| observed),
        findings: (claim.measure)(rows),
    };
    CLAIMS.iter().map(check).collect()
}

/// What was measured of the claims, for a report; none where nothing was.
pub(super) fn sheets(rows: &Evidence<'_>) -> Vec<Sheet> {
    let claims = check(rows);
    let is_measured = claims.iter().any(|claim| !claim.findings.is_empty());
    is_measured.then(|| sheet(&claims)).into_iter().collect()
}

impl Threshold {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
            Self::Below(end) => value < end,
            Self::Above(end) => value > end,
            Self::Within(least, most) => (least..=most).contains(&value),
        }
    }
}

impl Claim {
    /// Whether it holds, and whether its interval says so too.
    pub(super) fn verdict(&self, estimate: &Estimate) -> &'static str {
        let holds = self.threshold.holds(estimate.value);
        let ends = estimate.interval.map(|interval| [interval.low, interval.high]);
        let is_open = ends.into_iter().flatten().any(|end| self.threshold.holds(end) != holds);
        match (holds, is_open) {
            (true, false) => "holds",
            (true, true) => "holds, but its interval reaches beyond the limit",
            (false, false) => "does not hold",
            (false, true) => "does not hold, but its interval reaches the limit",
        }
    }
}

impl Checked {
    /// Whether it was measured and holds in every setting that measured it.
    fn holds(&self) -> bool {
        let holds = |(_, observed): &Finding| self.claim.threshold.holds(observed.estimate.value);
        !self.findings.is_empty() && self.findings.iter().all(holds)
    }

    fn line(&self, (title, observed): &Finding, several: bool) -> Line {
        let here = if several { format!("{title}: {}", observed.said) } else { observed.said.clone() };
        let cells = vec![
            Some(Entry::plain(self.claim.verdict(&observed.estimate))),
            Some(Entry::plain(here)),
            self.printed.as_ref().map(|printed| Entry::plain(&printed.said)),
        ];
        Line { name: self.claim.statement.to_owned(), cells }
    }
}

/// `3 of 5 measured claims hold; 13 need other models or tasks`.
fn counted(claims: &[Checked]) -> String {
    let measured = claims.iter().filter(|claim| !claim.findings.is_empty()).count();
    let held = claims.iter().filter(|claim| claim.holds()).count();
    let verb = if held == 1 { "holds" } else { "hold" };
    let missing = match claims.len() - measured {
        0 => String::new(),
        1 => "; 1 needs another model or task".to_owned(),
        missing => format!("; {missing} need other models or tasks"),
    };
    format!("{held} of {measured} measured claims {verb}{missing}")
}

/// The measured claims as a table of sentences, with the sweeps that would measure the others.
fn sheet(claims: &[Checked]) -> Sheet {
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
    Sheet {
        title: format!("Claims of the paper: {}", counted(claims)),
        about: "What \"Transformers are Multi-State RNNs\" (arXiv 2401.06104) says of its models, and what these rows say of \
                theirs. A claim is counted as holding if it does in every setting that measured it. Where the paper gives \
                no number, the limit is a reading of its words."
            .to_owned(),
        corner: CLAIM,
        grid: Grid {
            columns: ["holds here", "measured here", "in the paper's own tables"].map(str::to_owned).to_vec(),
            lines: lines.collect(),
        },
        bold: "",
        notes: missing.chunk_by(|a, b| a.sweeps == b.sweeps).map(note).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Interval;

    #[test]
    fn the_value_decides_and_the_interval_may_leave_it_open() {
        let claim = claim(("", &[]), "near", Threshold::AtMost(0.4), |_| Vec::new());
        let words = |value, low, high| claim.verdict(&Estimate { value, interval: Some(Interval { low, high }) });
        assert_eq!(words(0.25, 0.2, 0.3), "holds");
        assert_eq!(words(0.4, 0.3, 0.45), "holds, but its interval reaches beyond the limit");
        assert_eq!(words(0.5, 0.35, 0.6), "does not hold, but its interval reaches the limit");
        assert_eq!(words(0.5, 0.45, 0.6), "does not hold");
        assert_eq!(claim.verdict(&Estimate { value: f64::NAN, interval: None }), "does not hold");
        assert!(Threshold::Within(73.0, 76.0).holds(76.0) && !Threshold::Below(0.5).holds(0.5));
    }
}
