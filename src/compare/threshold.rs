//! Thresholds: how far the numbers of a metric may move, how that is written, and the verdict of several rules.

use std::fmt;
use std::str::FromStr;

use super::cluster::Cluster;
use super::point::{Point, Verdict};
use crate::metric::{Better, Metric, Property};
use crate::report::Estimate;

/// The change that a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basis {
    /// The pooled difference, if its 95 % interval excludes zero.
    Interval,
    /// The pooled difference.
    Pooled,
    /// Any cluster that got worse.
    Cluster,
}

/// A rule for what makes a change count: it must exceed a percentage of the baseline. Spelled `interval`, `interval+2%`,
/// `2%` or `cluster+5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    basis: Basis,
    percent: f64,
}

/// The change of a number that can be compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) better: Better,
    pub(super) before: f64,
    pub(super) difference: Estimate,
    pub(super) clusters: &'a [Cluster],
}

impl Rule {
    /// Whether `difference` is larger than the rule allows of `before`.
    fn is_exceeded(self, before: f64, difference: f64) -> bool {
        difference.abs() > self.percent / 100.0 * before.abs()
    }

    /// The verdict on a change, if this rule reaches one. A cluster alone is never an improvement. Where clusters are too few
    /// for an interval, the difference must exceed 1 % in its place.
    pub(super) fn verdict(self, change: Change<'_>) -> Option<Verdict> {
        let Change { better, before, difference, clusters } = change;
        let is_certain = match (self.basis, difference.interval) {
            (Basis::Interval, Some(interval)) => interval.excludes_zero(),
            (Basis::Interval, None) => POOLED.is_exceeded(before, difference.value),
            (Basis::Pooled, _) => true,
            (Basis::Cluster, _) => {
                let most = self.percent / 100.0;
                let is_worse = clusters.iter().any(|cluster| cluster.worse_by(before, better) > most);
                let verdict = if better == Better::Unknown { Verdict::Changed } else { Verdict::Regressed };
                return is_worse.then_some(verdict);
            }
        };
        let counts = is_certain && self.is_exceeded(before, difference.value);
        counts.then(|| Point::direction(better, difference.value))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.basis, self.percent) {
            (Basis::Interval, 0.0) => f.write_str("interval"),
            (Basis::Interval, percent) => write!(f, "interval+{percent}%"),
            (Basis::Pooled, percent) => write!(f, "{percent}%"),
            (Basis::Cluster, percent) => write!(f, "cluster+{percent}%"),
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (basis, margin) = match text.split_once('+') {
            Some(("interval", margin)) => (Basis::Interval, margin),
            Some(("cluster", margin)) => (Basis::Cluster, margin),
            None if text == "interval" => (Basis::Interval, "0%"),
            _ => (Basis::Pooled, text),
        };
        let percent = margin.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let percent = percent.filter(|percent| percent.is_finite() && *percent >= 0.0);
        percent.map(|percent| Rule { basis, percent }).ok_or_else(|| format!("`{text}` is not a threshold"))
    }
}

/// Rules of which any suffices, spelled with commas between them: `interval+0.1%,1%,cluster+5%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold(pub(super) Vec<Rule>);

/// A difference that an interval excludes zero from must be larger than rounding.
const INTERVAL: Rule = Rule { basis: Basis::Interval, percent: 0.1 };
/// The margin of the pooled number, also where clusters are too few for an interval.
const POOLED: Rule = Rule { basis: Basis::Pooled, percent: 1.0 };
const CLUSTER: Rule = Rule { basis: Basis::Cluster, percent: 5.0 };
/// The margin of counts that depend on memory: the batch that fits, the bytes of a cache.
const COUNT: Rule = Rule { basis: Basis::Pooled, percent: 0.1 };
/// Times: the ranges of the repeats are apart, and the medians by more than this.
const TIME: Rule = Rule { basis: Basis::Interval, percent: 10.0 };

impl Default for Threshold {
    fn default() -> Self {
        Self(vec![INTERVAL, POOLED, CLUSTER])
    }
}

