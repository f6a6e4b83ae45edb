//! One number on both sides: the verdict on it, and what the verdict is based on.
//!
//! [`of`] pairs the samples of one number, exactly or by thresholds, and reaches its verdict. It knows which verdicts fail a gate.

use std::collections::BTreeSet;

use serde::Serialize;

use super::comparison::Options;
use super::exact::{self, SamplesOfBoth};
use super::pooled::{self, Cluster};
use super::side::{Side, Subject, head};
use super::threshold::Threshold;
use crate::metric::{Metric, Slice};
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
    /// Measured in the baseline only.
    Missing,
    Improved,
    /// Beyond the threshold, of a metric that has no better direction.
    Changed,
    /// Measured in the results only.
    New,
    NotComparable,
    WithinNoise,
    #[default]
    Equal,
}

impl Verdict {
    /// Every verdict with its name in sentences.
    pub const NAMES: [(Verdict, &str); 10] = [
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
}

/// One sample that changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    pub sample: String,
    /// `value / weight`, as the rows have them; the value itself where the weight is 0. `None` of a side that has no such row
    /// although it has the sample.
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// The distance that `value / weight` moved; infinite where one of them is not a number or one side has no row.
    pub change: f64,
    /// Other columns of the rows that differ.
    pub columns: Vec<&'static str>,
}

impl Moved {
    /// Says in a few words what differs.
    pub fn what(&self) -> String {
        let (Some(before), Some(after)) = (self.before, self.after) else {
            let side = if self.before.is_some() { "baseline" } else { "results" };
            return format!("only in the {side}");
        };
        let number = (self.change != 0.0).then(|| format!("{:+.1e}", after - before));
        let columns = self.columns.iter().map(|column| format!("another {column}"));
        number.into_iter().chain(columns).collect::<Vec<_>>().join(", ")
    }
}

/// One metric of one policy at one cache size, on both sides. It has everything that any form of the answer shows, so that none reads rows.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// The setting, with a device only for timed metrics.
    pub key: SeriesKey,
    pub metric: Metric,
    /// The slice of the samples; `None`: all of them.
    pub slice: Option<Slice>,
    /// The policy, with its positions where keys move: `tova@slot`.
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
    /// The clusters that got worse or changed the most, the worst first; empty unless the number did.
    pub clusters_worse: Vec<Cluster>,
    /// Exactly compared: the samples that differ, worst first.
    pub moved: Vec<Moved>,
}

/// The verdict on a number that at least one side has. `both` are the samples that both sides have, if they are compared exactly.
pub(super) fn of(
    subject: &Subject<'_>,
    sides: [&Side<'_>; 2],
    both: &SamplesOfBoth<'_>,
    options: &Options,
) -> Point {
    let mut point = Point {
        key: subject.key.clone(),
        metric: Metric::of(subject.metric),
        slice: subject.slice.cloned(),
        policy: subject.policy.0.to_string(),
        cache_size: subject.policy.1,
        ..Point::default()
    };
    let cells = sides.map(|side| side.get(subject));
    if let [Some(before), Some(after)] = cells
        && point.metric.is_timed()
        && let [was_on, is_on] = [before, after].map(|cell| &head(cell).device)
        && was_on != is_on
    {
        let why = Some(format!("another device: {was_on} in the baseline, {is_on} here"));
        return Point { verdict: Verdict::NotComparable, why, ..point };
    }
    let names: BTreeSet<&str> = cells.iter().flatten().flat_map(|cell| cell.samples.keys().copied()).collect();
    let mut pairs = Vec::new();
    for name in names {
        let rows = cells.map(|cell| cell?.samples.get(name));
        if let Some(tolerance) = options.exact
            && both.contains(&(&subject.key, &subject.policy, name))
        {
            point.moved.extend(exact::movement(name, rows, tolerance));
        }
        match rows {
            [Some(before), Some(after)] => pairs.push((name, before, after)),
            // A row that one side lacks of a sample that both have has moved.
            _ if both.contains(&(&subject.key, &subject.policy, name)) => {}
            [_, None] => point.missing_samples.push(name.to_owned()),
            [None, _] => point.new_samples += 1,
        }
    }
    point.moved.sort_by(|a, b| b.change.total_cmp(&a.change));
    point.samples = pairs.len();
    point.threshold = options.exact.map(|most| format!("{most:e} for each sample"));
    let mut clusters = Vec::new();
    match cells {
        _ if pairs.is_empty() => {}
        [Some(before), Some(after)] if point.metric.is_timed() => pooled::fill_times(&mut point, [before, after]),
        _ => clusters = pooled::fill(&mut point, &pairs),
    }
    let engines = cells.map(|cell| cell.map(|cell| head(cell).engine));
    point.verdict = match engines {
        [Some(was), Some(is)] if options.exact.is_some() && was != is => {
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
        _ => {
            let threshold = Threshold::of(&point.metric, &options.thresholds);
            pooled::decide(&mut point, clusters, &threshold)
        }
    };
    point
}

impl Point {
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

    /// The distance that the number moved, as a share of the baseline; the worst is shown first.
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

    /// A difference of this metric, with enough digits to see it.
    pub fn show_difference(&self, difference: f64) -> String {
        let shown = self.metric.show_difference(difference);
        let is_seen = shown.chars().any(|c| ('1'..='9').contains(&c));
        if is_seen || difference == 0.0 || !difference.is_finite() { shown } else { format!("{difference:+.1e}") }
    }
}
