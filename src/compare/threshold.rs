//! How far a number may move: rules by metric, how they are written, and what they decide.
//!
//! Margins are in the unit shown: perplexity, percent, tokens per second.

use std::fmt;
use std::str::FromStr;

use crate::metric::{Metric, Property};
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
    fn is_exceeded(self, before: f64, difference: f64) -> bool {
        match self {
            Margin::Absolute(most) => difference.abs() > most,
            Margin::Relative(share) => difference.abs() > share * before.abs(),
        }
    }
}

/// What a difference must do to count: exclude zero from its interval, exceed a margin, or both.
///
/// Spelled `interval`, `0.05`, `2%`, `interval+0.05` or `interval+2%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    pub interval: bool,
    pub margin: Option<Margin>,
}

impl Threshold {
    /// The default: the interval excludes zero, and the difference is more than rounding.
    pub const DEFAULT: Threshold = Threshold { interval: true, margin: Some(Margin::Relative(0.001)) };
    /// Times and resident bytes: the difference of medians.
    pub const TIMES: Threshold = Threshold { interval: false, margin: Some(Margin::Relative(0.1)) };
    /// Counts that depend on memory: the batch that fits, the bytes of a cache.
    pub const COUNTED: Threshold = Threshold { interval: false, margin: Some(Margin::Relative(0.001)) };
    /// In place of an interval, where one cluster allows none.
    pub const WITHOUT_INTERVAL: Margin = Margin::Relative(0.01);

    /// Whether a difference counts, and the rule that decided; without an interval that is another one.
    pub(super) fn decide(self, before: f64, difference: &Estimate) -> (bool, String) {
        let exceeds = |margin: Margin| margin.is_exceeded(before, difference.value);
        match (self.interval, difference.interval) {
            (true, None) => {
                let is_wide = |margin: &Margin| !matches!(margin, Margin::Relative(share) if *share < 0.01);
                let margin = self.margin.filter(is_wide).unwrap_or(Threshold::WITHOUT_INTERVAL);
                (exceeds(margin), format!("{margin} (no interval)"))
            }
            (true, Some(interval)) => {
                (interval.excludes_zero() && self.margin.is_none_or(exceeds), self.to_string())
            }
            (false, _) => (self.margin.is_some_and(exceeds), self.to_string()),
        }
    }

    /// The same for medians of repeats, whose ranges must not overlap either.
    pub(super) fn decide_by_ranges(self, before: f64, difference: f64, overlap: bool) -> (bool, String) {
        let exceeds = self.margin.is_none_or(|margin| margin.is_exceeded(before, difference));
        let margin = self.margin.map_or_else(String::new, |margin| format!("{margin} and "));
        (exceeds && !overlap && difference != 0.0, format!("{margin}ranges apart"))
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

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.interval, self.margin) {
            (true, Some(margin)) => write!(f, "interval+{margin}"),
            (true, None) => f.write_str("interval"),
            (false, Some(margin)) => margin.fmt(f),
            (false, None) => f.write_str("0"),
        }
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no threshold");
        let (interval, margin) = match text.strip_prefix("interval") {
            Some("") => return Ok(Threshold { interval: true, margin: None }),
            Some(rest) => (true, rest.strip_prefix('+').ok_or_else(wrong)?),
            None => (false, text),
        };
        let percent = margin.strip_suffix('%');
        let number: f64 = percent.unwrap_or(margin).trim().parse().map_err(|_| wrong())?;
        if !number.is_finite() || number < 0.0 {
            return Err(wrong());
        }
        let margin = if percent.is_some() { Margin::Relative(number / 100.0) } else { Margin::Absolute(number) };
        Ok(Threshold { interval, margin: Some(margin) })
    }
}

/// The thresholds of a comparison, by metric.
#[derive(Clone, Debug, Default)]
pub struct Thresholds {
    /// By the metric's name in the rows; the last one wins.
    pub by_metric: Vec<(String, Threshold)>,
    /// For every metric not named.
    pub others: Option<Threshold>,
}

impl Thresholds {
    pub(super) fn of(&self, metric: &Metric) -> Threshold {
        let named = self.by_metric.iter().rev().find(|(name, _)| *name == metric.id);
        let default = if metric.has(Property::Memory) {
            Threshold::COUNTED
        } else if metric.has(Property::Clock) {
            Threshold::TIMES
        } else {
            Threshold::DEFAULT
        };
        named.map(|(_, threshold)| *threshold).or(self.others).unwrap_or(default)
    }
}

