//! A statement of the paper that rows can confirm or contradict: its threshold, what was found, and the verdict.
//!
//! The value decides; where its interval reaches to the other side of the threshold, the verdict says so.

use std::collections::BTreeSet;

use super::Evidence;
use crate::report::{Entry, Estimate, Grid, Interval, Line, Sheet, escape, table};

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

/// One number for a claim.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// The title of its key.
    pub(super) title: String,
    pub(super) estimate: Estimate,
    /// Where it was found, such as `tova at 512`.
    pub(super) at: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimVerdict {
    Held,
    NotHeld,
}

pub(super) struct Claim {
    pub(super) statement: String,
    pub(super) threshold: Threshold,
    pub(super) unit: Unit,
    /// The same number from the paper's own tables, where they have it.
    pub(super) printed: Option<f64>,
    /// The sweep that measures it.
    pub(super) sweep: &'static str,
    /// One finding for each key that measured it.
    pub(super) measure: fn(&Evidence<'_>) -> Vec<Finding>,
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
    pub(super) fn new(
        sweep: &'static str,
        statement: impl Into<String>,
        (threshold, unit): (Threshold, Unit),
        measure: fn(&Evidence<'_>) -> Vec<Finding>,
    ) -> Self {
        Self { statement: statement.into(), threshold, unit, printed: None, sweep, measure }
    }

    /// The same with what the paper's own tables give.
    pub(super) fn printed(self, printed: Option<f64>) -> Self {
        Self { printed, ..self }
    }

    pub(super) fn verdict(&self, estimate: &Estimate) -> ClaimVerdict {
        if self.threshold.holds(estimate.value) { ClaimVerdict::Held } else { ClaimVerdict::NotHeld }
    }

    /// The end of the interval that lies on the other side of the threshold than the value.
    fn beyond(&self, estimate: &Estimate) -> Option<f64> {
        let held = self.threshold.holds(estimate.value);
        let Interval { low, high } = estimate.interval?;
        [low, high].into_iter().find(|end| self.threshold.holds(*end) != held)
    }

    fn words(&self, estimate: &Estimate) -> String {
        let words = match self.verdict(estimate) {
            ClaimVerdict::Held => "held",
            ClaimVerdict::NotHeld => "not held",
        };
        match self.beyond(estimate) {
            Some(end) => format!("{words}, but the interval reaches {}", self.unit.show(end)),
            None => words.to_owned(),
        }
    }

    fn line(&self, finding: &Finding, with_title: bool) -> Line {
        let Estimate { value, interval } = finding.estimate;
        let show = |value| self.unit.show(value);
        let measured = Entry {
            spread: interval.map(|interval| format!("[{}, {}]", show(interval.low), show(interval.high))),
            ..Entry::plain(show(value))
        };
        let mut cells = vec![Some(Entry::plain(self.words(&finding.estimate))), Some(measured)];
        cells.extend(self.rest());
        cells.push(Some(Entry::plain(&finding.at)));
        if with_title {
            cells.push(Some(Entry::plain(&finding.title)));
        }
        Line { name: self.statement.clone(), cells }
    }

    /// The verdict, the statement and its numbers in one line.
    fn sentence(&self, finding: &Finding) -> String {
        let Estimate { value, interval } = finding.estimate;
        let show = |value| self.unit.show(value);
        let verdict = match self.verdict(&finding.estimate) {
            ClaimVerdict::Held => "held:    ",
            ClaimVerdict::NotHeld => "not held:",
        };
        let interval = interval.map(|interval| format!(" [{}, {}]", show(interval.low), show(interval.high)));
        let beyond = self.beyond(&finding.estimate).map(|end| format!(", but the interval reaches {}", show(end)));
        format!(
            "{verdict} {}: {}{}{}; {}, {}",
            self.statement,
            show(value),
            interval.unwrap_or_default(),
            beyond.unwrap_or_default(),
            self.threshold.show(self.unit),
            finding.at
        )
    }

    fn rest(&self) -> [Option<Entry>; 2] {
        let printed = self.printed.map(|value| Entry::plain(self.unit.show(value)));
        [Some(Entry::plain(self.threshold.show(self.unit))), printed]
    }
}

/// A claim with what was found for it.
pub(super) type Found = (Claim, Vec<Finding>);

pub(super) fn found(claims: Vec<Claim>, evidence: &Evidence<'_>) -> Vec<Found> {
    let measure = |claim: Claim| {
        let findings = (claim.measure)(evidence);
        (claim, findings)
    };
    claims.into_iter().map(measure).collect()
}

/// The titles of the keys that findings are of.
fn titles(found: &[Found]) -> BTreeSet<&str> {
    found.iter().flat_map(|(_, findings)| findings).map(|finding| finding.title.as_str()).collect()
}

/// How many were measured, and how many of them held.
fn counted(found: &[Found]) -> String {
    let verdicts = || {
        let of_one = |(claim, findings): &Found| {
            findings.iter().map(|finding| claim.verdict(&finding.estimate)).collect::<Vec<_>>()
        };
        found.iter().flat_map(of_one)
    };
    let (all, missing) = (found.len(), found.iter().filter(|(_, findings)| findings.is_empty()).count());
    match verdicts().count() {
        0 => format!("none of {all} was measured"),
        total => {
            let held = verdicts().filter(|verdict| *verdict == ClaimVerdict::Held).count();
            format!("{} of {all} measured, {missing} not; {held} of {total} verdicts: held", all - missing)
        }
    }
}

/// All claims as a table, with the sweeps that would measure those that were not; `None` where none was.
pub(super) fn sheet(found: &[Found]) -> Option<Sheet> {
    let titles = titles(found);
    if titles.is_empty() {
        return None;
    }
    // Where everything is of one key, its title is said once, above.
    let with_title = titles.len() > 1;
    let mut columns = vec!["verdict", "measured", "threshold", "paper's own", "where"];
    columns.extend(with_title.then_some("setting"));
    let (mut lines, mut missing) = (Vec::new(), Vec::new());
    for (claim, findings) in found {
        lines.extend(findings.iter().map(|finding| claim.line(finding, with_title)));
        if findings.is_empty() {
            let mut cells = vec![Some(Entry::plain("not measured")), None];
            cells.extend(claim.rest());
            cells.resize_with(columns.len(), || None);
            lines.push(Line { name: claim.statement.clone(), cells });
            let note = missing.iter_mut().find(|(sweep, _): &&mut (&str, Vec<&str>)| *sweep == claim.sweep);
            match note {
                Some((_, statements)) => statements.push(&claim.statement),
                None => missing.push((claim.sweep, vec![&claim.statement])),
            }
        }
    }
    let title = match titles.first() {
        Some(one) if !with_title => format!("Claims of the paper \u{B7} {one}"),
        _ => "Claims of the paper".to_owned(),
    };
    let counted = counted(found);
    let note = |(sweep, statements): &(&str, Vec<&str>)| {
        format!("{sweep} measures what was not: {}", statements.join("; "))
    };
    Some(Sheet {
        title,
        about: format!(
            "What arXiv 2401.06104 says of its models, held against these rows: {counted}. The measured value decides, and in \
             square brackets is its 95 % interval, where there is one. Where the paper gives no number, the threshold is a reading of \
             its words; the paper's own is what its tables print."
        ),
        corner: "claim",
        grid: Grid { columns: columns.into_iter().map(str::to_owned).collect(), lines },
        notes: missing.iter().map(note).collect(),
    })
}

/// Those that were measured, a line each; empty where none was.
pub(super) fn text(found: &[Found]) -> String {
    let titles = titles(found);
    if titles.is_empty() {
        return String::new();
    }
    let mut text = format!("\nclaims of the paper (arXiv 2401.06104): {}\n", counted(found));
    for title in &titles {
        if titles.len() > 1 {
            text.push_str(&format!("{}\n", escape::plain(title)));
        }
        for (claim, findings) in found {
            for finding in findings.iter().filter(|finding| finding.title == *title) {
                text.push_str(&format!("  {}\n", escape::plain(&claim.sentence(finding))));
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
        let claim = Claim {
            statement: "near".to_owned(),
            threshold: Threshold::AtMost(0.4),
            unit,
            printed: None,
            sweep: "",
            measure: |_| Vec::new(),
        };
        let words = |value, low, high| claim.words(&Estimate { value, interval: Some(Interval { low, high }) });
        assert_eq!(words(0.25, 0.2, 0.3), "held");
        assert_eq!(words(0.4, 0.3, 0.45), "held, but the interval reaches +0.45");
        assert_eq!(words(0.5, 0.35, 0.6), "not held, but the interval reaches +0.35");
        assert_eq!(words(0.5, 0.45, 0.6), "not held");
        assert_eq!(claim.words(&Estimate { value: f64::NAN, interval: None }), "not held");
        assert_eq!((unit.show(-0.001), Threshold::Within(73.0, 76.0).holds(76.0)), ("0.00".to_owned(), true));
    }
}