impl Threshold {
    /// The threshold of a metric that none was asked for.
    fn default_of(metric: &Metric) -> Self {
        match () {
            () if metric.has(Property::Memory) => Self(vec![COUNT]),
            () if metric.has(Property::Clock) => Self(vec![TIME]),
            // A judge answers differently each time, and a story is a cluster with one or two answers.
            () if metric.has(Property::Judge) => Self(vec![INTERVAL]),
            () => Self::default(),
        }
    }

    /// The verdict, and the rule that decided; all of them where none did. For the worse wins over for the better.
    pub(super) fn decide(&self, change: &Change<'_>) -> (Verdict, String) {
        let verdicts = self.0.iter().filter_map(|rule| Some((rule.verdict(*change)?, rule)));
        match verdicts.min_by_key(|(verdict, _)| *verdict) {
            Some((verdict, rule)) => {
                let lacks_interval = rule.basis == Basis::Interval && change.difference.interval.is_none();
                (verdict, format!("{rule}{}", if lacks_interval { " (no interval: 1%)" } else { "" }))
            }
            None => (Verdict::WithinNoise, self.to_string()),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<String> = self.0.iter().map(Rule::to_string).collect();
        f.write_str(&rules.join(","))
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// The thresholds of a comparison, by metric.
#[derive(Clone, Debug, Default)]
pub struct Thresholds {
    /// Thresholds with the metric's name in the rows; the last one of a name wins.
    pub by_metric: Vec<(String, Threshold)>,
    /// The threshold of every metric that is not named.
    pub others: Option<Threshold>,
}

impl Thresholds {
    pub(super) fn of(&self, metric: &Metric) -> Threshold {
        let named = self.by_metric.iter().rev().find(|(name, _)| *name == metric.id);
        let asked = named.map(|(_, threshold)| threshold).or(self.others.as_ref());
        asked.cloned().unwrap_or_else(|| Threshold::default_of(metric))
    }
}

/// The metric a user means by its name in the rows (`nll`) or by its label (`perplexity`).
pub fn metric_named<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let wanted = plain(name);
    // Two metrics of other programs may have one label; a metric's own name comes first.
    let own = known.iter().find(|metric| plain(metric) == wanted);
    own.or_else(|| known.iter().find(|metric| shown_name(metric) == wanted)).copied()
}

/// The name of a metric where it is shown, as one would type it: `perplexity`, `word-level-perplexity`.
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
        for spelled in ["interval+0.1%,1%,cluster+5%", "0.05%", "cluster+0.3%,interval"] {
            assert_eq!(spelled.parse::<Threshold>().unwrap().to_string(), spelled);
        }
        assert_eq!(Threshold::default().to_string(), "interval+0.1%,1%,cluster+5%");
        for wrong in ["", "1%,", ",1%", "1%,x", "1%;2%"] {
            assert!(wrong.parse::<Threshold>().is_err(), "{wrong}");
        }
    }

