//! How far from the full cache a policy may be: amounts with units, as users type them and as tables show them.
//!
//! Defaults are from the paper's claims.

use std::str::FromStr;

use super::points::Panel;
use crate::metric::{Better, Property};

/// The unit of a distance.
#[derive(Debug, PartialEq)]
pub(super) struct Unit {
    /// As users type it.
    pub(super) name: &'static str,
    /// As it is shown.
    shown: &'static str,
    metric: &'static str,
    /// The distance of the paper's claims (arXiv 2401.06104, Section 6), or a similar one.
    usual: f64,
}

const UNITS: [Unit; 5] = [
    Unit { name: "ppl", shown: "PPL", metric: "nll", usual: 0.4 },
    Unit { name: "f1", shown: "F1", metric: "f1", usual: 1.0 },
    Unit { name: "rouge", shown: "ROUGE", metric: "rouge", usual: 1.0 },
    Unit { name: "recall", shown: "percentage points of recall", metric: "recall", usual: 1.0 },
    Unit { name: "found", shown: "percentage points of needles found", metric: "found", usual: 1.0 },
];

/// How far from the full cache a policy may be: `0.4ppl`, `2recall`, `5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    pub(super) amount: f64,
    /// `None`: percent of the full cache's value, of any metric.
    pub(super) unit: Option<&'static Unit>,
}

impl FromStr for Distance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{text}` is no distance: write a number and its unit, such as 0.4ppl, 1f1, 1rouge, 2recall, 1found, or 5% \
                 of the full cache's value"
            )
        };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refused)?;
        let (amount, unit) = text.split_at(end);
        let amount: f64 = amount.parse().ok().filter(|amount: &f64| amount.is_finite()).ok_or_else(refused)?;
        let unit = match unit {
            "%" => None,
            typed => Some(UNITS.iter().find(|unit| unit.name == typed).ok_or_else(refused)?),
        };
        Ok(Self { amount, unit })
    }
}

impl Distance {
    /// Those of the paper's claims.
    pub fn usual() -> Vec<Self> {
        UNITS.iter().map(|unit| Self { amount: unit.usual, unit: Some(unit) }).collect()
    }

    /// As a table names it.
    pub(super) fn shown(&self, panel: &Panel) -> String {
        match self.unit {
            Some(unit) if self.amount == 1.0 => format!("1 {}", unit.shown.replacen("points", "point", 1)),
            Some(unit) => format!("{} {}", self.amount, unit.shown),
            None => format!("{} % of {}", self.amount, panel.metric.label.trim_end_matches(" (%)")),
        }
    }

    /// In the unit shown; `None` where the panel has another metric.
    pub(super) fn of(&self, panel: &Panel) -> Option<f64> {
        let known = panel.metric.better != Better::Unknown && !panel.metric.has(Property::NoDifference);
        match self.unit {
            _ if !known || panel.slice.is_some() => None,
            Some(unit) => (unit.metric == panel.metric.id).then_some(self.amount),
            // Details only say more about another metric.
            None if panel.metric.has(Property::Detail) => None,
            None => Some(self.amount / 100.0 * panel.full()?.estimate.value.abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(text: &str) -> Distance {
        text.parse().unwrap()
    }

    #[test]
    fn distances_are_read_strictly() {
        assert_eq!(distance("0.4ppl"), Distance { amount: 0.4, unit: Some(&UNITS[0]) });
        assert_eq!(distance("5%"), Distance { amount: 5.0, unit: None });
        // The amount ends before the unit's own letters and digits.
        assert_eq!(distance("1f1").unit.unwrap().metric, "f1");
        let long = format!("{}ppl", "9".repeat(400));
        for wrong in
            ["", "0.4", "ppl", "-1f1", "0.4 ppl", "0.4PPL", "1.2.3f1", "NaNppl", "1e3ppl", "4%%", ".ppl", &long]
        {
            let error = wrong.parse::<Distance>().unwrap_err();
            assert!(error.contains("0.4ppl") && error.contains("5%"), "{wrong}: {error}");
        }
    }
}
