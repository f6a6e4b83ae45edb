//! What a comparison says: a verdict on each number, and what it is based on.
//!
//! It knows which verdicts fail a gate. Verdicts are reached in `pooled`, `times` and `exact`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::threshold::Thresholds;
use crate::format::counted;
use crate::ledger::{Row, Text};
use crate::metric::{Better, Metric};
use crate::report::{Estimate, SeriesKey, place};

/// What is compared, and how much may differ.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub thresholds: Thresholds,
    /// Compare the slices of samples as well.
    pub parts: bool,
    /// Compare sample by sample instead, within this tolerance.
    pub exact: Option<f64>,
    /// Missing numbers and samples are no failure.
    pub allow_missing: bool,
}

/// The outcome for one number, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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

/// One sample whose number changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    pub sample: String,
    /// The slice of the sample the number is about; `None`: all of it.
    pub slice: Option<String>,
    /// `value / weight`, as the rows have them; the value itself where the weight is 0.
    pub before: f64,
    pub after: f64,
    /// How far `value / weight` moved; infinite where one of them is no number, or the weights differ.
    pub change: f64,
    pub weight_before: f64,
    pub weight_after: f64,
    /// Whether the text that was written differs.
    pub text_differs: bool,
}

/// One metric of one policy at one cache size, on both sides.
#[derive(Clone, Debug)]
pub struct Point {
    /// With a device only for timed metrics.
    pub key: SeriesKey,
    pub metric: Metric,
    /// The slice of the samples; `None`: all of them.
    pub slice: Option<String>,
    /// With its positions, where keys move: `tova@slot`.
    pub policy: String,
    pub cache_size: Option<u32>,
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
    /// Exactly compared: the samples that differ, worst first.
    pub moved: Vec<Moved>,
}

impl Point {
    /// Whether a gate lets this pass.
    pub fn fails(&self, allow_missing: bool) -> bool {
        match self.verdict {
            Verdict::Regressed | Verdict::Moved | Verdict::AnotherEngine => true,
            Verdict::Missing => !allow_missing,
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
    pub(super) fn direction(metric: &Metric, difference: f64) -> Verdict {
        match (metric.better, difference > 0.0) {
            (Better::Unknown, _) => Verdict::Changed,
            (Better::Lower, true) | (Better::Higher, false) => Verdict::Regressed,
            (Better::Lower, false) | (Better::Higher, true) => Verdict::Improved,
        }
    }
}

/// Where one side's rows come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Origin {
    /// As it was named on the command line.
    pub name: String,
    pub rows: usize,
    pub cells: usize,
    pub engines: BTreeSet<u32>,
    pub devices: BTreeSet<Text>,
    pub commits: BTreeSet<Text>,
    /// The first and the last, RFC 3339.
    pub dates: Option<(Text, Text)>,
}

impl Origin {
    pub fn of(name: &str, rows: &[Row]) -> Origin {
        let dates = || rows.iter().map(|row| &row.date);
        Origin {
            name: name.to_owned(),
            rows: rows.len(),
            cells: rows.iter().map(|row| &row.cell).collect::<BTreeSet<_>>().len(),
            engines: rows.iter().map(|row| row.engine).collect(),
            devices: rows.iter().map(|row| row.device.clone()).collect(),
            commits: rows.iter().filter_map(|row| row.commit.clone()).collect(),
            dates: dates().min().cloned().zip(dates().max().cloned()),
        }
    }
}

/// Two sides compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The tolerance, where samples were compared one by one.
    pub exact: Option<f64>,
    pub allow_missing: bool,
    pub baseline: Origin,
    pub results: Origin,
    /// By key, metric, policy and size.
    pub points: Vec<Point>,
    /// What a reader must know, one sentence each.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Whether anything got worse, or is missing and should not be.
    pub fn failed(&self) -> bool {
        self.points.iter().any(|point| point.fails(self.allow_missing))
    }

    /// How many points have a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.points.iter().filter(|point| point.verdict == verdict).count()
    }

    /// Points that were on both sides and were compared.
    pub fn compared(&self) -> usize {
        let apart = [Verdict::Missing, Verdict::New, Verdict::NotComparable];
        self.points.iter().filter(|point| !apart.contains(&point.verdict)).count()
    }

    /// How many intervals could exclude zero by chance: those of numbers that moved at all.
    pub fn intervals(&self) -> usize {
        let has_interval = |point: &&Point| {
            point.verdict != Verdict::Equal && point.difference.is_some_and(|of| of.interval.is_some())
        };
        self.points.iter().filter(has_interval).count()
    }

    /// The points of a verdict, worst first.
    pub fn worst(&self, verdict: Verdict) -> Vec<&Point> {
        let mut points: Vec<&Point> = self.points.iter().filter(|point| point.verdict == verdict).collect();
        points.sort_by(|a, b| b.severity().total_cmp(&a.severity()));
        points
    }

    /// Every sample that moved, worst first, with its point.
    pub fn moved(&self) -> Vec<(&Point, &Moved)> {
        let mut moved: Vec<(&Point, &Moved)> =
            self.points.iter().flat_map(|point| point.moved.iter().map(move |moved| (point, moved))).collect();
        moved.sort_by(|(_, a), (_, b)| b.change.total_cmp(&a.change));
        moved
    }

    /// How many of these exclude zero.
    pub fn excluding_zero(&self) -> usize {
        let intervals = self.points.iter().filter_map(|point| point.difference?.interval);
        intervals.filter(|interval| interval.excludes_zero()).count()
    }

    /// The titles of keys beside each other.
    pub fn titles(&self) -> BTreeMap<&SeriesKey, String> {
        let keys: BTreeSet<&SeriesKey> = self.points.iter().map(|point| &point.key).collect();
        // Without a bounded cache `prefill` is empty, which would make all other titles name theirs.
        let alike = |key: &SeriesKey| -> Vec<SeriesKey> {
            let same = |other: &&&SeriesKey| other.prefill.is_empty() == key.prefill.is_empty();
            keys.iter().filter(same).map(|other| (*other).clone()).collect()
        };
        keys.iter().map(|key| (*key, key.title(&alike(key)))).collect()
    }
}