/// The metric a user means by its name in the rows (`nll`) or by its label (`perplexity`).
pub fn metric_named<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let wanted = plain(name);
    // Two metrics of other programs may have one label; a metric's own name comes first.
    let own = known.iter().find(|metric| plain(metric) == wanted);
    own.or_else(|| known.iter().find(|metric| shown_name(metric) == wanted)).copied()
}

/// What a metric is called where it is shown, as one would type it: `perplexity`, `word-level-perplexity`.
pub fn shown_name(metric: &str) -> String {
    plain(Metric::of(metric).label.split(" (").next().unwrap_or_default())
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace([' ', '_'], "-").replace(',', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Interval;

    #[test]
    fn thresholds_are_spelled_as_they_are_shown() {
        for spelled in ["interval", "0.05", "2%", "interval+0.05", "interval+0.1%", "7%", "0", "0.3%"] {
            assert_eq!(spelled.parse::<Threshold>().unwrap().to_string(), spelled);
        }
        for wrong in ["", "x", "-1", "-1%", "%", "interval+", "interval5", "intervals", "nan", "inf%", "1%%"] {
            assert!(wrong.parse::<Threshold>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_of_decisions_by_hand() {
        let interval = |low, high| Some(Interval { low, high });
        // Rule, baseline, difference, interval, whether it counts, which rule decided.
        let table = [
            ("0.05", 10.0, 0.051, interval(-1.0, 1.0), true, "0.05"),
            ("0.05", 10.0, 0.049, interval(0.01, 1.0), false, "0.05"),
            ("0.05", 10.0, -0.051, None, true, "0.05"),
            ("2%", 10.0, 0.21, interval(-1.0, 1.0), true, "2%"),
            ("2%", 10.0, -0.19, interval(-1.0, -0.1), false, "2%"),
            ("2%", -10.0, 0.21, None, true, "2%"),
            ("interval", 10.0, 1e-9, interval(1e-10, 1e-8), true, "interval"),
            ("interval", 10.0, 5.0, interval(-0.1, 10.0), false, "interval"),
            ("interval", 10.0, 5.0, interval(0.0, 10.0), false, "interval"),
            ("interval", 10.0, 0.11, None, true, "1% (no interval)"),
            ("interval", 10.0, 0.09, None, false, "1% (no interval)"),
            ("interval+0.1%", 10.0, 0.011, interval(0.001, 0.02), true, "interval+0.1%"),
            ("interval+0.1%", 10.0, 0.009, interval(0.001, 0.02), false, "interval+0.1%"),
            ("interval+0.1%", 10.0, 0.011, interval(-0.001, 0.02), false, "interval+0.1%"),
            ("interval+0.1%", 10.0, 0.05, None, false, "1% (no interval)"),
            ("interval+5%", 10.0, 0.4, None, false, "5% (no interval)"),
            ("interval+0.3", 10.0, 0.4, None, true, "0.3 (no interval)"),
            ("1%", 0.0, 0.001, None, true, "1%"),
            ("1%", 0.0, 0.0, None, false, "1%"),
        ];
        for (rule, before, value, interval, counts, decided_by) in table {
            let threshold: Threshold = rule.parse().unwrap();
            let decided = threshold.decide(before, &Estimate { value, interval });
            assert_eq!(decided, (counts, decided_by.to_owned()), "{rule} of {before}, {value}, {interval:?}");
        }
    }

    #[test]
    fn both_names_of_a_metric_are_known() {
        let known = ["nll", "nll_word", "f1_ascii"];
        let names = ["nll", "Perplexity", "nll-word", "word-level perplexity", "f1-ascii", "perplexities"];
        let found = names.map(|name| metric_named(name, &known));
        let word = Some("nll_word");
        assert_eq!(found, [Some("nll"), Some("nll"), word, word, Some("f1_ascii"), None]);
    }

    #[test]
    fn times_and_counts_have_thresholds_of_their_own() {
        let thresholds = Thresholds::default();
        let of = |metric| thresholds.of(&Metric::of(metric));
        assert_eq!(
            [of("f1"), of("decode"), of("batch")],
            [Threshold::DEFAULT, Threshold::TIMES, Threshold::COUNTED]
        );
        // The ranges of times must be apart, even without a margin.
        let apart: Threshold = "interval".parse().unwrap();
        assert_eq!(apart.decide_by_ranges(100.0, -1.0, false), (true, "ranges apart".to_owned()));
        assert!(!apart.decide_by_ranges(100.0, -50.0, true).0);
    }
}
