//! What is said of one number: a verdict, and what it is based on.
//!
//! [`of`] pairs the samples of one number, exactly or by thresholds, and reaches its verdict; times have `times`. It knows which
//! verdicts fail a gate.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};

use super::cluster::Cluster;
use super::comparison::Options;
use super::exact::{self, SamplesOfBoth};
use super::side::{Name, Side, Subject, in_slice};
use super::{pooled, times};
use crate::format::counted;
use crate::metric::{Better, Metric, Slice};
use crate::report::{Estimate, SeriesKey, Size, place};

/// The outcome for one number, the worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Regressed,
    /// Exactly compared: samples differ.
    Moved,
    /// Exactly compared: measured by another version of the engine, whose numbers may differ.
    AnotherEngine,
    /// In the baseline only.
    Missing,
    Improved,
    /// Beyond the threshold, of a metric that has no better direction.
    Changed,
    /// In the results only.
    New,
    NotComparable,
    WithinNoise,
    #[default]
    Equal,
}

impl Verdict {
    /// Every verdict with its name in sentences.
    const NAMES: [(Verdict, &str); 10] = [
        (Verdict::Regressed, "regressed"),
        (Verdict::Moved, "moved"),
        (Verdict::AnotherEngine, "of another engine"),
        (Verdict::Missing, "missing"),
        (Verdict::Improved, "improved"),
        (Verdict::Changed, "changed"),
        (Verdict::New, "new"),
        (Verdict::NotComparable, "not comparable"),
        (Verdict::WithinNoise, "within noise"),
        (Verdict::Equal, "equal"),
    ];

    pub fn all() -> impl Iterator<Item = Verdict> {
        Verdict::NAMES.into_iter().map(|(verdict, _)| verdict)
    }

    /// As used in sentences.
    pub fn name(self) -> &'static str {
        Verdict::NAMES[self as usize].1
    }
}

/// One sample that changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    pub sample: String,
    /// The slice of the sample the number is about; `None`: all of it.
    #[serde(serialize_with = "as_text")]
    pub slice: Option<Slice>,
    /// `value / weight`, as the rows have them; the value itself where the weight is 0. `None` of a side that has no such row
    /// although it has the sample.
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// How far `value / weight` moved; infinite where one of them is no number, the weights differ, or one side has no row.
    pub change: f64,
    pub weight_before: Option<f64>,
    pub weight_after: Option<f64>,
    /// Other columns of the rows that differ.
    pub columns: Vec<&'static str>,
}

impl Moved {
    /// What differs, in a few words.
    pub fn what(&self) -> String {
        let (Some(before), Some(after)) = (self.before, self.after) else {
            let side = if self.before.is_some() { "baseline" } else { "results" };
            return format!("only in the {side}");
        };
        let number = match (self.weight_before, self.weight_after) {
            (Some(before), Some(after)) if before.to_bits() != after.to_bits() => {
                Some(format!("weight {before} to {after}"))
            }
            _ => (self.change != 0.0).then(|| format!("{:+.1e}", after - before)),
        };
        let columns = self.columns.iter().map(|column| format!("another {column}"));
        number.into_iter().chain(columns).collect::<Vec<_>>().join(", ")
    }
}

/// One metric of one policy at one cache size, on both sides. It has everything that any form of the answer shows, so that none reads rows.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// With a device only for timed metrics.
    pub key: SeriesKey,
    pub metric: Metric,
    /// The slice of the samples; `None`: all of them.
    pub slice: Option<Slice>,
    /// With its positions, where keys move: `tova@slot`.
    pub policy: String,
    pub cache_size: Option<Size>,
    pub verdict: Verdict,
    /// The metric over the samples that both sides have; of times the median.
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// `after - before`, with the interval of the pairs.
    pub difference: Option<Estimate>,
    /// The rule that decided.
    pub threshold: Option<String>,
    /// An explanation, where the numbers need one.
    pub why: Option<String>,
    /// Samples of both sides, and their clusters.
    pub samples: usize,
    pub clusters: usize,
    /// Samples of the baseline that the results lack, by name.
    pub missing_samples: Vec<String>,
    pub new_samples: usize,
    /// Of a number that got worse, or changed: its clusters that did so the most, the worst first.
    pub clusters_worse: Vec<Cluster>,
    /// Exactly compared: the samples that differ, worst first.
    pub moved: Vec<Moved>,
}

/// `distance:16-31`.
fn as_text<S: Serializer>(slice: &Option<Slice>, serializer: S) -> Result<S::Ok, S::Error> {
    slice.as_ref().map(Slice::to_string).serialize(serializer)
}

