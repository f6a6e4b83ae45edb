//! A statement of the paper that rows can confirm or contradict: its threshold, what was found, and the verdict.
//!
//! The value decides; where its interval reaches to the other side of the threshold, the verdict says so.

use std::collections::BTreeSet;

use super::claims::CLAIMS;
use super::exhibit::Sweeps;
use super::{Evidence, numbers};
use crate::report::{Entry, Estimate, Extra, Grid, Interval, Line, Sheet, escape, table};

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

/// How a claim's numbers are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) digits: usize,
    pub(super) suffix: &'static str,
    /// Whether it is a difference, and so has a sign.
    pub(super) signed: bool,
}

/// A number and where it was found, such as `tova at 512`.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    pub(super) estimate: Estimate,
    pub(super) at: String,
}

/// The title of a key, and what was observed there.
pub(super) type Finding = (String, Observation);

/// A statement of the paper.
pub(super) struct Claim {
    /// What measures it.
    sweeps: Sweeps,
    statement: &'static str,
    threshold: Threshold,
    unit: Unit,
    measure: fn(&Evidence<'_>) -> Vec<Finding>,
}

/// A claim with what was found for it.
struct Checked {
    claim: &'static Claim,
    /// The same number from the paper's own tables, where they have it.
    printed: Option<f64>,
    /// One for each key that measured it.
    findings: Vec<Finding>,
}

pub(super) const fn claim(
    sweeps: Sweeps,
    statement: &'static str,
    threshold: Threshold,
    unit: Unit,
    measure: fn(&Evidence<'_>) -> Vec<Finding>,
) -> Claim {
    Claim { sweeps, statement, threshold, unit, measure }
}

/// What was measured of the claims, for a report and the terminal; empty where nothing was.
pub(super) fn extra(rows: &Evidence<'_>) -> Extra {
    let paper = Evidence::of(&numbers::RESULTS);
    let check = |claim: &'static Claim| Checked {
        claim,
        printed: (claim.measure)(&paper).first().map(|(_, observed)| observed.estimate.value),
        findings: (claim.measure)(rows),
    };
    let claims: Vec<Checked> = CLAIMS.iter().map(check).collect();
    let findings = claims.iter().flat_map(|claim| &claim.findings);
    let titles: BTreeSet<&str> = findings.map(|(title, _)| title.as_str()).collect();
    if titles.is_empty() {
        return Extra::default();
    }
    let counted = counted(&claims);
    Extra { sheets: vec![sheet(&claims, &titles, &counted)], terminal: text(&claims, &titles, &counted) }
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

    fn show(self, unit: Unit) -> String {
        match self {
            Self::AtMost(most) => format!("≤ {}", unit.show(most)),
            Self::AtLeast(least) => format!("≥ {}", unit.show(least)),
            Self::Below(end) => format!("< {}", unit.show(end)),
            Self::Above(end) => format!("> {}", unit.show(end)),
            Self::Within(least, most) => format!("{} to {}", unit.show(least), unit.show(most)),
        }
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        let digits = self.digits;
        let number = if self.signed { table::signed(value, digits) } else { format!("{value:.digits$}") };
        number + self.suffix
    }
}

impl Claim {
    fn verdict(&self, estimate: &Estimate) -> &'static str {
        if self.threshold.holds(estimate.value) { "held" } else { "not held" }
    }

    /// A warning where one end of the interval lies on the other side of the threshold than the value.
    fn warning(&self, estimate: &Estimate) -> String {
        let held = self.threshold.holds(estimate.value);
        let ends = estimate.interval.map(|interval| [interval.low, interval.high]);
        let beyond = ends.into_iter().flatten().find(|end| self.threshold.holds(*end) != held);
        beyond.map_or_else(String::new, |end| format!(", but the interval reaches {}", self.unit.show(end)))
    }

    fn interval(&self, estimate: &Estimate) -> Option<String> {
        let Interval { low, high } = estimate.interval?;
        Some(format!("[{}, {}]", self.unit.show(low), self.unit.show(high)))
    }

    /// The verdict, the statement and its numbers in one line.
    fn sentence(&self, Observation { estimate, at }: &Observation) -> String {
        let verdict = format!("{}:", self.verdict(estimate));
        let interval = self.interval(estimate).map_or_else(String::new, |interval| format!(" {interval}"));
        format!(
            "{verdict:<9} {}: {}{interval}{}; {}, {at}",
            self.statement,
            self.unit.show(estimate.value),
            self.warning(estimate),
            self.threshold.show(self.unit),
        )
    }
}