    /// Rules, a perplexity's difference, its interval and clusters, the verdict and the rule that decided.
    type Case<'a> = (&'a str, f64, Option<Interval>, &'a [Cluster], Verdict, &'a str);

    #[test]
    fn any_rule_suffices_and_for_the_worse_wins() {
        let cluster = |before, after| Cluster { name: "a".into(), before, after };
        let calm = [cluster(10.0, 10.1), cluster(10.0, 10.3)];
        let one_worse = [cluster(10.0, 9.0), cluster(10.0, 10.6)];
        let interval = |low, high| Some(Interval { low, high });
        let table: [Case<'_>; 12] = [
            ("interval+0.1%,1%", 0.2, interval(0.1, 0.3), &calm, Verdict::Regressed, "interval+0.1%"),
            ("interval+0.1%,1%", 0.2, interval(-0.1, 0.3), &calm, Verdict::Regressed, "1%"),
            ("1%,interval+0.1%", 0.2, interval(0.1, 0.3), &calm, Verdict::Regressed, "1%"),
            ("interval+0.1%,1%", 0.09, interval(-0.1, 0.3), &calm, Verdict::WithinNoise, "interval+0.1%,1%"),
            ("interval+0.1%,1%", -0.2, interval(-0.3, -0.1), &calm, Verdict::Improved, "interval+0.1%"),
            ("1%,cluster+5%", -0.2, interval(-0.3, -0.1), &one_worse, Verdict::Regressed, "cluster+5%"),
            ("1%,cluster+7%", -0.2, interval(-0.3, -0.1), &one_worse, Verdict::Improved, "1%"),
            ("cluster+7%", -0.2, interval(-0.3, -0.1), &one_worse, Verdict::WithinNoise, "cluster+7%"),
            ("cluster+2%", 0.0, None, &calm, Verdict::Regressed, "cluster+2%"),
            ("interval+2%,interval", 0.15, None, &calm, Verdict::Regressed, "interval (no interval: 1%)"),
            ("interval+2%,interval", 0.05, None, &calm, Verdict::WithinNoise, "interval+2%,interval"),
            ("interval,cluster+5%", 0.15, None, &calm, Verdict::Regressed, "interval (no interval: 1%)"),
        ];
        for (rules, value, interval, clusters, verdict, decided_by) in table {
            let threshold: Threshold = rules.parse().unwrap();
            let difference = Estimate { value, interval };
            let change = Change { better: Better::Lower, before: 10.0, difference, clusters };
            assert_eq!(threshold.decide(&change), (verdict, decided_by.to_owned()), "{rules} of {change:?}");
        }
        // Which way is better is not known.
        let change = Change {
            better: Better::Unknown,
            before: 10.0,
            difference: Estimate { value: 0.0, interval: None },
            clusters: &one_worse,
        };
        assert_eq!(Threshold::default().decide(&change).0, Verdict::Changed);
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
        let of = |metric| thresholds.of(&Metric::of(metric)).to_string();
        let rules = ["interval+0.1%,1%,cluster+5%", "interval+10%", "0.1%", "interval+0.1%"];
        assert_eq!(["f1", "decode", "batch", "judge_win"].map(of), rules);
    }

    #[test]
    fn rules_are_spelled_as_they_are_shown() {
        let right = ["interval", "2%", "interval+0.1%", "7%", "0%", "0.3%", "cluster+5%"];
        for spelled in right {
            assert_eq!(spelled.parse::<Rule>().unwrap().to_string(), spelled);
        }
        let wrong = [
            "",
            "x",
            "1",
            "-1%",
            "%",
            "interval+",
            "interval+0.1",
            "interval5",
            "intervals",
            "nan%",
            "inf%",
            "1%%",
            "cluster",
        ];
        for wrong in wrong.into_iter().chain(["cluster+", "cluster5%", "clusters+5%", "interval+cluster+5%"]) {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_of_decisions_by_hand() {
        let interval = |low, high| Some(Interval { low, high });
        // Rule, baseline, difference, interval, whether it counts.
        let table = [
            ("2%", 10.0, 0.21, interval(-1.0, 1.0), true),
            ("2%", 10.0, -0.19, interval(-1.0, -0.1), false),
            ("2%", -10.0, 0.21, None, true),
            ("interval", 10.0, 1e-9, interval(1e-10, 1e-8), true),
            ("interval", 10.0, 5.0, interval(-0.1, 10.0), false),
            ("interval", 10.0, 5.0, interval(0.0, 10.0), false),
            ("interval", 10.0, 5.0, None, true),
            ("interval", 10.0, 0.05, None, false),
            ("interval+0.1%", 10.0, 0.011, interval(0.001, 0.02), true),
            ("interval+0.1%", 10.0, 0.009, interval(0.001, 0.02), false),
            ("interval+0.1%", 10.0, 0.011, interval(-0.001, 0.02), false),
            ("interval+3%", 10.0, 0.4, interval(0.1, 0.7), true),
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
        let rule: Rule = "cluster+5%".parse().unwrap();
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
