//! One rule of a threshold: what must be true of a change for it to count, and how that is written.
//!
//! Margins are in the unit shown: perplexity, percent, tokens per second.

use std::fmt;
use std::str::FromStr;

use super::cluster::Cluster;
use super::point::{Point, Verdict};
use crate::metric::Better;
use crate::report::Estimate;

/// How much a number may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Margin {
    /// In the unit shown.
    Absolute(f64),
    /// As a share of the baseline's value.
    Relative(f64),
}

impl Margin {
    /// Whether a difference is larger than the margin, of which a share is a share of `whole`.
    pub(super) fn is_exceeded(self, whole: f64, difference: f64) -> bool {
        match self {
            Margin::Absolute(most) => difference.abs() > most,
            Margin::Relative(share) => difference.abs() > share * whole.abs(),
        }
    }
}

/// What makes a change count. Spelled `interval`, `interval+2%`, `interval+0.05`, `2%`, `0.05`, `cluster+5%` or
/// `cluster+0.05`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The 95 % interval of the difference excludes zero, and the difference exceeds the margin, if there is one.
    Interval(Option<Margin>),
    /// The difference exceeds the margin.
    Pooled(Margin),
    /// A cluster got worse by more than the margin.
    Cluster(Margin),
}

/// What became of a number that can be compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) better: Better,
    pub(super) before: f64,
    pub(super) difference: Estimate,
    pub(super) clusters: &'a [Cluster],
}

impl Rule {
    /// The verdict on a change, if this rule reaches one. A cluster alone is never an improvement.
    pub(super) fn verdict(self, change: Change<'_>) -> Option<Verdict> {
        let Change { better, before, difference, clusters } = change;
        let exceeds = |margin: Margin| margin.is_exceeded(before, difference.value);
        let counts = match self {
            Rule::Interval(margin) => {
                difference.interval.is_some_and(|interval| interval.excludes_zero()) && margin.is_none_or(exceeds)
            }
            Rule::Pooled(margin) => exceeds(margin),
            Rule::Cluster(margin) => {
                let is_worse = clusters.iter().any(|cluster| cluster.exceeds(margin, before, better));
                let verdict = if better == Better::Unknown { Verdict::Changed } else { Verdict::Regressed };
                return is_worse.then_some(verdict);
            }
        };
        counts.then(|| Point::direction(better, difference.value))
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Margin::Absolute(most) => write!(f, "{most}"),
            // 0.07 x 100 is 7.000000000000001.
            Margin::Relative(share) => write!(f, "{}%", (share * 1e12).round() / 1e10),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Interval(None) => f.write_str("interval"),
            Rule::Interval(Some(margin)) => write!(f, "interval+{margin}"),
            Rule::Pooled(margin) => margin.fmt(f),
            Rule::Cluster(margin) => write!(f, "cluster+{margin}"),
        }
    }
}

impl FromStr for Margin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let percent = text.strip_suffix('%');
        let number: f64 = percent.unwrap_or(text).trim().parse().map_err(|_| ())?;
        let is_margin = number.is_finite() && number >= 0.0;
        let margin = if percent.is_some() { Margin::Relative(number / 100.0) } else { Margin::Absolute(number) };
        is_margin.then_some(margin).ok_or(())
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let margin = |text: &str| text.parse::<Margin>();
        let rule = match text.split_once('+') {
            Some(("interval", rest)) => margin(rest).map(|margin| Rule::Interval(Some(margin))),
            Some(("cluster", rest)) => margin(rest).map(Rule::Cluster),
            None if text == "interval" => Ok(Rule::Interval(None)),
            _ => margin(text).map(Rule::Pooled),
        };
        rule.map_err(|()| format!("`{text}` is no threshold"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Interval;

    #[test]
    fn rules_are_spelled_as_they_are_shown() {
        let right = [
            "interval",
            "0.05",
            "2%",
            "interval+0.05",
            "interval+0.1%",
            "7%",
            "0",
            "0.3%",
            "cluster+5%",
            "cluster+2",
        ];
        for spelled in right {
            assert_eq!(spelled.parse::<Rule>().unwrap().to_string(), spelled);
        }
        let wrong =
            ["", "x", "-1", "-1%", "%", "interval+", "interval5", "intervals", "nan", "inf%", "1%%", "cluster"];
        for wrong in wrong.into_iter().chain(["cluster+", "cluster5%", "clusters+5%", "interval+cluster+5%"]) {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_of_decisions_by_hand() {
        let interval = |low, high| Some(Interval { low, high });
        // Rule, baseline, difference, interval, whether it counts.
        let table = [
            ("0.05", 10.0, 0.051, interval(-1.0, 1.0), true),
            ("0.05", 10.0, 0.049, interval(0.01, 1.0), false),
            ("0.05", 10.0, -0.051, None, true),
            ("2%", 10.0, 0.21, interval(-1.0, 1.0), true),
            ("2%", 10.0, -0.19, interval(-1.0, -0.1), false),
            ("2%", -10.0, 0.21, None, true),
            ("interval", 10.0, 1e-9, interval(1e-10, 1e-8), true),
            ("interval", 10.0, 5.0, interval(-0.1, 10.0), false),
            ("interval", 10.0, 5.0, interval(0.0, 10.0), false),
            ("interval", 10.0, 5.0, None, false),
            ("interval+0.1%", 10.0, 0.011, interval(0.001, 0.02), true),
            ("interval+0.1%", 10.0, 0.009, interval(0.001, 0.02), false),
            ("interval+0.1%", 10.0, 0.011, interval(-0.001, 0.02), false),
            ("interval+0.3", 10.0, 0.4, interval(0.1, 0.7), true),
            ("1%", 0.0, 0.001, None, true),
            ("1%", 0.0, 0.0, None, false),
        ];
        for (rule, before, value, interval, counts) in table {
            for (better, worse, better_verdict) in [
                (Better::Lower, Verdict::Regressed, Verdict::Improved),
                (Better::Higher, Verdict::Improved, Verdict::Regressed),
                (Better::Unknown, Verdict::Changed, Verdict::Changed),
            ] {
                let change = Change { better, before, difference: Estimate { value, interval }, clusters: &[] };
                let expected = counts.then_some(if value > 0.0 { worse } else { better_verdict });
                assert_eq!(rule.parse::<Rule>().unwrap().verdict(change), expected, "{rule} of {change:?}");
            }
        }
    }

    #[test]
    fn a_cluster_that_is_no_number_any_more_is_worse() {
        let rule = Rule::Cluster(Margin::Relative(0.05));
        let difference = Estimate { value: 0.0, interval: None };
        for (before, after, verdict) in [
            (1.0, f64::NAN, Some(Verdict::Regressed)),
            (1.0, f64::INFINITY, Some(Verdict::Regressed)),
            (f64::NAN, 1.0, None),
            (f64::NAN, f64::NAN, None),
            (0.0, 0.04, None),
            (0.0, 0.06, Some(Verdict::Regressed)),
            (1.0, 0.5, None),
        ] {
            let clusters = &[Cluster { name: "a".into(), before, after }];
            let change = Change { better: Better::Lower, before: 1.0, difference, clusters };
            assert_eq!(rule.verdict(change), verdict, "{before} {after}");
        }
    }
}
