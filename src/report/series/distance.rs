//! How far from the full cache a policy may be: amounts with units, as users type them and as tables show them.
//!
//! Defaults are from the paper's claims.

use std::str::FromStr;

use crate::metric::{Better, Pooling, Property};
use crate::report::series::{Panel, Point};
use crate::report::statistics::Estimate;

/// The unit of a distance.
#[derive(Debug, PartialEq)]
pub(crate) struct Unit {
    /// Name that users type.
    pub(crate) name: &'static str,
    /// Name in reports.
    shown: &'static str,
    metric: &'static str,
}

const NATS: &str = "nats";

const UNITS: [Unit; 8] = [
    Unit { name: NATS, shown: NATS, metric: "nll" },
    Unit { name: "ppl", shown: "PPL", metric: "nll" },
    Unit { name: "f1", shown: "F1", metric: "f1" },
    Unit { name: "rouge", shown: "ROUGE", metric: "rouge" },
    Unit { name: "recall", shown: "percentage points of recall", metric: "recall" },
    Unit { name: "found", shown: "percentage points of needles found", metric: "found" },
    Unit { name: "longbench", shown: "percentage points of LongBench's score", metric: "longbench" },
    Unit { name: "accuracy", shown: "percentage points of right choices", metric: "accuracy" },
];

impl Unit {
    /// The distance of the paper's claims (arXiv 2401.06104, Section 6), or a similar one; `None` where another unit has it.
    fn usual(&self) -> Option<f64> {
        match self.name {
            // 0.4 perplexity above the full cache's 7.16. The same in nats means the same for every model and text.
            NATS => Some((7.56_f64 / 7.16).ln()),
            "ppl" => None,
            _ => Some(1.0),
        }
    }
}

/// How far from the full cache a policy may be: `0.05nats`, `2recall`, `5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    pub(crate) amount: f64,
    /// `None`: percent of the full cache's value, of any metric.
    pub(crate) unit: Option<&'static Unit>,
}

impl FromStr for Distance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{text}` is not a distance: write a number and its unit, such as 0.05nats, 0.4ppl, 1f1, 1rouge, 2recall, \
                 1found, or 5% of the full cache's value"
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
    /// Distances of the paper's claims.
    pub fn usual() -> Vec<Self> {
        UNITS.iter().filter_map(|unit| Some(Self { amount: unit.usual()?, unit: Some(unit) })).collect()
    }

    /// Words of a table for the distance in `panel`.
    pub(crate) fn shown(&self, panel: &Panel) -> String {
        match (self.unit, panel.full()) {
            (Some(unit), Some(full)) if unit.name == NATS => {
                let perplexity = full.estimate.value * self.amount.exp_m1();
                format!("{} {NATS} ({} PPL here)", three_digits(self.amount), panel.metric.show(perplexity))
            }
            (Some(unit), _) if self.amount == 1.0 => format!("1 {}", unit.shown.replacen("points", "point", 1)),
            (Some(unit), _) => format!("{} {}", self.amount, unit.shown),
            (None, _) => format!("{} % of {}", self.amount, panel.metric.label.trim_end_matches(" (%)")),
        }
    }

    /// The most that a point of a panel may lose; `None` where the panel has another metric.
    pub(crate) fn of(&self, panel: &Panel) -> Option<Limit> {
        let metric = &panel.metric;
        let known = metric.better != Better::Unknown && !metric.has(Property::NoDifference);
        match self.unit {
            _ if !known || panel.slice.is_some() => None,
            Some(unit) if unit.metric != metric.id => None,
            Some(unit) => Some(Limit { amount: self.amount, in_nats: unit.name == NATS }),
            // Details only say more about another metric.
            None if metric.has(Property::Detail) => None,
            None if metric.pooling == Pooling::Perplexity => {
                Some(Limit { amount: (self.amount / 100.0).ln_1p(), in_nats: true })
            }
            None => {
                let full = panel.full()?.estimate.value;
                Some(Limit { amount: self.amount / 100.0 * full.abs(), in_nats: false })
            }
        }
    }
}

/// A distance in the scale in which losses of one panel are compared with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    amount: f64,
    /// Otherwise in the unit shown.
    in_nats: bool,
}

/// 7.56 - 7.16 is a little more than 0.4.
const ROUNDING: f64 = 1e-9;

impl Limit {
    /// In nats; `None` where it is in the unit shown.
    pub(crate) fn nats(self) -> Option<f64> {
        self.in_nats.then_some(self.amount)
    }

    /// Whether a loss is no more than the distance.
    pub(crate) fn allows(&self, loss: f64) -> bool {
        loss <= self.amount + ROUNDING
    }

    /// What a point loses against the full cache.
    pub(crate) fn loss(&self, panel: &Panel, point: &Point) -> Option<Estimate> {
        let loss = point.to_full.as_ref()?.loss(panel.metric.better);
        if self.in_nats { loss.nats } else { Some(loss.shown) }
    }
}

/// The three first digits of a number, without zeros at the end.
fn three_digits(number: f64) -> String {
    format!("{number:.2e}").parse().unwrap_or(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(text: &str) -> Distance {
        text.parse().unwrap()
    }

    #[test]
    fn the_usual_distances_have_one_of_each_metric() {
        let usual = Distance::usual();
        let metrics: Vec<&str> = usual.iter().map(|distance| distance.unit.unwrap().metric).collect();
        assert_eq!(metrics, ["nll", "f1", "rouge", "recall", "found", "longbench", "accuracy"]);
        // 7.56 / 7.16 = 1.055866.
        assert!((usual[0].amount.exp() - 1.055866).abs() < 1e-6, "{:?}", usual[0]);
    }

    #[test]
    fn amounts_have_three_digits() {
        let amounts = [0.054364, 0.05, 0.4, 1.0, 12.0, 0.00012345, 0.0].map(three_digits);
        assert_eq!(amounts, ["0.0544", "0.05", "0.4", "1", "12", "0.000123", "0"]);
    }

    #[test]
    fn distances_are_read_strictly() {
        assert_eq!(distance("0.05nats"), Distance { amount: 0.05, unit: Some(&UNITS[0]) });
        assert_eq!(distance("0.4ppl"), Distance { amount: 0.4, unit: Some(&UNITS[1]) });
        assert_eq!(distance("5%"), Distance { amount: 5.0, unit: None });
        // The amount ends before the unit's own letters and digits.
        assert_eq!(distance("1f1").unit.unwrap().metric, "f1");
        let long = format!("{}ppl", "9".repeat(400));
        let wrong = ["", "0.4", "ppl", "-1f1", "0.4 ppl", "0.4PPL", "1.2.3f1", "NaNppl", "1e3ppl", "4%%", ".ppl"];
        let wrong_nats = ["nats", "0.05nat", "0.05 nats", "-0.05nats", "0.05Nats", "5%nats", &long];
        for wrong in wrong.into_iter().chain(wrong_nats) {
            let error = wrong.parse::<Distance>().unwrap_err();
            assert!(error.contains("0.05nats") && error.contains("5%"), "{wrong}: {error}");
        }
    }
}