/// What became of a number that at least one side has. `both` are the samples that both sides have, if they are compared exactly.
/// `None` of times that are new but were measured on another device before, which the baseline's point says.
pub(super) fn of(
    subject: &Subject<'_>,
    sides: [&Side<'_>; 2],
    both: &SamplesOfBoth<'_>,
    options: &Options,
) -> Option<Point> {
    let mut point = Point::blank(subject);
    let threshold = options.thresholds.of(&point.metric);
    let numbers = sides.map(|side| side.get(subject));
    match numbers {
        [Some(before), Some(after)] if point.metric.is_timed() => {
            return Some(times::point(point, before, after, &threshold));
        }
        [None, Some(_)] if subject.other_device(sides[0]).is_some() => return None,
        [Some(_), None] if let Some(device) = subject.other_device(sides[1]) => {
            let why = Some(format!("another device: {} in the baseline, {device} here", subject.key.device));
            return Some(Point { verdict: Verdict::NotComparable, why, ..point });
        }
        _ => {}
    }
    let names: BTreeSet<Name<'_>> = numbers.iter().flatten().flat_map(|of| of.samples.keys().copied()).collect();
    let mut pairs = Vec::new();
    for name in names {
        let rows = numbers.map(|numbers| numbers?.samples.get(&name));
        match rows {
            [Some(before), Some(after)] => {
                pairs.push((name, before, after));
                point.moved.extend(options.exact.and_then(|most| exact::movement(name, before, after, most)));
            }
            _ if both.contains(&(&subject.key, &subject.policy, name.1)) => {
                point.moved.push(exact::one_sided(name, rows));
            }
            [_, None] => point.missing_samples.push(in_slice(name.1, name.0)),
            [None, _] => point.new_samples += 1,
        }
    }
    point.moved.sort_by(|a, b| b.change.total_cmp(&a.change));
    point.samples = pairs.len();
    point.threshold = options.exact.map(|most| format!("{most:e} for each sample"));
    let clusters = pooled::fill(&mut point, &pairs);
    point.verdict = match numbers {
        [Some(before), Some(after)] if options.exact.is_some() && before.row.engine != after.row.engine => {
            let (was, is) = (before.row.engine, after.row.engine);
            point.why = Some(format!("engine {was} in the baseline, {is} here: save a new baseline"));
            Verdict::AnotherEngine
        }
        _ if !point.moved.is_empty() => Verdict::Moved,
        [None, _] => Verdict::New,
        [_, None] => Verdict::Missing,
        _ if pairs.is_empty() => {
            point.why = Some("the results have none of its samples".to_owned());
            Verdict::Missing
        }
        _ if pairs.iter().all(|(_, a, b)| a.sums.bits() == b.sums.bits()) => Verdict::Equal,
        _ if options.exact.is_some() => Verdict::WithinNoise,
        _ => pooled::decide(&mut point, &clusters, &threshold),
    };
    Some(point)
}

impl Point {
    /// A number that nothing is known of yet.
    pub(super) fn blank(subject: &Subject<'_>) -> Self {
        Self {
            key: subject.key.clone(),
            metric: Metric::of(subject.metric),
            slice: subject.slice.cloned(),
            policy: subject.policy.0.to_string(),
            cache_size: subject.policy.1,
            ..Self::default()
        }
    }

    /// Whether it fails a gate. A number that was measured on other samples alone was not compared, whatever is allowed.
    pub fn fails(&self, allow_missing: bool) -> bool {
        match self.verdict {
            Verdict::Regressed | Verdict::Moved | Verdict::AnotherEngine => true,
            Verdict::Missing => !allow_missing || self.new_samples > 0,
            _ => !allow_missing && !self.missing_samples.is_empty(),
        }
    }

    /// `tova at 64`, or `full`.
    pub fn place(&self) -> String {
        let place = place(&self.policy, self.cache_size);
        self.slice.as_ref().map_or_else(|| place.clone(), |slice| format!("{place}, {slice}"))
    }

    /// How far it moved, as a share of the baseline; the worst is shown first.
    pub fn severity(&self) -> f64 {
        let moved = self.moved.first().map_or(0.0, |moved| moved.change);
        let share = match (self.difference, self.before) {
            (Some(difference), Some(before)) if before != 0.0 => (difference.value / before).abs(),
            (Some(difference), _) => difference.value.abs(),
            _ => 0.0,
        };
        let severity = f64::max(moved, share);
        if severity.is_nan() { f64::INFINITY } else { severity }
    }

    /// Everything in a sentence or two of plain text.
    pub fn sentence(&self) -> String {
        let metric = &self.metric;
        let mut said = format!("{} of {}: {}", metric.label, self.place(), self.verdict.name());
        if let (Some(before), Some(after), Some(difference)) = (self.before, self.after, self.difference) {
            let shift = self.show_difference(difference.value);
            said += &format!(", from {} to {} ({shift}", metric.show(before), metric.show(after));
            if let Some(interval) = difference.interval {
                let [low, high] = [interval.low, interval.high].map(|end| self.show_difference(end));
                said += &format!(", 95 % interval {low} to {high}");
            }
            said += ")";
        }
        let samples = |count: usize, what| (count > 0).then(|| format!("{} {what}", counted(count, "sample")));
        let threshold = self.threshold.as_ref().map(|threshold| format!("threshold {threshold}"));
        let moved = samples(self.moved.len(), "moved");
        let more = [threshold, self.why.clone(), moved, samples(self.missing_samples.len(), "missing")];
        more.into_iter().flatten().fold(said, |said, more| format!("{said}; {more}"))
    }

    /// A difference of this metric, with enough digits to see it.
    pub fn show_difference(&self, difference: f64) -> String {
        let shown = self.metric.show_difference(difference);
        let is_seen = shown.chars().any(|c| ('1'..='9').contains(&c));
        if is_seen || difference == 0.0 || !difference.is_finite() { shown } else { format!("{difference:+.1e}") }
    }

    /// Whether a difference is for the better.
    pub(super) fn direction(better: Better, difference: f64) -> Verdict {
        match (better, difference > 0.0) {
            (Better::Unknown, _) => Verdict::Changed,
            (Better::Lower, true) | (Better::Higher, false) => Verdict::Regressed,
            (Better::Lower, false) | (Better::Higher, true) => Verdict::Improved,
        }
    }
}
