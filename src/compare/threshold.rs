//! Thresholds: how far the numbers of a metric may move, how that is written, and the verdict of several rules.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::point::Verdict;
use super::pooled::Cluster;
use crate::metric::{Better, Metric, Property};
use crate::report::Estimate;

/// A rule for what makes a change count: it must exceed a percentage of the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// The pooled difference, whose 95 % interval must exclude zero: `interval` or `interval+2%`.
    Interval(f64),
    /// The pooled difference: `2%`.
    Pooled(f64),
    /// Any cluster that got worse: `cluster+5%`.
    Cluster(f64),
}

/// The change of a number that can be compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) better: Better,
    pub(super) before: f64,
    pub(super) difference: Estimate,
    pub(super) clusters: &'a [Cluster],
}

/// The margin of the pooled number in percent, also where clusters are too few for an interval.
const MARGIN: f64 = 1.0;

impl Rule {
    /// The verdict on a change, if this rule reaches one. A cluster alone is never an improvement. Where clusters are too few
    /// for an interval, the difference must exceed 1 % in its place.
    fn verdict(self, change: Change<'_>) -> Option<Verdict> {
        let Change { better, before, difference: Estimate { value, interval }, clusters } = change;
        let exceeds = |percent: f64| value.abs() > percent / 100.0 * before.abs();
        let counts = match (self, interval) {
            (Rule::Interval(percent), Some(interval)) => interval.excludes_zero() && exceeds(percent),
            (Rule::Interval(percent), None) => exceeds(MARGIN) && exceeds(percent),
            (Rule::Pooled(percent), _) => exceeds(percent),
            (Rule::Cluster(percent), _) => {
                let is_worse = clusters.iter().any(|cluster| cluster.worse_by(before, better) > percent / 100.0);
                let verdict = if better == Better::Unknown { Verdict::Changed } else { Verdict::Regressed };
                return is_worse.then_some(verdict);
            }
        };
        counts.then_some(match (better, value > 0.0) {
            (Better::Unknown, _) => Verdict::Changed,
            (Better::Lower, true) | (Better::Higher, false) => Verdict::Regressed,
            (Better::Lower, false) | (Better::Higher, true) => Verdict::Improved,
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Interval(0.0) => f.write_str("interval"),
            Rule::Interval(percent) => write!(f, "interval+{percent}%"),
            Rule::Pooled(percent) => write!(f, "{percent}%"),
            Rule::Cluster(percent) => write!(f, "cluster+{percent}%"),
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rule, margin): (fn(f64) -> Rule, &str) = match text.split_once('+') {
            Some(("interval", margin)) => (Rule::Interval, margin),
            Some(("cluster", margin)) => (Rule::Cluster, margin),
            None if text == "interval" => (Rule::Interval, "0%"),
            _ => (Rule::Pooled, text),
        };
        let percent = margin.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let percent = percent.filter(|percent| percent.is_finite() && *percent >= 0.0);
        percent.map(rule).ok_or_else(|| format!("`{text}` is not a threshold"))
    }
}

/// Rules of which any suffices, spelled with commas between them: `interval+0.1%,1%,cluster+5%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold(Vec<Rule>);

/// Thresholds by the metric's name in the rows; that of `None` is for every metric that is not named.
pub type Thresholds = BTreeMap<Option<String>, Threshold>;

impl Threshold {
    /// The threshold of a metric: the one that was asked for, or its default.
    pub(super) fn of(metric: &Metric, asked: &Thresholds) -> Self {
        let own = asked.get(&Some(metric.id.to_string())).or_else(|| asked.get(&None));
        own.cloned().unwrap_or_else(|| Self(Self::usual(metric)))
    }

    fn usual(metric: &Metric) -> Vec<Rule> {
        match () {
            // Counts that depend on memory: the batch that fits, the bytes of a cache.
            () if metric.has(Property::Memory) => vec![Rule::Pooled(0.1)],
            // The ranges of the repeats are apart, and the medians by more than this.
            () if metric.has(Property::Clock) => vec![Rule::Interval(10.0)],
            // A judge answers differently each time, and a story is a cluster with one or two answers.
            () if metric.has(Property::Judge) => vec![Rule::Interval(0.1)],
            // A difference that an interval excludes zero from must be larger than rounding.
            () => vec![Rule::Interval(0.1), Rule::Pooled(MARGIN), Rule::Cluster(5.0)],
        }
    }

    /// The verdict, and the rule that decided; all of them where none did. For the worse wins over for the better.
    pub(super) fn decide(&self, change: Change<'_>) -> (Verdict, String) {
        let verdicts = self.0.iter().filter_map(|rule| Some((rule.verdict(change)?, rule)));
        match verdicts.min_by_key(|(verdict, _)| *verdict) {
            Some((verdict, rule)) => {
                let lacks_interval = matches!(rule, Rule::Interval(_)) && change.difference.interval.is_none();
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
            assert_eq!(threshold.decide(change), (verdict, decided_by.to_owned()), "{rules} of {change:?}");
        }
        // Which way is better is not known.
        let change = Change {
            better: Better::Unknown,
            before: 10.0,
            difference: Estimate { value: 0.0, interval: None },
            clusters: &one_worse,
        };
        assert_eq!("interval,cluster+5%".parse::<Threshold>().unwrap().decide(change).0, Verdict::Changed);
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
        let of = |metric| Threshold::of(&Metric::of(metric), &Thresholds::new()).to_string();
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