impl Checked {
    fn line(&self, finding: Option<&Finding>, with_title: bool) -> Line {
        let claim = self.claim;
        let estimate = finding.map(|(_, observed)| observed.estimate);
        let verdict = |of: Estimate| claim.verdict(&of).to_owned() + &claim.warning(&of);
        let number =
            |of: Estimate| Entry { spread: claim.interval(&of), ..Entry::plain(claim.unit.show(of.value)) };
        let mut cells = vec![
            Some(Entry::plain(estimate.map_or_else(|| "not measured".to_owned(), verdict))),
            estimate.map(number),
            Some(Entry::plain(claim.threshold.show(claim.unit))),
            self.printed.map(|value| Entry::plain(claim.unit.show(value))),
            finding.map(|(_, observed)| Entry::plain(&observed.at)),
        ];
        if with_title {
            cells.push(finding.map(|(title, _)| Entry::plain(title)));
        }
        Line { name: claim.statement.to_owned(), cells }
    }
}

/// How many were measured, and how many of them held.
fn counted(claims: &[Checked]) -> String {
    let holds = |claim: &Checked, of: &Observation| claim.claim.threshold.holds(of.estimate.value);
    let held = |claim: &Checked| claim.findings.iter().filter(|(_, of)| holds(claim, of)).count();
    let (all, missing) = (claims.len(), claims.iter().filter(|claim| claim.findings.is_empty()).count());
    let total: usize = claims.iter().map(|claim| claim.findings.len()).sum();
    let held: usize = claims.iter().map(held).sum();
    format!("{} of {all} measured, {missing} not; {held} of {total} verdicts: held", all - missing)
}

/// All claims as a table, with the sweeps that would measure those that were not.
fn sheet(claims: &[Checked], titles: &BTreeSet<&str>, counted: &str) -> Sheet {
    // Where everything is of one key, its title is said once, above.
    let with_title = titles.len() > 1;
    let title = match titles.first() {
        Some(one) if !with_title => format!("Claims of the paper \u{B7} {one}"),
        _ => "Claims of the paper".to_owned(),
    };
    let mut columns = vec!["verdict", "measured", "threshold", "paper's own", "where"];
    columns.extend(with_title.then_some("setting"));
    let lines = claims.iter().flat_map(|claim| {
        let unmeasured = claim.findings.is_empty().then_some(None);
        claim.findings.iter().map(Some).chain(unmeasured).map(move |finding| claim.line(finding, with_title))
    });
    let missing = claims.iter().filter(|claim| claim.findings.is_empty()).map(|checked| checked.claim);
    let missing: Vec<&Claim> = missing.collect();
    let note = |of_sweep: &[&Claim]| {
        let statements: Vec<&str> = of_sweep.iter().map(|claim| claim.statement).collect();
        format!("{} measures what was not: {}", of_sweep[0].sweeps.1[0], statements.join("; "))
    };
    Sheet {
        title,
        about: format!(
            "What arXiv 2401.06104 says of its models, held against these rows: {counted}. The measured value decides, and in \
             square brackets is its 95 % interval, where there is one. Where the paper gives no number, the threshold is a reading of \
             its words; the paper's own is what its tables print."
        ),
        corner: "claim",
        grid: Grid { columns: columns.into_iter().map(str::to_owned).collect(), lines: lines.collect() },
        notes: missing.chunk_by(|a, b| a.sweeps == b.sweeps).map(note).collect(),
    }
}

/// Those that were measured, a line each.
fn text(claims: &[Checked], titles: &BTreeSet<&str>, counted: &str) -> String {
    let mut text = format!("\nclaims of the paper (arXiv 2401.06104): {counted}\n");
    for title in titles {
        if titles.len() > 1 {
            text.push_str(&format!("{}\n", escape::plain(title)));
        }
        for claim in claims {
            for (_, observed) in claim.findings.iter().filter(|(known, _)| known == title) {
                text.push_str(&format!("  {}\n", escape::plain(&claim.claim.sentence(observed))));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_decides_and_the_interval_is_shown() {
        let unit = Unit { digits: 2, suffix: "", signed: true };
        let claim = claim(("", &[]), "near", Threshold::AtMost(0.4), unit, |_| Vec::new());
        let words = |value, low, high| {
            let estimate = Estimate { value, interval: Some(Interval { low, high }) };
            claim.verdict(&estimate).to_owned() + &claim.warning(&estimate)
        };
        assert_eq!(words(0.25, 0.2, 0.3), "held");
        assert_eq!(words(0.4, 0.3, 0.45), "held, but the interval reaches +0.45");
        assert_eq!(words(0.5, 0.35, 0.6), "not held, but the interval reaches +0.35");
        assert_eq!(words(0.5, 0.45, 0.6), "not held");
        assert_eq!(claim.verdict(&Estimate { value: f64::NAN, interval: None }), "not held");
        assert_eq!((unit.show(-0.001), Threshold::Within(73.0, 76.0).holds(76.0)), ("0.00".to_owned(), true));
    }
}
